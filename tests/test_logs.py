"""Flow logs of every kind: each test makes a small file in the true shape of its kind."""

import bz2
import gzip
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import graphquilt as gq
from graphquilt.errors import FormatError, InputError
from graphquilt.temporal import FlowColumns, read_flows, snapshots

FIELDS = ["ts", "uid", "id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p", "proto", "service", "duration", "conn_state"]
ZEEK_HEADER = (
    "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n"
    "#path\tconn\n#open\t2024-01-01-00-00-00\n"
    + "\t".join(["#fields", *FIELDS])
    + "\n"
    + "\t".join(["#types", "time", "string", "addr", "port", "addr", "port", "enum", "string", "interval", "string"])
    + "\n"
)
ZEEK_ROWS = (
    "1700000000.250000\tCa\t10.0.0.1\t5000\t10.0.0.9\t53\tudp\tdns\t0.1\tSF\n"
    "1700000001.500000\tCb\t10.0.0.2\t5001\t10.0.0.9\t443\ttcp\t-\t-\tS0\n"
)
ZEEK = [(1700000000.25, "10.0.0.1", "10.0.0.9", 53), (1700000001.5, "10.0.0.2", "10.0.0.9", 443)]

NFDUMP_HEADER = (
    "ts,te,td,sa,da,sp,dp,pr,flg,fwd,stos,ipkt,ibyt,opkt,obyt,in,out,sas,das,smk,dmk,dtos,dir,nh,nhb,svln,dvln,ismc,odmc,"
    "idmc,osmc,mpls1,mpls2,mpls3,mpls4,mpls5,mpls6,mpls7,mpls8,mpls9,mpls10,cl,sl,al,ra,eng,exid,tr\n"
)
NFDUMP_ROW = "2024-01-01 00:00:0{0},2024-01-01 00:00:09,1.0,10.0.0.{0},10.0.0.9,5000,80,TCP,...AP.SF" + ",0" * 39 + "\n"


def first_bad(flows):
    return [bad.first for bad in flows.counts.causes.values()]


def rows(flows):
    return [tuple(row.values()) for batch in flows for row in batch.to_pylist()]


def text(content, columns=None, **options):
    return read_flows(io.BytesIO(content.encode()), columns, **options)


def test_zeek_text():
    flows = text(ZEEK_HEADER + ZEEK_ROWS + "#close\t2024-01-01-01-00-00\n")
    assert rows(flows) == ZEEK
    assert (flows.counts.rows, flows.counts.bad) == (2, 0), "a comment is no row"
    assert rows(text("\t" + ZEEK_HEADER + ZEEK_ROWS, protocol="tcp")) == ZEEK[1:], "also after a stray tab"
    assert rows(text(ZEEK_HEADER + ZEEK_ROWS.replace("10.0.0.2", "-"))) == ZEEK[:1], "an unset name is none"


def test_zeek_text_with_a_label_and_a_second_header_in_the_middle():
    fields = ZEEK_HEADER.replace("conn_state", "conn_state   label   detailed-label")
    labelled = fields + ZEEK_ROWS.replace("SF\n", "SF   Benign   -\n").replace("S0\n", "S0   Malicious   PortScan\n")
    flows = text(labelled + labelled)
    assert rows(flows) == ZEEK + ZEEK
    assert flows.counts.bad == 0


@pytest.mark.parametrize("nested", [False, True])
def test_zeek_json(nested):
    lines = []
    for time, source, destination, port in ZEEK:
        ends = {"orig_h": source, "orig_p": 5000, "resp_h": destination, "resp_p": port}
        ends = {"id": ends} if nested else {f"id.{key}": value for key, value in ends.items()}
        lines.append(json.dumps({"ts": time, "uid": "C", **ends, "proto": "tcp", "conn_state": "SF"}))
    assert rows(text("\n".join(lines))) == ZEEK
    stamped = [json.dumps(json.loads(line) | {"ts": "2023-11-14T22:13:20.250000Z"}) for line in lines]
    assert rows(text("\n".join(stamped) + "\n"))[0] == ZEEK[0]


