"""Embed the two sides of one window: bipartite spectral embedding (Dhillon 2001), with or without a background."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float32Array, Float64Array, Int64Array
from graphquilt.embedders import check_dim
from graphquilt.errors import ConvergenceError, InputError
from graphquilt.linalg import DENSE_ROWS, Operator, fixed_signs, leading_eigenpairs
from graphquilt.patches import Patch
from graphquilt.temporal.tokens import WindowTokens, with_token_columns
from graphquilt.temporal.windows import SIDES

if TYPE_CHECKING:
    from graphquilt.temporal.tracker import ScoringOptions

NOTHING_LEFT = 1e-9  # a component whose squared singular values sum to 1 up to this has only the trivial one
ZERO = 1e-7  # a singular value below this is zero up to rounding, and its vectors are arbitrary
TOLERANCE = 1e-6  # of the eigenvalues with a background

SparseMatrix: TypeAlias = sp.csr_array | sp.csc_array | sp.coo_array | sp.csr_matrix | sp.csc_matrix | sp.coo_matrix
Solver: TypeAlias = Callable[[Operator, int, int], tuple[Float64Array, Float64Array]]

_log = logging.getLogger(__name__)


class EmbeddedWindow(NamedTuple):
    """The positions of both sides of one window, and the roots of the singular values, (dim,).

    One plus the inner product of a source and a destination, each position times the roots, is how many times as
    probable their connection is as their degrees alone would make it.
    """

    source: Patch
    destination: Patch
    roots: Float32Array


def embed_window(matrix: sp.csr_array, dim: int, background: float = 1.0) -> tuple[Patch, Patch]:
    """Embed the sources and the destinations of one window, in single precision.

    The positions are those of :func:`graphquilt.temporal.bipartite_svd` times sqrt((1 + background) · sum of the
    matrix).

    Examples
    --------
    >>> source, destination = embed_window(sp.csr_array([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]]), dim=1, background=0)
    >>> [f"{abs(x):.2f}" for x in source.coordinates[:, 0]]
    ['1.32', '0.00', '1.32']
    """
    source, destination, _ = _embed(matrix, dim, background)
    return source, destination


def _embed(matrix: sp.csr_array, dim: int, background: float) -> EmbeddedWindow:
    # Differs from the paper: D^-1/2 U shrinks with the square root of the window's traffic, and every node seems to
    # move on a weekend. Multiplied by that root, the mean square weighted by traffic is 1 in each dimension. The faint
    # background keeps the vectors away from loosely connected parts of a sparse window, which change from window to
    # window and carry no meaning. ``background=0`` is the paper's embedding.
    *patches, values = _factors(matrix, dim, background=background)
    factor = float(np.sqrt((1 + background) * matrix.sum()))
    for side, patch in zip(SIDES, patches, strict=True):
        rank = patch.coordinates.shape[1]
        if rank < dim:
            raise InputError(
                f"{dim} dimensions need {dim} non-trivial pairs of singular vectors; the window has {rank}. Use wider "
                "windows or fewer dimensions."
            )
        if len(patch.nodes) < dim + 1:
            raise InputError(f"{len(patch.nodes)} {side}s have a position; {dim} dimensions need at least {dim + 1}.")
    source, destination = (Patch(nodes, (factor * X).astype(np.float32)) for nodes, X in patches)
    return EmbeddedWindow(source, destination, np.sqrt(values).astype(np.float32))


def embed_or_explain(
    matrix: sp.csr_array, options: ScoringOptions, tokens: WindowTokens | None = None
) -> EmbeddedWindow | str:
    """Return the embedding of a window, or why it has none; weighted tokens are further columns of the matrix."""
    try:
        if tokens is None or options.token_weight == 0:
            return _embed(matrix, options.dim, options.background)
        wide = with_token_columns(matrix, tokens, options.token_weight)
        source, (nodes, X), roots = _embed(wide, options.dim, options.background)
        is_host = np.asarray(nodes) < matrix.shape[1]
        return EmbeddedWindow(source, Patch(nodes[is_host], X[is_host]), roots)
    except (InputError, ConvergenceError) as error:
        return str(error)


def warn_left_out(number: int, reason: str) -> None:
    """Log that a window has no positions, and why."""
    _log.warning("window %d is left out of the embedding, and its nodes are scored by counts: %s", number, reason)


def bipartite_svd(A: SparseMatrix, dim: int, *, background: float = 0.0) -> tuple[Patch, Patch]:
    """Embed the sources (rows) and destinations (columns) of a bipartite graph.

    With A_n = D_s^-1/2 A D_d^-1/2 and its ``dim`` leading singular vectors U, V beside the trivial ones, sources lie at
    D_s^-1/2 U and destinations at D_d^-1/2 V. Each connected component has one trivial pair (D_s^1/2 1, D_d^1/2 1 on
    the component), and all of them are removed.

    Parameters
    ----------
    A : SciPy sparse matrix or array (sources, destinations)
        Finite weights, not negative; 1 where a source is joined to a destination.
    background : float
        Total weight of faint edges between every source and every destination, as a multiple of the weight of all
        edges. 0 is the paper's embedding; its leading vectors often describe a small part of a sparse graph that one
        edge joins to the rest. At 1 they describe the whole graph (regularised spectral clustering, Zhang and Rohe
        2018), every node with an edge has a position, and one trivial pair is removed.

    Returns
    -------
    sources, destinations : Patch
        ``nodes`` are row and column numbers of A. Nodes without an edge are absent, and so are the nodes of a component
        that has only its trivial pair (a star, or any complete bipartite graph). A second run gives the same bits.

    Examples
    --------
    >>> A = sp.csr_array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
    >>> source, destination = bipartite_svd(A, 1)
    >>> source.nodes.tolist(), destination.nodes.tolist(), source.coordinates.round(3).ravel().tolist()
    ([0, 1, 2], [0, 1, 2], [-0.195, -0.632, 0.512])
    """
    source, destination, _ = _factors(A, dim, background=background)
    return source, destination


def _factors(A: SparseMatrix, dim: int, *, background: float = 0.0) -> tuple[Patch, Patch, Float64Array]:
    """Return what :func:`bipartite_svd` returns, and the ``dim`` singular values of A_n, the largest first.

    With positions X and Y, singular values S and m the sum of the matrix with its background, entry (i, j) of that
    matrix is about d_i d_j / m (1 + m X_i S Y_j): what degrees alone would give, times one plus an inner product of
    positions.
    """
    check_dim(dim, "bipartite_svd")
    M = sp.csr_array(A).astype(np.float64)
    M.sum_duplicates()
    M.eliminate_zeros()
    if M.nnz and (not np.isfinite(M.data).all() or M.data.min() < 0):
        raise InputError(
            "the weights of a bipartite graph must be finite and not negative; drop or repair those edges."
        )
    if not 0 <= background < np.inf:
        raise InputError(f"the weight of the background must be finite and not negative; it is {background}.")
    return _with_background(M, dim, background) if background > 0 else _without_background(M, dim)


def _without_background(M: sp.csr_array, dim: int) -> tuple[Patch, Patch, Float64Array]:
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
    place = f"{M.shape[0]} sources and {M.shape[1]} destinations have a position, in {len(labels)} components"
    if dim > allowed:
        raise _too_many(dim, allowed, place)
    source_scale, destination_scale = (1 / np.sqrt(np.asarray(M.sum(axis=axis)).ravel()) for axis in (1, 0))
    M = sp.csr_array(sp.diags_array(source_scale) @ M @ sp.diags_array(destination_scale))
    turned = M.shape[0] > M.shape[1]
    B = sp.csr_array(M.T) if turned else M
    Bt = sp.csr_array(B.T)
    label, root = (right, 1 / destination_scale) if turned else (left, 1 / source_scale)
    weight = np.bincount(label, weights=root**2)
    trivial = sp.csr_array((root / np.sqrt(weight)[label], (np.arange(len(root)), label)))
    trivial_t = sp.csr_array(trivial.T)

    def across(x: Float64Array) -> Float64Array:
        return np.asarray(Bt @ x)

    def gram(x: Float64Array) -> Float64Array:
        return np.asarray(B @ across(x) - trivial @ (trivial_t @ x))

    U, V, values = _singular_vectors(
        gram, across, B.shape[0], dim, turned=turned, solver=leading_eigenpairs, place=place
    )
    return Patch(sources, source_scale[:, None] * U), Patch(destinations, destination_scale[:, None] * V), values


def _with_position(M: sp.csr_array) -> tuple[Int64Array, Int64Array, list[AnyArray]]:
    """Return the sources and destinations whose component has more than its trivial pair, and all components."""
    from scipy.sparse.csgraph import connected_components

    n_sources, n_destinations = M.shape
    rows = np.repeat(np.arange(n_sources), np.diff(M.indptr))
    size = n_sources + n_destinations
    A = sp.csr_array((M.data, (rows, n_sources + M.indices)), shape=(size, size))
    _, label = connected_components(A, directed=False)
    source_weight, destination_weight = (np.asarray(M.sum(axis=axis)).ravel() for axis in (1, 0))
    squares = M.data**2 / (source_weight[rows] * destination_weight[M.indices])
    total = np.bincount(label[rows], weights=squares, minlength=int(label.max(initial=-1)) + 1)
    positioned = total > 1 + NOTHING_LEFT
    parts = [label[:n_sources], label[n_sources:]]
    return np.flatnonzero(positioned[parts[0]]), np.flatnonzero(positioned[parts[1]]), parts


def _with_background(M: sp.csr_array, dim: int, background: float) -> tuple[Patch, Patch, Float64Array]:
    """Embed M + c 1 1^T, where the second term has ``background`` times the total weight of the first."""
    source_degree, destination_degree = (np.asarray(M.sum(axis=axis)).ravel() for axis in (1, 0))
    sources, destinations = np.flatnonzero(source_degree > 0), np.flatnonzero(destination_degree > 0)
    allowed = min(len(sources), len(destinations)) - 1
    place = f"{len(sources)} sources and {len(destinations)} destinations have an edge"
    if dim > allowed:
        raise _too_many(dim, allowed, place)
    M = M[sources][:, destinations]
    turned = M.shape[0] > M.shape[1]
    B = sp.csr_array(M.T) if turned else M
    faint = background * float(M.sum()) / (B.shape[0] * B.shape[1])
    left = 1 / np.sqrt(np.asarray(B.sum(axis=1)).ravel() + faint * B.shape[1])
    right = 1 / np.sqrt(np.asarray(B.sum(axis=0)).ravel() + faint * B.shape[0])
    B = sp.csr_array(sp.diags_array(left) @ B @ sp.diags_array(right))
    Bt = sp.csr_array(B.T)
    a, b = left[:, None], right[:, None]
    trivial = (1 / a) / np.linalg.norm(1 / left)

    def across(x: Float64Array) -> Float64Array:
        return np.asarray(Bt @ x + faint * b * (a.T @ x))

    def gram(x: Float64Array) -> Float64Array:
        y = across(x)
        return np.asarray(B @ y + faint * a * (b.T @ y) - trivial * (trivial.T @ x))

    U, V, values = _singular_vectors(gram, across, B.shape[0], dim, turned=turned, solver=_leading, place=place)
    source_scale, destination_scale = (b, a) if turned else (a, b)
    return Patch(sources, source_scale * U), Patch(destinations, destination_scale * V), values


def _too_many(dim: int, allowed: int, place: str) -> InputError:
    remedy = f"Use dim={allowed} or less, or a wider window." if allowed > 0 else "Use a wider window."
    return InputError(f"dim is {dim} and this bipartite graph allows {max(allowed, 0) or 'none'}: {place}. {remedy}")


def _singular_vectors(
    gram: Operator, across: Operator, n: int, dim: int, *, turned: bool, solver: Solver, place: str
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return source and destination vectors from the smaller of both Gram matrices, and the singular values."""
    squares, U = solver(gram, n, dim)
    values = np.sqrt(np.maximum(squares, 0))
    if values[-1] < ZERO:
        raise _too_many(dim, int((values >= ZERO).sum()), place)
    V = across(U) / values
    if not turned:
        return U, V, values
    signs = fixed_signs(V)
    return V * signs, U * signs, values


def _leading(gram: Operator, n: int, k: int) -> tuple[Float64Array, Float64Array]:
    """Return the k largest eigenvalues and their vectors, computed with one Krylov vector at a time.

    A single vector may miss a copy of a repeated eigenvalue, which a block would find. But the background joins all
    nodes, leading eigenvalues repeat only by accident, and this is several times faster than a block.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    if n <= DENSE_ROWS or 3 * k >= n:
        return leading_eigenpairs(gram, n, k)
    operator = LinearOperator((n, n), matvec=lambda x: gram(x.reshape(n, 1)).ravel(), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n)
    try:
        values, U = eigsh(operator, k=k, which="LA", v0=start, tol=TOLERANCE)
    except ArpackNoConvergence as stopped:
        raise ConvergenceError(
            f"{len(stopped.eigenvalues)} of {k} singular vectors of a graph with {n} nodes on its smaller side were "
            "found. Ask for fewer dimensions, or use a wider window.",
            residual=float("nan"),
        ) from stopped
    U = np.ascontiguousarray(U[:, ::-1])
    return values[::-1], U * fixed_signs(U)
