"""What other programs get: records, incidents, formats, lists of hosts, and exit codes."""

import csv
import io
import json
import math

import numpy as np
import pytest
import scipy.sparse as sp

from graphquilt.errors import FormatError, InputError
from graphquilt.temporal import AnomalyScores, Names, ScoringOptions, Tracker, Window, read_flows
from graphquilt.temporal.logs.columns import HostList, place_of, read_host_list, without_hosts
from graphquilt.temporal.page import judged_in_words
from graphquilt.temporal.records import AlertOptions, Incidents, merge_incidents, window_records
from graphquilt.temporal.report import CSV_COLUMNS, csv_line, ecs_record, json_line, parse_formats, write_alerts
from graphquilt.temporal.traffic import netflow

DAY = 86400.0
START = 19_723  # the number of the first day of 2024


@pytest.fixture(scope="module")
def windows():
    """Steady traffic of 40 sources; the last of them talks to everybody on the last day."""
    rng = np.random.default_rng(0)
    A = rng.random((40, 60)) < 0.15
    days = [sp.csr_array((A & (rng.random(A.shape) < 0.9)).astype(float)) for _ in range(12)]
    last = days[-1].toarray()
    last[-1] = 1
    days[-1] = sp.csr_array(last)
    return [Window(START + k, DAY * (START + k), DAY * (START + k + 1), day, day.nnz) for k, day in enumerate(days)]


@pytest.fixture(scope="module")
def scored(windows):
    tracker = Tracker(ScoringOptions(dim=3, lags=(1, 7)))
    return [tracker.update(window) for window in windows]


NAMES = {"source": Names([f"10.0.0.{k}" for k in range(40)]), "destination": Names([f"=srv-{k}" for k in range(60)])}


def records_of(scored, options=None, settings=None, gap=7, since=-math.inf):
    incidents, options = Incidents(gap), options or AlertOptions()
    settings = settings or {"dim": 3}
    return [
        record
        for window in scored
        for record in window_records(window, NAMES, options, settings=settings, incidents=incidents, since=since)
    ]


def test_records_have_ids_dates_and_components(scored):
    records = records_of(scored)
    assert len({record["id"] for record in records}) == len(records)
    assert records == records_of(scored), "the same alerts have the same ids"
    assert not {r["id"] for r in records} & {r["id"] for r in records_of(scored, settings={"dim": 4})}
    every = records_of(scored, AlertOptions(budget=1000))
    last = [r for r in every if r["window"] == START + 11 and r.get("side") == "source"]
    worst = min(last, key=lambda r: r["pvalue"])
    assert (worst["node"], worst["date"]) == ("10.0.0.39", "2024-01-12T00:00:00Z")
    assert {"degree", "new pairs"} <= {component["name"] for component in worst["components"]}
    assert worst["components"][0]["name"] in worst["reason"]
    assert {r["kind"] for r in records} == {"host", "pair"}


def test_options_choose_alerts_and_allowed_hosts_leave_room_for_others(scored):
    records = records_of(scored, AlertOptions(budget=3, pairs=1), since=DAY * (START + 10))
    assert {r["window"] for r in records} == {START + 10, START + 11}
    assert [r["kind"] for r in records if r["window"] == START + 11] == ["host"] * 3 + ["pair"]
    allowed = AlertOptions(budget=3, pairs=2, allow=HostList(["10.0.0.32/29"]))
    for record in records_of(scored, allowed):
        assert record.get("node") not in {f"10.0.0.{k}" for k in range(32, 40)}
        assert record.get("source") not in {f"10.0.0.{k}" for k in range(32, 40)}
    last = [r for r in records_of(scored, allowed) if r["window"] == START + 11]
    assert sum(r["kind"] == "host" for r in last) == 3, "the budget is filled with other hosts"
    severe = records_of(scored, AlertOptions(min_severity=50))
    assert severe
    assert min(r["severity"] for r in severe) >= 50
    assert records_of(scored, AlertOptions(budget=1, pairs=0, allow=HostList(["*"]))) == []


