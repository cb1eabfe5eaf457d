"""Find which patches overlap and where, and compare two patches on the nodes that they share.

Few patches are open at a time, so a lazy sequence that opens a file when it is indexed is as good as a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array, IntArray, refuse_masked
from graphquilt.errors import DisconnectedError, InputError, OverlapError
from graphquilt.kernels import one_blas_thread
from graphquilt.linalg import centred, components, polar, unit
from graphquilt.patches import Patch

__all__ = [
    "Measurements",
    "PatchIndex",
    "check_count",
    "check_edges",
    "check_overlap",
    "checked_pairs",
    "checked_patch",
    "checked_weights",
    "compare_overlaps",
    "coordinates",
    "edge_errors",
    "index_patches",
    "results",
    "row_weights",
    "shared_rows",
]

PatchLike: TypeAlias = Patch | tuple[AnyArray, AnyArray]
Patches: TypeAlias = Sequence[PatchLike] | Mapping[int, PatchLike]
Apply: TypeAlias = Callable[[int, npt.ArrayLike], Float64Array]
Result = TypeVar("Result")

CHUNK = 2**21  # entries of d × d matrices worked on at a time
SINGLE_ABOVE = 2**27  # rotations with more entries than this are kept in single precision (1 GiB in double)
RECENT = 32  # how many patches of a lazy sequence stay open for the edges that follow
LARGEST = 2.0**1000  # about 1e301; sums of larger coordinates could exceed what a double holds
COLLAPSED = 1e-5  # singular values below this share of the largest leave a direction undetermined


@dataclass(frozen=True, eq=False)
class PatchIndex:
    """The rows of the nodes in each patch."""

    nodes: Sequence[IntArray] | Mapping[int, IntArray]  # of each patch, in ascending order
    rows: Sequence[IntArray | None] | Mapping[int, IntArray | None]  # those of the nodes; None if in this order already
    dim: int
    magnitudes: (
        Sequence[float] | Mapping[int, float]
    )  # of each patch: the median over its nodes of their largest coordinate
    weights: Sequence[Float64Array] | Mapping[int, Float64Array] | None = None  # of the rows of each patch

    @property
    def n_patches(self) -> int:
        """Number of patches."""
        return len(self.nodes)


class Measurements(NamedTuple):
    """The comparison of two patches on the overlap of each of m edges (i, j)."""

    sizes: Float64Array  # (m,) shared nodes, or the sum of their weights
    ratios: Float64Array  # (m,) r_ij, the relative scale
    rotations: FloatArray  # (m, d, d) R_ij, the relative rotation
    means: Float64Array  # (m, 2, d) the centre of the overlap in either patch
    misfits: (
        Float64Array  # (m,) the error that is left on the overlap when the two patches are fitted to each other alone
    )
    undetermined: Int64Array  # (m,) how many directions the overlap says nothing about


def index_patches(patches: Sequence[PatchLike]) -> PatchIndex:
    """Check every patch once and return where its nodes are."""
    if len(patches) == 0:
        raise InputError("there are no patches; pass at least one (nodes, coordinates) pair.")
    nodes: list[IntArray] = []
    rows: list[IntArray | None] = []
    magnitudes: list[float] = []
    dim = 0
    for k in range(len(patches)):
        patch = checked_patch(patches[k], k)
        dim = dim or patch.dim
        if patch.dim != dim:
            raise InputError(
                f"patch {k} has {patch.dim} dimensions and patch 0 has {dim}; embed all patches in the same dimension."
            )
        sizes = np.abs(np.asarray(patch.coordinates)).max(axis=1).astype(np.float64)
        if sizes.max() > LARGEST:
            raise InputError(
                f"patch {k} has coordinates as large as {sizes.max():.2g}; alignment adds and multiplies them, and can "
                f"do so up to {LARGEST:.2g}. Divide the coordinates of all patches by the same number."
            )
        magnitudes.append(float(np.median(sizes)))
        ids = np.asarray(patch.nodes)
        order = None if np.all(ids[1:] > ids[:-1]) else np.argsort(ids)
        nodes.append(ids if order is None else ids[order])
        rows.append(order)
    return PatchIndex(nodes, rows, dim, magnitudes)


def checked_patch(patch: PatchLike, k: int) -> Patch:
    """Return ``patch`` as a valid Patch; an error names it as number k."""
    try:
        return patch if isinstance(patch, Patch) else Patch(*patch)
    except InputError as error:
        raise InputError(f"patch {k}: {error}") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"patch {k} is not a (nodes, coordinates) pair: {error}") from error


def coordinates(patch: PatchLike) -> FloatArray:
    """Return the coordinates of a patch or pair."""
    return patch.coordinates if isinstance(patch, Patch) else np.asanyarray(patch[1])


def check_count(weights: Sequence[npt.ArrayLike] | AnyArray, patches: Sequence[PatchLike]) -> None:
    """Refuse weights that are not one for each patch."""
    n, p = len(weights), len(patches)
    if n != p:
        raise InputError(f"there are {p} patches and {n} weights; give one number or array per patch.")


def checked_weights(weights: Sequence[npt.ArrayLike], patches: Sequence[PatchLike]) -> list[Float64Array]:
    """Return one positive weight for each row of each patch."""
    check_count(weights, patches)
    checked = [row_weights(value, k, len(coordinates(patches[k]))) for k, value in enumerate(weights)]
    for k, w in enumerate(checked):
        if not w.min() > 0:
            raise InputError(f"{int((w == 0).sum())} weights of patch {k} are 0; all must be positive.")
    return checked


def row_weights(value: npt.ArrayLike, k: int, rows: int) -> Float64Array:
    """Return one weight for each row of patch k, from one number or one number per row."""
    refuse_masked(where=f"patch {k}: ", weights=value)
    w = np.asarray(value, dtype=np.float64)
    if w.ndim == 0:
        w = np.full(rows, float(w))
    if w.shape != (rows,):
        raise InputError(f"patch {k} has {rows} nodes and weights of shape {w.shape}; give one number or one per node.")
    if not np.all(np.isfinite(w)) or np.any(w < 0):
        raise InputError(f"the weights of patch {k} must be finite and not negative; they span {w.min()} to {w.max()}.")
    return w


def shared_rows(index: PatchIndex, i: int, j: int) -> tuple[IntArray, IntArray]:
    """Return the rows of patch i and the rows of patch j that belong to the nodes they share, in node order."""
    a, b = index.nodes[i], index.nodes[j]
    if len(a) > len(b):
        return shared_rows(index, j, i)[::-1]
    place = np.searchsorted(b, a)
    place[place == len(b)] = 0
    in_a = np.flatnonzero(b[place] == a)
    in_b = place[in_a]
    order_i, order_j = index.rows[i], index.rows[j]
    return in_a if order_i is None else order_i[in_a], in_b if order_j is None else order_j[in_b]


def check_edges(index: PatchIndex, edges: npt.ArrayLike | None) -> Int64Array:
    """Return the patch edges ``(m, 2)`` with i < j, after checking that they make one connected graph.

    Without ``edges``, every pair of patches that shares at least d + 1 nodes is one.
    """
    p = index.n_patches
    pairs = _all_pairs(index, index.dim + 1) if edges is None else checked_pairs(edges, p)
    labels = components(pairs, p)
    if labels.max() > 0:
        raise DisconnectedError(_apart(labels, index.dim, given=edges is not None))
    return pairs


def check_overlap(i: int, j: int, share: int, *, least: int, dim: int) -> None:
    """Refuse an edge (i, j) whose patches share fewer than ``least`` nodes."""
    if share < least:
        raise OverlapError(
            f"patches {i} and {j} share {share} nodes; aligning in {dim} dimensions needs at least {least}. "
            f"Drop the edge ({i}, {j}), enlarge the overlap"
            + (f", or embed in at most {share - 1} dimensions." if share > 1 else ".")
        )


def checked_pairs(edges: npt.ArrayLike, p: int) -> Int64Array:
    """Return ``edges (m, 2)`` with i < j, after checking that they are distinct pairs of ``p`` patches."""
    refuse_masked(edges=edges)
    array = np.asarray(edges) if np.size(edges) else np.empty((0, 2), dtype=np.int64)
    if array.shape[1:] != (2,) or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"edges are pairs of patch numbers (m, 2); these have shape {array.shape} and type {array.dtype}."
        )
    outside = array[(array < 0).any(axis=1) | (array >= p).any(axis=1)]
    if len(outside):
        raise InputError(
            f"the edge {tuple(outside[0].tolist())} names a patch that is not there; there are {p}, 0 to {p - 1}."
        )
    loops = array[array[:, 0] == array[:, 1]]
    if len(loops):
        raise InputError(f"the edge {tuple(loops[0].tolist())} joins a patch to itself; drop it.")
    pairs = np.sort(array.astype(np.int64), axis=1)
    unique, counts = np.unique(pairs, axis=0, return_counts=True)
    if len(unique) < len(pairs):
        raise InputError(f"the edge {tuple(unique[counts.argmax()].tolist())} is given {counts.max()} times; keep one.")
    return pairs


def _all_pairs(index: PatchIndex, least: int) -> Int64Array:
    """Count shared nodes of all pairs by one sparse product of the patch-node incidence with its transpose."""
    node_sets = [index.nodes[k] for k in range(index.n_patches)]
    ids, columns = np.unique(np.concatenate(node_sets), return_inverse=True)
    indptr = np.cumsum([0, *(len(nodes) for nodes in node_sets)])
    ones, shape = np.ones(len(columns), dtype=np.int32), (index.n_patches, len(ids))
    incidence = sp.csr_array((ones, columns.ravel(), indptr), shape=shape)
    shared = sp.triu(incidence @ incidence.T, k=1).tocoo()
    enough = shared.data >= least
    pairs = np.stack([shared.row[enough], shared.col[enough]], axis=1).astype(np.int64)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def _apart(labels: Int64Array, dim: int, *, given: bool) -> str:
    parts = sorted((np.flatnonzero(labels == c).tolist() for c in np.unique(labels)), key=len, reverse=True)
    lonely = [part[0] for part in parts if len(part) == 1]
    named = "; ".join("{" + _shortened(part) + "}" for part in parts[:8]) + ("; …" if len(parts) > 8 else "")
    edge = "edge" if given else f"overlap of at least {dim + 1} nodes"
    alone = f" Patches with no {edge}: {_shortened(lonely)}." if lonely else ""
    return (
        f"the patches fall into {len(parts)} groups with no {edge} between them: {named}.{alone} "
        "Add edges or overlaps that join the groups, or align each group on its own."
    )


def _shortened(numbers: list[int]) -> str:
    if len(numbers) <= 12:
        return ", ".join(map(str, numbers))
    return ", ".join(map(str, numbers[:10])) + f", … {len(numbers)} in all"


def compare_overlaps(
    patches: Sequence[PatchLike], index: PatchIndex, edges: Int64Array, *, least: int, executor: Executor | None
) -> Measurements:
    """Compare the two patches of every edge on their overlap (Horn 1988): each relative transform once, in batches.

    An overlap of fewer than ``least`` nodes is an error; so is one that is a single point, unless ``least`` is 1.
    Where rows have weights, a shared node counts with the product of its two, and so the overlap with their sum.
    """
    m, d = len(edges), index.dim
    dtype = np.float32 if m * d * d > SINGLE_ABOVE else np.float64
    rotations, means = np.empty((m, d, d), dtype=dtype), np.empty((m, 2, d))
    result = Measurements(np.empty(m), np.empty(m), rotations, means, np.empty(m), np.empty(m, np.int64))
    compare = partial(_compare_chunk, least=least, dtype=dtype)
    start = 0
    for piece in _map_chunks(compare, patches, index, edges, executor):
        stop = start + len(piece.sizes)
        for whole, part in zip(result, piece, strict=True):
            whole[start:stop] = part
        start = stop
    return result


def _compare_chunk(
    patches: Patches, index: PatchIndex, edges: Int64Array, *, least: int, dtype: npt.DTypeLike
) -> Measurements:
    m, d = len(edges), index.dim
    sizes, ratios, means = np.empty(m), np.empty(m), np.empty((m, 2, d))
    lengths = np.empty(m)
    cross = np.empty((m, d, d))
    opened = lru_cache(maxsize=RECENT)(lambda k: coordinates(patches[k]))
    with one_blas_thread():
        for e, (i, j) in enumerate(edges.tolist()):
            rows_i, rows_j = shared_rows(index, i, j)
            check_overlap(i, j, len(rows_i), least=least, dim=d)
            w = None if index.weights is None else index.weights[i][rows_i] * index.weights[j][rows_j]
            (a, means[e, 0]), (b, means[e, 1]) = (centred(opened(k)[r], w) for k, r in ((i, rows_i), (j, rows_j)))
            sizes[e] = len(a) if w is None else w.sum()
            units = unit(a), unit(b)
            a, b = a / units[0], b / units[1]
            spread = float(np.linalg.norm(a)), float(np.linalg.norm(b))
            if least > 1:
                for k, size, scale, mean in zip((i, j), spread, units, means[e], strict=True):
                    extent = max(index.magnitudes[k], float(np.abs(mean).max()))
                    if size == 0 or scale <= 1e-12 * extent * np.sqrt(len(a)) / size:
                        raise OverlapError(
                            f"all {len(a)} nodes that patches {i} and {j} share lie at one point in patch {k}, which "
                            f"does not determine its rotation or scale. Embed patch {k} again or drop this edge."
                        )
            ratios[e] = spread[0] / spread[1] * (units[0] / units[1]) if spread[1] > 0 else 1.0
            if not np.isfinite(ratios[e]) or (ratios[e] == 0 and spread[0] > 0):
                raise OverlapError(
                    f"patches {i} and {j} differ in scale by a factor beyond 1e308 on the {len(a)} nodes that they "
                    "share. Divide the coordinates of the larger one by its size."
                )
            lengths[e] = spread[0] * spread[1]
            cross[e] = a.T @ b
        rotations, singular_values = polar(cross)
    # With both patches scaled to unit length, |a R - b|^2 is 2 - 2 times the sum of the singular values (Horn 1988).
    agreement = singular_values.sum(axis=1) / np.maximum(lengths, np.finfo(np.float64).tiny)
    misfits = np.sqrt(np.maximum(1 - agreement, 0))
    undetermined = (singular_values <= COLLAPSED * singular_values[:, :1]).sum(axis=1)
    return Measurements(sizes, ratios, rotations.astype(dtype), means, misfits, undetermined)


def edge_errors(
    patches: Sequence[PatchLike],
    index: PatchIndex,
    edges: Int64Array,
    apply: Apply,
    *,
    executor: Executor | None = None,
) -> Float64Array:
    r"""Return :math:`\|a - b\| / \sqrt{\|a - \bar a\|^2 + \|b - \bar b\|^2}` on each overlap after alignment, (m,).

    0 is a perfect fit, 1 is no better than unrelated. ``apply(k, X)`` moves points of patch k to where they belong.
    """
    chunks = _map_chunks(partial(_errors_chunk, apply=apply), patches, index, edges, executor)
    return np.concatenate([np.empty(0), *chunks])


def _errors_chunk(patches: Patches, index: PatchIndex, edges: Int64Array, *, apply: Apply) -> Float64Array:
    errors = np.empty(len(edges))
    opened = lru_cache(maxsize=RECENT)(lambda k: coordinates(patches[k]))
    with one_blas_thread():
        for e, (i, j) in enumerate(edges.tolist()):
            rows_i, rows_j = shared_rows(index, i, j)
            a, b = apply(i, opened(i)[rows_i]), apply(j, opened(j)[rows_j])
            scale = unit(a, b)
            a, b = a / scale, b / scale
            spread = np.hypot(np.linalg.norm(centred(a)[0]), np.linalg.norm(centred(b)[0]))
            misfit = np.linalg.norm(a - b)
            errors[e] = misfit / spread if spread > 0 else float(misfit > 0)
    return errors


def _map_chunks(
    function: Callable[[Patches, PatchIndex, Int64Array], Result],
    patches: Sequence[PatchLike],
    index: PatchIndex,
    edges: Int64Array,
    executor: Executor | None,
) -> Iterator[Result]:
    """Call ``function`` on runs of edges; an executor is sent only the patches that each run needs."""
    size = max(1, CHUNK // index.dim**2)
    if executor is not None:
        size = max(1, min(size, -(-len(edges) // 16)))
    chunks = [edges[start : start + size] for start in range(0, len(edges), size)]
    if executor is None:
        return results(None, function, [(patches, index, chunk) for chunk in chunks])
    return results(executor, function, [(*_needed(patches, index, chunk), chunk) for chunk in chunks])


def _needed(patches: Sequence[PatchLike], index: PatchIndex, edges: Int64Array) -> tuple[Patches, PatchIndex]:
    """Return what ``edges`` need; a lazy sequence stays as it is, and the worker opens the patches that it needs."""
    numbers = np.unique(edges).tolist()
    nodes, rows = {k: index.nodes[k] for k in numbers}, {k: index.rows[k] for k in numbers}
    weights = None if index.weights is None else {k: index.weights[k] for k in numbers}
    part = {k: patches[k] for k in numbers} if isinstance(patches, list | tuple) else patches
    magnitudes = {k: index.magnitudes[k] for k in numbers}
    return part, PatchIndex(nodes, rows, index.dim, magnitudes, weights)


def results(
    executor: Executor | None, function: Callable[..., Result], tasks: Sequence[tuple[object, ...]]
) -> Iterator[Result]:
    """Yield ``function(*task)`` of each task, in order; without an executor only when it is asked for."""
    if executor is None:
        return (function(*task) for task in tasks)
    futures = [executor.submit(function, *task) for task in tasks]
    return (future.result() for future in futures)
