"""Give every node one position, the centroid of its positions in the aligned patches, and fit patches to centroids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import patch_index
from graphquilt.alignment.kernels import add_rows
from graphquilt.alignment.patch_index import PatchesLike, PatchLike, checked_patch
from graphquilt.alignment.relative import edge_errors
from graphquilt.alignment.statistics import measure_overlaps
from graphquilt.alignment.transforms import Alignment, with_fixed_frame
from graphquilt.arrays import AnyArray, Float64Array, FloatArray, pieces
from graphquilt.errors import CoverError, InputError
from graphquilt.kernels import one_blas_thread
from graphquilt.linalg import Motions, centred, polar, unit
from graphquilt.patches import Patch
from graphquilt.patches.patch import OnDemand
from graphquilt.progress import ProgressCallback, report

Span: TypeAlias = tuple[int, int, int]  # the first node, the one after the last, and the number of all nodes

_BLOCK = 1 << 30  # bytes of sums in memory at a time
_ROWS = 1 << 16  # rows of a patch that are moved at a time
ALL_ONE = np.empty(0)  # stands for weights that are all 1
SPARSE = 100  # a result with more rows than this for each row of the patches is refused unless n_nodes asks for it


def centroid(
    patches: PatchesLike,
    alignment: Alignment,
    *,
    weights: Sequence[npt.ArrayLike] | AnyArray | None = None,
    n_nodes: int | None = None,
    missing: Literal["error", "nan"] = "error",
    out: FloatArray | None = None,
    blocks: Iterable[tuple[int, int]] | None = None,
    progress: ProgressCallback | None = None,
) -> FloatArray:
    """Average the aligned positions of each node over the patches that contain it (the paper's last equation).

    Patches are read one after the other, and only one is in memory at a time. Sums are made in double precision, or in
    the single precision of ``out``, for a gigabyte of nodes at a time.

    Parameters
    ----------
    patches : sequence of Patch or (nodes, coordinates) pairs
        Where nodes have names, as :func:`align` allows, the rows of the result are in ascending order of the names.
    alignment : Alignment
        ``Alignment.identity(n_patches, dim)`` gives the paper's "no-trans". Patches that it has ``left_out`` count only
        for nodes that no other patch has.
    weights : sequence of p numbers or of p arrays (k_i,), optional
        How much each patch, or each row of each patch, counts; uniform without it.
    n_nodes : int, optional
        Number of rows of the result; without it, one more than the largest id. Where that is far more than the patches
        have nodes, ids are refused: number the nodes 0..n-1 first, or give ``n_nodes``.
    missing : "error" or "nan"
        Refuse nodes that are in no patch (or have weight 0 in all of them), or give them NaN.
    out : float array (n_nodes, d), optional
        The array to write the result to and return, a memory map for example; a new one is float64.
    blocks : iterable of (first, last), optional
        The rows first..last-1 to make, block after block; by default all, in order. ``out`` has each before the next.
    progress : callable, optional

    Examples
    --------
    >>> patches = [([0, 1], [[0.0], [2.0]]), ([1, 2], [[4.0], [6.0]])]
    >>> centroid(patches, Alignment.identity(2, 1)).ravel().tolist()
    [0.0, 3.0, 6.0]
    """
    if missing not in ("error", "nan"):
        raise InputError(f"missing must be 'error' or 'nan', not {missing!r}.")
    numbered = patch_index.with_numbers(patches)
    if not hasattr(numbered, "between"):  # a store reads the part of a patch that is needed
        numbered = patch_index.keep_open(numbered)
    patches = numbered
    if len(patches) != alignment.n_patches:
        raise InputError(f"there are {len(patches)} patches and the alignment has {alignment.n_patches}.")
    if weights is not None:
        patch_index.check_count(weights, patches)
    largest = max(_largest(patches, k) for k in range(len(patches)))
    n = largest + 1 if n_nodes is None else n_nodes
    if largest >= n:
        raise CoverError(f"a patch holds node {largest}, but n_nodes is {n}; ids must be below it.")
    if n_nodes is None and out is None:
        _check_sparse(patches, n, missing)
    result: FloatArray = np.empty((n, alignment.dim)) if out is None else out
    if not np.issubdtype(result.dtype, np.floating):
        raise InputError(f"out holds {result.dtype}; positions need a float type.")
    if result.shape != (n, alignment.dim):
        raise InputError(f"out has shape {result.shape}; the result needs ({n}, {alignment.dim}).")
    kind = np.dtype(np.float32 if result.dtype == np.float32 else np.float64)
    step = max(1, _BLOCK // (kind.itemsize * (alignment.dim + 1)))
    for first, last in ((a, min(a + step, n)) for a in range(0, n, step)) if blocks is None else blocks:
        at_once = last - first == n and result.dtype == kind
        total = np.asanyarray(result) if at_once else np.empty((last - first, alignment.dim), dtype=kind)
        total[:] = 0
        before = first if blocks is None else n - last  # the last block of a file of rows comes first
        mass = _add_up(patches, alignment, weights, (first, last, n), total, before=before, progress=progress)
        empty = np.flatnonzero(mass == 0)
        if len(empty) and missing == "error":
            count = f"{len(empty)} of {n}" if last - first == n else f"at least {len(empty)} of {n}"
            raise CoverError(
                f"{count} nodes are in no patch (or have no weight), the first are {(first + empty[:5]).tolist()}; "
                "add them to a patch, or pass missing='nan'."
            )
        mass[empty] = np.nan
        total /= mass[:, None].astype(kind)
        if not at_once:
            result[first:last] = total
    return result


def _add_up(
    patches: Sequence[PatchLike],
    alignment: Alignment,
    weights: Sequence[npt.ArrayLike] | AnyArray | None,
    span: Span,
    total: FloatArray,
    *,
    before: int,
    progress: ProgressCallback | None,
) -> Float64Array:
    """Add the weighted positions of the nodes of a span to ``total``, and return the sums of their weights."""
    first, last, n = span
    mass, p, step = np.zeros(last - first), len(patches), len(total)
    still = np.all(alignment.rotations == np.eye(alignment.dim), axis=(1, 2))
    left_out = alignment.left_out
    order, covered = [*np.delete(np.arange(p), left_out).tolist(), *left_out.tolist()], np.zeros(0, dtype=np.bool_)
    for done, k in enumerate(order):
        places, X, w = _part(patches, k, weights, span)
        if done == p - len(left_out):
            covered = mass > 0
        if len(covered):  # of a patch that does not fit, only the nodes count that no other has
            rest = ~covered[places]
            places, X, w = places[rest], X[rest], w[rest] if len(w) else w
        if X.shape[1] != alignment.dim:
            raise InputError(f"patch {k} has {X.shape[1]} dimensions and the alignment has {alignment.dim}.")
        for rows in pieces(len(X), _ROWS):
            moved = np.asarray(X[rows], dtype=total.dtype)
            scale = alignment.scales[k]
            if not still[k]:
                moved = moved @ (scale * alignment.rotations[k]).astype(total.dtype)
            elif scale != 1:
                moved = moved * total.dtype.type(scale)
            add_rows(places[rows], moved, alignment.translations[k].astype(total.dtype), w[rows], total, mass)
        report(progress, "centroid", before * p + (done + 1) * step, n * p)
    return mass


def _part(
    patches: Sequence[PatchLike], k: int, weights: Sequence[npt.ArrayLike] | AnyArray | None, span: Span
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return the nodes of a patch that lie in a span, counted from its first, with their coordinates and weights.

    Of patches in a store, which were checked when the largest id was looked for, only a part is read.
    """
    first, last, n = span
    between = getattr(patches, "between", None)
    chosen: slice | AnyArray = slice(None)
    if between is not None and last - first < n:
        nodes, X, chosen, length = between(k, first, last)
    else:
        nodes, X = checked_patch(patches[k], k) if first == 0 else map(np.asanyarray, patches[k])
        length = len(nodes)
        if last - first < n:
            chosen = (nodes >= first) & (nodes < last)
            if np.all(nodes[1:] > nodes[:-1]):  # a slice copies nothing
                chosen = slice(*np.searchsorted(nodes, [first, last]).tolist())
            nodes, X = nodes[chosen], X[chosen]
    w = ALL_ONE if weights is None else patch_index.row_weights(weights[k], k, length)[chosen]
    return nodes - first if first else nodes, X, w


def _largest(patches: Sequence[PatchLike], k: int) -> int:
    if hasattr(patches, "nodes_of"):  # a store knows them without the coordinates
        return int(patches.nodes_of(k)[-1])
    patch = patches[k]
    nodes, _ = patch if isinstance(patch, Patch) or len(patch) == 2 else checked_patch(patch, k)
    return int(np.max(nodes)) if np.size(nodes) else -1


def _check_sparse(patches: Sequence[PatchLike], n: int, missing: Literal["error", "nan"]) -> None:
    """Refuse ids up to ``n - 1`` before an array of n rows is made, where the patches have far fewer rows."""
    total = sum(np.size(_ids(patches[k])) for k in range(len(patches)))
    if n <= total * (SPARSE if missing == "nan" else 1):
        return
    ids = np.unique(np.concatenate([_ids(patches[k]) for k in range(len(patches))]))
    first = np.setdiff1d(np.arange(min(len(ids) + 5, n)), ids)[:5].tolist()
    raise CoverError(
        f"{n - len(ids)} of {n} nodes are in no patch, the first are {first}: the patches have {len(ids)} nodes, and "
        f"the largest id is {n - 1}. Number the nodes 0..n-1 (np.searchsorted(ids, nodes) for each patch, where ids = "
        f"np.unique of all of them), add the nodes to a patch, or pass missing='nan' and n_nodes={n}."
    )


def with_compact_ids(patches: Sequence[PatchLike]) -> Sequence[PatchLike]:
    """Return the patches with nodes numbered 0..n-1 if their ids are sparse; each is opened when it is needed."""
    largest = max(_largest(patches, k) for k in range(len(patches)))
    if largest < sum(np.size(_ids(patches[k])) for k in range(len(patches))):
        return patches
    ids = np.empty(0, dtype=np.int64)
    for k in range(len(patches)):
        ids = np.union1d(ids, checked_patch(patches[k], k).nodes)

    def renumbered(k: int) -> PatchLike:
        nodes, X = checked_patch(patches[k], k)
        return np.searchsorted(ids, nodes), X

    return OnDemand(len(patches), renumbered)


def _ids(patch: PatchLike) -> AnyArray:
    return np.asarray(patch.nodes if isinstance(patch, Patch) else patch[0])


def refine(
    patches: Sequence[PatchLike],
    alignment: Alignment,
    *,
    sweeps: int = 3,
    rotate: bool = True,
    translate: bool = True,
    weights: Sequence[npt.ArrayLike] | None = None,
) -> Alignment:
    """Improve an alignment by fitting every patch to the centroid of all patches, ``sweeps`` times (Gower 1975).

    Parameters
    ----------
    patches, weights
        Those of :func:`align`; patches are read one after the other.
    alignment : Alignment
        A good one to begin with, because the sweeps end in a local optimum.
    sweeps : int
        How many; a few are enough, and 0 returns the alignment as it is.
    rotate, translate : bool
        Whether patches may be turned and shifted; scales stay as they are.

    Returns
    -------
    Alignment
        With the ``edge_errors`` of the new transforms. Eigenvalues and residual remain those of the rotation step.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(12, 2))
    >>> patches = [(np.arange(8), X[:8]), (np.arange(4, 12), X[4:])]
    >>> round(float(refine(patches, Alignment.identity(2, 2)).translations.max()), 6)
    0.0
    """
    if isinstance(sweeps, bool) or not isinstance(sweeps, int | np.integer) or sweeps < 0:
        raise InputError(f"sweeps is a whole number of at least 0, not {sweeps!r}.")
    if len(patches) != alignment.n_patches:
        raise InputError(f"there are {len(patches)} patches and the alignment has {alignment.n_patches}.")
    if sweeps == 0 or len(patches) == 1:
        return alignment
    patches = patch_index.keep_open(patches)
    trusted = None if weights is None else patch_index.checked_weights(weights, patches)
    motions = Motions(rotate=rotate, translate=translate)
    current, numbered = alignment, with_compact_ids(patches)
    for _ in range(sweeps):
        C = centroid(numbered, current, weights=trusted, missing="nan")
        current = lay_onto(numbered, current, C, weights=trusted, motions=motions)
        current = with_fixed_frame(current)
    if len(current.edges):
        statistics = measure_overlaps(patches, patch_index.index_patches(patches, trusted), current.edges)
        errors = np.minimum(edge_errors(statistics, current.edges, current), 1)
        current = replace(current, edge_table=replace(current.edge_table, errors=errors))
    return current


def lay_onto(
    patches: Sequence[PatchLike],
    alignment: Alignment,
    reference: FloatArray,
    *,
    weights: Sequence[Float64Array] | None = None,
    motions: Motions = Motions(),
) -> Alignment:
    """Return the alignment that fits each patch by itself to the rows of its nodes in ``reference (n, d)``.

    What ``motions`` does not free (by default the scales) stays as ``alignment`` has it.
    """
    p, d = alignment.n_patches, alignment.dim
    scales, translations = np.array(alignment.scales), np.array(alignment.translations)
    rotations = np.empty((p, d, d))
    with one_blas_thread():
        for k in range(p):
            nodes, X = checked_patch(patches[k], k)
            w = np.ones(len(nodes)) if weights is None else weights[k]
            (a, mean), (b, target) = centred(X, w), centred(reference[nodes], w)
            if not motions.translate:
                root = np.sqrt(w)[:, None]
                a, b = root * np.asarray(X, dtype=np.float64), root * (reference[nodes] - translations[k])
            units = unit(a), unit(b)
            a, b = a / units[0], b / units[1]
            rotations[k] = polar(a.T @ b).rotation if motions.rotate else alignment.rotations[k]
            if motions.scale:
                scales[k] = np.linalg.norm(b) / np.linalg.norm(a) * (units[1] / units[0])
            if motions.translate:
                translations[k] = target - scales[k] * mean @ rotations[k]
    return replace(alignment, scales=scales, rotations=rotations, translations=translations)
