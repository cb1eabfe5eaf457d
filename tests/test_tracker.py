"""The stream: it agrees with the batch, forgets, survives gaps, late windows and a restart."""

import contextlib
import json

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import spearmanr

from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.synthetic.netflow import netflow
from graphquilt.temporal import ScoringOptions, Tracker, Window, score_windows
from graphquilt.temporal.state_file import read_state, write_state

SIDES = ("source", "destination")
# The tolerances below are those of the embeddings, which are in single precision.


def steady_stream(seed, days=50, groups=5):
    """Traffic between groups whose habits never change."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, groups, 150), rng.integers(0, groups, 200)
    habit = np.where(a[:, None] == b, 0.5, 0.03) * rng.uniform(0.4, 1, (150, 1)) * rng.uniform(0.4, 1, 200)
    return [sp.csr_array((rng.random(habit.shape) < habit).astype(float)) for _ in range(days)]


def run(tracker, matrices, numbers=None):
    return [tracker.update(A, n) for A, n in zip(matrices, numbers or range(len(matrices)), strict=True)]


@pytest.mark.parametrize("seed", [0, 1])
def test_without_drift_the_stream_ranks_like_the_batch(seed):
    matrices = steady_stream(seed)
    options = ScoringOptions(dim=4, lags=(1, 7, 14), min_observations=20)
    batch = score_windows((Window(t, t, t + 1, A, 0) for t, A in enumerate(matrices)), options)
    stream = run(Tracker(options, history=50), matrices)
    for side in SIDES:
        Z = batch.sides[side].standardised
        ours = np.full(Z.shape, np.nan)
        for t, window in enumerate(stream):
            ours[window.sides[side].nodes, t] = window.sides[side].standardised
        both = ~np.isnan(Z) & ~np.isnan(ours)
        assert both.sum() > 3000
        assert spearmanr(Z[both], ours[both]).statistic >= 0.9


def test_only_the_past_counts():
    matrices = steady_stream(2, 20)
    long = run(Tracker(ScoringOptions(3, lags=(1, 3), min_observations=3)), matrices)
    short = run(Tracker(ScoringOptions(3, lags=(1, 3), min_observations=3)), matrices[:10])
    for a, b in zip(short, long[:10], strict=True):
        for side in SIDES:
            np.testing.assert_allclose(a.sides[side].standardised, b.sides[side].standardised, rtol=1e-5, atol=1e-5)


def test_memory_is_bounded_by_the_longest_lag(tmp_path):
    matrices = steady_stream(3, 30)
    tracker = Tracker(ScoringOptions(3, lags=(1, 5), min_observations=3))
    sizes = []
    for t, A in enumerate(matrices):
        tracker.update(A)
        tracker.save(tmp_path / "state.npz")
        sizes.append((tmp_path / "state.npz").stat().st_size)
        assert tracker.numbers == list(range(max(0, t - 4), t + 1))
    assert max(sizes[5:]) < 1.1 * min(sizes[5:])


def test_nodes_never_seen_before_have_no_score_and_then_a_reference():
    matrices = steady_stream(4, 12)
    grown = [sp.csr_array(A[:140]) for A in matrices[:6]] + matrices[6:]
    stream = run(Tracker(ScoringOptions(3, lags=(1, 3), min_observations=4), history=12), grown)
    first, later = stream[6].sides["source"], stream[8].sides["source"]
    new = first.nodes >= 140
    assert new.any()
    assert np.isnan(first.raw[new]).all()
    assert np.isfinite(first.raw[~new]).all()
    assert np.isfinite(later.raw[later.nodes >= 140]).any()
    assert np.isnan(later.standardised[later.nodes >= 140]).all()


def test_a_missing_window_leaves_a_gap_and_the_reference_bridges_it():
    matrices = steady_stream(5, 14)
    tracker = Tracker(ScoringOptions(3, lags=(1, 7), min_observations=3))
    numbers = [0, 1, 2, 3, 4, 8, 13, 14]  # 8 is one lag from 1; 13 is no lag from anything
    stream = run(tracker, matrices[:8], numbers)
    assert all(window.left_out is None for window in stream)
    assert tracker.numbers == [8, 13, 14]
    for window in stream[5:7]:
        part = window.sides["source"]
        spread = np.linalg.norm(np.std(tracker._past[window.number]["source"].positions, axis=0))
        assert np.nanmedian(part.raw) < 0.5 * spread, "placed near where its nodes were"


def test_a_late_window_is_scored_and_takes_its_place():
    matrices = steady_stream(6, 12)
    tracker = Tracker(ScoringOptions(3, lags=(1, 7), min_observations=3))
    run(tracker, matrices[:9], [0, 1, 2, 3, 5, 6, 7, 8, 9])
    late = tracker.update(matrices[9], 4)
    assert np.isfinite(late.sides["source"].standardised).any()
    assert tracker.numbers == [3, 4, 5, 6, 7, 8, 9]
    very_late = tracker.update(matrices[10], 1)
    assert np.isfinite(very_late.sides["source"].raw).any()
    assert tracker.numbers == [3, 4, 5, 6, 7, 8, 9], "scored but not learnt"
    with pytest.raises(InputError, match="window 5 was learnt already"):
        tracker.update(matrices[0], 5)


def test_windows_that_cannot_be_used_are_named(caplog):
    matrices = steady_stream(7, 6)
    tracker = Tracker(ScoringOptions(3, lags=(1, 2), min_observations=3), history=9)
    run(tracker, matrices[:4])
    lonely = tracker.update(sp.csr_array(([1.0], ([0], [0])), shape=(150, 200)), 4)
    assert "allows none" in lonely.left_out
    assert (lonely.sides, lonely.alerts(5)) == ({}, [])
    strangers = sp.csr_array(sp.block_diag([sp.csr_array((150, 200)), matrices[0]]))
    apart = tracker.update(strangers, 5)
    assert "shares 0 sources with the windows remembered" in apart.left_out
    assert tracker.numbers == [0, 1, 2, 3]
    assert "window 5 is left out" in caplog.text


def test_a_restart_changes_nothing(tmp_path):
    matrices = steady_stream(8, 14)
    through, before = (Tracker(ScoringOptions(3, lags=(1, 3), min_observations=3)) for _ in range(2))
    run(through, matrices[:9])
    run(before, matrices[:9])
    before.save(tmp_path / "state.npz")
    after = Tracker.load(tmp_path / "state.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["state.npz"]
    for A in matrices[9:]:
        ours, theirs = through.update(A), after.update(A)
        for side in SIDES:
            z, expected = theirs.sides[side].standardised, ours.sides[side].standardised
            np.testing.assert_allclose(z, expected, rtol=1e-5, atol=1e-5)
        assert ours.limits == pytest.approx(theirs.limits)
    with np.load(tmp_path / "state.npz", allow_pickle=False) as file:
        assert "header" in file.files


def test_notes_are_kept_with_the_state(tmp_path):
    tracker = Tracker(ScoringOptions(3, lags=(1, 3), min_observations=3))
    tracker.notes = {"seen": ["a.csv"], "until": 4.5}
    tracker.save(tmp_path / "state.npz")
    again = Tracker.load(tmp_path / "state.npz")
    assert (again.notes, again.settings) == (tracker.notes, tracker.settings)


def test_other_files_are_refused(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    (tmp_path / "text.npz").write_text("hello")
    for name in ("other.npz", "text.npz"):
        with pytest.raises(FormatError, match="does not hold a whole state"):
            Tracker.load(tmp_path / name)
    with pytest.raises(FormatError, match="cannot be read: No such file"):
        Tracker.load(tmp_path / "absent.npz")
    write_state(tmp_path / "other.npz", {"a": np.arange(3), "b": np.arange(3)})
    with pytest.raises(FormatError, match="does not hold the state of a Tracker"):
        Tracker.load(tmp_path / "other.npz")


def test_a_folder_that_cannot_be_written_to_is_reported(tmp_path):
    with pytest.raises(JobError, match=r"cannot write in .*absent"):
        Tracker().save(tmp_path / "absent" / "state.npz")


def test_alerts_keep_to_the_budget_and_can_be_explained():
    network = netflow(300, 2500, 30, campaigns=3, seed=5)
    tracker = Tracker(ScoringOptions(4, lags=(1, 7, 14), min_observations=8, quantile=0.9))
    hits = 0
    truth = network.truth.nodes("source", 300, 30, "scanning")
    for day in range(30):
        window = tracker.update(network.matrix(day), day)
        alerts = window.alerts(20)
        assert len(alerts) <= 20
        assert [a.standardised for a in alerts] == sorted((a.standardised for a in alerts), reverse=True)
        hits += sum(bool(a.side == "source" and truth[a.node, day]) for a in alerts)
    assert hits >= 2
    scanner, day = next((n, d) for n, d in zip(*np.nonzero(truth), strict=True) if d in tracker.numbers)
    explanation = tracker.explain(int(day), "source", int(scanner))
    assert len(explanation.new) >= 10
    with pytest.raises(InputError, match="not remembered"):
        tracker.explain(0, "source", 1)


@pytest.mark.parametrize(
    "options",
    [
        {"dim": 0},
        {"lags": ()},
        {"lags": (0, 1)},
        {"history": 5},
        {"lags": (1, 7)},
        {"min_observations": 2},
        {"quantile": 0.0},
        {"quantile": 1.0},
    ],
)
def test_impossible_trackers(options):
    history = options.pop("history", None)
    with pytest.raises(InputError):
        Tracker(ScoringOptions(**options), history=history)


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """The file of a tracker that remembers three windows."""
    path = tmp_path_factory.mktemp("tracker") / "state.npz"
    tracker = Tracker(ScoringOptions(3, lags=(1, 3), min_observations=3))
    run(tracker, steady_stream(9, 5))
    tracker.notes = {"seen": ["a.csv"]}
    tracker.save(path)
    return path


def test_a_changed_byte_anywhere_is_refused(state, tmp_path):
    whole = state.read_bytes()
    rng = np.random.default_rng(3)
    damaged = tmp_path / "state.npz"
    contents = [whole[: int(size)] for size in rng.integers(len(whole), size=20)] + [whole + b"x", b""]
    for place in rng.integers(len(whole), size=60):
        contents.append(bytearray(whole))
        contents[-1][place] ^= 1 << rng.integers(8)
    for content in contents:
        damaged.write_bytes(content)
        with pytest.raises(FormatError, match=r"does not hold a whole state: its checksum .* begin with a new one"):
            Tracker.load(damaged)


def forged(arrays, **changes):
    """Change entries of the header."""
    header = json.loads(arrays["header"].tobytes()) | changes
    return arrays | {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}


HEADERS = [
    {"format": 1},
    {"numbers": 3},
    {"numbers": [2, 2, 3]},
    {"numbers": [2.0, 3.0]},
    {"numbers": [[2]]},
    {"numbers": [99]},
    {"notes": []},
    {"history": "long"},
    {"history": 1},
    {"dim": 2},
    {"dim": "3"},
    {"dim": True},
    {"lags": 1},
    {"lags": ["1"]},
    {"min_observations": None},
    {"quantile": "high"},
    {"quantile": 7},
    {"background": -1},
    {"background": None},
    {"more": 1},
]


def test_a_forged_state_is_refused_although_its_checksum_fits(state, tmp_path):
    arrays = read_state(state)
    path = tmp_path / "state.npz"
    write_state(path, arrays)
    assert Tracker.load(path).numbers == [2, 3, 4]
    wrong = [forged(arrays, **changes) for changes in HEADERS]
    for text in (b"[]", b"7", b"null", b"{", b"\xff", b"[" * 100_000, b""):
        wrong.append(arrays | {"header": np.frombuffer(text, dtype=np.uint8)})
    for name in [name for name in arrays if name.startswith("2.")]:
        array = arrays[name]
        changed = [array[:-1], array.astype("U5"), array[None], array.astype(complex), np.array(7), array + 10**6]
        changed += [array - 10**6] if array.dtype.kind == "i" else [np.full_like(array, np.inf)]
        changed += [array[::-1]] if name.endswith("indptr") else []
        wrong += [arrays | {name: other} for other in changed]
        wrong.append({other: value for other, value in arrays.items() if other != name})
    accepted = []
    for k, change in enumerate(wrong):
        write_state(path, change)
        with contextlib.suppress(FormatError):
            Tracker.load(path)
            accepted.append(k)
    assert len(accepted) == 4, "the positions and the scores of both sides that were moved by 10**6, and nothing else"


@pytest.mark.parametrize("background", [0.0, 1.0])
def test_windows_of_low_rank_are_scored_or_left_out(background):
    """All singular values of a perfect matching are equal, and a complete graph has only the trivial pair.

    LAPACK may lose copies of a repeated value, at sizes that depend on the processor; the tracker then died.
    """
    matchings = [sp.eye_array(n).tocsr() for n in (44, 50, 66)]
    windows = [*matchings, sp.csr_array(np.ones((39, 39))), *steady_stream(10, 4)]
    options = ScoringOptions(5, lags=(1, 2, 3, 4), min_observations=3, background=background)
    stream = run(Tracker(options), windows)
    assert all(window.left_out is None for window in stream[4:])
    assert "allows none" in stream[3].left_out or "no node" in stream[3].left_out
    for window in stream[:3]:
        assert window.left_out is not None or all(len(side.nodes) >= 44 for side in window.sides.values())
    batch = score_windows((Window(t, t, t + 1, A, 0) for t, A in enumerate(windows)), options)
    assert {3} <= set(batch.left_out) <= {0, 1, 2, 3}
