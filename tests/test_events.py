"""Host events as tokens."""

import io
import json

import pytest

from graphquilt.errors import FormatError, InputError
from graphquilt.temporal import read_events
from graphquilt.temporal.logs.events import parse_literal

LONG = (
    "timestamp,processId,threadId,parentProcessId,userId,mountNamespace,processName,hostName,eventId,eventName,"
    "stackAddresses,argsNum,returnValue,args,sus,evil\n"
)
SHORT = (
    "timestamp,processId,parentProcessId,userId,processName,hostName,eventId,eventName,argsNum,returnValue,args,sus,"
    "evil\n"
)
OPEN = "[{'name': 'pathname', 'type': 'const char*', 'value': '/proc/384/cgroup'}, {'name': 'dev', 'value': 5}]"
CONNECT = "[{'name': 'addr', 'type': 'struct sockaddr*', 'value': {'sa_family': 'AF_INET', 'sin_port': '22'}}]"
START = (
    "[{'name': 'pathname', 'type': 'const char*', 'value': '/bin/run-parts'}, {'name': 'argv', 'value': ['a', 'b']}]"
)


def row(time, event, arguments, *, host="ip-1", short=True):
    if short:
        return f'{time},1,0,0,systemd,{host},1005,{event},4,0,"{arguments}",0,0\n'
    return f'{time},1,1,0,0,4026,systemd,{host},1005,{event},"[1403, 7]",4,0,"{arguments}",0,0\n'


def tokens(content, **options):
    events = read_events(io.BytesIO(content.encode()), **options)
    return [tuple(cell.values()) for batch in events for cell in batch.to_pylist()], events.counts


@pytest.mark.parametrize("short", [True, False])
def test_beth_with_13_and_16_columns(short):
    content = (SHORT if short else LONG) + "".join(
        row(time, event, arguments, short=short)
        for time, event, arguments in ((1.5, "openat", OPEN), (2.5, "connect", CONNECT), (3.5, "execve", START))
    )
    found, counts = tokens(content)
    words = [(time, token) for time, host, token in found if token != "proc:systemd"]
    assert words == [
        (1.5, "event:openat"),
        (1.5, "path:/proc/#"),
        (2.5, "event:connect"),
        (2.5, "port:22"),
        (3.5, "event:execve"),
        (3.5, "exec:run-parts"),
    ]
    assert {host for _, host, _ in found} == {"ip-1"}
    assert (counts.rows, counts.kept, counts.bad) == (3, 3, 0)


def test_bad_events_are_counted_by_cause():
    content = SHORT + row(1, "a", "[]") + row("soon", "a", "[]") + row(2, "a", "[]", host="") + row(3, "a", "open(1)")
    found, counts = tokens(content + "4,5\n")
    assert {time for time, *_ in found} == {1.0}
    causes = {cause: (bad.count, bad.first.split(":")[0]) for cause, bad in counts.causes.items()}
    assert causes == {
        "the wrong number of fields": (1, "the input line 6"),
        "no readable time": (1, "the input line 3"),
        "no host": (1, "the input line 4"),
        "arguments that are not a literal": (1, "the input line 5"),
    }
    with pytest.raises(FormatError, match=r"line 3: soon,ip-1 \(no readable time\)"):
        tokens(content, strict=True)


def test_all_bad_events_are_an_error():
    with pytest.raises(FormatError, match="none of the 2 rows could be read: 2 with arguments that are not a literal"):
        tokens(SHORT + row(1, "a", "1 +") + row(2, "a", "nothing"))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "[" * 10_000 + "]" * 10_000,
        "(" * 30 + ")" * 30,
        "-" * 50_000 + "1",
        "9" * 60_000,
        "'" + "a" * 100_000 + "'",
        "[x for x in range(9)]",
        "{1: 2",
        "{[]: 1}",
        "1" + "+1j" * 3 + "+" * 9,
        "\x00",
    ],
)
def test_a_literal_is_never_evaluated_and_always_bounded(text):
    with pytest.raises(FormatError):
        parse_literal(text)


def ecar(kind, action, **properties):
    event = {
        "action": action,
        "object": kind,
        "hostname": "HostA",
        "id": "1",
        "timestamp": "2019-09-24T13:39:20.5-04:00",
    }
    return json.dumps(event | {"properties": properties}) + "\n"


def test_ecar():
    image = r"\Device\HarddiskVolume1\Windows\system32\CMD.EXE"
    content = (
        ecar("FILE", "WRITE", image_path=image, file_path=r"\Device\HarddiskVolume1\Users\bob\a.txt")
        + ecar("FLOW", "START", image_path="System", dest_port="445")
        + ecar("PROCESS", "CREATE", image_path=image)
    )
    found, _ = tokens(content)
    assert [token for *_, token in found] == [
        "event:FILE/WRITE",
        "proc:cmd.exe",
        "path:/users/bob",
        "event:FLOW/START",
        "proc:system",
        "port:445",
        "event:PROCESS/CREATE",
        "proc:cmd.exe",
        "exec:cmd.exe",
    ]
    assert {cell[:2] for cell in found} == {(1569346760.5, "HostA")}


def test_folders_and_what_is_no_log_of_events(tmp_path):
    (tmp_path / "one.csv").write_text(SHORT + row(1, "a", "[]"))
    (tmp_path / "notes.txt").write_text("nothing\n")
    events = read_events(tmp_path)
    assert sum(map(len, events)) == 2
    assert events.counts.skipped_files == [str(tmp_path / "notes.txt")]
    with pytest.raises(FormatError, match=r"is not a log of events.*begins with 'nothing'"):
        list(read_events(tmp_path / "notes.txt"))
    with pytest.raises(InputError, match="there is no file"):
        read_events(tmp_path / "absent")
    (tmp_path / "one.csv").unlink()
    with pytest.raises(InputError, match="none of the 1 files"):
        list(read_events(tmp_path))


def test_the_real_samples(dataset_folder):
    logs = dataset_folder("security-logs")
    beth = read_events(logs / "beth")
    assert sum(map(len, beth)) > 1000
    assert (beth.counts.kept, beth.counts.bad, len(beth.counts.skipped_files)) == (500, 0, 1)
    optc = read_events(logs / "optc" / "ecar-admin.json.gz")
    words = {token for batch in optc for token in batch.column("token").to_pylist()}
    assert {"proc:cmd.exe", "event:FILE/WRITE", "port:80"} <= words
    assert (optc.counts.kept, optc.counts.bad) == (1480, 0)
