"""Cutting and Recipe: how a graph is cut into patches, and what is done around an embedder, each as one value."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeVar

import numpy as np

from graphquilt.arrays import Float64Array
from graphquilt.embedders import Embedder, Signal
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.linalg import Motions
from graphquilt.patches import (
    Conductance,
    Limits,
    Multilevel,
    Partitioner,
    PatchGraph,
    Resistance,
    coverage_weights,
    default_partitioner,
)

_log = logging.getLogger(__name__)
E = TypeVar("E")

_PURPOSES = {"classes": Signal.classes(), "links": Signal.links()}
SMALL = 5_000  # nodes; a graph below this is one patch unless more are asked for
PER_PATCH = 50_000  # nodes of a patch of a large graph
MOST_KEPT = 1 << 30  # bytes of patches in one frame that are kept by default


def default_patches(n_nodes: int) -> int:
    """Return the default number of patches: one below 5000 nodes, then 10, or one per 50 000 nodes if that is more."""
    return 1 if n_nodes < SMALL else max(10, math.ceil(n_nodes / PER_PATCH))


def default_overlap(dim: int, n_nodes: int, n_patches: int, *, free: bool = True) -> tuple[int, int]:
    """Return the default overlap (l, u).

    Where no motion is ``free``, overlaps only show how well patches agree: l is 16 nodes, or a quarter of a cluster,
    and u is 2 l. Otherwise l is the mean size of a cluster, but at most 256 or 2 dim, whichever is larger, and at
    least the dim + 1 that alignment needs; u is 4 l.
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
        By default :func:`default_patches`. Small clusters are merged into neighbours, which can leave fewer patches.
    partitioner : Partitioner or class of one, optional
        A class is called with the number of patches and the seed, as far as it takes them. By default ``Metis``
        (``Fennel`` where METIS is not installed), and ``Multilevel`` for graphs above four million entries.
    degree : float, optional
        Mean degree of the patch graph; by default log2 of the number of patches, but at least the paper's 4.
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
        """Return the cutting with every default filled in; a graph may be too ``large`` for METIS."""
        n_patches = default_patches(n_nodes) if self.n_patches is None else self.n_patches
        partitioner = self.partitioner
        if partitioner is None:
            partitioner = Multilevel if large else default_partitioner(n_patches, seed=seed)
        if isinstance(partitioner, type):
            known = {field.name for field in dataclasses.fields(partitioner)}
            values = {"n_patches": n_patches, "seed": seed}
            partitioner = partitioner(**{name: value for name, value in values.items() if name in known})
        return dataclasses.replace(
            self,
            n_patches=n_patches,
            partitioner=partitioner,
            degree=max(4, math.ceil(math.log2(n_patches))) if self.degree is None else self.degree,
            overlap=default_overlap(dim, n_nodes, n_patches, free=free) if self.overlap is None else self.overlap,
        )


