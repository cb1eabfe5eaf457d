"""Checks that your own partitioner, embedder or store fulfils its contract."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.embedders.contract import Embedder, checked_fit
from graphquilt.embedders.shared_start import free_motions
from graphquilt.errors import InputError, QuiltError
from graphquilt.graph import Graph, check_labels
from graphquilt.jobs import Record, Store
from graphquilt.testing.stitching import EmbedderReport, compare_halves


def check_embedder(embedder: Embedder, *, n_nodes: int | None = None, width: int = 12) -> EmbedderReport:
    """Raise AssertionError if an embedder breaks the contract of :class:`graphquilt.embedders.Embedder`.

    On a connected graph with features it must return (n, dim) finite floats, the same for the same seed and after
    pickling, and must not change the graph. It may refuse isolated nodes, a graph without features, a graph without
    edges and a graph of one node with an :class:`~graphquilt.errors.InputError`; an embedding must be finite.

    With a shared start, ``prepare`` must return the same mapping of names to arrays for the same seed, and ``combine``
    an embedder of the same dim with a ``start``.

    Two overlapping halves of a graph of communities are then embedded, with different seeds, and aligned by the motions
    that the embedder declares. The remaining error is reported; a large one does not fail the check.

    Parameters
    ----------
    embedder : Embedder
    n_nodes : int, optional
        Size of the graphs; None means 4 ``dim``, and at least 40.
    width : int
        Number of features.

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
    assert _contents(graph) == before, "the embedder has changed the graph"
    assert np.array_equal(X, np.asarray(embedder(graph, 1))), "the same seed gave another embedding"
    try:
        copy = pickle.loads(pickle.dumps(embedder))
    except Exception as error:
        raise AssertionError(f"it cannot be pickled, so no other process can run it: {error}") from error
    assert np.array_equal(X, np.asarray(copy(graph, 1))), "its pickled copy gave another embedding"
    isolated = sp.csr_array(sp.block_diag([graph.adjacency, sp.csr_array((3, 3))]))
    features = np.asarray(graph.features)
    more = np.vstack([features, np.ones((3, width))])
    _embed_or_refuse(embedder, Graph(isolated, more), "a graph with isolated nodes")
    _embed_or_refuse(embedder, Graph(graph.adjacency), "a graph without features")
    _embed_or_refuse(embedder, Graph(sp.csr_array((n, n)), features), "a graph without edges")
    _embed_or_refuse(embedder, Graph(sp.csr_array((1, 1)), features[:1]), "a graph of one node")
    return compare_halves(embedder, width)


def _embed_or_refuse(embedder: Embedder, graph: Graph, what: str) -> None:
    """Embed the graph; an InputError that the embedder itself raises is allowed too."""
    try:
        X = np.asarray(embedder(graph, 1))
    except InputError:
        return
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__} instead of InputError: {error}") from error
    shape = (graph.n_nodes, embedder.dim)
    assert X.shape == shape, f"{what} gave an array of shape {X.shape}, not {shape}"
    assert np.isfinite(X).all(), f"{what} gave values that are not finite"


def _ring_with_chords(n: int, width: int) -> Graph:
    """Return a connected graph of n nodes with 2n edges and non-negative features."""
    rng = np.random.default_rng(0)
    ring = np.arange(n)
    rows, columns = np.concatenate([ring, ring]), np.concatenate([(ring + 1) % n, rng.integers(n, size=n)])
    A = sp.csr_array((np.ones(2 * n), (rows, columns)), shape=(n, n))
    A = sp.csr_array(((A + A.T) > 0).astype(np.float64) - sp.diags_array((A.diagonal() > 0).astype(np.float64)))
    return Graph(A, rng.random((n, width), dtype=np.float32))


def _contents(graph: Graph) -> list[bytes]:
    return [np.asarray(array).tobytes() for array in (graph.indptr, graph.indices, graph.features)]


def sample_graphs() -> dict[str, Graph]:
    """Return small graphs that are difficult for partitioners, by name."""
    path = np.eye(24, k=1) + np.eye(24, k=-1)
    star = np.zeros((24, 24))
    star[0, 1:] = star[1:, 0] = 1
    rng = np.random.default_rng(0)
    dense = np.triu(rng.random((24, 24)) * (rng.random((24, 24)) < 0.3), 1)
    lonely = path.copy()
    lonely[16:] = lonely[:, 16:] = 0
    apart = path.copy()
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

    Parameters
    ----------
    partitioner : callable
        ``graph -> labels``.
    graphs : iterable of Graph, optional
        Further graphs to try.
    n_patches : int, optional
        The number of clusters of every graph, if that is known.

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


def check_store(empty_store: Callable[[], Store]) -> None:
    """Raise AssertionError if a store made by ``empty_store()`` breaks the contract of the Store protocol.

    Examples
    --------
    >>> check_store(dict)
    """
    store = empty_store()
    key, other = "patches/00000/graph", "patches/00000/embedding"
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
