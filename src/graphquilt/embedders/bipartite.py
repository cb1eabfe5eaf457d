"""Bipartite spectral embedding (Dhillon 2001), as the anomaly protocol uses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.embedders._background import background_svd
from graphquilt.embedders._spectral import leading_eigenpairs
from graphquilt.embedders.contract import check_dim
from graphquilt.errors import InputError
from graphquilt.patches import Patch

__all__ = ["bipartite_svd"]


# A component whose squared singular values sum to 1, up to rounding, has the trivial one and nothing else.
NOTHING_LEFT = 1e-9
# A singular value below this is zero up to rounding, and its vectors are arbitrary.
ZERO = 1e-7


def bipartite_svd(A: Any, dim: int, *, background: float = 0.0) -> tuple[Patch, Patch]:
    """Embed the sources (rows) and destinations (columns) of a bipartite graph.

    With A_n = D_s^-1/2 A D_d^-1/2 and its ``dim`` leading singular vectors U, V beside the trivial ones, sources lie at
    D_s^-1/2 U and destinations at D_d^-1/2 V. Each connected component has one trivial pair (D_s^1/2 1, D_d^1/2 1 on
    the component), and all of them are removed.

    Parameters
    ----------
    A : SciPy sparse matrix or array (sources, destinations)
        Finite weights, not negative; 1 where a source talked to a destination.
    dim : int
        Number of singular vectors.
    background : float
        Weight of a faint edge between every source and every destination, all of them together, as a multiple of the
        weight of all edges. 0 is the paper's embedding. Its leading vectors sit on dangling bits of a sparse graph
        (a machine with a few neighbours of its own, tied to the rest by one edge); at 1, which adds the mean degree to
        every degree, they describe the whole (regularised spectral clustering, Zhang and Rohe 2018), every node with
        an edge has a position, and one trivial pair is removed.

    Returns
    -------
    sources, destinations : Patch
        ``nodes`` are row and column numbers of A. Absent are nodes without an edge, and nodes of a component that has
        nothing but its trivial pair (a star, or any complete bipartite graph): they have no position. Vectors come in
        the order of falling singular values, and the largest entry of each source vector is positive, so that a rerun
        gives the same bits.

    Examples
    --------
    >>> A = sp.csr_array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
    >>> source, destination = bipartite_svd(A, 1)
    >>> source.nodes.tolist(), destination.nodes.tolist()
    ([0, 1, 2], [0, 1, 2])
    >>> source.coordinates.round(3).ravel().tolist()
    [-0.195, -0.632, 0.512]
    """
    check_dim(dim, "bipartite_svd")
    M = sp.csr_array(A, dtype=np.float64, copy=True)
    M.sum_duplicates()
    M.eliminate_zeros()
    if M.nnz and (not np.isfinite(M.data).all() or M.data.min() < 0):
        raise InputError(
            "the weights of a bipartite graph must be finite and not negative; drop or repair those edges."
        )
    if not 0 <= background < np.inf:
        raise InputError(f"the weight of the background must be finite and not negative; it is {background}.")
    if background > 0:
        return background_svd(M, dim, background)
    sources, destinations, component = _with_position(M)
    if not len(sources):
        raise InputError(
            f"no node of this bipartite graph of {M.shape[0]} sources, {M.shape[1]} destinations and {M.nnz} edges has "
            "a position: every component is a star or complete, and has only trivial singular vectors. Use a wider "
            "window."
        )
    M = M[sources][:, destinations]
    left, right = component[0][sources], component[1][destinations]
    labels = np.unique(left)
    left, right = np.searchsorted(labels, left), np.searchsorted(labels, right)
    sizes = np.bincount(left), np.bincount(right)
    allowed = int((np.minimum(*sizes) - 1).sum())
    if dim > allowed:
        raise InputError(_too_many(dim, allowed, M.shape, len(labels)))
    source_scale, destination_scale = (1 / np.sqrt(np.asarray(M.sum(axis=axis)).ravel()) for axis in (1, 0))
    M = sp.csr_array(sp.diags_array(source_scale) @ M @ sp.diags_array(destination_scale))
    U, V, values = _singular_vectors(M, dim, (left, right), (1 / source_scale, 1 / destination_scale))
    if values[-1] < ZERO:
        raise InputError(_too_many(dim, int((values >= ZERO).sum()), M.shape, len(labels)))
    return Patch(sources, source_scale[:, None] * U), Patch(destinations, destination_scale[:, None] * V)


def _too_many(dim: int, allowed: int, shape: tuple[int, ...], components: int) -> str:
    return (
        f"dim is {dim} and this bipartite graph allows {allowed}: {shape[0]} sources and {shape[1]} destinations "
        f"have a position, in {components} components. Use dim={allowed} or less, or a wider window."
        if allowed
        else f"dim is {dim} and this bipartite graph allows none. Use a wider window."
    )


def _with_position(M: sp.csr_array) -> tuple[Int64Array, Int64Array, list[AnyArray]]:
    """Return the sources and destinations whose component has more than its trivial pair, and all components."""
    from scipy.sparse.csgraph import connected_components

    n_sources, n_destinations = M.shape
    whole = sp.block_array([[None, M], [M.T, None]], format="csr") if M.nnz else sp.csr_array((sum(M.shape),) * 2)
    _, label = connected_components(whole, directed=False)
    source_weight, destination_weight = (np.asarray(M.sum(axis=axis)).ravel() for axis in (1, 0))
    rows = np.repeat(np.arange(n_sources), np.diff(M.indptr))
    squares = M.data**2 / (source_weight[rows] * destination_weight[M.indices])
    left = np.bincount(label[rows], weights=squares, minlength=int(label.max(initial=-1)) + 1)
    kept = left > 1 + NOTHING_LEFT
    parts = [label[:n_sources], label[n_sources : n_sources + n_destinations]]
    return np.flatnonzero(kept[parts[0]]), np.flatnonzero(kept[parts[1]]), parts


def _singular_vectors(
    M: sp.csr_array,
    k: int,
    components: tuple[AnyArray, AnyArray],
    roots: tuple[Float64Array, Float64Array],
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return U, V and singular values of M without its trivial pairs, from the smaller of its two Gram matrices."""
    turned = M.shape[0] > M.shape[1]
    B = sp.csr_array(M.T) if turned else M
    Bt = sp.csr_array(B.T)
    component, root = (components[1], roots[1]) if turned else (components[0], roots[0])
    weight = np.bincount(component, weights=root**2)
    trivial = sp.csr_array((root / np.sqrt(weight)[component], (np.arange(len(root)), component)))
    trivial_t = sp.csr_array(trivial.T)

    def gram(x: Float64Array) -> Float64Array:
        y: Float64Array = B @ (Bt @ x) - trivial @ (trivial_t @ x)
        return y

    squares, U = leading_eigenpairs(gram, B.shape[0], k)
    values = np.sqrt(np.maximum(squares, 0))
    V = (Bt @ U) / np.maximum(values, np.finfo(float).tiny)
    if turned:
        from graphquilt.embedders._spectral import fixed_signs

        signs = fixed_signs(V)
        return V * signs, U * signs, values
    return U, V, values
