"""Reading flows: formats, filters, bad rows."""

import bz2
import datetime
import decimal
import gzip
import io
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphquilt.errors import FormatError, InputError
from graphquilt.temporal import FlowColumns, read_flows

LANL = (
    "100,5,Comp1,Comp2,6,Port1,445,1,1,10,10\n"
    "101,5,Comp1,Comp3,17,Port1,53,1,1,10,10\n"
    "102,5,Comp2,Comp3,6,Port1,445,1,1,10,9999999999\n"
)


def first_bad(flows):
    return [bad.first for bad in flows.counts.causes.values()]


def rows(flows):
    return [tuple(row.values()) for batch in flows for row in batch.to_pylist()]


def text(content, names=None, **options):
    return read_flows(io.BytesIO(content.encode()), FlowColumns("a", "b", names=names), **options)


@pytest.mark.parametrize(("suffix", "pack"), [(".csv", bytes), (".csv.gz", gzip.compress), (".csv.bz2", bz2.compress)])
def test_lanl_records_without_header(tmp_path, suffix, pack):
    path = tmp_path / f"day{suffix}"
    path.write_bytes(pack(LANL.encode()))
    flows = read_flows(path, protocol="tcp")
    assert rows(flows) == [(100.0, "Comp1", "Comp2", 445), (102.0, "Comp2", "Comp3", 445)]
    assert (flows.counts.rows, flows.counts.kept, flows.counts.filtered, flows.counts.bad) == (3, 2, 1, 0)
    assert rows(flows) == rows(flows), "a second pass reads the same"


def test_parquet_with_integers_times_and_bytes(tmp_path):
    path = tmp_path / "flows.parquet"
    when = pa.array([0, 1_500_000, None], pa.timestamp("us"))
    pq.write_table(pa.table({"when": when, "from": [7, 8, 9], "to": ["x", "y", "z"], "bytes": [1, 2, 3]}), path)
    flows = read_flows(path, FlowColumns("from", "to", "when"))
    flows.with_bytes = True
    assert rows(flows) == [(0.0, "7", "x", 1.0), (1.5, "8", "y", 2.0)]
    assert flows.counts.bad == 1


def test_iso_times_with_and_without_zone():
    assert rows(text("time,a,b\n1970-01-02,x,y\n1970-01-02 00:00:01.5,x,y\n"))[1][0] == 86401.5
    zoned = rows(text("time,a,b\n1970-01-02T00:00:00Z,x,y\n1970-01-02T02:00:00+02:00,x,y\n"))
    assert [row[0] for row in zoned] == [86400.0, 86400.0]


def test_other_delimiters_and_given_names():
    assert rows(text("x y 3\nx z 4\n", names=("a", "b", "time"))) == [(3.0, "x", "y"), (4.0, "x", "z")]
    assert rows(text("time\ta\tb\n3\tx\ty\n")) == [(3.0, "x", "y")]
    with pytest.raises(FormatError, match="3 columns and 2 names"):
        rows(text("x y 3\n", names=("a", "b")))


BROKEN = "time,a,b\n0,x,y\n1,x\nsoon,x,y\n3,,y\n1e999,x,y\n5,x,z\n"


def test_bad_rows_are_counted_and_reported(caplog):
    flows = text(BROKEN)
    assert rows(flows) == [(0.0, "x", "y"), (5.0, "x", "z")]
    assert flows.counts.bad == 4
    counts = {cause: (bad.count, bad.first) for cause, bad in flows.counts.causes.items()}
    assert counts == {
        "the wrong number of fields": (1, "the input line 3: 2 fields instead of 3: 1,x"),
        "no readable time": (2, "the input line 4: soon,x,y"),
        "no source": (1, "the input line 5: 3,,y"),
    }
    assert "4 of 6 rows" in caplog.text


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (BROKEN, "line 3: 2 fields"),
        (BROKEN.replace("1,x\n", "1,x,y\n"), "line 4: soon"),
        (BROKEN.replace("1,x\nsoon,x,y\n", "1,x,y\n"), r"line 4: 3.0,,y \(no source\)"),
        ("time,a,b\n0,x,y\n1,x,y,z,z\n", "line 3: 5 fields"),
        ("time,a,b\n1999-02-28,x,y\n1999-02-31,x,y\n", "line 3: 1999-02-31"),
    ],
)
def test_strict_stops_at_the_first_bad_row(content, line):
    with pytest.raises(FormatError, match=line):
        rows(text(content, strict=True))