def test_other_zeek_logs_are_no_flows():
    with pytest.raises(FormatError, match=r"is a Zeek log of dns; flows are in conn\.log"):
        rows(text(ZEEK_HEADER.replace("#path\tconn", "#path\tdns") + ZEEK_ROWS))
    with pytest.raises(FormatError, match="a Zeek log of another kind"):
        rows(text('{"ts": 1.5, "id.orig_h": "a", "id.resp_h": "b", "query": "c"}\n'))


def test_argus_turns_flows_that_the_second_address_began():
    header = (
        "StartTime,Dur,Proto,SrcAddr,Sport,Dir,DstAddr,Dport,State,sTos,dTos,TotPkts,TotBytes,SrcBytes,SrcPkts,Label\n"
    )
    row = "2019/04/04 16:23:0{},0.5,tcp,{},48427,{},{},443,CON,0,0,2,142,63,1,flow=Normal\n"
    content = header + row.format("0.325010", "a", "   ->", "b") + row.format("1", "c", "  <-", "d")
    flows = text(content, labels=True)
    assert rows(flows) == [
        (1554394980.32501, "a", "b", 443, "flow=Normal"),
        (1554394981.0, "d", "c", 443, "flow=Normal"),
    ]
    assert rows(text(content.replace(",443,", ",0x7208,")))[0][3] == -1, "the type of an ICMP message is no port"


def test_suricata_flows_among_other_events():
    flow = {
        "timestamp": "2021-06-06T16:00:00.000000+0200",
        "event_type": "flow",
        "src_ip": "a",
        "src_port": 5000,
        "dest_ip": "b",
        "dest_port": 445,
        "proto": "TCP",
        "flow": {"start": "2021-06-06T15:59:00.500000+0200", "state": "new"},
    }
    events = [
        {"timestamp": flow["timestamp"], "event_type": "stats", "stats": {"uptime": 8}},
        flow,
        flow | {"event_type": "dns"},
        flow | {"dest_port": None, "proto": "ICMP", "flow": {}},
    ]
    flows = text("".join(json.dumps(event) + "\n" for event in events))
    assert rows(flows) == [(1622987940.5, "a", "b", 445), (1622988000.0, "a", "b", -1)]
    assert (flows.counts.rows, flows.counts.other) == (4, 2)


@pytest.mark.parametrize("header", [NFDUMP_HEADER, NFDUMP_HEADER.rstrip("\n") + "\r\n"])
def test_nfdump_with_its_summary(header):
    summary = "Summary\nflows,bytes,packets,avg_bps,avg_pps,avg_bpp\n2,142,3,71,1,47\n"
    flows = text(header + NFDUMP_ROW.format(1) + NFDUMP_ROW.format(2) + "oops,1\n" + summary, protocol="tcp")
    assert rows(flows) == [(1704067201.0, "10.0.0.1", "10.0.0.9", 80), (1704067202.0, "10.0.0.2", "10.0.0.9", 80)]
    assert {cause: bad.count for cause, bad in flows.counts.causes.items()} == {"the wrong number of fields": 1}
    assert ["line 4" in example for example in first_bad(flows)] == [True]


def test_nfdump_of_later_versions():
    header = "firstSeen,duration,proto,srcAddr,srcPort,dstAddr,dstPort,packets,bytes,flows\n"
    content = header + "2024-01-01 00:00:01.250,1.0,TCP,a,5000,b,80,1,2,1\n"
    assert rows(text(content)) == [(1704067201.25, "a", "b", 80)]


LANL_2015 = {
    "auth": ("1,U1@DOM1,C1$@DOM1,C1,C2,?,?,AuthMap,Success\n", (1.0, "C1", "C2")),
    "flows": ("1,0,C1,389,C2,N10451,6,10,5323\n", (1.0, "C1", "C2", -1)),
    "dns": ("2,C1,C2\n", (2.0, "C1", "C2")),
    "redteam": ("150885,U620@DOM1,C1,C2\n", (150885.0, "C1", "C2")),
}


