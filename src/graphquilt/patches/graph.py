"""PatchGraph: overlapping sets of nodes, and which pairs of them will be aligned."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Int64Array, IntArray, refuse_masked
from graphquilt.drawing import network_svg
from graphquilt.errors import CoverError, DisconnectedError, FormatError, InputError, OverlapError
from graphquilt.files import map_arrays, save_arrays, translate_disk_errors
from graphquilt.linalg import components as connected_parts
from graphquilt.patches import kernels
from graphquilt.patches.patch import NodeSets

_NAMES = ("nodes", "starts", "edges", "n_nodes", "components", "report")  # of the arrays of a patch graph


@dataclass(frozen=True, eq=False, repr=False)
class PatchGraph:
    """Overlapping sets of nodes, and which pairs of them will be aligned.

    :func:`graphquilt.patch_graph` makes one from a graph, and :meth:`from_patches` from existing patches. What the
    attributes promise is checked when it is built.

    Attributes
    ----------
    node_sets : sequence of int arrays
        Sorted unique node ids of each patch; together they contain 0..n_nodes-1.
    edges : (m, 2)
        Pairs (i, j), i < j, of patches that share nodes. They connect all patches, unless ``components`` is "each".
    components : {"error", "each"}
        If the edges do not connect all patches: raise, or accept components that can only be aligned separately.
    report : dict
        How :func:`graphquilt.patch_graph` made the patches.
    overlaps : (m,)
        Number of nodes that the two patches of each edge share.
    component : (p,)
        The component of each patch.
    settings : object
        The settings that it was cut for, where :func:`graphquilt.cut` made it: the defaults of the next steps.

    Examples
    --------
    >>> patches = PatchGraph.from_patches([[0, 1, 2], [1, 2, 3]])
    >>> patches.edges.tolist(), patches.overlaps.tolist(), patches.n_nodes
    ([[0, 1]], [2], 4)
    """

    node_sets: Sequence[IntArray]
    edges: Int64Array
    n_nodes: int
    components: Literal["error", "each"] = "error"
    report: dict[str, Any] = field(default_factory=dict)
    overlaps: Int64Array = field(init=False)
    component: Int64Array = field(init=False)
    settings: object = field(init=False, default=None)

    def __post_init__(self) -> None:
        sets = NodeSets.gather(self.node_sets)
        _check_cover(sets, self.n_nodes)
        edges = np.sort(checked_pairs(self.edges, len(sets)), axis=1)
        object.__setattr__(self, "node_sets", sets)
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "overlaps", kernels.overlap_sizes(sets.nodes, sets.starts, edges))
        if len(edges) and self.overlaps.min() == 0:
            i, j = edges[self.overlaps.argmin()]
            raise OverlapError(
                f"patches {i} and {j} share no nodes but are joined by an edge. Drop the edge ({i}, {j}) or give "
                "the two patches nodes in common."
            )
        object.__setattr__(self, "component", connected_parts(edges, len(sets)))
        if self.placement_arbitrary and self.components == "error":
            raise disconnected_error(self.component, self.sizes)

    @classmethod
    def from_patches(
        cls,
        patches: Iterable[object],
        edges: npt.ArrayLike | None = None,
        *,
        n_nodes: int | None = None,
        min_overlap: int = 1,
        components: Literal["error", "each"] = "error",
    ) -> PatchGraph:
        """Make a patch graph of patches from elsewhere: federated data, snapshots.

        Parameters
        ----------
        patches : iterable of int arrays, Patch or (nodes, coordinates) pairs
        edges : (m, 2), optional
            By default every pair of patches that shares at least ``min_overlap`` nodes.
        n_nodes : int, optional
            By default one more than the largest id. Ids must have no gaps.
        min_overlap : int
            d + 1 to align in d dimensions.

        Examples
        --------
        >>> PatchGraph.from_patches([[0, 1, 2], [1, 2, 3], [2, 3]], min_overlap=2).edges.tolist()
        [[0, 1], [1, 2]]
        """
        sets = NodeSets.gather(patches)
        if len(sets) == 0:
            raise CoverError("there are no patches.")
        n = int(sets.nodes.max()) + 1 if n_nodes is None else n_nodes
        pairs = overlapping_pairs(sets, min_overlap) if edges is None else np.asarray(edges)
        return cls(sets, pairs, n, components)

    @property
    def n_patches(self) -> int:
        """Number of patches."""
        return len(self.node_sets)

    @property
    def sizes(self) -> Int64Array:
        """Number of nodes of each patch, (p,)."""
        return np.array([len(nodes) for nodes in self.node_sets], dtype=np.int64)

    @property
    def degrees(self) -> Int64Array:
        """Number of patch edges at each patch, (p,)."""
        return np.bincount(self.edges.ravel(), minlength=self.n_patches).astype(np.int64)

    @property
    def placement_arbitrary(self) -> bool:
        """Whether the edges leave several components, whose places relative to each other mean nothing."""
        return bool(len(self.component) and self.component.max() > 0)

    def check_dim(self, dim: int) -> None:
        """Raise unless every edge shares the ``dim + 1`` nodes that aligning in ``dim`` dimensions needs."""
        if len(self.edges) and self.overlaps.min() <= dim:
            k = int(self.overlaps.argmin())
            i, j = self.edges[k]
            check_overlap(i, j, int(self.overlaps[k]), least=dim + 1, dim=dim)

    def repeat(self, runs: int) -> PatchGraph:
        """Return the patch graph of several runs, with every patch ``runs`` times.

        Patch k of run r is number ``r * n_patches + k``: one more run adds patches at the end and renumbers none. The
        edges are those of this patch graph inside each run, and all pairs of runs of one patch.

        Examples
        --------
        >>> repeated = PatchGraph.from_patches([[0, 1, 2], [1, 2, 3]]).repeat(2)
        >>> repeated.n_patches, repeated.edges.tolist()
        (4, [[0, 1], [2, 3], [0, 2], [1, 3]])
        """
        if isinstance(runs, bool) or not isinstance(runs, int | np.integer) or runs < 1:
            raise InputError(f"runs must be a whole number of at least 1, not {runs!r}: how often to embed each patch.")
        if runs == 1:
            return self
        p, sets = self.n_patches, NodeSets.gather(self.node_sets)
        starts = np.concatenate([[0], *(sets.starts[1:] + r * len(sets.nodes) for r in range(runs))])
        inside = [self.edges + r * p for r in range(runs)]
        between = [np.arange(p)[:, None] + np.array(pair) * p for pair in combinations(range(runs), 2)]
        edges = np.concatenate([*inside, *between])
        report = {**self.report, "runs": int(runs)}
        return PatchGraph(NodeSets(np.tile(sets.nodes, runs), starts), edges, self.n_nodes, self.components, report)

    def summary(self) -> dict[str, Any]:
        """Return sizes, overlaps and oversampling as plain numbers, with the report of how the patches were made."""
        return {
            "n_nodes": self.n_nodes,
            "n_patches": self.n_patches,
            "n_patch_edges": len(self.edges),
            "n_components": int(self.component.max()) + 1,
            "placement_arbitrary": self.placement_arbitrary,
            "patch_size": _spread(self.sizes),
            "patch_degree": _spread(self.degrees),
            "overlap": _spread(self.overlaps) if len(self.edges) else None,
            "node_oversampling": float(self.sizes.sum() / self.n_nodes),
            **self.report,
        }

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return everything as arrays; patch k is ``nodes[starts[k]:starts[k + 1]]`` and ``report`` is JSON."""
        sets = NodeSets.gather(self.node_sets)
        return {
            "nodes": sets.nodes,
            "starts": sets.starts,
            "edges": self.edges,
            "overlaps": self.overlaps,
            "n_nodes": np.array(self.n_nodes),
            "components": np.array(self.components),
            "report": np.array(json.dumps(self.report)),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> PatchGraph:
        """Make a patch graph of what :meth:`to_arrays` returned; node lists that are memory maps stay so."""
        try:
            nodes, n_nodes, edges, starts = (arrays[name] for name in ("nodes", "n_nodes", "edges", "starts"))
            components, report = str(arrays["components"]), dict(json.loads(str(arrays["report"])))
            if n_nodes.dtype.kind not in "iu" or n_nodes.shape:
                raise ValueError(f"its number of nodes is {n_nodes.dtype} {n_nodes.shape}")
            if components not in ("error", "each"):
                raise ValueError(f"its components are {components[:20]!r}")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            problem = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise FormatError(f"this is not a patch graph: {problem}. Make the patches again.") from error
        kind = cast(Literal["error", "each"], components)
        return cls(NodeSets(nodes, starts), np.array(edges), int(n_nodes), kind, report)

    def with_settings(self, settings: object) -> PatchGraph:
        """Return the patch graph with the settings it was cut for, which the next steps take as their defaults."""
        carrying = copy.copy(self)
        object.__setattr__(carrying, "settings", settings)
        return carrying

    def save(self, path: str | PathLike[str]) -> None:
        """Write :meth:`to_arrays` to one ``.npz`` file, atomically."""
        with translate_disk_errors(Path(path)):
            save_arrays(Path(path), self.to_arrays())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> PatchGraph:
        """Open a file that :meth:`save` wrote; its node lists are read on use."""
        try:
            return cls.from_arrays(map_arrays(Path(path), _NAMES))
        except FileNotFoundError as error:
            raise FormatError(f"{path} does not exist.") from error
        except (ValueError, OSError, MemoryError) as error:
            raise FormatError(f"{path} is not a complete patch graph file: {error}. Make the patches again.") from error

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a few facts, and the patches with the overlaps that join them."""
        facts = f"{self.n_patches:,} patches of {self.n_nodes:,} nodes, {len(self.edges):,} patch edges"
        return f"<div><b>{facts}</b><br>{network_svg(self.sizes, self.edges, self.overlaps)}</div>"

    def __repr__(self) -> str:
        return f"PatchGraph({self.n_patches} patches of {self.n_nodes} nodes, {len(self.edges)} edges)"


def disconnected_error(component: Int64Array, sizes: Int64Array) -> DisconnectedError:
    """Return the error that names the components of a patch graph."""
    patches = np.bincount(component)
    nodes = np.bincount(component, weights=sizes).astype(np.int64)
    order = np.argsort(-nodes, kind="stable")
    members = [np.flatnonzero(component == c) for c in order[:5]]
    shown = [", ".join(map(str, own[:4])) + f", … ({len(own)} in all)" * (len(own) > 4) for own in members]
    named = "; ".join(f"patches {own} with {nodes[c]} nodes" for own, c in zip(shown, order, strict=False))
    more = f"; and {len(order) - 5} more" if len(order) > 5 else ""
    return DisconnectedError(
        f"the patch graph falls into {len(patches)} components: {named}{more}. No alignment relates one to another. "
        f"Keep the largest ({patches[order[0]]} patches): take graph.largest_component() before partitioning "
        '(--largest-component); or pass components="each" (--each-component) to align each alone, with their placement '
        "arbitrary; or use an embedder with a shared start (--embedder propagation), which puts all in one frame."
    )


def _spread(values: Int64Array) -> dict[str, float]:
    return {"min": int(values.min()), "mean": round(float(values.mean()), 2), "max": int(values.max())}


def checked_pairs(edges: npt.ArrayLike, p: int) -> Int64Array:
    """Return ``edges (m, 2)`` as they are, after checking that they are distinct pairs of ``p`` patches."""
    refuse_masked(edges=edges)
    array = np.asarray(edges) if np.size(edges) else np.empty((0, 2), dtype=np.int64)
    if array.shape[1:] != (2,) or array.dtype.kind not in "iu":
        kind = f"shape {array.shape} and type {array.dtype}"
        raise InputError(f"edges are pairs of patch numbers (m, 2); these have {kind}.")
    there = f"names a patch that is not there; there are {p}, 0 to {p - 1}"
    wrong = ((array < 0) | (array >= p)).any(axis=1), array[:, 0] == array[:, 1]
    for rows, problem in zip(wrong, (there, "joins a patch to itself; drop it"), strict=True):
        if rows.any():
            raise InputError(f"the edge {tuple(array[rows][0].tolist())} {problem}.")
    pairs = np.sort(array.astype(np.int64), axis=1)
    unique, counts = np.unique(pairs[:, 0] * p + pairs[:, 1], return_counts=True)
    if len(unique) < len(pairs):
        twice = divmod(int(unique[counts.argmax()]), p)
        raise InputError(f"the edge {twice} is given {counts.max()} times; keep one.")
    return array.astype(np.int64)


def check_overlap(i: object, j: object, share: int, *, least: int, dim: int) -> None:
    """Refuse an edge between the patches named i and j that share fewer than ``least`` nodes."""
    if share < least:
        raise OverlapError(
            f"patches {i} and {j} share {share} nodes; aligning in {dim} dimensions needs at least {least}. "
            f"Drop the edge ({i}, {j}), enlarge the overlap"
            + (f", or embed in at most {share - 1} dimensions." if share > 1 else ".")
        )


def _check_cover(sets: NodeSets, n_nodes: int) -> None:
    nodes, starts = sets.nodes, sets.starts
    if nodes.ndim != 1 or starts.ndim != 1 or {nodes.dtype.kind, starts.dtype.kind} - {"i", "u"}:
        raise InputError(
            f"the nodes and starts of patches are rows of integers, not {nodes.dtype} of shape {nodes.shape} and "
            f"{starts.dtype} of shape {starts.shape}."
        )
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(nodes) or np.any(starts[1:] < starts[:-1]):
        raise InputError(f"the {len(starts)} starts of patches do not ascend from 0 to {len(nodes)}.")
    for k, nodes in enumerate(sets):
        if len(nodes) == 0 or nodes[0] < 0 or np.any(nodes[1:] <= nodes[:-1]):
            raise CoverError(
                f"patch {k} must list its nodes in ascending order, each once and none negative; its {len(nodes)} "
                "nodes break that rule."
            )
    if len(sets.nodes) and int(sets.nodes.max()) >= n_nodes:
        k = int(np.searchsorted(sets.starts, sets.nodes.argmax(), side="right")) - 1
        raise CoverError(f"patch {k} holds node {int(sets.nodes.max())}, but there are only {n_nodes} nodes.")
    if n_nodes <= len(sets.nodes):  # otherwise there are perhaps far too many for an array
        covered = np.zeros(n_nodes, dtype=np.bool_)
        covered[sets.nodes] = True
        if covered.all():
            return
    ids = np.unique(sets.nodes)
    missing = np.setdiff1d(np.arange(min(len(ids) + 1, n_nodes)), ids)
    raise CoverError(
        f"{n_nodes - len(ids)} of {n_nodes} nodes are in no patch, the first is {missing[0]}: the patches have "
        f"{len(ids)} nodes, and the largest id is {ids[-1]}. Add those nodes to a patch, or number the nodes that are "
        "there 0..n-1: np.searchsorted(ids, nodes) for each patch, where ids = np.unique of all of them."
    )


def overlapping_pairs(node_sets: Sequence[IntArray], least: int) -> Int64Array:
    """Return all pairs of patches ``(m, 2)``, i < j, that share at least ``least`` nodes."""
    shared = count_shared(node_sets)
    enough = shared.data >= least
    pairs = np.stack([shared.row[enough], shared.col[enough]], axis=1).astype(np.int64)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def count_shared(node_sets: Sequence[IntArray]) -> sp.coo_array:
    """Count the shared nodes of all pairs of patches, by one product of the patch-node incidence with its transpose."""
    sets = NodeSets.gather(node_sets)
    ids, columns = np.unique(sets.nodes, return_inverse=True)  # memory follows the number of nodes, not the largest id
    ones, shape = np.ones(len(columns), dtype=np.int32), (len(sets), len(ids))
    incidence = sp.csr_array((ones, columns.ravel(), sets.starts), shape=shape)
    return sp.coo_array(sp.triu(incidence @ incidence.T, k=1))