def test_blank_lines_and_line_breaks_in_quotes_together():
    content = 'time,source,destination\n1,a,b\n   \n2,"b\nx",c\n3,c,\n4,d,a\n'
    assert sum(map(len, read_flows(io.BytesIO(content.encode())))) == 3


def test_strict_line_numbers_hold_across_blocks():
    content = "time,a,b\n" + "".join(f"{i},x{i % 9},y\n" for i in range(5000)) + "oops,x,y\n5000,x,y\n"
    with pytest.raises(FormatError, match="line 5002: oops"):
        rows(text(content, strict=True, block_bytes=4096))


def test_unknown_columns_name_those_found():
    with pytest.raises(FormatError, match=r"no column 'a'.*time, from, to"):
        rows(text("time,from,to\n1,x,y\n"))
    with pytest.raises(FormatError, match="no column 'protocol'"):
        rows(text("time,a,b\n1,x,y\n", protocol=6))


def test_mixed_time_formats_are_an_error():
    with pytest.raises(FormatError, match=r"the times are epoch times, but the input line 3 has '1999-01-01'"):
        rows(text("time,a,b\n1,x,y\n1999-01-01,x,y\n"))
    with pytest.raises(FormatError, match="mixed time formats"):
        rows(text("time,a,b\n1999-01-01T00:00:00,x,y\n1999-01-01T00:00:00Z,x,y\n"))


def test_files_out_of_order_are_an_error(tmp_path):
    first, second = tmp_path / "one.csv", tmp_path / "two.csv"
    first.write_text(LANL)
    second.write_text(LANL.replace("10", "90"))
    assert len(rows(read_flows([first, second]))) == 6
    with pytest.raises(InputError, match=r"not in order of time: .*one.csv starts at 101 s, 800 s before"):
        rows(read_flows([second, first]))


def test_no_such_file_no_such_protocol_and_not_really_parquet(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        read_flows(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="no flow files"):
        read_flows([])
    with pytest.raises(InputError, match="unknown protocol"):
        text(LANL, protocol="smoke")
    fake = tmp_path / "fake.csv"
    fake.write_bytes(b"PAR1" + LANL.encode())
    with pytest.raises(FormatError, match="cannot be read as Parquet"):
        rows(read_flows(fake))


DAYS = [datetime.date(1970, 1, 1), None, datetime.date(1970, 1, 2)]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array(["0", "x", "1e3"]), [0, 1000]),
        (pa.array(["0", None, "7"], pa.large_string()), [0, 7]),
        (pa.array(["1970-01-01", "1970-02-31", "1970-01-02"]), [0, 86400]),
        (pa.array(["3", "3", None]).dictionary_encode(), [3, 3]),
        (pa.array(DAYS), [0, 86400]),
        (pa.array(DAYS, pa.date64()), [0, 86400]),
        (pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("-2.5")]), [1.5, -2.5]),
        (pa.array([0, None, 10**18 + 1], pa.timestamp("ns")), [0, 1e9]),
        (pa.array([5000, 2**62], pa.timestamp("ms")), [5, 2**62 / 1000]),
        (pa.array([1, 2**60 + 1]), [1, 2.0**60]),
        (pa.array([1.0, np.nan, -np.inf]), [1]),
        (pa.nulls(2), []),
    ],
)
def test_times_of_every_type_in_parquet(tmp_path, times, expected):
    path = tmp_path / "flows.parquet"
    pq.write_table(pa.table({"time": times, "a": ["x"] * len(times), "b": ["y"] * len(times)}), path)
    flows = read_flows(path, FlowColumns("a", "b"))
    if not expected:
        with pytest.raises(FormatError, match="none of the 2 rows could be read: 2 with no readable time"):
            rows(flows)
        return
    assert [row[0] for row in rows(flows)] == expected
    assert flows.counts.bad == len(times) - len(expected)