@pytest.mark.parametrize("kind", LANL_2015)
def test_lanl_2015(kind):
    content, expected = LANL_2015[kind]
    assert rows(text(content * 2)) == [expected] * 2


def test_darpa_1998():
    content = (
        "172.016.112.020,192.168.001.010,06/01/1998-07:55,-\n172.016.112.020,192.168.001.010,07/32/1998-07:55,neptune\n"
    )
    flows = text(content, labels=True)
    assert rows(flows) == [(896687700.0, "172.016.112.020", "192.168.001.010", "-")]
    assert flows.counts.causes["no readable time"].count == 1, "there is no 32nd of July"


def test_beth_dns():
    header = (
        "Timestamp,SourceIP,DestinationIP,DnsQuery,DnsAnswer,DnsAnswerTTL,DnsQueryNames,DnsQueryClass,DnsQueryType,"
    )
    header += "NumberOfAnswers,DnsResponseCode,DnsOpCode,SensorId,sus,evil\n"
    row = "2021-05-16T17:13:14Z,10.0.0.1,10.0.0.2,a.example,,,a.example,['IN'],['A'],0,0,0,ip-10-0-0-1,0,1\n"
    assert rows(text(header + row, labels=True)) == [(1621185194.0, "10.0.0.1", "10.0.0.2", "1")]


def ecar(number, direction, *, host="HostA", action="START", kind="FLOW", **properties):
    ends = {"src_ip": "10.0.0.1", "src_port": "5000", "dest_ip": "10.0.0.2", "dest_port": "445", "l4protocol": "6"}
    event = {
        "action": action,
        "actorID": "a",
        "hostname": host,
        "id": f"id-{number}",
        "object": kind,
        "pid": 4,
        "properties": ends | {"direction": direction, "image_path": "System"} | properties,
        "timestamp": f"2019-09-24T13:39:2{number}.5-04:00",
    }
    return json.dumps(event) + "\n"


def test_ecar_flows_are_named_counted_once_and_labelled():
    content = (
        ecar(0, "outbound")
        + ecar(1, "inbound", host="HostB")  # its twin
        + ecar(2, "outbound", action="MESSAGE")
        + ecar(3, "outbound", src_port="5001", dest_ip="10.0.0.7")
        + ecar(4, "inbound", host="HostB", src_ip="10.0.0.8")
        + ecar(5, "outbound", kind="PROCESS")
    )
    flows = text(content, addresses={"10.0.0.7": "printer", "10.0.0.2": "HostB"}, labels={"id-3": "Lateral movement"})
    assert rows(flows) == [
        (1569346760.5, "HostA", "HostB", 445, None),
        (1569346763.5, "HostA", "printer", 445, "Lateral movement"),
        (1569346764.5, "10.0.0.8", "HostB", 445, None),
    ]
    assert (flows.counts.rows, flows.counts.other) == (6, 3)
    late = rows(text(ecar(0, "outbound") + ecar(1, "inbound", host="HostB"), labels={"id-1": "attack"}))
    assert [row[-1] for row in late] == [None, "attack"], "no label is lost with a twin"


def test_ecar_without_a_destination_and_in_milliseconds():
    event = json.loads(ecar(0, "inbound"))
    del event["properties"]["dest_ip"]
    assert rows(text(json.dumps(event | {"timestamp": 1569346760500}) + "\n")) == [
        (1569346760.5, "10.0.0.1", "HostA", 445)
    ]


def test_labels_and_addresses_from_files(tmp_path):
    (tmp_path / "labels.csv").write_text("id,description,label\nid-0,what it was,attack\n")
    (tmp_path / "hosts.json").write_text('{"10.0.0.2": "mail"}')
    (tmp_path / "hosts.csv").write_text("10.0.0.2,mail\n")
    for hosts in ("hosts.json", "hosts.csv"):
        flows = text(ecar(0, "outbound"), labels=tmp_path / "labels.csv", addresses=tmp_path / hosts)
        assert rows(flows)[0][2:] == ("mail", 445, "attack")
    (tmp_path / "hosts.json").write_text('{"10.0.0.2": 7}')
    with pytest.raises(FormatError, match="neither a JSON object nor a CSV file of address and host"):
        text("", addresses=tmp_path / "hosts.json")


