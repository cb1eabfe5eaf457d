"""The stream: the same numbers as the batch, from the past only, in bounded memory, and after a restart."""

import contextlib
import json
from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import nbinom, norm

from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.temporal import COMPONENTS, HostTable, ScoringOptions, Tracker, Window, drift_scores, score_windows
from graphquilt.temporal.judging import count_zscores
from graphquilt.temporal.memory import read_state, write_state
from graphquilt.temporal.traffic import netflow

SIDES = ("source", "destination")
# The tolerances below are those of the embeddings, which are in single precision.


def steady_stream(seed, days=50, groups=5):
    """Traffic between groups whose habits never change."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, groups, 150), rng.integers(0, groups, 200)
    habit = np.where(a[:, None] == b, 0.5, 0.03) * rng.uniform(0.4, 1, (150, 1)) * rng.uniform(0.4, 1, 200)
    return [sp.csr_array((rng.random(habit.shape) < habit).astype(float)) for _ in range(days)]


def as_window(A, number):
    """Every pair has as many flows as its ids say, and hosts have peaks of their degree."""
    counts = 1.0 + (np.arange(A.nnz) * 7 + number) % 5
    peaks = {"source": np.diff(A.indptr), "destination": np.bincount(A.indices, minlength=A.shape[1])}
    return Window(number, 86400.0 * number, 86400.0 * (number + 1), A, int(counts.sum()), counts, peaks)


def run(tracker, matrices, numbers=None):
    numbers = numbers or range(len(matrices))
    return [tracker.update(as_window(A, n)) for A, n in zip(matrices, numbers, strict=True)]


def options(**changes):
    return ScoringOptions(**({"dim": 3, "lags": (1, 3), "min_observations": 3} | changes))


def assert_same(ours, theirs):
    for side in SIDES:
        for item in fields(HostTable):
            a, b = (getattr(scores.sides[side], item.name) for scores in (ours, theirs))
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours.connections.surprise, theirs.connections.surprise, rtol=1e-4, atol=1e-4)


def test_batch_and_stream_give_the_same_numbers():
    matrices = steady_stream(0, 20)
    windows = [as_window(A, n) for n, A in enumerate(matrices)]
    batch = score_windows(iter(windows), options(), history=8, keep=None)
    stream = run(Tracker(options(), history=8), matrices)
    for ours, theirs in zip(batch.windows, stream, strict=True):
        assert_same(ours, theirs)
        assert [a[:3] for a in ours.alerts(5)] == [a[:3] for a in theirs.alerts(5)]
    alone = drift_scores(iter(windows), options())
    for side in SIDES:
        np.testing.assert_allclose(alone.sides[side].raw, batch.drift.sides[side].raw, rtol=1e-5, atol=1e-5)


def test_only_the_past_counts():
    matrices = steady_stream(2, 16)
    long, short = run(Tracker(options()), matrices), run(Tracker(options()), matrices[:10])
    for ours, theirs in zip(short, long[:10], strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_change_of_role_shows_in_the_contexts(seed):
    """Source 3 talks for a day to what a source of another group talks to; its counts stay what they were."""
    matrices = steady_stream(seed, 30, groups=4)
    last = matrices[-1].tolil()
    usual = sum(A.toarray() for A in matrices[:-1])
    other = next(k for k in range(150) if usual[k] @ usual[3] < 0.3 * (usual[3] @ usual[3]) and usual[k].sum() > 300)
    last[3] = last[other]
    stream = run(Tracker(options(dim=4), history=30), [*matrices[:-1], sp.csr_array(last)])
    z = stream[-1].sides["source"].column("contexts")
    assert stream[-1].sides["source"].nodes[np.argmax(z)] == 3


def test_memory_is_bounded(tmp_path):
    tracker = Tracker(options(pool=16, max_pairs=1500), history=4)
    sizes = []
    for t, A in enumerate(steady_stream(3, 16)):
        tracker.update(as_window(A, t))
        tracker.save(tmp_path / "state.npz")
        sizes.append((tmp_path / "state.npz").stat().st_size)
        assert tracker.numbers == list(range(max(0, t - 3), t + 1))
    assert max(sizes[5:]) < 1.1 * min(sizes[5:])
    assert len(read_state(tmp_path / "state.npz")["pairs.keys"]) == 1500


def test_hosts_never_seen_before_have_scores_and_a_flood_is_found():
    matrices = steady_stream(4, 14)
    flood = sp.lil_array((400, 200))
    flood[:150] = matrices[13]
    flood[150:, 7] = 1  # 250 forged sources, all to destination 7
    stream = run(Tracker(options(), history=14), [*matrices[:13], sp.csr_array(flood)])
    today = stream[-1].sides
    assert np.isfinite(today["source"].pvalue).all()
    assert today["source"].nodes.max() == 399
    assert next(a for a in stream[-1].alerts(300) if a.side == "destination").node == 7
    forged = today["source"].nodes >= 150
    assert np.median(today["source"].pvalue[forged]) < np.quantile(today["source"].pvalue[~forged], 0.05)
    alerts = stream[-1].alerts(300)
    assert not any(a.side == "source" and a.node >= 150 for a in alerts), "they are victims of one incident"
    flood = next(a for a in alerts if a.side == "destination")
    assert flood.severity == 100
    assert set(range(150, 400)) <= set(flood.victims.partner.tolist())


def test_a_host_that_is_always_extreme_stays_visible():
    """A scanner that meets new hosts in every window is usual for itself, and not for the population."""
    rng = np.random.default_rng(5)
    matrices = []
    for A in steady_stream(5, 20):
        day = sp.lil_array((150, 2200))
        day[:, :200] = A
        day[3, 200 + rng.choice(2000, 300, replace=False)] = 1
        matrices.append(sp.csr_array(day))
    stream = run(Tracker(options(), history=20), matrices)
    for window in stream[10:]:
        table = window.sides["source"]
        level = table.column("level")
        assert table.nodes[np.argmax(level)] == 3
        assert table.pvalues[np.argmax(level), COMPONENTS.index("level")] < 0.02


def test_normal_windows_are_calibrated():
    stream = run(Tracker(options(lags=(1, 7)), history=40), steady_stream(6, 40))
    for side in SIDES:
        p = np.concatenate([window.sides[side].pvalue for window in stream[2:]])
        assert 0.005 < np.mean(p < 0.01) < 0.015
        assert 0.08 < np.mean(p < 0.1) < 0.13


def test_new_hosts_inside_and_callbacks_are_found():
    """Sources 0 to 149 are destinations 0 to 149; source 3 turns to four of them, and source 5 calls one address."""
    rng = np.random.default_rng(8)
    as_source = np.where(np.arange(400) < 150, np.arange(400), -1)
    matrices = []
    for t, A in enumerate(steady_stream(8, 24)):
        day = sp.lil_array((150, 400))
        day[:, 200:] = A  # the usual traffic goes outside
        for source in range(150):
            day[source, 150 + rng.integers(40)] = 1  # and to an address that is another one each time
        day[9, :150] = rng.random(150) < 0.3  # a harmless scanner
        if t == 20:
            day[3, [20, 40, 60, 80]] = 1
        if t >= 20:
            day[5, 199] = 1
        matrices.append(sp.csr_array(day))
    tracker = Tracker(options(), history=24)
    stream = [tracker.update(replace(as_window(A, t), as_source=as_source)) for t, A in enumerate(matrices)]
    inside, callbacks = COMPONENTS.index("inside pairs"), COMPONENTS.index("callbacks")
    first = stream[20].sides["source"]
    assert first.values[3, inside] == 4
    assert first.pvalues[3, inside] < 0.02
    assert first.values[5, callbacks] == 0, "an address is not called back on the first day"
    for window in stream[21:]:
        table = window.sides["source"]
        assert table.values[5, callbacks] == 1
        assert table.pvalues[5, callbacks] < 0.02
        assert np.all(table.pvalues[table.values[:, callbacks] == 0, callbacks] == 1)
    assert np.isnan(stream[20].sides["destination"].values[:, [inside, callbacks]]).all()
    without = run(Tracker(options(), history=24), matrices[:3])[-1].sides["source"]
    assert np.isnan(without.values[:, [inside, callbacks]]).all(), "without names it is not known who is inside"


@given(st.integers(1, 40), st.floats(0.01, 20), st.floats(1, 60))
def test_a_rare_count_is_the_less_usual_the_higher_it_is_and_the_rarer(count, rate, weight):
    counts = np.array([0.0, count, count + 1, count, np.nan])
    rates = np.array([rate, rate, rate, 1.5 * rate, rate])
    none, some, more, likelier, missing = count_zscores(counts, rates, np.full(5, weight))
    assert none <= some <= more + 1e-9
    assert likelier <= some + 1e-9
    assert np.isnan(missing)
    tail = nbinom.sf(count - 1, rate * weight + 1e-6, weight / (1 + weight))
    assert some == pytest.approx(norm.isf(min(tail, 0.999)), abs=1e-6)


def test_a_missing_window_leaves_a_gap():
    matrices = steady_stream(5, 8)
    tracker = Tracker(options(), history=5)
    stream = run(tracker, matrices, [0, 1, 2, 3, 4, 8, 13, 14])
    assert all(window.left_out is None for window in stream)
    assert tracker.numbers == [3, 4, 8, 13, 14]
    assert stream[-1].fit < 0.9


def test_a_late_window_is_scored_and_learnt():
    matrices = steady_stream(6, 12)
    tracker = Tracker(options(), history=7)
    run(tracker, matrices[:9], [0, 1, 2, 3, 5, 6, 7, 8, 9])
    late = tracker.update(as_window(matrices[9], 4))
    assert np.isfinite(late.sides["source"].z[:, 0]).any()
    assert 4 in tracker.numbers
    with pytest.raises(InputError, match="window 5 was learnt already"):
        tracker.update(as_window(matrices[0], 5))


def test_windows_that_cannot_be_embedded_are_named_and_scored_by_counts(caplog):
    matrices = steady_stream(7, 8)
    tracker = Tracker(options(lags=(1, 2)), history=9)
    *_, busy = run(tracker, matrices[:6])
    assert len(busy.alerts(5)) == 5, "a budget is filled as far as there are hosts"
    lonely = tracker.update(as_window(sp.csr_array(([1.0], ([0], [0])), shape=(150, 200)), 6))
    assert "allows none" in lonely.left_out
    table = lonely.sides["source"]
    measured = {component.name for component in table.components(0)}
    assert not {"drift", "tokens"} & measured
    assert {"degree", "volume", "peak rate", "new pairs", "pair surprise", "newcomers", "level"} <= measured
    assert lonely.alerts(5) == [], "a host that has no more than expected is no alert"
    strangers = sp.csr_array(sp.block_diag([sp.csr_array((150, 200)), matrices[0]]))
    apart = tracker.update(as_window(strangers, 7))
    assert "shares 0 sources with the windows remembered" in apart.left_out
    assert "window 7 is left out of the embedding" in caplog.text


def test_new_and_improbable_pairs_rank_first():
    """A pair between two groups surprises more than a new pair within a group."""
    rng = np.random.default_rng(8)
    a, b = np.arange(60) % 3, np.arange(90) % 3
    habit = np.where(a[:, None] == b, 0.4, 0.0)
    days = [(rng.random(habit.shape) < habit).astype(float) for _ in range(12)]
    days[-1][0, 1] = days[-1][5, 0] = 1  # of groups 0 and 1, and of groups 2 and 0
    stream = run(Tracker(options(dim=2), history=12), [sp.csr_array(A) for A in days])
    best = stream[-1].pairs(budget=2)
    assert {(pair.source, pair.destination) for pair in best} == {(0, 1), (5, 0)}
    assert all(pair.is_new and pair.port is None for pair in best)
    assert best[0].pvalue <= best[1].pvalue


def test_a_pair_of_unusual_hosts_counts_more_than_the_same_pair_of_usual_ones():
    """Two new pairs, equally improbable; only one of the sources has 30 others."""
    matrices = steady_stream(8, 14)
    today = sp.lil_array(matrices[-1])
    today[3, 100:130] = 1
    stream = run(Tracker(options(), history=14), [*matrices[:-1], sp.csr_array(today)])
    table = stream[-1].connections
    new = table.is_new & (table.source != 3)
    assert np.median(table.pvalue[table.is_new & (table.source == 3)]) < np.median(table.pvalue[new]) / 3
    assert np.mean(np.concatenate([window.connections.pvalue for window in stream[2:-1]]) < 0.01) < 0.02


def test_a_monday_after_a_weekend_is_no_alarm():
    """Ten times as many hosts as in the two windows before: neither their number nor their flows are severe."""
    A = steady_stream(10, 3)
    weekend = [sp.csr_array(sp.vstack([day[:10], sp.csr_array((140, 200))])) for day in A[:2]]
    monday = run(Tracker(options()), [*weekend, A[2]])[-1]
    for side in SIDES:
        assert np.mean(monday.sides[side].pvalue < 0.01) < 0.05


def test_a_restart_changes_nothing(tmp_path):
    matrices = steady_stream(8, 14)
    through, before = Tracker(options()), Tracker(options())
    run(through, matrices[:9])
    run(before, matrices[:9])
    before.save(tmp_path / "state.npz")
    after = Tracker.load(tmp_path / "state.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["state.npz"]
    assert {kind: ids.tolist() for kind, ids in after.known.items()} == {
        kind: ids.tolist() for kind, ids in before.known.items()
    }
    for n, A in enumerate(matrices[9:], 9):
        assert_same(after.update(as_window(A, n)), through.update(as_window(A, n)))
    with np.load(tmp_path / "state.npz", allow_pickle=False) as file:
        assert "header" in file.files


def test_notes_are_kept_with_the_state(tmp_path):
    tracker = Tracker(options())
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


def test_alerts_fill_the_budget_and_can_be_explained():
    network = netflow(300, 2500, 30, campaigns=3, seed=5)
    tracker = Tracker(ScoringOptions(4, lags=(1, 7, 14)))
    hits = 0
    truth = network.truth.nodes("source", 300, 30, "scanning")
    for day in range(30):
        window = tracker.update(as_window(network.matrix(day), day))
        alerts = window.alerts(20)
        assert len(alerts) == (20 if day > 1 else 0), "the first windows have nothing to be compared with"
        assert [a.pvalue for a in alerts] == sorted(a.pvalue for a in alerts)
        hits += sum(bool(a.side == "source" and truth[a.node, day]) for a in alerts)
        for scanner in np.flatnonzero(truth[:, day]):
            explanation = tracker.explain(day, "source", int(scanner))
            assert len(explanation.new) >= 10
            assert explanation.degree > explanation.usual_degree
    assert hits >= 2
    with pytest.raises(InputError, match="cannot be explained any more: the window scored last is 29"):
        tracker.explain(0, "source", 1)
    with pytest.raises(InputError, match="at least 1 alert"):
        window.alerts(0)


@pytest.mark.parametrize("last", [3, 8])
def test_a_source_that_talks_to_everybody_is_in_the_budget_of_its_window(last):
    rng = np.random.default_rng(0)
    usual = rng.random((60, 60)) < 0.1
    tracker = Tracker(ScoringOptions(dim=3, lags=(1, 7)))
    for number in range(last + 1):
        A = (usual & (rng.random((60, 60)) < 0.9)) | (rng.random((60, 60)) < 0.01)
        A[59] |= number == last
        matrix = sp.csr_array(A.astype(float))
        today = tracker.update(Window(number, number * 86400.0, (number + 1) * 86400.0, matrix, matrix.nnz))
    alerts = today.alerts(budget=20)
    place = [(alert.side, alert.node) for alert in alerts].index(("source", 59))
    assert all(alert.pvalue < alerts[place].pvalue for alert in alerts[:place]), "it comes first among equal p-values"


def test_an_explanation_is_that_of_the_matrices():
    from graphquilt.temporal.results import explain

    matrices = steady_stream(9, 9)
    tracker = Tracker(options(), history=20)
    run(tracker, matrices)
    for side in SIDES:
        for node in (3, 40, 77):
            ours, expected = tracker.explain(8, side, node), explain(matrices, node, 8, side=side)
            assert sorted(ours.new.tolist()) == sorted(expected.new.tolist())
            assert sorted(ours.gone.tolist()) == sorted(expected.gone.tolist())
            assert ours.degree == expected.degree


@pytest.mark.parametrize(
    "changes",
    [
        {"dim": 0},
        {"lags": ()},
        {"lags": (0, 1)},
        {"history": 1},
        {"min_observations": 2},
        {"quantile": 0.0},
        {"quantile": 1.0},
        {"prior": 0.0},
        {"concentration": -1.0},
        {"pool": 3},
        {"max_pairs": 0},
    ],
)
def test_impossible_trackers(changes):
    history = changes.pop("history", None)
    with pytest.raises(InputError):
        Tracker(ScoringOptions(**changes), history=history)


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """The file of a tracker that remembers three windows."""
    path = tmp_path_factory.mktemp("tracker") / "state.npz"
    tracker = Tracker(options(), history=3)
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
    {"numbers": [4, 3]},
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
    {"prior": 0},
    {"pool": 1.5},
    {"max_pairs": -1},
]


def test_a_forged_state_is_refused_although_its_checksum_fits(state, tmp_path):
    arrays = read_state(state)
    path = tmp_path / "state.npz"
    write_state(path, arrays)
    assert Tracker.load(path).numbers == [2, 3, 4]
    wrong = [forged(arrays, **changes) for changes in HEADERS]
    for text in (b"[]", b"7", b"null", b"{", b"\xff", b"[" * 100_000, b""):
        wrong.append(arrays | {"header": np.frombuffer(text, dtype=np.uint8)})
    for name in [name for name in arrays if name != "header"]:
        array = arrays[name]
        changed = [array[:-1], array.astype("U5"), array[None], array.astype(complex), np.array(7)]
        changed += [array - 10**6] if name in ("pairs.keys", "source.number") else []
        changed += [array[::-1], array + 10**6] if name == "pairs.keys" else []
        changed += [np.full_like(array, np.inf)] if array.dtype.kind == "f" else []
        wrong += [arrays | {name: other} for other in changed]
        wrong.append({other: value for other, value in arrays.items() if other != name})
    accepted = []
    for k, change in enumerate(wrong):
        write_state(path, change)
        with contextlib.suppress(FormatError):
            Tracker.load(path)
            accepted.append(k)
    # What was not refused: no tokens at all, one row of a pool less, or one window of a pool less.
    assert len(accepted) == 3 * 3 + 4


@pytest.mark.parametrize("background", [0.0, 1.0])
def test_windows_of_low_rank_are_scored(background):
    """All singular values of a perfect matching are equal, and a complete graph has only the trivial pair.

    LAPACK may lose copies of a repeated value, at sizes that depend on the processor; the tracker then died.
    """
    matchings = [sp.eye_array(n).tocsr() for n in (44, 50, 66)]
    windows = [*matchings, sp.csr_array(np.ones((39, 39))), *steady_stream(10, 4)]
    stream = run(Tracker(options(dim=5, lags=(1, 2, 3, 4), background=background)), windows)
    assert all(window.left_out is None for window in stream[4:])
    assert "allows none" in stream[3].left_out or "no node" in stream[3].left_out
    assert all(np.isfinite(side.pvalue).all() for window in stream for side in window.sides.values())
