"""Attacks are incidents with an author: a flood, a sweep and a scan on a network whose habits never change."""

import numpy as np
import pytest

from graphquilt.temporal import AlertOptions, ScoringOptions, detect, read_flows

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
            rows += [
                (day * DAY + t, f"client{client}", f"server{s}") for t, s in zip(times, np.repeat(used, 2), strict=True)
            ]
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
    assert min(authors[name]["severity"] for name in ("flooder", "sweeper", "scanner")) >= 80
    on_the_day = [record for record in detection.alerts if record["window"] == LAST and record["kind"] == "host"]
    servers = [record for record in on_the_day if record["node"].startswith("server")]
    assert len(servers) <= 3  # victims of the scan take no place of the budget


def test_a_short_capture_gets_narrower_windows(tmp_path, caplog):
    detection = run(stationary_log(0, days=1, attack=False), tmp_path)
    assert "6h" not in str(detection.facts["parameters"])
    assert detection.facts["parameters"]["width"] == "1h"
    assert "too short for windows of 1d" in caplog.text


def test_one_odd_file_does_not_refuse_a_folder(tmp_path):
    (tmp_path / "auth.txt").write_text(
        "".join(f"{k},U1@D,U1@D,C{k % 3},C{k % 5},K,N,LogOn,Success\n" for k in range(1, 50))
    )
    (tmp_path / "redteam.txt").write_text("7,U1@D,C1,C2\n9,U1@D,C1,C3\n")
    flows = read_flows(tmp_path)
    assert sum(len(batch) for batch in flows) == 49
    assert flows.counts.skipped_files == [str(tmp_path / "redteam.txt")]
    assert sum(len(batch) for batch in read_flows(tmp_path / "redteam.txt")) == 2, "it is read if it is named"


def test_argus_records_about_itself_and_clocks_of_1970_are_left_out(tmp_path):
    header = "StartTime,Dur,Proto,SrcAddr,Sport,Dir,DstAddr,Dport\n"
    row = "{},0.1,{},{},1,   ->,{},53\n"
    good = (
        header
        + row.format("2019/04/04 16:23:00.3", "man", "0", "0")
        + row.format("2019/04/04 16:23:01.3", "udp", "a", "b")
    )
    (tmp_path / "good.binetflow").write_text(good)
    (tmp_path / "young.binetflow").write_text(header + row.format("1970/01/01 00:00:09.3", "udp", "a", "b"))
    flows = read_flows(tmp_path)
    assert [batch.column("source").to_pylist() for batch in flows] == [["a"]]
    assert flows.counts.other == 1
    assert flows.counts.skipped_files == [str(tmp_path / "young.binetflow")]
