"""PatchGraph: overlapping sets of nodes, and which pairs of them will be aligned."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import Int64Array, IntArray
from graphquilt.errors import CoverError, DisconnectedError, FormatError, InputError, OverlapError
from graphquilt.graph._files import disk_errors

__all__ = ["NodeSets", "PatchGraph"]


class NodeSets(Sequence[Int64Array]):
    """Sets of nodes end to end in one array: what ten thousand patches are kept in.

    Parameters
    ----------
    nodes : int array (total,)
        Each set's nodes, ascending, one set after the other.
    starts : int array (p + 1,)
        Where each set begins.

    Examples
    --------
    >>> sets = NodeSets(np.array([0, 2, 1, 2]), np.array([0, 2, 4]))
    >>> len(sets), sets[1].tolist()
    (2, [1, 2])
    """

    def __init__(self, nodes: Int64Array, starts: Int64Array) -> None:
        self.nodes = nodes
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> Int64Array: ...
    @overload
    def __getitem__(self, index: slice) -> list[Int64Array]: ...
    def __getitem__(self, index: int | slice) -> Int64Array | list[Int64Array]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        k = range(len(self))[index]
        return self.nodes[self.starts[k] : self.starts[k + 1]]

    def __iter__(self) -> Iterator[Int64Array]:
        return (self[k] for k in range(len(self)))

    @classmethod
    def gather(cls, patches: Iterable[Any]) -> NodeSets:
        """Take each set's unique nodes in order; of a Patch or a pair, the nodes."""
        sets = [_unique(k, patch) for k, patch in enumerate(patches)]
        starts = np.concatenate([[0], np.cumsum([len(s) for s in sets])]).astype(np.int64)
        return cls(np.concatenate([*sets, np.empty(0, dtype=np.int64)]), starts)


def _unique(k: int, patch: Any) -> Int64Array:
    given = np.asarray(patch.nodes if hasattr(patch, "nodes") else patch[0] if isinstance(patch, tuple) else patch)
    if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
        raise InputError(f"patch {k} must be a vector of integer node ids, not {given.dtype} of shape {given.shape}.")
    nodes = np.unique(given).astype(np.int64)
    if len(nodes) == 0:
        raise CoverError(f"patch {k} has no nodes; leave it out.")
    if len(nodes) < len(given):
        raise InputError(f"patch {k} names {len(given) - len(nodes)} nodes twice; name each once.")
    if nodes[0] < 0:
        raise InputError(f"patch {k} holds the negative node id {nodes[0]}.")
    return nodes