def test_a_bad_row_with_a_time_that_no_calendar_has_is_counted_and_shown(tmp_path):
    table = {"time": pa.array([10**18, 10**18], pa.timestamp("us")), "a": ["x", ""], "b": ["y", "y"]}
    pq.write_table(pa.table(table), tmp_path / "far.parquet")
    flows = read_flows(tmp_path / "far.parquet", FlowColumns("a", "b"))
    assert (rows(flows), flows.counts.bad) == ([(1e12, "x", "y")], 1)
    assert first_bad(flows) == [f"{tmp_path / 'far.parquet'} row 2: 1000000000000000000,,y"]


@pytest.mark.parametrize("column", ["time", "a", "b", "protocol"])
@pytest.mark.parametrize(
    "values", [[[1], [2]], [{"x": 1}, None], [b"\xff", b"a"], [True, False], [datetime.time(1), datetime.time(2)]]
)
def test_columns_of_other_types_are_an_error_or_text(tmp_path, column, values):
    path = tmp_path / "flows.parquet"
    table = {"time": [0, 1], "a": ["x", "y"], "b": ["y", "z"], "protocol": [6, 6]} | {column: values}
    pq.write_table(pa.table(table), path)
    flows = read_flows(path, FlowColumns("a", "b"), protocol=6)
    if column in {"a", "b", "protocol"} and isinstance(values[0], bool | datetime.time):
        assert len(rows(flows)) == (0 if column == "protocol" else 2)
    else:
        with pytest.raises(FormatError, match=f"flows.parquet: the column '{column}' is of type"):
            rows(flows)


def test_names_and_protocols_in_parquet_with_nulls_and_dictionaries(tmp_path):
    path = tmp_path / "flows.parquet"
    a = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0, 0], pa.uint8()), pa.array(["x", "y"]))
    protocol = pa.array([6.0, 6.0, 6.0, None, 17.0])
    pq.write_table(pa.table({"time": range(5), "a": a, "b": pa.array([7, None, 7, 8, 8]), "protocol": protocol}), path)
    flows = read_flows(path, FlowColumns("a", "b"), protocol="tcp")
    assert rows(flows) == [(0.0, "x", "7")]
    assert (flows.counts.bad, flows.counts.filtered) == (2, 2)


def test_a_damaged_parquet_file_is_an_error_or_an_answer(tmp_path):
    path = tmp_path / "flows.parquet"
    table = {"time": range(900), "a": [f"x{i % 30}" for i in range(900)], "b": [f"y{i % 40}" for i in range(900)]}
    pq.write_table(pa.table(table), path, row_group_size=300)
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(120):
        damaged = bytearray(whole[: int(rng.integers(len(whole)))] if rng.random() < 0.3 else whole)
        for place in rng.integers(len(damaged), size=int(rng.integers(1, 20))):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            rows(read_flows(path, FlowColumns("a", "b")))
        except InputError:
            refused += 1
    assert refused > 40


def test_two_columns_of_one_name_are_an_error():
    with pytest.raises(FormatError, match="more than one column 'a'"):
        rows(text("time,a,a,b\n1,x,y,z\n"))


def test_numbers_are_times_in_every_way_of_writing_them():
    same = "time,a,b\n1e2,x,y\n+100,x,y\n100.,x,y\n.1e3,x,y\n"
    assert [row[0] for row in rows(text(same))] == [100.0] * 4
    assert [row[0] for row in rows(text(same + "soon,x,y\nnan,x,y\n-inf,x,y\n"))] == [100.0] * 4


def test_a_pipe_is_read_as_it_comes():
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as out, os.fdopen(reading, "rb") as pipe:
        out.write(b"time,a,b\n1,x,y\n2,x,z\n")
        out.close()
        assert len(rows(read_flows(pipe, FlowColumns("a", "b")))) == 2


def test_the_lanl_sample(dataset_folder):
    path = dataset_folder("lanl-2017-netflow") / "netflow_day-02_head24200.csv.gz"
    flows = read_flows(path, protocol=6)
    times = np.concatenate([batch.column("time").to_numpy() for batch in flows])
    assert (flows.counts.rows, len(times), flows.counts.bad) == (24200, 22140, 0)
    assert (times.min(), times.max()) == (118783, 120201)