@pytest.mark.parametrize(
    "header",
    [
        "time,source,destination",
        "Timestamp,Src IP,Dst IP",
        "@timestamp,source.ip,destination.ip",
        "date;client;server",
        "start srcaddr dstaddr",
    ],
)
def test_tables_with_usual_names_of_columns(header):
    mark = max(",; ", key=header.count)
    columns = header.split(mark)
    assert rows(text(f"{header}\n{mark.join(['5', 'x', 'y'])}\n")) == [(5.0, "x", "y")], columns
    as_json = json.dumps(dict(zip(columns, [5, "x", "y"], strict=True)))
    assert rows(text(as_json + "\n")) == [(5.0, "x", "y")]


def test_unknown_logs_are_an_error_that_shows_them():
    with pytest.raises(
        FormatError, match=r"no column for the source and the destination.*its columns.*when, who, what"
    ):
        rows(text("when,who,what\n1,2,3\n"))
    with pytest.raises(FormatError, match="no line that is not a comment"):
        rows(text("# nothing\n"))


@pytest.mark.parametrize(
    ("times", "time_format"),
    [
        (["1700000000", "1700000001"], None),
        (["1700000000.0", "1700000001.0"], "epoch-s"),
        (["1700000000000", "1700000001000"], None),
        (["1700000000000000", "1700000001000000"], None),
        (["1700000000000000000", "1700000001000000000"], None),
        (["1700000000000", "1700000001000"], "epoch-ms"),
        (["2023-11-14 22:13:20", "2023-11-14T22:13:21.0000000"], "iso"),
        (["2023-11-14T23:13:20+01:00", "2023-11-14T22:13:21Z"], None),
        (["2023/11/14 22:13:20", "2023/11/14 22:13:21.000"], None),
        (["14.11.2023 22:13:20", "14.11.2023 22:13:21"], "%d.%m.%Y %H:%M:%S"),
        (["Nov 14 22:13:20.000 2023", "Nov 14 22:13:21.000 2023"], "%b %d %H:%M:%S.%f %Y"),
        (["14/Nov/2023:23:13:20 +0100", "14/Nov/2023:23:13:21 +0100"], "%d/%b/%Y:%H:%M:%S %z"),
    ],
)
def test_times_in_every_format(times, time_format):
    content = "time,source,destination\n" + "".join(f"{time},x,y\n" for time in times)
    assert [row[0] for row in rows(text(content, time_format=time_format))] == [1700000000.0, 1700000001.0]


def test_days_that_no_calendar_has_are_bad_in_every_format():
    content = "time,source,destination\n31/01/2023,x,y\n31/02/2023,x,y\n1/3/2023,x,y\n"
    flows = text(content, time_format="%d/%m/%Y")
    assert [row[0] for row in rows(flows)] == [1675123200.0, 1677628800.0]
    assert first_bad(flows) == ["the input line 3: 31/02/2023,x,y"]
    with pytest.raises(InputError, match="is not a time format"):
        text(content, time_format="day")


def test_all_rows_bad_is_an_error_about_the_cause(tmp_path):
    path = tmp_path / "all.csv"
    path.write_text("time,source,destination\n" + "06/01/1998-07:55,x,y\n" * 50_000 + "1\n")
    message = r"none of the 50001 rows could be read: 50000 with no readable time \(the first is .*all.csv line 2: "
    with pytest.raises(FormatError, match=message + r"06/01/1998-07:55,x,y\); 1 with the wrong number.*--time-format"):
        list(snapshots(read_flows(path)))


