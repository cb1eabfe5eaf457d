"""Patches as alignment reads them: checks, the rows of nodes, patches that stay open, numbers for nodes with names."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.kernels import LARGEST, row_magnitudes
from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array, IntArray, refuse_masked
from graphquilt.errors import DisconnectedError, FormatError, InputError, counted
from graphquilt.graph.reading.conversion import id_array
from graphquilt.graph.reading.vectors import Vectors, check_vectors, read_vectors
from graphquilt.linalg import components
from graphquilt.patches import LazySequence, Patch
from graphquilt.patches.graph import count_shared
from graphquilt.patches.patch import OnDemand

PatchLike: TypeAlias = Patch | tuple[AnyArray, AnyArray]

MEMORY = 2**28  # bytes of arrays that are not maps
RESERVED = 16  # files that are left to others
FILES = 0.5  # share of the other files that this process may have open
USUAL = 512  # that number where the system does not say


@dataclass(frozen=True, eq=False)
class PatchIndex:
    """The rows of the nodes in each patch."""

    nodes: Sequence[IntArray]  # of each patch, in ascending order
    rows: Sequence[IntArray | None]  # those of the nodes; None if in this order already
    dim: int
    dtype: np.dtype[Any]  # of the coordinates as they are measured
    magnitudes: Sequence[float]  # the median of the largest coordinate of each node of a patch
    weights: Sequence[Float64Array] | None = None  # of the rows of each patch

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
            raise InputError(f"patch {k} has {patch.dim} dimensions and patch 0 has {dim}; embed all in the same.")
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
    checked = OnDemand(len(weights), lambda k: row_weights(weights[k], k, len(coordinates(patches[k]))))
    for k, w in enumerate(checked):
        if not w.min() > 0:
            raise InputError(f"{int((w == 0).sum())} weights of patch {k} are 0; all must be positive.")
    return checked if isinstance(weights, LazySequence) else list(checked)


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


def stranded_nodes(node_sets: Sequence[IntArray], left_out: Int64Array) -> IntArray:
    """Return the nodes, ascending, that only the patches ``left_out (k,)`` have."""
    if len(left_out) == 0:
        return np.empty(0, dtype=np.int64)
    nodes = np.unique(np.concatenate([node_sets[k] for k in left_out.tolist()]))
    for k in np.setdiff1d(np.arange(len(node_sets)), left_out).tolist():
        nodes = nodes[~np.isin(nodes, node_sets[k])]
    return nodes


def keep_open(patches: Sequence[PatchLike]) -> Sequence[PatchLike]:
    """Return a list as it is, and any other sequence as one that opens most patches only once."""
    return patches if isinstance(patches, list | tuple | OpenPatches) else OpenPatches(patches)


class OpenPatches(LazySequence[PatchLike]):
    """The patches of a sequence; those that were opened first stay open, the others are read whenever they are needed.

    The ones that stay are never exchanged: if all are read in turn, no exchange would help.
    """

    def __init__(self, patches: Sequence[PatchLike]) -> None:
        self.patches, self._open, self._maps = patches, dict[int, PatchLike](), set[int]()
        self._files, self._bytes = int(max(0, _file_limit() - RESERVED) * FILES), MEMORY

    def __len__(self) -> int:
        return len(self.patches)

    def stays(self, k: int) -> bool:
        """Return whether patch k is open and stays so."""
        return k in self._open

    def _item(self, k: int) -> PatchLike:
        patch = self._open.get(k)
        if patch is None:
            patch = self.patches[k]
            if isinstance(patch, tuple) and len(patch) == 2 and _map_of(patch[0]) is not None:
                patch = (np.array(patch[0]), patch[1])  # the ids are needed all the time, and a map is an open file
            if not self._keep(k, patch) and any(_map_of(array) is not None for array in patch):
                nodes, X = map(np.array, patch)  # whoever works on many at once then has no files open
                patch = Patch(nodes, X) if isinstance(patch, Patch) else (nodes, X)
        return patch

    def _keep(self, k: int, patch: PatchLike) -> bool:
        """Keep a patch open if there is room for it, and return whether there is."""
        bases = [_map_of(array) for array in patch]
        maps = {id(base) for base in bases if base is not None} - self._maps
        size = sum(np.asarray(array).nbytes for array, base in zip(patch, bases, strict=True) if base is None)
        if len(maps) > self._files - len(self._maps) or size > self._bytes:
            return False
        self._open[k] = patch
        self._maps |= maps
        self._bytes -= size
        return True


def _map_of(array: object) -> mmap.mmap | None:
    """Return the mapped file in which an array lies; it stays open as long as the array lives."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array


def _file_limit() -> int:
    try:
        import resource
    except ImportError:  # not every system has limits of this kind
        return USUAL
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return USUAL if soft == resource.RLIM_INFINITY else int(soft)


