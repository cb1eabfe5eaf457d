"""Cutting: how a graph is cut into overlapping patches; and the patch graph in a store."""

from __future__ import annotations

import dataclasses
import logging
import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np

from graphquilt.errors import InputError, JobError
from graphquilt.graph import Graph
from graphquilt.jobs.description import differences
from graphquilt.jobs.records import graph_fingerprint, patch_graph_fingerprint
from graphquilt.jobs.store import Record, Store, store_name
from graphquilt.patches import (
    Conductance,
    Limits,
    Metis,
    Multilevel,
    Partitioner,
    PatchGraph,
    Resistance,
)

_log = logging.getLogger(__name__)

SMALL = 5_000  # nodes; a graph below this is one patch unless more are asked for
PER_PATCH = 50_000  # nodes of a patch of a large graph


def default_patches(n_nodes: int) -> int:
    """Return the default number of patches: one below 5000 nodes, then 10, or one per 50 000 nodes if that is more.

    A small graph is embedded whole in seconds, and cutting it can only lose something. Above that the paper's 10
    patches are embedded in parallel, and patches of 50 000 nodes stay within what one machine does in a few minutes.

    Examples
    --------
    >>> default_patches(34), default_patches(20_000), default_patches(1_000_000)
    (1, 10, 20)
    """
    return 1 if n_nodes < SMALL else max(10, math.ceil(n_nodes / PER_PATCH))


def default_degree(n_patches: int) -> int:
    """Return the default mean degree of the patch graph: log2 of the number of patches, but at least 4.

    That gives the paper's 4 at 10 patches and 5 at 20.

    Examples
    --------
    >>> default_degree(10), default_degree(20), default_degree(10_000)
    (4, 5, 14)
    """
    return max(4, math.ceil(math.log2(max(n_patches, 2))))


