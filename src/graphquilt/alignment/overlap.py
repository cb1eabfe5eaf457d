"""Check patches and their weights, and find the rows of the nodes that two patches share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.measuring_kernels import row_magnitudes
from graphquilt.alignment.statistics import LARGEST
from graphquilt.arrays import AnyArray, Float64Array, FloatArray, IntArray, refuse_masked
from graphquilt.errors import InputError
from graphquilt.patches import LazySequence, Patch

__all__ = [
    "PatchIndex",
    "PatchLike",
    "check_count",
    "checked_patch",
    "checked_weights",
    "coordinates",
    "index_patches",
    "row_weights",
]

PatchLike: TypeAlias = Patch | tuple[AnyArray, AnyArray]


@dataclass(frozen=True, eq=False)
class PatchIndex:
    """The rows of the nodes in each patch."""

    nodes: Sequence[IntArray] | Mapping[int, IntArray]  # of each patch, in ascending order
    rows: Sequence[IntArray | None] | Mapping[int, IntArray | None]  # those of the nodes; None if in this order already
    dim: int
    dtype: np.dtype[Any]  # of the coordinates as they are measured
    magnitudes: Sequence[float] | Mapping[int, float]  # the median of the largest coordinate of each node of a patch
    weights: Mapping[int, Float64Array] | Sequence[Float64Array] | None = None  # of the rows of each patch

    @property
    def n_patches(self) -> int:
        """Number of patches."""
        return len(self.nodes)


def index_patches(patches: Sequence[PatchLike], weights: Sequence[npt.ArrayLike] | None = None) -> PatchIndex:
    """Check every patch, and the weights of its rows, once and return where its nodes are."""
    if len(patches) == 0:
        raise InputError("there are no patches; pass at least one (nodes, coordinates) pair.")
    nodes: list[IntArray] = []
    rows: list[IntArray | None] = []
    magnitudes: list[float] = []
    dim, dtype = 0, np.dtype(np.float32)
    for k in range(len(patches)):
        patch = checked_patch(patches[k], k)
        dim = dim or patch.dim
        if patch.dim != dim:
            raise InputError(
                f"patch {k} has {patch.dim} dimensions and patch 0 has {dim}; embed all patches in the same dimension."
            )
        X = patch.coordinates
        dtype = np.result_type(dtype, X.dtype)
        sizes = np.empty(len(X))
        row_magnitudes(X.astype(np.promote_types(X.dtype, np.float32), copy=False), sizes)
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
    if any(ids.dtype != np.int32 for ids in nodes):
        nodes = [ids.astype(np.int64, copy=False) for ids in nodes]
    checked = None if weights is None else checked_weights(weights, patches)
    return PatchIndex(nodes, rows, dim, dtype, magnitudes, checked)


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


def checked_weights(weights: Sequence[npt.ArrayLike], patches: Sequence[PatchLike]) -> Sequence[Float64Array]:
    """Return one positive weight for each row of each patch; those that are made when they are needed stay so."""
    check_count(weights, patches)
    checked = _RowWeights(weights, patches)
    for k, w in enumerate(checked):
        if not w.min() > 0:
            raise InputError(f"{int((w == 0).sum())} weights of patch {k} are 0; all must be positive.")
    return checked if isinstance(weights, LazySequence) else list(checked)


class _RowWeights(LazySequence[Float64Array]):
    """One weight for each row of each patch, made when a patch is asked for."""

    def __init__(self, weights: Sequence[npt.ArrayLike], patches: Sequence[PatchLike]) -> None:
        self._weights, self._patches = weights, patches

    def __len__(self) -> int:
        return len(self._weights)

    def _item(self, k: int) -> Float64Array:
        return row_weights(self._weights[k], k, len(coordinates(self._patches[k])))


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
