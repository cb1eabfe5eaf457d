"""Checks that your own partitioner, embedder or store fulfils its contract."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.alignment import Alignment
from graphquilt.alignment.centroids import lay_onto
from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.embedders import Embedder, FarField, SharedStart, checked_fit, cut_patch, free_motions, shares_start
from graphquilt.embedders.shared_start import Arrays
from graphquilt.errors import InputError, QuiltError
from graphquilt.graph import Graph, check_labels
from graphquilt.jobs import Record, Store
from graphquilt.linalg import Motions
from graphquilt.patches import coarse_graph, fine_clusters
from graphquilt.testing.quilts import ring_with_chords

Options = Mapping[str, object]
GOOD, FAIR = 0.3, 0.7  # shares of the spread, as in the verdict of an alignment: below the first the halves agree
_COMMUNITIES = 6
_SEEDED = (
    "Take all random numbers from the seed: numpy.random.default_rng(seed) or torch.manual_seed(seed). Some "
    "functions of libraries draw from other sources: negative_sampling of PyG from Python's random, for example."
)
_MOST_ROUNDS = 100  # of a shared start; an embedder that asks for more never ends


def check_embedder(embedder: Embedder, *, n_nodes: int | None = None, width: int = 12) -> EmbedderReport:
    """Report whether patches of an embedder can be stitched; raise AssertionError if it breaks its contract.

    The contract is that of :class:`graphquilt.embedders.Embedder`; the error says what to change, and has the report.

    On a connected graph with features it must return (n, dim) finite floats, the same for the same seed and after
    pickling, and must not change the graph. It may refuse isolated nodes, a graph without features, a graph without
    edges and a graph of one node with an :class:`~graphquilt.errors.InputError`; an embedding must be finite.

    With a shared start, ``prepare`` must return the same mapping of names to arrays for the same seed, and ``combine``
    an embedder of the same dim with a ``start``.

    Two overlapping halves of a graph of communities are then embedded, with different seeds, and aligned by the motions
    that the embedder declares. The remaining error is reported; a large one is not a breach.

    The graphs have ``n_nodes``, by default 4 ``dim`` and at least 40, and ``width`` features.

    Examples
    --------
    >>> from graphquilt.embedders import SVD
    >>> report = check_embedder(SVD(2))
    >>> report.aligned < 1, report.started
    (True, None)
    """
    dim = getattr(embedder, "dim", None)
    assert isinstance(dim, int | np.integer), f"dim is {dim!r}, not an integer"
    assert dim >= 1, f"dim is {dim}, below 1"
    try:
        free_motions(embedder)
    except InputError as error:
        raise AssertionError(str(error)) from error
    n = max(40, 4 * dim) if n_nodes is None else n_nodes
    graph = _ring_with_chords(n, width)
    before, case = _contents(graph), f"a connected graph of {n} nodes with {width} features"
    try:
        X = checked_fit(embedder, graph, 1, where=case).embedding
    except QuiltError as error:
        raise AssertionError(f"{case} was not embedded: {error}") from error
    broken = [] if _contents(graph) == before else ["the embedder has changed the graph. Work on copies of its arrays."]
    try:
        copy = pickle.loads(pickle.dumps(embedder))
    except Exception as error:
        raise AssertionError(f"it cannot be pickled, so no other process can run it: {error}") from error
    if not np.array_equal(X, np.asarray(embedder(graph, 1))):
        broken.append(f"the same seed gave another embedding. {_SEEDED}")
    elif not np.array_equal(X, np.asarray(copy(graph, 1))):
        broken.append("its pickled copy gave another embedding. Keep all settings in attributes that are pickled.")
    isolated = sp.csr_array(sp.block_diag([graph.adjacency, sp.csr_array((3, 3))]))
    features = np.asarray(graph.features)
    cases = {
        "a graph with isolated nodes": Graph(isolated, np.vstack([features, np.ones((3, width))])),
        "a graph without features": Graph(graph.adjacency),
        "a graph without edges": Graph(sp.csr_array((n, n)), features),
        "a graph of one node": Graph(sp.csr_array((1, 1)), features[:1]),
    }
    broken += [text for what, each in cases.items() if (text := _breach(embedder, each, what)) is not None]
    report = compare_halves(embedder, width)
    if broken:
        raise AssertionError("\n".join([*broken, f"Once that is changed: {report}"]))
    return report


def _breach(embedder: Embedder, graph: Graph, what: str) -> str | None:
    """Embed the graph, and return what is wrong; an InputError that the embedder itself raises is allowed."""
    try:
        X = np.asarray(embedder(graph, 1))
    except InputError:
        return None
    except Exception as error:
        return f"{what} raised {type(error).__name__} instead of InputError: {error}. Raise an InputError."
    if X.shape != (graph.n_nodes, embedder.dim):
        return f"{what} gave an array of shape {X.shape}, not {(graph.n_nodes, embedder.dim)}. Return a row per node."
    return None if np.isfinite(X).all() else f"{what} gave values that are not finite. Look for divisions by 0."


def _ring_with_chords(n: int, width: int) -> Graph:
    """Return a connected graph of n nodes with 2n edges and non-negative features."""
    rng = np.random.default_rng(0)
    A = sp.csr_array((np.ones(2 * n), tuple(ring_with_chords(n, 4, rng).T)), shape=(n, n))
    return Graph(sp.csr_array(A + A.T), rng.random((n, width), dtype=np.float32))


def _contents(graph: Graph) -> list[bytes]:
    return [np.asarray(array).tobytes() for array in (graph.indptr, graph.indices, graph.features)]


def sample_graphs() -> dict[str, Graph]:
    """Return small graphs that are difficult for partitioners, by name."""
    path, rng = np.eye(24, k=1) + np.eye(24, k=-1), np.random.default_rng(0)
    star, lonely, apart = np.zeros((24, 24)), path.copy(), path.copy()
    star[0, 1:] = star[1:, 0] = 1
    dense = np.triu(rng.random((24, 24)) * (rng.random((24, 24)) < 0.3), 1)
    lonely[16:] = lonely[:, 16:] = 0
    apart[11, 12] = apart[12, 11] = 0
    matrices = {
        "path": path,
        "star": star,
        "weighted": dense + dense.T,
        "isolated nodes": lonely,
        "two components": apart,
        "directed ring": np.roll(np.eye(24), 1, 0),
    }
    return {name: Graph(sp.csr_array(A)) for name, A in matrices.items()}


def check_partitioner(
    partitioner: Callable[[Graph], npt.ArrayLike], *, graphs: Iterable[Graph] = (), n_patches: int | None = None
) -> None:
    """Raise AssertionError if a partitioner breaks the contract on one of several small graphs.

    It must return one integer per node, 0..p-1 without gaps; return the same labels when called again; not change the
    graph; and accept paths, stars, weights, isolated nodes, several components and one-way edges.

    ``graphs`` are further ones to try, and ``n_patches`` is the number of clusters of every graph, if that is known.

    Examples
    --------
    >>> from graphquilt import Metis
    >>> check_partitioner(Metis(n_patches=3), n_patches=3)
    """
    cases = sample_graphs() | {f"your graph {k}": graph for k, graph in enumerate(graphs)}
    for name, graph in cases.items():
        before = np.array(graph.indptr), np.array(graph.indices)
        labels = np.asarray(partitioner(graph))
        check_labels(labels, graph.n_nodes)  # raises an error that explains what is wrong
        again = np.asarray(partitioner(graph))
        if not np.array_equal(labels, again):
            raise AssertionError(f"{name}: a second call gives other labels for {np.sum(labels != again)} nodes.")
        if not all(np.array_equal(a, b) for a, b in zip(before, (graph.indptr, graph.indices), strict=True)):
            raise AssertionError(f"{name}: the graph was changed.")
        if n_patches is not None and labels.max() + 1 != n_patches:
            raise AssertionError(f"{name}: {labels.max() + 1} clusters instead of {n_patches}.")


@dataclass(frozen=True, repr=False)
class EmbedderReport:
    """What :func:`check_embedder` reports of an embedder that fulfils the contract; it prints as text, with advice.

    Both errors are root mean square distances of the same nodes in two patches, as shares of the spread of these nodes
    in both: 0 means that the patches agree, and unrelated patches are near 1, as for the edges of an alignment.

    ``aligned`` is the error that is left after the best of the ``motions`` (see
    :func:`graphquilt.embedders.free_motions`), fitted on one half of the shared nodes and computed on the other; None
    where the positions of all shared nodes coincide. ``started`` is that from a shared start, without any motion.
    """

    motions: Motions
    aligned: float | None
    started: float | None = None

    def __str__(self) -> str:
        lines = [self._about_alignment()]
        if self.started is not None:
            lines.append(f"From a shared start {self.started:.0%} of the spread is left without any alignment.")
        if self.started is not None and self.started > GOOD:
            lines.append("The start does not fix the frame: train less from it, or let it decide more of the result.")
        return "\n".join(lines)

    __repr__ = __str__

    def _about_alignment(self) -> str:
        if self.aligned is None:
            return "All nodes that two halves of a graph share have the same position, so nothing can be aligned."
        free = " and ".join(name for name, value in vars(self.motions).items() if value) or "no motion"
        left = f"{self.aligned:.0%} of the spread is left after the best motion ({free})"
        if self.aligned <= GOOD:
            return f"{left}: patches of this embedder can be stitched."
        if self.aligned <= FAIR:
            return f"{left}: patches can be stitched, but some quality is lost."
        remedy = (
            "Give the embedder a shared start (see docs/embedders.md), or coordinates whose inner products are the "
            "same in every patch."
            if self.started is None
            else "Use its shared start."
        )
        return f"{left}: each patch chooses its own frame. {remedy}"


def compare_halves(embedder: Embedder, width: int) -> EmbedderReport:
    """Embed two overlapping halves of a graph of communities, align them, and return what is left."""
    shared = max(60, 4 * (embedder.dim + 1))
    graph, halves = _communities(shared, width)
    motions = free_motions(embedder)
    parts = [graph.subgraph(nodes) for nodes in halves]
    a, b = (X[rows] for X, rows in zip(_embed_parts(embedder, parts), _shared_rows(halves), strict=True))
    if not shares_start(embedder, graph):
        return EmbedderReport(motions, _error_after(a, b, motions))
    survey = embedder.survey(graph, 1, clusters=coarse_graph(graph, fine_clusters(graph)))
    for name, array in survey.nodes.items():
        assert len(array) == graph.n_nodes, f"survey has {len(array)} rows in {name!r} for {graph.n_nodes} nodes"
    far = [cut_patch(graph, nodes, survey)[1] for nodes in halves]
    kept: list[Arrays] = []
    for _ in range(_MOST_ROUNDS):
        if embedder.complete:
            break
        kept = [_prepare(embedder, *part) for part in zip(parts, far, strict=True)]
        embedder = _combine(embedder, kept)
    assert embedder.complete, f"the shared start is not complete after {_MOST_ROUNDS} rounds"
    options = [{"far": around, "kept": own} for around, own in zip(far, kept, strict=True)]
    c, d = (X[rows] for X, rows in zip(_embed_parts(embedder, parts, options), _shared_rows(halves), strict=True))
    left = embedder.motions_started
    moved = _error_after(c, d, left) if left.free else _error(c, d)
    return EmbedderReport(motions, _error_after(a, b, motions), moved)


def _communities(size: int, width: int) -> tuple[Graph, list[Int64Array]]:
    """Return a graph of six communities in a row, and the first and the last four, which share ``size`` nodes."""
    rng = np.random.default_rng(0)
    n = _COMMUNITIES * (size // 2)
    home = np.arange(n) // (size // 2)
    pairs = rng.integers(0, n, size=(40 * n, 2))
    apart = np.abs(home[pairs[:, 0]] - home[pairs[:, 1]])
    chance = np.where(apart == 0, 0.7, np.where(apart == 1, 0.1, 0.01))
    pairs = pairs[rng.random(len(pairs)) < chance]
    chain = np.column_stack([np.arange(n - 1), np.arange(1, n)])  # keeps both halves connected
    rows, columns = np.concatenate([pairs, chain]).T
    A = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    A = sp.csr_array(((A + A.T) > 0).astype(np.float64))
    A.setdiag(0)
    A.eliminate_zeros()
    features = rng.random((_COMMUNITIES, width))[home] + 0.5 * rng.random((n, width))
    return Graph(A, features.astype(np.float32)), [np.flatnonzero(home < 4), np.flatnonzero(home >= 2)]


def _embed_parts(
    embedder: Embedder, parts: Sequence[Graph], options: Sequence[Options] = ({}, {})
) -> list[Float64Array]:
    try:
        halves = enumerate(zip(parts, options, strict=True))
        fits = [checked_fit(embedder, part, k, where="one half", progress=None, **each) for k, (part, each) in halves]
    except QuiltError as error:
        raise AssertionError(f"half of a graph of communities was not embedded: {error}") from error
    return [np.asarray(fit.embedding, dtype=np.float64) for fit in fits]


def _shared_rows(halves: Sequence[Int64Array]) -> list[Int64Array]:
    shared = np.intersect1d(halves[0], halves[1])
    return [np.searchsorted(half, shared) for half in halves]


def _spread(*clouds: Float64Array) -> float:
    return float(np.sqrt(sum(np.sum((X - X.mean(axis=0)) ** 2) for X in clouds)))


def _error(a: Float64Array, b: Float64Array) -> float:
    """Return the distance of two clouds of the same nodes as a share of their spread; 0 where both have none."""
    distance = float(np.linalg.norm(a - b))
    return distance / _spread(a, b) if distance > 0 else 0.0


def _error_after(a: Float64Array, b: Float64Array, motions: Motions) -> float | None:
    """Fit ``a`` to ``b`` on every second node, and return the relative distance of the others."""
    fitted, tested = np.arange(0, len(a), 2), np.arange(1, len(a), 2)
    if min(_spread(Z[part]) for Z in (a, b) for part in (fitted, tested)) <= 1e-12 * max(map(np.linalg.norm, (a, b))):
        return None
    fit = lay_onto([(fitted, a[fitted])], Alignment.identity(1, a.shape[1]), b, motions=motions)
    return _error(fit.apply(0, a[tested]), b[tested])


def _prepare(embedder: SharedStart, graph: Graph, far: FarField) -> Arrays:
    """Return what a part prepares, named arrays that are the same for the same seed."""
    first, second = (embedder.prepare(graph, 1, far=far) for _ in range(2))
    for made in (first, second):
        assert isinstance(made, Mapping), f"prepare returned {type(made).__name__}, not a mapping of names to arrays"
    for name, value in first.items():
        assert isinstance(name, str), f"prepare has the key {name!r}, which is not a string"
        assert isinstance(value, np.ndarray), f"prepare has {type(value).__name__} under {name!r}, not an array"
    same = first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)
    assert same, "the same seed prepared something else"
    return first


def _combine(embedder: SharedStart, kept: Sequence[Arrays]) -> SharedStart:
    """Return the embedder after one round, which has the same dim and a ``start``."""
    before, total = embedder.start, None
    for own in kept:
        total = embedder.add(total, embedder.contribute(own))
    assert total is not None
    result: object = embedder.combine(total, 1)
    assert isinstance(result, SharedStart), f"combine returned {type(result).__name__}, not an embedder"
    assert result.dim == embedder.dim, f"combine returned an embedder of dim {result.dim}, not {embedder.dim}"
    assert result.start is not None, "combine returned an embedder without a start"
    assert embedder.start is before, "combine has changed the embedder itself"
    try:
        pickle.loads(pickle.dumps(result))
    except Exception as error:
        raise AssertionError(f"the embedder with a start cannot be pickled: {error}") from error
    return result


def check_store(empty_store: Callable[[], Store]) -> None:
    """Raise AssertionError if a store made by ``empty_store()`` breaks the contract of the Store protocol.

    Examples
    --------
    >>> check_store(dict)
    """
    store, key, other = empty_store(), "patches/00000/graph", "patches/00000/embedding"
    assert key not in store, "an empty store contains a record"
    try:
        store[key]
    except KeyError:
        pass
    else:
        raise AssertionError("an absent record did not raise KeyError")
    arrays: dict[str, AnyArray] = {
        "ids": np.array([5, 3, 9], dtype=np.int64),
        "half": np.array([[0.5, -0.0], [np.inf, 2.0]], dtype=np.float16),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "none": np.empty((0, 4), dtype=np.float32),
        "text": np.array(["a", "ñandú"]),
    }
    parameters = {"seed": 3, "dim": 2, "names": ["a", "b"], "nested": {"x": 0.1, "y": None, "z": True}}
    store[key] = Record(arrays, parameters)
    assert key in store, "a stored record is not there"
    assert other not in store, "storing one record made another appear"
    back = store[key]
    assert dict(back.parameters) == parameters, f"the parameters came back as {dict(back.parameters)}"
    assert set(back.arrays) == set(arrays), f"the arrays came back as {sorted(back.arrays)}"
    for name, array in arrays.items():
        loaded = np.asarray(back.arrays[name])
        assert loaded.dtype == array.dtype, f"array {name}: {array.dtype} came back as {loaded.dtype}"
        assert loaded.shape == array.shape, f"array {name}: {array.shape} came back as {loaded.shape}"
        assert loaded.tobytes() == array.tobytes(), f"array {name} came back with other values"
    store[other] = Record({"only": np.ones(2)}, {"n": 1})
    store[other] = Record({"only": np.zeros(3)}, {"n": 2})
    again = store[other]
    assert np.array_equal(again.arrays["only"], np.zeros(3)), "a record that was stored again has its old arrays"
    assert again.parameters["n"] == 2, "a record that was stored again has its old parameters"
    assert np.array_equal(store[key].arrays["ids"], arrays["ids"]), "storing one record changed another"
    store["patches"] = Record({}, {"note": "no arrays"})
    assert "patches" in store, "a record without arrays is not there"
    assert store["patches"].parameters["note"] == "no arrays", "a record without arrays lost its parameters"
    assert key in store, "a key that is the beginning of another one displaced it"