def test_line_numbers_are_exact_over_blocks_empty_lines_and_broken_lines(tmp_path):
    lines = ["time,source,destination", *(f"{k},x{k % 9},y" for k in range(5000))]
    for place, line in ((300, ""), (1000, "5,x"), (2000, "soon,x,y"), (3000, "7,,y"), (4999, "\udcff,x,y")):
        lines.insert(place, line)
    path = tmp_path / "flows.csv"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    flows = read_flows(path, block_bytes=4096)
    batches = list(flows)
    assert flows.counts.kept == 5000
    places = [bad.first.split(": ")[0].rsplit(" ", 1)[1] for bad in flows.counts.causes.values()]
    assert sorted(map(int, places)) == [1001, 2001, 3001]
    last = batches[-1]
    assert gq.temporal.logs.columns.place_of(last, len(last) - 1) == f"{path} line {len(lines)}"


PACKS = {"gz": gzip.compress, "bz2": bz2.compress, "zst": lambda data: pa.compress(data, "zstd", asbytes=True)}


@pytest.mark.parametrize("kind", [*PACKS, "lz4", "zip"])
def test_packed_logs_are_recognised_by_content(tmp_path, kind):
    path = tmp_path / "flows.log"
    content = (ZEEK_HEADER + ZEEK_ROWS).encode()
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("conn.log", content)
    elif kind in PACKS:
        path.write_bytes(PACKS[kind](content))
    else:
        with pa.output_stream(str(path), compression="lz4") as out:
            out.write(content)
    assert rows(read_flows(path)) == ZEEK
    path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2])
    with pytest.raises(FormatError, match=r"flows\.log"):
        rows(read_flows(path))


def test_a_folder_is_read_in_order_of_time_and_other_files_are_left_out(tmp_path):
    later, dns = tmp_path / "a" / "conn.log", tmp_path / "a" / "dns.log"
    earlier = tmp_path / "b" / "conn.log.gz"
    for path in (later, earlier):
        path.parent.mkdir()
    later.write_text(ZEEK_HEADER + ZEEK_ROWS.replace("17000000", "17100000"))
    earlier.write_bytes(gzip.compress((ZEEK_HEADER + ZEEK_ROWS).encode()))
    dns.write_text(ZEEK_HEADER.replace("#path\tconn", "#path\tdns") + ZEEK_ROWS)
    (tmp_path / "notes.txt").write_text("nothing here\n")
    (tmp_path / ".hidden").write_text(ZEEK_HEADER + ZEEK_ROWS)
    (tmp_path / "new.part").write_text(ZEEK_HEADER + ZEEK_ROWS)
    flows = read_flows(tmp_path)
    assert [row[0] for row in rows(flows)] == [1700000000.25, 1700000001.5, 1710000000.25, 1710000001.5]
    assert sorted(flows.counts.skipped_files) == [str(dns), str(tmp_path / "notes.txt")]
    with pytest.raises(FormatError, match=r"notes\.txt"):
        rows(read_flows(tmp_path / "notes.txt"))
    assert rows(read_flows(tmp_path / "notes.txt", skip_others=True)) == []
    for path in (later, earlier):
        path.unlink()
    with pytest.raises(InputError, match=r"none of the 2 files"):
        rows(read_flows(tmp_path))


def test_broken_json_lines_are_counted_with_their_lines():
    good = '{"time": 5, "source": "x", "destination": "y"}\n'
    flows = text(good + "{broken\n\n[1]\n" + good + '{"time": "soon", "source": "x", "destination": "y"}\n')
    assert len(rows(flows)) == 2
    assert {cause: bad.count for cause, bad in flows.counts.causes.items()} == {
        "no JSON object": 2,
        "no readable time": 1,
    }
    assert [example.split(":")[0] for example in first_bad(flows)] == [
        "the input line 2",
        "the input line 6",
    ]


def test_a_line_without_end_is_an_error(tmp_path):
    path = tmp_path / "endless.csv"
    path.write_bytes(b"time,source,destination\n" + b"x" * (3 << 20))
    with pytest.raises(FormatError, match="line 2 is longer than 1 MB"):
        rows(read_flows(path, block_bytes=1 << 16))