@dataclass(frozen=True)
class Recipe:
    """What is done around an embedder to make the stitched embedding good; docs/results/quality.md has figures.

    Attributes
    ----------
    runs : int
        How often every patch is trained, each time with another seed. All runs are aligned and averaged together.
    start : bool
        Whether patches get a shared start, if the embedder has one; see :class:`graphquilt.embedders.Embedder`.
    coverage : float
        Each row counts in overlaps and centroid with the share of its node's edges that its patch contains, to this
        power; 0 counts all rows alike, and so does the default in a job without a graph.
    refine : int
        Sweeps of generalised Procrustes analysis after synchronisation; see :func:`graphquilt.refine`.
    robust : bool
        Doubt overlaps that contradict the others; see :func:`graphquilt.align`.
    motions : Motions, optional
        Which motions alignment undoes; by default those that the embedder leaves free.
    branching : int, optional
        Align level by level, this many patches at a time; see :func:`graphquilt.align`.
    precision : {"float64", "float32", "float16"}
        The type of the embedding, and with float16 of the embedded patches; sums are made in double precision.
    keep_patches : bool, optional
        Whether a job in a folder keeps its embedded patches. By default it does, unless no motion is free and they
        would take more than a gigabyte: they are then averaged into the embedding as they come. If False, patches
        that had to be moved are removed once they are stitched.
    negatives, blend : optional
        Settings of the embedder; None leaves them alone. See :class:`graphquilt.VGAE`.
    purpose : {"classes", "links"}, optional
        What the embedding is for: it chooses the weights of the signal of :class:`graphquilt.Propagation`, where they
        are at their defaults, and nothing else.

    Examples
    --------
    >>> from graphquilt.embedders import SVD
    >>> Recipe.shared().apply_to(SVD(8)) == SVD(8)
    True
    """

    name: str = "custom"
    _: KW_ONLY
    runs: int = 1
    start: bool = True
    coverage: float = 0.0
    refine: int = 0
    robust: bool = False
    motions: Motions | None = None
    branching: int | None = None
    precision: Literal["float64", "float32", "float16"] = "float64"
    keep_patches: bool | None = None
    negatives: int | None = None
    blend: float | None = None
    purpose: Literal["classes", "links"] | None = None

    def __post_init__(self) -> None:
        for field, least in (("runs", 1), ("refine", 0), ("branching", 2)):
            value = getattr(self, field)
            if field != "branching" or value is not None:
                if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                    raise InputError(f"{field} of a recipe must be an integer of at least {least}, not {value!r}.")
                object.__setattr__(self, field, int(value))
        if self.motions is not None and not isinstance(self.motions, Motions):
            raise InputError(f"motions of a recipe are a Motions or None, not {self.motions!r}.")
        if self.precision not in ("float64", "float32", "float16"):
            raise InputError(f"precision of a recipe is float64, float32 or float16, not {self.precision!r}.")
        if self.purpose not in (None, *_PURPOSES):
            raise InputError(f"the purpose of a recipe is one of {', '.join(_PURPOSES)}, not {self.purpose!r}.")
        if not 0 <= self.coverage < math.inf:
            raise InputError(f"coverage of a recipe is a number of at least 0, not {self.coverage}.")

    @classmethod
    def paper(cls) -> Recipe:
        """Return the paper's recipe: separate training, one non-edge per edge, equal row weights."""
        return cls("paper", start=False, negatives=1)

    @classmethod
    def shared(cls) -> Recipe:
        """Return the default: one frame for all patches, one encoder where patches train one, rows by coverage."""
        return cls("shared", coverage=2.0, blend=0.0, precision="float32")

    @classmethod
    def reconstruction(cls) -> Recipe:
        """Return what separates edges from non-edges best: every patch mostly keeps the encoder that it trained."""
        return cls("reconstruction", coverage=2.0, blend=0.75)

    @classmethod
    def named(cls, name: str) -> Recipe:
        """Return the recipe of a name."""
        known = {recipe.name: recipe for recipe in (cls.shared(), cls.reconstruction(), cls.paper())}
        if name not in known:
            raise InputError(f"'{name}' is not a recipe; choose one of {', '.join(known)}.")
        return known[name]

    def replace(self, **changes: object) -> Recipe:
        """Return the recipe with other values; its name then says that it was changed."""
        differing = {name: value for name, value in changes.items() if getattr(self, name) != value}
        if not differing:
            return self
        name = self.name if self.name == "custom" else f"{self.name.removesuffix(', changed')}, changed"
        return dataclasses.replace(self, **{"name": name, **differing})  # type: ignore[arg-type]

    def apply_to(self, embedder: E) -> E:
        """Return the embedder with this recipe's settings, where those of the embedder are at their defaults."""
        if not dataclasses.is_dataclass(embedder) or isinstance(embedder, type):
            return embedder
        signal = None if self.purpose is None else _PURPOSES[self.purpose]
        wanted = {"negatives": self.negatives, "blend": self.blend, "signal": signal}
        defaults = {field.name: field.default for field in dataclasses.fields(embedder) if field.name in wanted}
        unset = [name for name, value in defaults.items() if getattr(embedder, name) == value]
        changes: dict[str, object] = {name: wanted[name] for name in unset if wanted[name] is not None}
        return dataclasses.replace(embedder, **changes) if changes else embedder

    def without_copies(self, embedders: Sequence[Embedder]) -> Recipe:
        """Return the recipe with one run if the embedders ignore the seed, because more runs would be copies."""
        if self.runs == 1 or not all(getattr(embedder, "deterministic", False) for embedder in embedders):
            return self
        name = type(embedders[0]).__name__
        _log.warning("%s does not depend on the seed, so %d runs would be equal: one is made", name, self.runs)
        return self.replace(runs=1)

    def undone(self, free: Motions) -> Motions:
        """Return the motions that alignment undoes for embeddings with these free motions."""
        return free if self.motions is None else self.motions

    def averages_at_once(self, free: Motions, n_nodes: int, n_patches: int, dim: int) -> bool:
        """Return whether rows of patches go straight into the average, which takes a shared start and one frame."""
        if self.undone(free).free or not self.start or self.robust or self.refine or self.runs > 1:
            return False
        large = n_nodes * dim * np.dtype(self.precision).itemsize > MOST_KEPT
        return n_patches > 1 and (large if self.keep_patches is None else not self.keep_patches)

    def row_weights(self, repeated: PatchGraph, graph: Graph | None) -> Sequence[Float64Array] | None:
        """Return the weight of each row of each patch of all runs, or None if all weights are equal."""
        if self.coverage == 0:
            return None
        if graph is None:
            raise InputError("coverage is counted in the graph, and none was given; use a recipe with coverage 0.")
        return coverage_weights(graph, repeated, power=self.coverage)
