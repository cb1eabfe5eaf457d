"""Give every node one position: the centroid of its positions in the aligned patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.overlap import PatchLike, check_count, checked_patch, row_weights
from graphquilt.alignment.transforms import Alignment
from graphquilt.arrays import AnyArray, FloatArray
from graphquilt.errors import CoverError, InputError
from graphquilt.patches import Patch

__all__ = ["centroid"]


def centroid(
    patches: Sequence[PatchLike],
    alignment: Alignment,
    *,
    weights: Sequence[npt.ArrayLike] | AnyArray | None = None,
    n_nodes: int | None = None,
    missing: Literal["error", "nan"] = "error",
    out: FloatArray | None = None,
) -> FloatArray:
    """Average the aligned positions of each node over the patches that contain it (the paper's last equation).

    Patches are read one after the other, so that only one of them is in memory at a time.

    Parameters
    ----------
    patches : sequence of Patch or (nodes, coordinates) pairs
    alignment : Alignment
        ``Alignment.identity(n_patches, dim)`` gives the paper's "no-trans".
    weights : sequence of p numbers or of p arrays (k_i,), optional
        How much each patch, or each row of each patch, counts; uniform without it.
    n_nodes : int, optional
        Number of rows of the result; without it, one more than the largest id.
    missing : "error" or "nan"
        Refuse nodes that are in no patch (or have weight 0 in all of them), or give them NaN.
    out : float array (n_nodes, d), optional
        The array to write the result to and return, a memory map for example; a new one is float64.

    Examples
    --------
    >>> patches = [([0, 1], [[0.0], [2.0]]), ([1, 2], [[4.0], [6.0]])]
    >>> centroid(patches, Alignment.identity(2, 1)).ravel().tolist()
    [0.0, 3.0, 6.0]
    """
    if missing not in ("error", "nan"):
        raise InputError(f"missing must be 'error' or 'nan', not {missing!r}.")
    if len(patches) != alignment.n_patches:
        raise InputError(f"there are {len(patches)} patches and the alignment has {alignment.n_patches}.")
    if weights is not None:
        check_count(weights, patches)
    largest = max(_largest(patches[k], k) for k in range(len(patches)))
    n = largest + 1 if n_nodes is None else n_nodes
    if largest >= n:
        raise CoverError(f"a patch holds node {largest}, but n_nodes is {n}; ids must be below it.")
    result: FloatArray = np.empty((n, alignment.dim)) if out is None else out
    if not np.issubdtype(result.dtype, np.floating):
        raise InputError(f"out holds {result.dtype}; positions need a float type.")
    if result.shape != (n, alignment.dim):
        raise InputError(f"out has shape {result.shape}; the result needs ({n}, {alignment.dim}).")
    total = result if result.dtype == np.float64 else np.empty(result.shape)
    total[:] = 0
    mass = np.zeros(n)
    for k in range(len(patches)):
        nodes, X = checked_patch(patches[k], k)
        if X.shape[1] != alignment.dim:
            raise InputError(f"patch {k} has {X.shape[1]} dimensions and the alignment has {alignment.dim}.")
        w = np.ones(len(nodes)) if weights is None else row_weights(weights[k], k, len(nodes))
        total[nodes] += w[:, None] * alignment.apply(k, X)
        mass[nodes] += w
    empty = np.flatnonzero(mass == 0)
    if len(empty) and missing == "error":
        raise CoverError(
            f"{len(empty)} of {n} nodes are in no patch (or have no weight), the first are {empty[:5].tolist()}; "
            "add them to a patch, or pass missing='nan'."
        )
    mass[empty] = np.nan
    total /= mass[:, None]
    if total is not result:
        result[:] = total
    return result


def _largest(patch: PatchLike, k: int) -> int:
    nodes, _ = patch if isinstance(patch, Patch) or len(patch) == 2 else checked_patch(patch, k)
    return int(np.max(nodes)) if np.size(nodes) else -1