SAMPLES = {
    "security-logs/zeek/tsv-conn.log": (141, 141),
    "security-logs/zeek/iot23-conn.log.labeled.gz": (23145, 23145),
    "security-logs/zeek/json-conn.log.gz": (576, 576),
    "security-logs/argus/day.binetflow.gz": (6751, 6751),
    "security-logs/suricata/eve.json.gz": (5000, 3512),
    "security-logs/optc/ecar-admin.json.gz": (1480, 10),
    "security-logs/beth/labelled_2021may-ip-10-100-1-95-dns.csv": (100, 100),
    "lanl-2015/auth_day0_head5000.txt.gz": (5000, 5000),
    "lanl-2015/redteam.txt.gz": (749, 749),
    "lanl-2017-netflow/netflow_day-02_head24200.csv.gz": (24200, 24200),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_real_samples(name, dataset_folder):
    path = dataset_folder(name.split("/")[0]) / name.split("/", 1)[1]
    flows = read_flows(path)
    assert sum(map(len, flows)) == SAMPLES[name][1]
    assert (flows.counts.rows, flows.counts.bad) == (SAMPLES[name][0], 0)


def test_the_whole_of_darpa(dataset_folder):
    flows = read_flows(dataset_folder("darpa-1998") / "darpa_original.zip", labels=True)
    known = np.load(dataset_folder("darpa-1998") / "darpa.npz")
    minutes = np.concatenate([batch.column("time").to_numpy() for batch in flows]) // 60
    assert (flows.counts.rows, flows.counts.bad) == (4_554_344, 10)
    assert np.isin(minutes, known["t_min"]).all()


def test_columns_can_be_named_for_a_log_without_header():
    auth = LANL_2015["auth"][0]
    by_user = text(auth, FlowColumns(source="source user", destination="destination computer"))
    assert rows(by_user) == [(1.0, "U1@DOM1", "C2")]


def test_accounts_are_sources_of_their_own(tmp_path):
    log = tmp_path / "auth.csv"
    log.write_text("time,user,source,destination\n1,anna,pc1,srv\n2,-,pc2,srv\n3,ben,pc1,db\n")
    flows = read_flows(log, FlowColumns(user="user"))
    rows = [row for batch in flows for row in batch.select(["time", "source", "destination"]).to_pylist()]
    assert [tuple(row.values()) for row in rows] == [
        (1.0, "pc1", "srv"),
        (2.0, "pc2", "srv"),
        (3.0, "pc1", "db"),
        (1.0, "user:anna", "srv"),
        (3.0, "user:ben", "db"),
    ]
    assert flows.counts.kept == 3
    with pytest.raises(FormatError, match="no column 'account' of users; its columns are time, user"):
        list(read_flows(log, FlowColumns(user="account")))


def test_lanl_authentications_have_accounts(tmp_path):
    row = "1,U1@DOM1,U1@DOM1,C1,C2,Kerberos,Network,LogOn,Success\n"
    (tmp_path / "auth.txt").write_text(row)
    batches = list(read_flows(tmp_path / "auth.txt", FlowColumns(user="source user")))
    assert batches[0].column("source").to_pylist() == ["C1", "user:U1@DOM1"]
    assert batches[0].column("destination").to_pylist() == ["C2", "C2"]


def test_a_log_of_1970_is_kept_if_it_is_known_when_its_clock_started(tmp_path):
    start = 1_700_000_000.0
    (tmp_path / "a.csv").write_text(f"time,source,destination\n{start},x,y\n{start + 100},x,y\n")
    (tmp_path / "b.csv").write_text("time,source,destination\n22,z,y\n")
    left_out = read_flows(tmp_path)
    assert sum(len(batch) for batch in left_out) == 2
    assert [Path(name).name for name in left_out.counts.skipped_files] == ["b.csv"]
    kept = read_flows(tmp_path, FlowColumns(clock=start + 200))
    assert [t for batch in kept for t in batch.column("time").to_pylist()] == [start, start + 100, start + 222]
    assert not kept.counts.skipped_files