def check_connected(
    pairs: Int64Array, names: Sequence[object], *, node_sets: Sequence[IntArray] | None = None, dim: int = 0
) -> None:
    """Refuse ``pairs (m, 2)`` that do not join all patches; those of ``node_sets`` share dim + 1 nodes."""
    labels = components(pairs, len(names))
    if labels.max() == 0:
        return
    groups = [[str(names[k]) for k in np.flatnonzero(labels == c).tolist()] for c in np.unique(labels)]
    groups.sort(key=len, reverse=True)
    shown = [group if len(group) <= 12 else [*group[:10], f"… {len(group)} in all"] for group in groups[:8]]
    named = "; ".join("{" + ", ".join(group) + "}" for group in shown)
    named += "; …" if len(groups) > 8 else ""
    start = f"the patches fall into {len(groups)} groups"
    if node_sets is None:
        raise DisconnectedError(
            f"{start} with no edge between them: {named}. Add edges that join the groups, or align each on its own."
        )
    shared = count_shared(node_sets)
    between = np.where(labels[shared.row] != labels[shared.col], shared.data, 0)
    most, largest = int(between.max(initial=0)), "no two groups have any"
    if most > 0:
        k = int(between.argmax())
        largest = f"of two groups, {names[shared.row[k]]} and {names[shared.col[k]]} have the most: {most}"
    less = f", embed in at most {counted(most - 1, 'dimension')}" if most > 1 else ""
    remedy = (
        f"Two patches in {counted(dim, 'dimension')} need at least {dim + 1}, and {largest}. Give patches with more "
        f"ids in common{less}, or align each group on its own."
    )
    raise DisconnectedError(f"{start} that have too few ids in common: {named}. {remedy}")


VectorsByName: TypeAlias = Mapping[str, npt.ArrayLike] | Mapping[int, npt.ArrayLike]  # by the name of a node
NamedPatch: TypeAlias = PatchLike | tuple[npt.ArrayLike, npt.ArrayLike] | VectorsByName | str | os.PathLike[str]
PatchesLike: TypeAlias = Sequence[NamedPatch] | Mapping[str, NamedPatch] | Mapping[int, NamedPatch]
_TAKEN = "a pair of ids and coordinates, a dict of names to vectors, or the path of a vector file"


class Numbered(NamedTuple):
    """Patches whose nodes are numbers, and what each number and each patch is called."""

    patches: list[Patch]
    ids: AnyArray  # (n,) of the nodes, ascending
    names: list[str]  # (p,)


def with_numbers(patches: PatchesLike) -> Sequence[PatchLike]:
    """Return patches as they are, or with numbers for nodes where they have names; lazy sequences are not opened."""
    listed = isinstance(patches, list | tuple)
    if isinstance(patches, Mapping) or (listed and any(_has_names(patch) for patch in patches)):
        return number_patches(patches).patches
    return cast(Sequence[PatchLike], patches)


def _has_names(patch: object) -> bool:
    if isinstance(patch, Mapping | str | os.PathLike):
        return True
    pair = isinstance(patch, tuple | list) and len(patch) == 2
    return pair and np.asarray(patch[0]).dtype.kind in "UO"  # type: ignore[index]


def number_patches(patches: PatchesLike) -> Numbered:
    """Number the nodes 0..n-1 in ascending order of their ids, whole numbers or, where text occurs, all text."""
    given = dict(patches) if isinstance(patches, Mapping) else dict(enumerate(patches))
    if not given:
        raise InputError(f"there are no patches; a patch is {_TAKEN}.")
    names = [_name(key, patch, isinstance(patches, Mapping)) for key, patch in given.items()]
    pairs = [_pair(name, patch) for name, patch in zip(names, given.values(), strict=True)]
    widths = [X.shape[1] for _, X in pairs]
    if len(set(widths)) > 1:
        k = next(k for k, width in enumerate(widths) if width != widths[0])
        raise InputError(
            f"{names[k]} has vectors of {counted(widths[k], 'number')} and {names[0]} of {widths[0]}; only vectors "
            "of one length can be stitched. Embed one of the two again, or leave it out."
        )
    if len({ids.dtype.kind == "U" for ids, _ in pairs}) > 1:
        pairs = [(ids.astype(str), X) for ids, X in pairs]
    ids = np.unique(np.concatenate([ids for ids, _ in pairs]))
    numbered = []
    for name, (own, X) in zip(names, pairs, strict=True):
        try:
            numbered.append(Patch(np.searchsorted(ids, own), X))
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return Numbered(numbered, ids, names)


def _name(key: object, patch: object, named: bool) -> str:
    return str(patch) if isinstance(patch, str | os.PathLike) and not named else str(key) if named else f"patch {key}"


def _pair(name: str, patch: NamedPatch) -> Vectors:
    if isinstance(patch, str | os.PathLike):
        return read_vectors(Path(patch))
    if isinstance(patch, np.ndarray | list | tuple) and all(isinstance(x, Real) for x in patch):
        remedy = "A dict of names to vectors is one patch: give a list of such dicts."
        raise InputError(f"{name} is one vector, not {_TAKEN}. {remedy}")
    try:
        if isinstance(patch, Mapping):
            ids = id_array(np.asarray(list(patch)))
            X = np.array([np.asarray(vector, dtype=np.float64) for vector in patch.values()])
        else:
            nodes, coordinates = patch
            ids, X = id_array(np.asarray(nodes)), np.asanyarray(coordinates)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not {_TAKEN} ({error}).") from None
    try:
        check_vectors(name, ids, X)
    except FormatError as error:
        raise InputError(str(error)) from None
    return ids, X