def test_repeats_are_one_incident():
    incidents = Incidents(gap=3)
    host = {"kind": "host", "node": "a", "severity": 60.0}
    assert incidents.add(host | {"severity": 59.0}, 0, 0.0) == (None, 0), "a weak alert opens no incident"
    ids = [incidents.add(host, number, 10.0 * number) for number in (1, 2, 2, 5, 9)]
    assert [repeat for _, repeat in ids] == [1, 2, 2, 3, 1], "two sides in one window are one repeat"
    assert len({identity for identity, _ in ids[:4]}) == 1
    assert ids[4][0] != ids[0][0]
    again = Incidents(gap=3, open_ones=json.loads(json.dumps(incidents.state(10))))
    assert again.add(host, 10, 100.0) == (ids[4][0], 2), "a restart goes on"
    assert incidents.state(20) == {}, "what has ended is forgotten"
    for damaged in ([1.0], ["x", 1, 2], None):
        with pytest.raises(FormatError, match="incidents of a state are damaged"):
            Incidents(open_ones={"key": damaged})


def test_incidents_contain_each_alert_once(scored):
    records = records_of(scored)
    merged = merge_incidents(records)
    severe = [r["id"] for r in records if r["incident"] is not None]
    assert sorted(i for incident in merged for i in incident["alerts"]) == sorted(severe)
    assert [i["severity"] for i in merged] == sorted((i["severity"] for i in merged), reverse=True)
    assert any(incident["n_victims"] > 20 for incident in merged if incident["kind"] == "host")
    for incident in merged:
        assert incident["start"] < incident["end"]