def default_overlap(dim: int, n_nodes: int, n_patches: int, *, free: bool = True) -> tuple[int, int]:
    """Return the default overlap (l, u).

    Where no motion is ``free``, patches lie in one frame, and overlaps only show how well they agree: l is 16 nodes, or
    a quarter of a cluster where that is fewer, and u is 2 l. Otherwise l is as many nodes as a cluster has on average,
    but no more than 256 or 2 dim, whichever is larger, and never below the dim + 1 that alignment needs; u is 4 l. At
    10 patches of 250 nodes or more and 128 dimensions that is about the paper's (256, 1024).

    Examples
    --------
    >>> default_overlap(128, 2560, 10), default_overlap(8, 300, 10), default_overlap(300, 10**6, 10)
    ((256, 1024), (30, 120), (600, 2400))
    """
    if not free:
        least = max(1, min(16, n_nodes // n_patches // 4))
        return least, 2 * least
    least = max(dim + 1, min(max(256, 2 * dim), n_nodes // n_patches))
    return least, 4 * least


@dataclass(frozen=True)
class Cutting:
    """How a graph is cut into overlapping patches.

    Attributes
    ----------
    n_patches : int, optional
        How many clusters the graph is partitioned into; by default :func:`default_patches`. Clusters with less than
        half of the least overlap are merged into neighbours, which can leave fewer patches.
    partitioner : Partitioner or class of one, optional
        A class is called with the number of patches and the seed, as far as it takes them. By default ``Metis``, and
        ``Multilevel`` for graphs above four million entries.
    degree : float, optional
        Mean degree of the patch graph; by default :func:`default_degree`.
    overlap : (l, u), optional
        Least overlap of two joined patches, and the most that both grow for one edge; by default
        :func:`default_overlap`.
    edge_weight : Resistance or Conductance
        By what patch edges are chosen.
    limits : Limits
        Bounds on the growth of a patch.
    components : {"each"}, optional
        Cut a graph in several components although their patches have motions to undo: each component is then aligned
        alone, and where one lies relative to another is arbitrary. Where nothing is free, it is not needed.

    Examples
    --------
    >>> Cutting(20).resolved(dim=32, n_nodes=5000, seed=0).overlap
    (250, 1000)
    """

    n_patches: int | None = None
    _: KW_ONLY
    partitioner: Partitioner | type | None = None
    degree: float | None = None
    overlap: tuple[int, int] | None = None
    edge_weight: Resistance | Conductance = Resistance()
    limits: Limits = Limits()
    components: Literal["each"] | None = None

    def __post_init__(self) -> None:
        n = 1 if self.n_patches is None else self.n_patches
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise InputError(f"n_patches must be an integer of at least 1, not {n!r}.")
        object.__setattr__(self, "n_patches", None if self.n_patches is None else int(n))
        if self.components not in (None, "each"):
            raise InputError(f"components of a cutting is None or 'each', not {self.components!r}.")
        if self.overlap is not None:
            object.__setattr__(self, "overlap", (int(self.overlap[0]), int(self.overlap[1])))

    @classmethod
    def given(cls, n_patches: int | None, cutting: Cutting | None) -> Cutting:
        """Return the cutting of a call that takes a number of patches or a whole cutting."""
        if n_patches is not None and cutting is not None:
            raise InputError(f"give n_patches ({n_patches}) or cutting ({cutting}), not both.")
        return cls(n_patches) if cutting is None else cutting

    def resolved(self, *, dim: int, n_nodes: int, seed: int, free: bool = True, large: bool = False) -> Cutting:
        """Return the same cutting with every default filled in for one graph.

        ``free`` says whether alignment has motions to undo, and ``large`` whether the graph is too large for METIS.
        """
        n_patches = default_patches(n_nodes) if self.n_patches is None else self.n_patches
        default = Multilevel if large else Metis
        partitioner = default if self.partitioner is None else self.partitioner
        if isinstance(partitioner, type):
            known = {field.name for field in dataclasses.fields(partitioner)}
            values = {"n_patches": n_patches, "seed": seed}
            partitioner = partitioner(**{name: value for name, value in values.items() if name in known})
        return dataclasses.replace(
            self,
            n_patches=n_patches,
            partitioner=partitioner,
            degree=default_degree(n_patches) if self.degree is None else self.degree,
            overlap=default_overlap(dim, n_nodes, n_patches, free=free) if self.overlap is None else self.overlap,
        )


def keep_patch_graph(
    store: Store, patches: PatchGraph, graph: Graph | None, settings: dict[str, object] | None = None
) -> None:
    """Write the patch graph to a store, or refuse if the store has another one."""
    if "patch_graph" in store:
        check_patch_graph(store, graph=graph, patches=patches)
    else:
        write_patch_graph(store, patches, graph, settings)


def write_patch_graph(
    store: Store, patches: PatchGraph, graph: Graph | None, settings: dict[str, object] | None = None
) -> None:
    """Write the patch graph to a store, replacing another."""
    parameters: dict[str, object] = {"patches": patch_graph_fingerprint(patches), **(settings or {})}
    if graph is not None:
        parameters["graph"] = graph_fingerprint(graph)
    store["patch_graph"] = Record(patches.to_arrays(), parameters)


def check_patch_graph(
    store: Store,
    *,
    graph: Graph | None = None,
    patches: PatchGraph | None = None,
    settings: dict[str, object] | None = None,
) -> None:
    """Refuse a store whose patch graph is of another graph, has other patches, or was cut with other settings."""
    parameters = store["patch_graph"].parameters
    if settings is not None and "cutting" in parameters:
        changes = differences({name: parameters.get(name) for name in settings}, settings)
        if changes:
            raise JobError(
                f"the patches in {store_name(store)} were cut with {changes}. Use another folder, or the same settings."
            )
    prints = {} if graph is None else {"graph": graph_fingerprint(graph)}
    prints |= {} if patches is None else {"patches": patch_graph_fingerprint(patches)}
    for name, value in prints.items():
        if parameters.get(name, value) != value:
            raise JobError(
                f"{store_name(store)} was begun with {'another graph' if name == 'graph' else 'other patches'} ({name} "
                f"fingerprint {parameters[name]}, now {value}): its embeddings do not belong to these. Use another "
                "folder, or remove this one first."
            )


def stored_patch_graph(store: Store) -> PatchGraph:
    """Open the patch graph of a store; its node lists stay on disk until they are needed."""
    try:
        record = store["patch_graph"]
    except KeyError:
        raise JobError(
            f"{store_name(store)} has no patches yet; check the path, or make them (graphquilt embed)."
        ) from None
    return PatchGraph.from_arrays(record.arrays)
