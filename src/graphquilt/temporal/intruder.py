"""Plan what an intruder does on a network: four behaviours, and the truth of who talked to whom.

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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from graphquilt.arrays import AnyArray, BoolArray, Int64Array

__all__ = ["BEHAVIOURS", "Network", "Truth", "intrude"]

BEHAVIOURS = ("lateral movement", "scanning", "beaconing", "role change")
WORKSTATION, SERVER, MONITOR = 0, 1, 2
Contacts: TypeAlias = Iterator[tuple[int, int, int]]  # of a day, a source and a destination


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


class Network(NamedTuple):
    """The network before the intruder comes: hosts, contacts, number of days, the first address that nobody uses."""

    hosts: Mapping[str, AnyArray]
    contacts: Mapping[str, AnyArray]
    n_days: int
    unused: int

    @property
    def n_hosts(self) -> int:
        """Number of internal hosts."""
        return len(self.hosts["role"])


def intrude(network: Network, *, first_day: int, campaigns: int, seed: int) -> tuple[Truth, BoolArray]:
    """Plan ``campaigns`` of each behaviour from ``first_day`` on.

    Returns the truth, and where a machine's owner can hardly use it any more, (n_hosts, n_days).
    """
    rng = np.random.default_rng([seed, 2])
    hosts, n_days = network.hosts, network.n_days
    quiet = np.zeros((network.n_hosts, n_days), dtype=bool)
    rows: list[tuple[int, int, int, int]] = []
    for number in range(campaigns):
        for behaviour, act in enumerate((_lateral, _scan, _beacon, _role_change)):
            start = int(rng.integers(first_day, max(first_day + 1, n_days - 3)))
            alive = (hosts["role"] == WORKSTATION) & (hosts["born"] < start / 2) & (hosts["gone"] >= n_days)
            host = int(rng.choice(np.flatnonzero(alive)))
            campaign = _Campaign(network, rng, host, start, number, quiet)
            rows += [(day, source, target, behaviour) for day, source, target in act(campaign) if day < n_days]
    day, source, destination, behaviour_of = np.unique(np.array(rows, dtype=np.int64).reshape(-1, 4), axis=0).T
    return Truth(day, source, destination, behaviour_of), quiet


class _Campaign(NamedTuple):
    """One campaign of one behaviour, from ``host`` on, beginning on the day ``start``."""

    network: Network
    rng: np.random.Generator
    host: int
    start: int
    number: int
    quiet: BoolArray


def _strangers(network: Network, rng: np.random.Generator, host: int, count: int) -> list[int]:
    """Return internal hosts that ``host`` has no business with."""
    known = set(network.contacts["destination"][network.contacts["source"] == host].tolist()) | {host}
    others = [h for h in rng.permutation(network.n_hosts)[: count + len(known)].tolist() if h not in known]
    return others[:count]


def _lateral(campaign: _Campaign) -> Contacts:
    network, rng, host, start, *_ = campaign
    machines = [host]
    for day in range(start, start + int(rng.integers(3, 9))):
        reached: list[int] = []
        for machine in machines:
            if rng.random() < 0.7:
                for target in _strangers(network, rng, machine, int(rng.integers(2, 7))):
                    reached.append(target)
                    yield day, machine, target
        if reached and len(machines) < 3 and rng.random() < 0.5:
            machines.append(int(rng.choice(reached)))


def _scan(campaign: _Campaign) -> Contacts:
    network, rng, host, start, *_ = campaign
    width = max(10, network.n_hosts // 20)
    first = int(rng.integers(0, max(1, network.n_hosts - width)))
    block = range(first, min(first + width, network.n_hosts))
    yield from ((start, host, target) for target in block if target != host)


def _beacon(campaign: _Campaign) -> Contacts:
    network, rng, host, start, number, _ = campaign
    homes = [network.unused + 2 * number + k for k in range(int(rng.integers(1, 3)))]
    days = range(start, start + int(rng.integers(7, 22)))
    yield from ((day, host, home) for day in days for home in homes)


def _role_change(campaign: _Campaign) -> Contacts:
    network, rng, host, start, _, quiet = campaign
    department, contacts = network.hosts["department"], network.contacts
    elsewhere = np.flatnonzero(department != department[host])
    model = int(rng.choice(elsewhere if len(elsewhere) else np.arange(network.n_hosts)))
    of_model = contacts["source"] == model
    servers = np.flatnonzero(network.hosts["role"] == SERVER)
    for day in range(start, min(network.n_days, start + int(rng.integers(4, 11)))):
        quiet[host, day] = True
        used = contacts["destination"][of_model][rng.random(int(of_model.sum())) < 0.6]
        shares = rng.choice(servers, min(len(servers), int(rng.integers(5, 16))), replace=False)
        yield from ((day, host, target) for target in np.union1d(used, shares).tolist())
