"""Attacks are incidents with an author: a flood, a sweep and a scan on a network whose habits never change."""

import numpy as np
import pytest

from graphquilt.temporal import AlertOptions, ScoringOptions, detect

DAY = 86400
LAST = 29  # the day of the attacks


def stationary_log(seed, days=LAST + 1, attack=True):
    """300 clients and 150 servers with fixed habits; on the last day three new hosts flood, sweep and scan."""
    rng = np.random.default_rng(seed)
    habits = [rng.choice(150, int(n), replace=False, p=_popularity(rng)) for n in rng.integers(3, 12, 300)]
    rows = []
    for day in range(days):
        for client, servers in enumerate(habits):
            used = servers[rng.random(len(servers)) < 0.7]
            times = rng.integers(8 * 3600, 18 * 3600, 2 * len(used))
            rows += [(day * DAY + t, f"client{client}", f"server{s}") for t, s in zip(times, np.repeat(used, 2), strict=True)]
    if attack:
        begin = LAST * DAY + 36_000
        rows += [(begin + k // 100, "flooder", "server7") for k in range(200_000)]
        rows += [(begin + k, "sweeper", f"unknown{k}") for k in range(2800)]
        rows += [(begin + 60 * k, "scanner", f"server{k}") for k in range(150)]
    rows.sort()
    text = "time,source,destination\n" + "".join(f"{t},{s},{d}\n" for t, s, d in rows)
    return text.encode()


def _popularity(rng):
    weight = rng.pareto(1.5, 150) + 0.2
    return weight / weight.sum()


def run(text, tmp_path, **options):
    path = tmp_path / "flows.csv"
    path.write_bytes(text)
    return detect(path, ScoringOptions(dim=5, lags=(1, 7)), alerts=AlertOptions(**options))


@pytest.mark.parametrize("seed", [0, 1])
def test_three_attackers_are_the_authors_of_the_first_incidents(seed, tmp_path):
    detection = run(stationary_log(seed), tmp_path)
    first = detection.incidents[:5]
    authors = {incident["node"]: incident for incident in first if incident.get("side") == "source"}
    assert {"flooder", "sweeper", "scanner"} <= authors.keys()
    assert authors["flooder"]["victims"] == ["server7"]
    assert authors["flooder"]["flows"] == 200_000
    assert authors["sweeper"]["n_victims"] == 2800
    assert authors["scanner"]["n_victims"] == 150
    assert min(incident["severity"] for incident in authors.values()) >= 80
    on_the_day = [record for record in detection.alerts if record["window"] == LAST and record["kind"] == "host"]
    servers = [record for record in on_the_day if record["node"].startswith("server")]
    assert len(servers) <= 3  # victims of the scan take no place of the budget