def test_every_format_has_the_same_alerts(scored, tmp_path):
    records = records_of(scored)
    write_alerts(tmp_path, records, parse_formats("json,csv"))
    lines = (tmp_path / "alerts.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == records
    rows = list(csv.DictReader((tmp_path / "alerts.csv").read_text().splitlines()))
    assert [row["id"] for row in rows] == [record["id"] for record in records]
    assert list(rows[0]) == list(CSV_COLUMNS)
    with pytest.raises(InputError, match="alerts are written as json, csv"):
        parse_formats("xml")


def test_a_spreadsheet_evaluates_no_name(scored):
    record = next(r for r in records_of(scored) if r["kind"] == "pair")
    assert record["destination"].startswith("=")
    row = next(csv.DictReader(io.StringIO(csv_line(None) + "\n" + csv_line(record))))
    assert row["destination"] == "'" + record["destination"]
    assert json.loads(json_line(record | {"node": "\x1b[2J ü"})).get("node") == "\x1b[2J ü"
    assert json_line({"node": "\x1b ü"}).isascii()


# Fields of ECS 8.11 with the Python types of their JSON values; long, float, keyword, ip, date and text.
ECS_FIELDS = {
    "@timestamp": str,
    "ecs.version": str,
    "message": str,
    "event.kind": str,
    "event.category": list,
    "event.type": list,
    "event.module": str,
    "event.dataset": str,
    "event.id": str,
    "event.start": str,
    "event.end": str,
    "event.severity": int,
    "event.risk_score": float,
    "event.risk_score_norm": float,
    "event.reason": str,
    "rule.name": str,
    "host.name": str,
    "host.ip": list,
    "source.address": str,
    "source.ip": str,
    "destination.address": str,
    "destination.ip": str,
    "destination.port": int,
    "related.hosts": list,
    "related.ip": list,
}


def leaves(value, path=""):
    if not isinstance(value, dict):
        return {path: value}
    return {
        name: leaf for key, part in value.items() for name, leaf in leaves(part, f"{path}.{key}".strip(".")).items()
    }


def test_ecs_names(scored):
    used = set()
    for record in records_of(scored):
        ecs = ecs_record(record | ({"port": 445} if record["kind"] == "pair" else {}))
        fields = leaves({key: value for key, value in ecs.items() if key != "graphquilt"})
        assert {name: type(value) for name, value in fields.items()} == {name: ECS_FIELDS[name] for name in fields}
        assert set(ecs["event"]["type"]) <= {"connection", "info"}
        assert set(ecs["event"]["category"]) == {"network", "intrusion_detection"}
        used |= fields.keys()
        assert ecs["event"]["id"] == record["id"]
        assert ecs["event"]["kind"] == "alert"
        assert 0 <= ecs["event"]["severity"] <= 100
        assert ecs["@timestamp"] == record["date"].replace("Z", ".000Z")
        end = ecs["source"] if record["kind"] == "pair" else ecs[record["side"]]
        assert end["address"] == (record["source"] if record["kind"] == "pair" else record["node"])
        assert ("ip" in end) == end["address"].startswith("10.")
        assert ecs["graphquilt"]["incident"] == record["incident"]
    assert used == ECS_FIELDS.keys() - {"destination.ip"}, "no destination of these records is an address"


def test_lists_of_hosts(tmp_path):
    path = tmp_path / "hosts.txt"
    path.write_text("# scanners\nscan-*  # all of them\n10.1.0.0/16\nfe80::/10\n\nmail\n")
    hosts = read_host_list(path)
    assert [h in hosts for h in ("scan-1", "10.1.9.9", "fe80::1", "mail", "10.2.0.1", "mail.x", None)] == [True] * 4 + [
        False
    ] * 3
    assert not HostList()
    with pytest.raises(InputError, match="neither a host nor a network"):
        HostList(["10.1.0.0/99"])
    with pytest.raises(InputError, match="cannot be read"):
        read_host_list(tmp_path / "absent")


def test_flows_of_ignored_hosts_are_left_out_and_places_stay_right():
    content = "time,source,destination\n" + "".join(f"{k},h{k % 3},d{k % 2}\n" for k in range(9))
    batches = list(without_hosts(read_flows(io.BytesIO(content.encode())), HostList(["h1", "d1"])))
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert rows == [(0.0, "h0", "d0"), (2.0, "h2", "d0"), (6.0, "h0", "d0"), (8.0, "h2", "d0")]
    assert place_of(batches[0], 2) == "the input line 8"


def test_what_was_judged_is_said_in_words(scored):
    from dataclasses import replace

    def words(fit, size=12):
        windows = tuple(replace(window, fit=fit) for window in scored[:size])
        return [
            (verdict["word"], verdict["text"]) for verdict in judged_in_words(AnomalyScores(windows, None, None, ()))
        ]

    (judged, first), (good, second) = words(0.2)
    assert (judged, good) == ("Judged", "Good")
    assert "10 of 12 windows were judged; the first 2 were only learnt from" in first
    assert "median error is 0.20" in second
    assert [word for word, _ in words(0.95, 6)] == ["Learning", "Weak"]
    assert words(np.nan)[1][0] == "Counts only"
    (nothing, text), *rest = words(0.2, 2)
    assert (nothing, rest) == ("Nothing", [])
    assert "narrower windows" in text


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    return netflow(60, 200, 9, campaigns=1, seed=6).write(tmp_path_factory.mktemp("flows"))


SMALL = ("--dim", "2", "--lags", "1,7", "--min-observations", "3")


def test_batch_and_stream_give_the_same_records(command, days, tmp_path):
    code, _, said = command("anomaly", days[0].parent, "--out", tmp_path / "out", *SMALL)
    assert code == 0, said
    code, out, said = command("watch", days[0].parent, "--idle", "0", *SMALL)
    assert code == 0, said
    batch = {r["id"]: r for r in map(json.loads, (tmp_path / "out" / "alerts.jsonl").read_text().splitlines())}
    stream = {r["id"]: r for r in map(json.loads, out.splitlines())}
    assert batch.keys() == stream.keys()
    for identity, record in batch.items():
        for key in record.keys() - {
            "usual_degree",
            "n_new",
            "n_gone",
            "new",
            "gone",
        }:  # the batch also knows the future
            assert record[key] == stream[identity][key], key
        assert record.keys() <= stream[identity].keys()


def test_watch_finds_logs_in_folders_of_days(command, days, tmp_path):
    for path in days[:4]:
        folder = tmp_path / "logs" / path.stem
        folder.mkdir(parents=True)
        (folder / "conn.log").write_bytes(path.read_bytes())
        (folder / "notes.log").write_text("nothing\n")
    words = ("watch", tmp_path / "logs", "--idle", "0", "--state", tmp_path / "state", *SMALL)
    code, out, said = command(*words)
    assert (code, "window 3 " in said) == (0, True), said
    assert out
    assert command(*words)[1] == "", "nothing is read twice"


def test_exit_codes_and_formats_for_cron(command, days, tmp_path):
    folder = days[0].parent
    words = ("anomaly", folder, *SMALL, "--exit-code")
    assert command(*words, "--out", tmp_path / "a", "--format", "csv,json")[0] == 3
    assert sorted(path.name for path in (tmp_path / "a").glob("alerts*")) == ["alerts.csv", "alerts.jsonl"]
    assert command(*words, "--out", tmp_path / "b", "--since", "9999-01-01")[0] == 0
    assert (tmp_path / "b" / "alerts.jsonl").read_text() == ""
    code, out, _ = command("watch", folder, "--idle", "0", *SMALL, "--exit-code", "--format", "csv", "--since", "0")
    assert code == 3
    assert out.splitlines()[0] == ",".join(CSV_COLUMNS)
    code, out, _ = command("watch", folder, "--idle", "0", *SMALL, "--ecs", "--budget", "1", "--pairs", "0")
    assert (code, json.loads(out.splitlines()[-1])["event"]["module"]) == (0, "graphquilt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--since", "soon"), "--since takes a date such as 2024-05-01"),
        (("--allow", "absent.txt"), "absent.txt cannot be read"),
        (("--format", "xml"), "alerts are written as json, csv"),
        (("--format", "json,csv"), "watch prints its alerts as --format json or csv"),
        (("--pairs", "-1"), "--pairs is at least 0"),
    ],
)
def test_wrong_flags_are_one_sentence(command, days, change, message):
    code, _, said = command("watch", days[0].parent, "--idle", "0", *SMALL, *change)
    assert (code, message in said) == (2, True), said


