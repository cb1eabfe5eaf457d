"""A check that an embedder of your own fulfils the contract."""

from __future__ import annotations

import pickle

import numpy as np
import scipy.sparse as sp

from graphquilt.embedders.contract import Embedder, checked_fit
from graphquilt.embedders.shared_start import free_motions
from graphquilt.errors import InputError, QuiltError
from graphquilt.graph import Graph
from graphquilt.testing.stitching import EmbedderReport, compare_halves

__all__ = ["check_embedder"]


def check_embedder(embedder: Embedder, *, n_nodes: int | None = None, width: int = 12) -> EmbedderReport:
    """Raise AssertionError where an embedder breaks the contract of :class:`graphquilt.embedders.Embedder`.

    Otherwise report whether its patches can be stitched.

    On a connected graph with features it must return (n, dim) finite floats, the same for the same seed and after
    pickling, and must not change the graph. It may refuse isolated nodes, a graph without features, a graph without
    edges and a graph of one node with an :class:`~graphquilt.errors.InputError`; an embedding must be finite.

    An embedder with a shared start must make the same small offer for the same seed, a mapping of names to arrays, and
    ``started`` must return an embedder of the same dim with a ``start``.

    Two overlapping halves of a graph of communities are then embedded, with different seeds, and aligned by the motions
    that the embedder declares. What is left is reported and is not an error.

    Parameters
    ----------
    embedder : Embedder
    n_nodes : int, optional
        Size of the graphs; None means 4 ``dim``, and at least 40.
    width : int
        Number of features.

    Returns
    -------
    EmbedderReport
        Its text says in words whether patches can be stitched.

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
