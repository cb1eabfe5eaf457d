"""Windows: what falls where, what is left out, and which windows are joined."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphquilt.errors import InputError
from graphquilt.temporal import Names, lag_edges, read_flows, snapshots

DAY = 86400


def batches(rows, size):
    for start in range(0, len(rows), size):
        time, source, destination = np.array(rows[start : start + size]).T
        yield time, source, destination


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 999), st.integers(0, 5), st.integers(0, 7)), min_size=1, max_size=60),
    size=st.integers(1, 60),
)
def test_snapshots_are_what_a_dictionary_says(rows, size):
    rows = sorted(rows)
    expected = {}
    for time, i, j in rows:
        expected.setdefault(time // 100, set()).add((i, j))
    days = snapshots(batches(rows, size), width=100)
    pairs = {w.number: set(zip(*map(np.ndarray.tolist, w.matrix.nonzero()), strict=True)) for w in days.windows()}
    assert pairs == expected
    assert days.numbers == sorted(expected)
    assert days.late == 0


def test_flows_are_counted():
    flow = (np.array([0, 1, 2]), np.array([0, 0, 1]), np.array([1, 1, 0]))
    window = next(snapshots([flow]).windows())
    assert (window.matrix.toarray().tolist(), window.rows, window.counts.tolist()) == ([[0, 1], [1, 0]], 3, [2, 1])


def test_stragglers_wait_for_grace_and_later_ones_are_counted(caplog):
    def stream():
        for time in (10, DAY - 1, DAY + 60, DAY - 2, 2 * DAY, 5):
            yield np.array([time]), np.array([0]), np.array([time % 7])

    days = snapshots(stream(), width="1d", grace="1h")
    assert [A.nnz for A in days] == [3, 1, 1]
    assert days.late == 1
    assert "1 flows came more than 3600 s after" in caplog.text


def test_a_window_is_given_out_before_the_stream_ends():
    def stream():
        yield np.array([0]), np.array([0]), np.array([0])
        yield np.array([3 * DAY]), np.array([0]), np.array([0])
        raise RuntimeError("the third batch was asked for too early")

    assert next(snapshots(stream()).windows()).number == 0


def test_empty_windows_are_reported(caplog):
    days = snapshots([(np.array([0, 4 * DAY]), np.array([0, 0]), np.array([0, 0]))])
    assert len(list(days)) == 2
    assert (days.empty, days.times) == (3, [0.0, 4.0 * DAY])
    assert "3 windows have no flows and are left out" in caplog.text


def test_names_are_kept_and_filtered_rows_get_no_id(tmp_path):
    path = tmp_path / "flows.csv"
    path.write_text("time,srcdevice,dstdevice,protocol\n0,a,x,tcp\n1,b,y,udp\n2,c,x,6\n")
    days = snapshots(read_flows(path, protocol="tcp"))
    assert [A.toarray().tolist() for A in days] == [[[1], [1]]]
    assert (list(days.sources), list(days.destinations)) == (["a", "c"], ["x"])
    assert (days.sources.find("c"), days.sources.find("b")) == (1, -1)


def test_names_need_integers_or_a_table():
    with pytest.raises(InputError, match="integer ids"):
        list(snapshots([(np.array([0]), np.array(["a"]), np.array(["b"]))]))
    assert "a" in Names(["a"])


@pytest.mark.parametrize("width", ["soon", "0d", "-1d", -5])
def test_bad_widths(width):
    with pytest.raises(InputError):
        snapshots([], width=width)


@settings(max_examples=50, deadline=None)
@given(times=st.sets(st.integers(-20, 40), min_size=2, max_size=25), lags=st.sets(st.integers(1, 12), min_size=1))
def test_lag_edges_are_the_pairs_at_those_lags(times, lags):
    times = sorted(times)
    expected = [[i, j] for i in range(len(times)) for j in range(len(times)) if times[j] - times[i] in lags]
    if expected:
        assert lag_edges(times, sorted(lags)).tolist() == expected
    else:
        with pytest.raises(InputError, match="give shorter lags"):
            lag_edges(times, sorted(lags))


def test_the_papers_lags():
    assert len(lag_edges(89, (1, 7, 14, 21, 28, 35, 42, 49))) == sum(89 - k for k in (1, 7, 14, 21, 28, 35, 42, 49))


def test_lags_longer_than_the_data(caplog):
    assert lag_edges(3, (1, 7)).tolist() == [[0, 1], [1, 2]]
    assert "the windows span 2, so the lags 7 join nothing" in caplog.text
    with pytest.raises(InputError, match=r"no two of the 3 windows .numbers 0 to 2. are 7 apart"):
        lag_edges(3, 7)


@pytest.mark.parametrize(("times", "lags"), [([1.5, 2.5], 1), ([2, 1], 1), (5, 0), (5, []), (5, 1.5)])
def test_bad_lags(times, lags):
    with pytest.raises(InputError):
        lag_edges(times, lags)


FAR = "99999999999999"


@pytest.mark.parametrize(
    ("times", "line", "problem"),
    [
        (["0", FAR], 3, f"{FAR} is 1157407407 windows of 86400 s after"),
        (["0", "1", FAR, "86400"], 4, f"{FAR} is 1157407406 windows of 86400 s after"),
        (["5", f"-{FAR}", "6"], 3, f"-{FAR} is 1157407408 windows of 86400 s before"),
        ([FAR, "0"], 3, "0 is 1157407407 windows of 86400 s before"),
        (["0.5", "1e14"], 3, "100000000000000 is 1157407407 windows of 86400 s after"),
    ],
)
def test_a_stray_time_is_an_error_that_names_its_row(tmp_path, times, line, problem):
    path = tmp_path / "flows.csv"
    path.write_text("time,srcdevice,dstdevice\n" + "".join(f"{time},a,b\n" for time in times))
    expected = rf"flows\.csv line {line}: the time {problem} the nearest .* More than 10000 .* raise max_gap"
    with pytest.raises(InputError, match=expected):
        list(snapshots(read_flows(path), "1d"))
    assert len(list(snapshots(read_flows(path), "1d", max_gap=10**12))) >= 2


def test_a_stray_time_in_parquet_names_its_row_also_after_a_filter(tmp_path):
    path = tmp_path / "flows.parquet"
    table = {"time": [0.0, float("nan"), 1.0, 1e14], "srcdevice": list("abcd"), "dstdevice": list("efgh")}
    pq.write_table(pa.table(table | {"protocol": [6, 6, 17, 6]}), path)
    with pytest.raises(InputError, match=r"flows\.parquet row 4: the time 100000000000000 is 1157407407 windows"):
        list(snapshots(read_flows(path, protocol="tcp"), "1d"))


def test_a_gap_is_a_number():
    days = snapshots([(np.array([0, 10001 * DAY]), np.array([0, 0]), np.array([0, 0]))])
    assert [window.number for window in days.windows()] == [0, 10001]
    assert days.empty == 10000
    far = snapshots([(np.array([0, 10**14]), np.array([0, 0]), np.array([0, 0]))], max_gap=2 * 10**9)
    assert len(list(far)) == 2
    assert far.empty == 10**14 // DAY - 1


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(st.integers(-40, 40), min_size=1, max_size=25),
    size=st.integers(1, 25),
    max_gap=st.integers(0, 12),
)
def test_the_stream_is_refused_exactly_where_a_flow_lies_beyond_a_gap(numbers, size, max_gap):
    """With endless grace no flow is late, and the flows so far must never leave a gap that is too long."""
    rows = [(10 * number, 0, 0) for number in numbers]
    ends = [min(k + size, len(rows)) for k in range(0, len(rows), size)]
    allowed = all(np.diff(sorted(numbers[:end])).max(initial=0) <= max_gap + 1 for end in ends)
    days = snapshots(batches(rows, size), width=10, grace=10**6, max_gap=max_gap)
    if allowed:
        assert [window.number for window in days.windows()] == sorted(set(numbers))
        assert days.empty == max(numbers) - min(numbers) + 1 - len(set(numbers))
    else:
        with pytest.raises(InputError, match=r"flow \d+: the time"):
            list(days)


def test_windows_that_an_earlier_run_has_finished_are_skipped_and_bound_the_gap():
    def days_after(times):
        days = snapshots([(np.array(times), np.zeros(len(times), int), np.zeros(len(times), int))])
        days.after = 3
        return days

    days = days_after([0, 3 * DAY, 4 * DAY, 1])
    assert [window.number for window in days.windows()] == [4]
    assert days.late == 0
    assert list(days_after([0])) == []
    with pytest.raises(InputError, match=r"flow 2: the time .* after the nearest other flow, whose .* at 259200 s"):
        list(days_after([5, 10**14]))


@pytest.mark.parametrize("time", [np.nan, np.inf, -np.inf, 1e300, -1e30])
def test_times_without_a_window_name_their_row(time):
    nodes = np.zeros(2, int)
    flows = [(np.array([0.0, 1.0]), nodes, nodes), (np.array([2.0, time]), nodes, nodes)]
    with pytest.raises(InputError, match=r"flow 4: the time .* has no window of 86400 s"):
        list(snapshots(flows, max_gap=10**18))


def test_the_first_late_flow_is_reported_while_the_stream_runs(caplog):
    def stream():
        for time in (0, 3 * DAY, 5, 6):
            yield np.array([time]), np.array([0]), np.array([0])
        assert "flow 3: the time 5 lies in window 0, and window 0 is already complete" in caplog.text
        assert "flow 4" not in caplog.text

    assert len(list(snapshots(stream()))) == 2


@pytest.mark.parametrize(
    "flows",
    [
        ([0], [0]),
        ([0], [0, 1], [0]),
        ([0], [-1], [0]),
        ([0], [0], [2**31]),
        (["0"], [0], [0]),
        ([0], [0], [0], [np.nan]),
        ([0], [0], [0], [-1.0]),
    ],
)
def test_arrays_that_are_no_flows(flows):
    with pytest.raises(InputError):
        list(snapshots([tuple(map(np.array, flows))]))


@pytest.mark.parametrize("options", [{"grace": -1}, {"origin": np.nan}, {"max_gap": -1}, {"width": "9" * 400}])
def test_options_that_no_window_has(options):
    with pytest.raises(InputError):
        snapshots([], **options)


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 999), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60),
    size=st.integers(1, 60),
    overlap=st.integers(1, 4),
)
def test_counts_and_peaks_are_what_a_dictionary_says(rows, size, overlap):
    rows = sorted(rows)
    days = snapshots(batches(rows, size), width=144, overlap=overlap)
    first = int(rows[0][0] // days.step)
    windows = list(days.windows())
    for window in windows:
        inside = [row for row in rows if window.start <= row[0] < window.end]
        assert window.number >= first
        assert window.rows == len(inside)
        pairs = list(zip(*map(np.ndarray.tolist, window.matrix.nonzero()), strict=True))
        assert window.counts.tolist() == [sum(row[1:] == pair for row in inside) for pair in pairs]
        for k, side in enumerate(("source", "destination"), 1):
            for node, peak in enumerate(window.peaks[side].tolist()):
                times = [int((row[0] - window.start) * 10 + 1e-6) for row in inside if row[k] == node]
                assert peak == max(map(times.count, times), default=0)
    latest = [int(row[0] // days.step) for row in rows]
    expected = sum(number - back >= first for number in latest for back in range(overlap))
    assert sum(window.rows for window in windows) == expected, "every flow lies in so many windows"


def test_the_port_of_most_flows_is_kept(tmp_path):
    pq.write_table(
        pa.table(
            {
                "time": [0.0, 1, 2, 3, 4],
                "srcdevice": ["a", "a", "a", "b", "a"],
                "dstdevice": ["x", "x", "x", "x", "y"],
                "dstport": [80, 445, 445, 22, 53],
            }
        ),
        tmp_path / "flows.parquet",
    )
    window = next(snapshots(read_flows(tmp_path / "flows.parquet")).windows())
    assert window.ports.tolist() == [445, 53, 22]
    assert window.counts.tolist() == [3, 1, 1]
    plain = next(snapshots([(np.zeros(1), np.zeros(1, int), np.zeros(1, int))]).windows())
    assert plain.ports is None


def test_an_overlap_below_one():
    with pytest.raises(InputError, match="overlap is 1 or more"):
        snapshots([], overlap=0)