def test_flows_behind_incidents_and_other_alerts_without_the_logs(command, tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        (86400 * day + 600 * k, f"10.0.0.{i}", f"10.1.0.{(i + k) % 30}", 443, 100, 50)
        for day in range(14)
        for i in range(40)
        for k in range(rng.integers(3, 8))
    ]
    rows += [(86400 * 13 + 30_000 + k, "10.0.0.7", f"10.2.{k >> 7}.{k & 127}", 22, 40, 7) for k in range(300)]
    rows += [(86400 * 12 + 40_000 + k, "10.0.0.9", f"10.3.{k >> 7}.{k & 127}", 23, 40, 0) for k in range(200)]
    rows.sort()
    text = [f"{1.7e9 // 86400 * 86400 + t:.0f}," + ",".join(map(str, rest)) for t, *rest in rows]
    log = tmp_path / "flows.csv"
    log.write_text("\n".join(["time,source,destination,dest_port,orig_bytes,resp_bytes", *text]))
    small = ("--dim", 2, "--lags", "1,7", "--min-observations", 5)
    assert command("anomaly", log, "--out", tmp_path / "a", *small)[0] == 0
    incidents = [json.loads(line) for line in (tmp_path / "a" / "incidents.jsonl").read_text().splitlines()]
    scan = next(incident for incident in incidents if incident.get("node") == "10.0.0.7")
    at_day = [row for row in rows if row[0] >= 86400 * 13 and row[1] == "10.0.0.7"]
    assert scan["bytes"] == sum(row[4] + row[5] for row in at_day)
    assert (scan["first_flow"], scan["last_flow"]) == ("2023-11-27T00:00:00Z", "2023-11-27T08:24:59Z")
    assert len(scan["flow_list"]) == 20
    assert scan["flow_list"][0]["source"] == "10.0.0.7"
    page = (tmp_path / "a" / "report.html").read_text()
    assert "2023-11-27T08:24:59Z" in page

    known = tmp_path / "known.txt"
    known.write_text("10.0.0.7\n")
    assert command("anomaly", log, "--out", tmp_path / "fresh", "--allow", known, *small)[0] == 0
    log.unlink()
    code, _, _ = command("anomaly", tmp_path / "a", "--out", tmp_path / "again", "--allow", known)
    assert code == 0
    for name in ("alerts.jsonl", "incidents.jsonl", "summary.json", "scores.parquet"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "fresh" / name).read_bytes(), name
    again = (tmp_path / "again" / "alerts.jsonl").read_text().splitlines()
    assert "10.0.0.7" not in {json.loads(line).get("node") for line in again}
    code, _, err = command("anomaly", tmp_path / "a", "--out", tmp_path / "no", "--ignore", known)
    assert code == 2
    assert "read the logs again, or use --allow" in err
    code, _, err = command("anomaly", tmp_path / "a", "--out", tmp_path / "no", "--width", "1h", "--dim", "3")
    assert code == 2
    assert "--dim, --width cannot change any more" in err
    whole = (tmp_path / "a" / "scores.npz").read_bytes()
    (tmp_path / "a" / "scores.npz").write_bytes(whole[:-1])
    assert command("anomaly", tmp_path / "a", "--out", tmp_path / "no")[0] == 2