@dataclass(frozen=True, eq=False, repr=False)
class PatchGraph:
    """Overlapping sets of nodes, and which pairs of them will be aligned.

    Made by :func:`graphquilt.patch_graph` from a graph, or by :meth:`from_patches` from patches that exist already.
    What it promises is checked when it is built.

    Attributes
    ----------
    node_sets : sequence of int arrays
        Sorted unique node ids of each patch; together they hold 0..n_nodes-1.
    edges : int array (m, 2)
        Pairs (i, j), i < j, of patches that share nodes. They connect all patches, unless ``components`` was "each".
    n_nodes : int
    components : {"error", "each"}
        What to do when the edges do not connect all patches: raise, or keep the components, each of which can only
        be aligned for itself. See :attr:`placement_arbitrary`.
    report : dict
        What :func:`graphquilt.patch_graph` has to say about how it was made; empty for other patches.
    overlaps : int array (m,)
        Number of nodes that the two patches of each edge share.
    component : int array (p,)
        The component of each patch.

    Examples
    --------
    >>> quilt = PatchGraph.from_patches([[0, 1, 2], [1, 2, 3]])
    >>> quilt.edges.tolist(), quilt.overlaps.tolist(), quilt.n_nodes
    ([[0, 1]], [2], 4)
    """

    node_sets: Sequence[IntArray]
    edges: Int64Array
    n_nodes: int
    components: Literal["error", "each"] = "error"
    report: dict[str, Any] = field(default_factory=dict)
    overlaps: Int64Array = field(init=False)
    component: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        sets = self.node_sets if isinstance(self.node_sets, NodeSets) else NodeSets.gather(self.node_sets)
        edges = _ordered(self.edges, len(sets))
        object.__setattr__(self, "node_sets", sets)
        object.__setattr__(self, "edges", edges)
        _check_cover(sets, self.n_nodes)
        object.__setattr__(self, "overlaps", _overlaps(sets, edges))
        if len(edges) and self.overlaps.min() == 0:
            i, j = edges[self.overlaps.argmin()]
            raise OverlapError(
                f"patches {i} and {j} share no nodes but are joined by an edge. Drop the edge ({i}, {j}) or give "
                "the two patches nodes in common."
            )
        object.__setattr__(self, "component", self._find_components())

    @classmethod
    def from_patches(
        cls,
        patches: Iterable[Any],
        edges: npt.ArrayLike | None = None,
        *,
        n_nodes: int | None = None,
        min_overlap: int = 1,
        components: Literal["error", "each"] = "error",
    ) -> PatchGraph:
        """Make a patch graph of patches that come from elsewhere: federated data, snapshots.

        Parameters
        ----------
        patches : iterable of int arrays, Patch or (nodes, coordinates) pairs
        edges : int array (m, 2), optional
            By default every pair of patches that shares at least ``min_overlap`` nodes.
        n_nodes : int, optional
            By default one more than the largest id.
        min_overlap : int
            d + 1 to align in d dimensions.
        components : {"error", "each"}

        Examples
        --------
        >>> PatchGraph.from_patches([[0, 1, 2], [1, 2, 3], [2, 3]], min_overlap=2).edges.tolist()
        [[0, 1], [1, 2]]
        """
        sets = NodeSets.gather(patches)
        if len(sets) == 0:
            raise CoverError("there are no patches.")
        n = int(sets.nodes.max()) + 1 if n_nodes is None else n_nodes
        if edges is None:
            edges = _sharing_pairs(sets, min_overlap)
        return cls(sets, np.asarray(edges, dtype=np.int64).reshape(-1, 2), n, components)

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
        """Raise unless every edge shares the ``dim + 1`` nodes that aligning in ``dim`` dimensions needs.

        Examples
        --------
        >>> PatchGraph.from_patches([[0, 1, 2], [1, 2, 3]]).check_dim(1)
        """
        if len(self.edges) and self.overlaps.min() <= dim:
            k = int(self.overlaps.argmin())
            i, j = self.edges[k]
            raise OverlapError(
                f"patches {i} and {j} share {self.overlaps[k]} nodes; aligning in {dim} dimensions needs at least "
                f"{dim + 1}. Drop the edge ({i}, {j}), enlarge the overlap to at least {dim + 1}, or embed in at "
                f"most {self.overlaps[k] - 1} dimensions."
            )

    def repeat(self, runs: int) -> PatchGraph:
        """Return the patch graph of several runs: every patch ``runs`` times, so that each can be embedded anew.

        Patch k of run r is number ``r * n_patches + k``, so that one more run adds patches at the end and renumbers
        none. Its edges are those of this patch graph inside each run, and all pairs of runs of one patch.

        Examples
        --------
        >>> quilt = PatchGraph.from_patches([[0, 1, 2], [1, 2, 3]]).repeat(2)
        >>> quilt.n_patches, quilt.edges.tolist()
        (4, [[0, 1], [2, 3], [0, 2], [1, 3]])
        """
        if isinstance(runs, bool) or not isinstance(runs, int | np.integer) or runs < 1:
            raise InputError(f"runs is how often each patch is embedded, a whole number of at least 1, not {runs!r}.")
        if runs == 1:
            return self
        p, sets = self.n_patches, self.node_sets
        assert isinstance(sets, NodeSets)
        one = np.asarray(sets.starts[1:], dtype=np.int64)
        starts = np.concatenate([[0], *(one + r * len(sets.nodes) for r in range(runs))])
        inside = [self.edges + r * p for r in range(runs)]
        between = [
            np.stack([np.arange(p) + r * p, np.arange(p) + s * p], axis=1)
            for r in range(runs)
            for s in range(r + 1, runs)
        ]
        edges = np.concatenate([*inside, *between])
        report = {**self.report, "runs": int(runs)}
        return PatchGraph(NodeSets(np.tile(sets.nodes, runs), starts), edges, self.n_nodes, self.components, report)

    def summary(self) -> dict[str, Any]:
        """Return sizes, overlaps and oversampling as plain numbers, with the report of how it was made.

        Examples
        --------
        >>> PatchGraph.from_patches([[0, 1, 2], [1, 2, 3]]).summary()["node_oversampling"]
        1.5
        """
        sizes, degrees = self.sizes, self.degrees
        return {
            "n_nodes": self.n_nodes,
            "n_patches": self.n_patches,
            "n_patch_edges": len(self.edges),
            "n_components": int(self.component.max()) + 1,
            "placement_arbitrary": self.placement_arbitrary,
            "patch_size": _spread(sizes),
            "patch_degree": _spread(degrees),
            "overlap": _spread(self.overlaps) if len(self.edges) else None,
            "node_oversampling": float(sizes.sum() / self.n_nodes),
            **self.report,
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one ``.npz`` file; it appears under its name only when it is complete.

        Arrays: ``nodes`` and ``starts`` (patch k is ``nodes[starts[k]:starts[k + 1]]``), ``edges``, ``n_nodes``,
        ``components`` and ``report`` (JSON).
        """
        sets = self.node_sets if isinstance(self.node_sets, NodeSets) else NodeSets.gather(self.node_sets)
        target = Path(path)
        partial = target.with_name(target.name + ".part")
        advice = f"{target.name} appears only when it is complete."
        with disk_errors(target, advice), partial.open("wb") as file:
            np.savez(
                file,
                nodes=sets.nodes,
                starts=sets.starts,
                edges=self.edges,
                n_nodes=np.int64(self.n_nodes),
                components=np.array(self.components),
                report=np.array(json.dumps(self.report)),
            )
        partial.replace(target)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> PatchGraph:
        """Read what :meth:`save` wrote.

        Examples
        --------
        >>> import tempfile
        >>> file = tempfile.mkdtemp() + "/quilt.npz"
        >>> PatchGraph.from_patches([[0, 1, 2], [1, 2, 3]]).save(file)
        >>> PatchGraph.load(file).n_patches
        2
        """
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as data:
                return cls(
                    NodeSets(data["nodes"], data["starts"]),
                    data["edges"],
                    int(data["n_nodes"]),
                    str(data["components"]),  # type: ignore[arg-type]
                    json.loads(str(data["report"])),
                )
        except FileNotFoundError as error:
            raise FormatError(f"{path} does not exist.") from error
        except (KeyError, ValueError, OSError, zipfile.BadZipFile, EOFError) as error:
            raise FormatError(f"{path} is not a complete patch graph file: {error}. Make the patches again.") from error

    def __repr__(self) -> str:
        return f"PatchGraph({self.n_patches} patches of {self.n_nodes} nodes, {len(self.edges)} edges)"

    def _find_components(self) -> Int64Array:
        from scipy.sparse.csgraph import connected_components

        p = self.n_patches
        A = sp.coo_array((np.ones(len(self.edges)), (self.edges[:, 0], self.edges[:, 1])), shape=(p, p))
        count, component = connected_components(A, directed=False)
        if count > 1 and self.components == "error":
            raise disconnected(component.astype(np.int64), self.sizes)
        return np.asarray(component, dtype=np.int64)


def disconnected(component: Int64Array, sizes: Int64Array) -> DisconnectedError:
    """Return the error that names the components of a patch graph."""
    patches = np.bincount(component)
    nodes = np.bincount(component, weights=sizes).astype(np.int64)
    order = np.argsort(-nodes, kind="stable")
    named = "; ".join(
        f"patches {_some(np.flatnonzero(component == c))} with {nodes[c]} nodes" for c in order[: min(5, len(order))]
    )
    more = f"; and {len(order) - 5} more" if len(order) > 5 else ""
    largest = order[0]
    return DisconnectedError(
        f"the patch graph falls into {len(patches)} components: {named}{more}. No alignment relates one to another. "
        f"Keep the largest ({patches[largest]} patches): take graph.largest_component() before partitioning "
        '(--largest-component); or pass components="each" and use align_components to align each alone, with their '
        "placement arbitrary."
    )


def _some(patches: Int64Array) -> str:
    shown = ", ".join(str(k) for k in patches[:4])
    return shown if len(patches) <= 4 else f"{shown}, … ({len(patches)} in all)"


def _spread(values: Int64Array) -> dict[str, float]:
    return {"min": int(values.min()), "mean": round(float(values.mean()), 2), "max": int(values.max())}


def _ordered(edges: npt.ArrayLike, n_patches: int) -> Int64Array:
    given = np.asarray(edges, dtype=np.int64)
    if given.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if given.ndim != 2 or given.shape[1] != 2:
        raise InputError(f"patch edges are pairs, an array (m, 2); this one is {given.shape}.")
    if given.min() < 0 or given.max() >= n_patches:
        raise InputError(f"patch edges name patches 0..{n_patches - 1}; found {int(given.min())}..{int(given.max())}.")
    loops = given[:, 0] == given[:, 1]
    if loops.any():
        raise InputError(f"patch {given[loops.argmax(), 0]} is joined to itself; drop that edge.")
    pairs = np.sort(given, axis=1)
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    if counts.max() > 1:
        i, j = found[counts.argmax()]
        raise InputError(f"the patch edge ({i}, {j}) is given {counts.max()} times; give each pair once.")
    return pairs


def _check_cover(sets: NodeSets, n_nodes: int) -> None:
    for k, nodes in enumerate(sets):
        if len(nodes) == 0 or nodes[0] < 0 or np.any(nodes[1:] <= nodes[:-1]):
            raise CoverError(
                f"patch {k} must list its nodes in ascending order, each once and none negative; its {len(nodes)} "
                "nodes are not like that."
            )
    if len(sets.nodes) and int(sets.nodes.max()) >= n_nodes:
        k = int(np.searchsorted(sets.starts, sets.nodes.argmax(), side="right")) - 1
        raise CoverError(f"patch {k} holds node {int(sets.nodes.max())}, but there are only {n_nodes} nodes.")
    covered = np.zeros(n_nodes, dtype=np.bool_)
    covered[sets.nodes] = True
    if not covered.all():
        missing = np.flatnonzero(~covered)
        raise CoverError(
            f"{len(missing)} of {n_nodes} nodes are in no patch, the first is {missing[0]}. Add them to a patch, or "
            "number the nodes that are there 0..n-1."
        )


def _overlaps(sets: NodeSets, edges: Int64Array) -> Int64Array:
    from graphquilt.kernels import announce, frozen
    from graphquilt.patches._kernels import overlap_sizes

    announce(overlap_sizes, "patch overlaps")
    found: Int64Array = overlap_sizes(frozen(sets.nodes), frozen(sets.starts), frozen(edges))
    return found


def _sharing_pairs(sets: NodeSets, min_overlap: int) -> Int64Array:
    ones = np.ones(len(sets.nodes), dtype=np.int64)
    B = sp.csr_array((ones, sets.nodes, sets.starts))
    shared = sp.triu(B @ B.T, k=1).tocoo()
    kept = shared.data >= min_overlap
    pairs = np.stack([shared.row[kept], shared.col[kept]], axis=1).astype(np.int64)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
