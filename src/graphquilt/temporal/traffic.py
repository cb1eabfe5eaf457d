"""Make the network traffic of a company, day by day, with an intruder in it, in the format of LANL's netflow records.

Both the traffic and the intruder were fixed before any detector scored them.

Internal hosts are sources, and destinations too; the other destinations are external addresses. A host belongs to a
department and is a workstation, a server or a monitor. It keeps a list of contacts (a heavy-tailed number of them:
enterprise servers that everybody uses, servers and peers of its department, popular sites, addresses of its own), each
with a daily probability and for part of the time only. Workstations rest at weekends. On each active day a host also
contacts a few addresses that it never returns to. Monitors contact a tenth of all hosts once a week: a harmless scan.
Some hosts arrive late, some leave early.

The intruder does four things:

lateral movement
    From one workstation the intruder logs in, for some days, to two to six internal hosts that this machine has no
    business with; each day one of the hosts reached may be used to go on from. At most three hosts are used.
scanning
    One machine contacts, on one day, every address of a contiguous block of a twentieth of all internal hosts.
beaconing
    An implant calls home every day, weekends too, for one to three weeks: one or two outside addresses that nobody on
    the network ever used. Everything else about the machine stays as it was.
role change
    A workstation is used for collecting data: for some days its owner's traffic falls to a fifth, and it talks to what
    some host of another department usually talks to, and to five to fifteen servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from pyarrow import csv

from graphquilt.arrays import AnyArray, BoolArray, Int64Array, IntArray
from graphquilt.errors import InputError
from graphquilt.temporal.logs.formats import LANL_COLUMNS

BEHAVIOURS = ("lateral movement", "scanning", "beaconing", "role change")
LANL_SIZE = {"n_sources": 37_177, "n_destinations": 931_655, "n_days": 89}

_WORKSTATION, _SERVER, _MONITOR = 0, 1, 2
_DAY = 86400
_ONE_OFFS = 2.0  # mean number of addresses per day that an active host never returns to


_Contacts: TypeAlias = Iterator[tuple[int, int, int]]  # of a day, a source and a destination


@dataclass(frozen=True, eq=False)
class Truth:
    """What the intruder did: row r of the arrays (m,) is "``source[r]`` talked to ``destination[r]`` on ``day[r]``"."""

    day: Int64Array
    source: Int64Array
    destination: Int64Array
    behaviour: Int64Array  # the position in BEHAVIOURS

    def nodes(self, side: str, n_nodes: int, n_days: int, behaviour: str | None = None) -> BoolArray:
        """Return which nodes of ``side`` ("source" or "destination") took part on which day, (n_nodes, n_days)."""
        rows = np.ones(len(self.day), bool) if behaviour is None else self.behaviour == BEHAVIOURS.index(behaviour)
        marked = np.zeros((n_nodes, n_days), dtype=bool)
        marked[(self.source if side == "source" else self.destination)[rows], self.day[rows]] = True
        return marked


@dataclass(frozen=True)
class Netflow:
    """Traffic that can be generated day by day, in any order; :func:`netflow` describes the attributes."""

    n_sources: int
    n_destinations: int
    n_days: int
    pairs_per_day: float
    campaigns: int
    seed: int

    @property
    def first_red_day(self) -> int:
        """The day on which the intruder arrives: 49 of 89, as in the LANL data."""
        return round(0.55 * self.n_days)

    @property
    def _outside(self) -> tuple[int, int]:
        """External addresses: first, and one past the last that the background uses; the intruder's own follow."""
        return self.n_sources, self.n_destinations - 2 * self.campaigns

    @cached_property
    def _hosts(self) -> dict[str, AnyArray]:
        rng = np.random.default_rng([self.seed, 0])
        n = self.n_sources
        n_departments = max(4, round(np.sqrt(n) / 3))
        shares = rng.lognormal(0.0, 0.8, n_departments)
        role = np.where(np.arange(n) % 10 == 0, _SERVER, _WORKSTATION)
        role[rng.choice(n, max(1, n // 4000), replace=False)] = _MONITOR
        busy = rng.beta(9.0, 1.0, n)
        weekend = busy * rng.beta(1.0, 6.0, n)
        steady = role != _WORKSTATION
        busy[steady], weekend[steady] = 0.99, 0.98
        born, gone = np.zeros(n, dtype=np.int64), np.full(n, self.n_days)
        fate = rng.random(n)
        days = rng.integers(0, self.n_days, n)
        born[fate < 0.08] = days[fate < 0.08]
        gone[fate > 0.93] = days[fate > 0.93] + 1
        hosts = {"role": role, "weekday": busy, "weekend": weekend, "born": born, "gone": gone}
        hosts["department"] = rng.choice(n_departments, n, p=shares / shares.sum())
        hosts["one_offs"] = rng.gamma(0.7, _ONE_OFFS / 0.7, n)
        hosts["sweep_weekday"] = rng.integers(0, 7, n)
        return hosts

    @cached_property
    def _contacts(self) -> dict[str, AnyArray]:
        hosts = self._hosts
        share = (hosts["weekday"] * 5 + hosts["weekend"] * 2) / 7 * (hosts["gone"] - hosts["born"]) / self.n_days
        pairs = max(self.pairs_per_day - _ONE_OFFS * float(share.sum()), 0.1 * self.pairs_per_day)
        mean = 2.0 * pairs / float(share.sum())
        # Popular servers are chosen more than once, so the first list is too short: measure by how much, and correct.
        for _ in range(2):
            contacts = self._draw_contacts(mean)
            life = (contacts["last"] - contacts["first"]) / self.n_days
            mean *= pairs / float((contacts["probability"] * life * share[contacts["source"]]).sum())
        return self._draw_contacts(mean)

    def _draw_contacts(self, mean: float) -> dict[str, AnyArray]:
        """Give each host a heavy-tailed number of contacts, ``mean`` on average before duplicates are removed."""
        rng = np.random.default_rng([self.seed, 1])
        n, sigma = self.n_sources, 1.1
        servers = np.flatnonzero(self._hosts["role"] == _SERVER)
        count = np.minimum(np.ceil(rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, n)), self.n_destinations // 2)
        source = np.repeat(np.arange(n), count.astype(np.int64))
        m = len(source)
        kind = rng.choice(5, m, p=[0.3, 0.25, 0.05, 0.25, 0.15])
        destination = np.empty(m, dtype=np.int64)
        enterprise = rng.permutation(servers)[: max(1, len(servers) // 10)]
        destination[kind == 0] = enterprise[_zipf(rng, len(enterprise), int((kind == 0).sum()))]
        department = self._hosts["department"]
        for group in range(int(department.max()) + 1):
            own = servers[department[servers] == group]
            for which, choice in ((1, own if len(own) else servers), (2, np.flatnonzero(department == group))):
                rows = np.flatnonzero((kind == which) & (department[source] == group))
                if len(rows):
                    destination[rows] = choice[_zipf(rng, len(choice), len(rows))]
        low, high = self._outside
        sites = rng.permutation(np.arange(low, high))[: max(1, (high - low) // 10)]
        destination[kind == 3] = sites[_zipf(rng, len(sites), int((kind == 3).sum()))]
        destination[kind == 4] = rng.integers(low, high, int((kind == 4).sum()))
        key = np.unique((source << 32) | destination)
        m = len(key)
        first, last = np.zeros(m, dtype=np.int64), np.full(m, self.n_days)
        fate, day = rng.random(m), rng.integers(0, self.n_days, m)
        first[fate < 0.15] = day[fate < 0.15]
        last[fate > 0.85] = day[fate > 0.85] + 1
        ends = {"source": key >> 32, "destination": key & 0xFFFFFFFF}
        return {**ends, "probability": rng.beta(1.2, 1.2, m), "first": first, "last": last}

    @cached_property
    def _campaigns(self) -> tuple[Truth, BoolArray]:
        """Return the truth, and where a machine's owner can hardly use it any more, (n_sources, n_days)."""
        rng = np.random.default_rng([self.seed, 2])
        hosts, first_day = self._hosts, self.first_red_day
        quiet = np.zeros((self.n_sources, self.n_days), dtype=bool)
        rows: list[tuple[int, int, int, int]] = []
        for number in range(self.campaigns):
            for behaviour, act in enumerate((_lateral, _scan, _beacon, _role_change)):
                start = int(rng.integers(first_day, max(first_day + 1, self.n_days - 3)))
                alive = (hosts["role"] == _WORKSTATION) & (hosts["born"] < start / 2) & (hosts["gone"] >= self.n_days)
                host = int(rng.choice(np.flatnonzero(alive)))
                contacts = act(_Campaign(self, rng, host, start, number, quiet))
                rows += [(day, source, target, behaviour) for day, source, target in contacts if day < self.n_days]
        columns = np.unique(np.array(rows, dtype=np.int64).reshape(-1, 4), axis=0).T
        return Truth(*columns), quiet

    @property
    def truth(self) -> Truth:
        """What the intruder did."""
        return self._campaigns[0]

    def pairs(self, day: int) -> tuple[IntArray, IntArray]:
        """Return the distinct (source, destination) pairs of one day, sorted."""
        rng = np.random.default_rng([self.seed, 3, day])
        hosts, contacts, (truth, quiet) = self._hosts, self._contacts, self._campaigns
        weekend = day % 7 >= 5
        active = rng.random(self.n_sources) < hosts["weekend" if weekend else "weekday"]
        active &= (hosts["born"] <= day) & (day < hosts["gone"])
        used = active[contacts["source"]] & (contacts["first"] <= day) & (day < contacts["last"])
        used &= rng.random(len(used)) < contacts["probability"]
        used &= ~quiet[contacts["source"], day] | (rng.random(len(used)) < 0.2)
        once = np.repeat(np.arange(self.n_sources), rng.poisson(hosts["one_offs"]) * active)
        parts = [
            (contacts["source"][used], contacts["destination"][used]),
            (once, rng.integers(*self._outside, len(once))),
            (truth.source[truth.day == day], truth.destination[truth.day == day]),
        ]
        for monitor in np.flatnonzero((hosts["role"] == _MONITOR) & (hosts["sweep_weekday"] == day % 7) & active):
            swept = np.flatnonzero(rng.random(self.n_sources) < 0.1)
            parts.append((np.full(len(swept), monitor), swept))
        key = np.unique(np.concatenate([(s << 32) | d for s, d in parts]))
        return key >> 32, key & 0xFFFFFFFF

    def matrix(self, day: int) -> sp.csr_array:
        """Return the day's pairs as a binary CSR array (n_sources, n_destinations)."""
        source, destination = self.pairs(day)
        shape = (self.n_sources, self.n_destinations)
        return sp.csr_array((np.ones(len(source)), (source, destination)), shape=shape)

    def flows(self, day: int, *, mean_flows: float = 2.0) -> pa.Table:
        """Return one day of flow records in the eleven LANL columns, sorted by time.

        Every pair has about ``mean_flows`` TCP flows and at least one; each source also looks up names by UDP. A beacon
        calls at regular intervals.
        """
        rng = np.random.default_rng([self.seed, 4, day])
        source, destination = self.pairs(day)
        repeats = rng.geometric(1 / max(1.0, mean_flows), len(source))
        source, destination = np.repeat(source, repeats), np.repeat(destination, repeats)
        look_ups = np.unique(source)
        m, extra = len(source), len(look_ups)
        source = np.concatenate([source, look_ups])
        destination = np.concatenate([destination, rng.integers(0, max(1, self.n_sources // 500), extra)])
        hour = np.clip(rng.normal(13.0, 3.5, m + extra), 0.0, 23.999)
        time = (day * _DAY + hour * 3600).astype(np.int64)
        beacon = (destination >= self._outside[1]) & (np.arange(m + extra) < m)
        time[beacon] = day * _DAY + np.arange(int(beacon.sum())) % 24 * 3600 + 7
        order = np.argsort(time, kind="stable")
        udp = order >= m
        packets = rng.geometric(0.05, (2, m + extra))
        size = packets * rng.integers(60, 1400, (2, m + extra))
        port = rng.choice(np.array([443, 80, 445, 22, 3389, 8080]), m + extra)
        columns = [
            time[order],
            rng.integers(0, 3600, m + extra),
            *(_host_names(nodes[order], self.n_sources) for nodes in (source, destination)),
            np.where(udp, 17, 6),
            _strings("Port", rng.integers(1024, 65536, m + extra), 5),
            np.where(udp, 53, port).astype(str),
            *packets,
            *size,
        ]
        return pa.table(dict(zip(LANL_COLUMNS, columns, strict=True)))

    def write(self, folder: str | Path, *, mean_flows: float = 2.0, days: range | None = None) -> list[Path]:
        """Write one ``netflow_day-NN.csv`` per day, without header like LANL's, and ``truth.csv``; return the paths."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        bare = csv.WriteOptions(include_header=False, quoting_style="none")
        paths = []
        for day in range(self.n_days) if days is None else days:
            paths.append(folder / f"netflow_day-{day:02d}.csv")
            csv.write_csv(self.flows(day, mean_flows=mean_flows), paths[-1], write_options=bare)
        truth = self.truth
        ends = {side: _host_names(getattr(truth, side), self.n_sources) for side in ("source", "destination")}
        table = pa.table({"day": truth.day, **ends, "behaviour": [BEHAVIOURS[b] for b in truth.behaviour]})
        csv.write_csv(table, folder / "truth.csv")
        return paths


def netflow(
    n_sources: int = 400,
    n_destinations: int = 4000,
    n_days: int = 60,
    *,
    pairs_per_day: float | None = None,
    campaigns: int = 2,
    seed: int = 0,
) -> Netflow:
    """Make a network with an intruder, at any size; ``netflow(**LANL_SIZE)`` has the shape of the LANL data.

    The internal hosts are the first of the destinations, and days 5 and 6 in seven are weekends. ``pairs_per_day`` is
    the mean number of distinct pairs, by default 13.5 per source, which is 500 000 at LANL's size. From day ``0.55
    n_days`` on, the intruder does each of ``BEHAVIOURS`` as often as ``campaigns`` says.

    Examples
    --------
    >>> small = netflow(200, 1000, 20, seed=1)
    >>> small.matrix(0).shape, bool(small.truth.day.min() >= small.first_red_day)
    ((200, 1000), True)
    """
    if n_sources < 50 or n_days < 7:
        raise InputError(f"a network needs at least 50 sources and 7 days, not {n_sources} and {n_days}.")
    if n_destinations < n_sources + 2 * campaigns + 10:
        raise InputError(
            f"{n_destinations} destinations do not hold the {n_sources} internal hosts and any outside address; "
            f"ask for at least {n_sources + 2 * campaigns + 10}."
        )
    pairs = 13.5 * n_sources if pairs_per_day is None else pairs_per_day
    return Netflow(n_sources, n_destinations, n_days, float(pairs), campaigns, seed)


def _zipf(rng: np.random.Generator, n: int, size: int) -> IntArray:
    """Return random ranks 0..n-1 with probability about 1 / (rank + 1)."""
    return np.asarray(np.minimum(np.exp(rng.random(size) * np.log(n + 1)) - 1, n - 1), dtype=np.int64)


def _strings(prefix: str, numbers: IntArray, digits: int) -> pa.Array:
    padded = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), width=digits, padding="0")
    return pc.binary_join_element_wise(prefix, padded, "")


def _host_names(nodes: IntArray, n_internal: int) -> pa.Array:
    """Return CompNNNNNN for internal hosts and IPNNNNNN for the others."""
    inside = pa.array(nodes < n_internal)
    return pc.if_else(inside, _strings("Comp", nodes, 6), _strings("IP", nodes, 6))


class _Campaign(NamedTuple):
    """One campaign of one behaviour, from ``host`` on, beginning on the day ``start``."""

    network: Netflow
    rng: np.random.Generator
    host: int
    start: int
    number: int
    quiet: BoolArray


def _lateral(campaign: _Campaign) -> _Contacts:
    network, rng, host, start, *_ = campaign
    machines = [host]
    for day in range(start, start + int(rng.integers(3, 9))):
        reached: list[int] = []
        for machine in machines:
            if rng.random() < 0.7:
                count = int(rng.integers(2, 7))
                known = {machine, *network._contacts["destination"][network._contacts["source"] == machine].tolist()}
                some = rng.permutation(network.n_sources)[: count + len(known)].tolist()
                for target in [host for host in some if host not in known][:count]:
                    reached.append(target)
                    yield day, machine, target
        if reached and len(machines) < 3 and rng.random() < 0.5:
            machines.append(int(rng.choice(reached)))


def _scan(campaign: _Campaign) -> _Contacts:
    network, rng, host, start, *_ = campaign
    width = max(10, network.n_sources // 20)
    first = int(rng.integers(0, max(1, network.n_sources - width)))
    block = range(first, min(first + width, network.n_sources))
    yield from ((start, host, target) for target in block if target != host)


def _beacon(campaign: _Campaign) -> _Contacts:
    network, rng, host, start, number, _ = campaign
    homes = [network._outside[1] + 2 * number + k for k in range(int(rng.integers(1, 3)))]
    days = range(start, start + int(rng.integers(7, 22)))
    yield from ((day, host, home) for day in days for home in homes)


def _role_change(campaign: _Campaign) -> _Contacts:
    network, rng, host, start, _, quiet = campaign
    department, contacts = network._hosts["department"], network._contacts
    elsewhere = np.flatnonzero(department != department[host])
    model = int(rng.choice(elsewhere if len(elsewhere) else np.arange(network.n_sources)))
    of_model = contacts["source"] == model
    servers = np.flatnonzero(network._hosts["role"] == _SERVER)
    for day in range(start, min(network.n_days, start + int(rng.integers(4, 11)))):
        quiet[host, day] = True
        used = contacts["destination"][of_model][rng.random(int(of_model.sum())) < 0.6]
        shares = rng.choice(servers, min(len(servers), int(rng.integers(5, 16))), replace=False)
        yield from ((day, host, target) for target in np.union1d(used, shares).tolist())
