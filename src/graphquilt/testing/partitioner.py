"""A check that a partitioner of your own fulfils what patch_graph needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.graph import Graph, check_labels

__all__ = ["check_partitioner", "sample_graphs"]


def sample_graphs() -> dict[str, Graph]:
    """Return small graphs that are difficult for partitioners, by name.

    Examples
    --------
    >>> sorted(sample_graphs())
    ['directed ring', 'isolated nodes', 'path', 'star', 'two components', 'weighted']
    """
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
    """Run a partitioner on small graphs and raise AssertionError where it breaks the contract.

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
    cases = sample_graphs() | {f"graph {k} of yours": graph for k, graph in enumerate(graphs)}
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
            raise AssertionError(f"{name}: {labels.max() + 1} clusters where {n_patches} were asked for.")
