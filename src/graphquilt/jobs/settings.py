"""JobSettings: the one record of how a job is made, written and read here and nowhere else."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np

from graphquilt.embedders import Propagation, free_motions
from graphquilt.embedders.contract import Embedder, EmbedderLike, as_embedder
from graphquilt.embedders.shared_start import shares_start
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.files.checksums import is_size
from graphquilt.graph import Graph
from graphquilt.jobs.options import Cutting, Recipe
from graphquilt.jobs.records import (
    check_embedder,
    check_patch_graph,
    describe,
    plain,
    restore,
    restore_values,
    stored_patch_graph,
)
from graphquilt.jobs.source import Source
from graphquilt.jobs.store import Parameters, Store, store_name, stored_record
from graphquilt.linalg import Motions
from graphquilt.patches import is_large

DIM = 64  # dimensions, unless others are asked for
Embedders: TypeAlias = Embedder | tuple[Embedder, ...]  # one for all patches, or one for each


@dataclass(frozen=True)
class UnavailableEmbedder:
    """Stands for an embedder or partitioner of the user's: a job resumes only with the one it was begun with."""

    description: Mapping[str, object] = field(hash=False)
    dim: int = 0
    motions: Motions = Motions()

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Refuse, and say how to resume."""
        raise JobError(
            f"this job was made with {self.description.get('name')}, which graphquilt cannot recreate: pass it "
            "again (--embedder module:factory), or resume in Python with the same object."
        )


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """How a job is made: from which graph, cut how, embedded by what (for all patches, or each), stitched how."""

    embedder: Embedders
    cutting: Cutting = Cutting()
    recipe: Recipe = Recipe.shared()
    seed: int = 0
    source: Source = Source()

    def __post_init__(self) -> None:
        for name, kind in (("cutting", Cutting), ("recipe", Recipe), ("source", Source)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                remedy = ": pass Recipe.shared(), .reconstruction(), .paper() or your own" if kind is Recipe else ""
                raise InputError(f"{name} of a job is a {kind.__name__}, not {value!r}{remedy}.")
        if not isinstance(self.seed, int | np.integer) or not is_size(int(self.seed)):
            raise InputError(f"seed must be a non-negative integer, not {str(self.seed)[:40]!r}.")
        dims = sorted({embedder.dim for embedder in self.embedders})
        if not dims:
            raise InputError("a job has at least one embedder; there is none in the list.")
        if len(dims) > 1:
            raise InputError(f"the embedders have dims {dims}; patches need one in common.")

    @property
    def embedders(self) -> tuple[Embedder, ...]:
        """The embedder, or all of them."""
        return self.embedder if isinstance(self.embedder, tuple) else (self.embedder,)

    @property
    def dim(self) -> int:
        """The number of dimensions of the embedding."""
        return self.embedders[0].dim

    @property
    def motions(self) -> Motions:
        """The motions that any of the embedders leaves free, after a shared start if there is one."""
        each = (free_motions(embedder, start=self.recipe.start) for embedder in self.embedders)
        return functools.reduce(operator.or_, each)

    @property
    def stitching(self) -> dict[str, object]:
        """What decides the outcome of stitching embedded patches."""
        names = ("robust", "branching", "coverage", "refine", "runs", "precision")
        motions = dataclasses.asdict(self.recipe.undone(self.motions))
        return {"motions": motions, **{name: plain(getattr(self.recipe, name)) for name in names}}

    def tuned(self, graph: Graph | None) -> JobSettings:
        """Return the settings with the embedder as the recipe sets it, and the recipe as far as the graph allows it."""
        embedders = tuple(self.recipe.apply_to(embedder) for embedder in self.embedders)
        recipe = self.recipe.without_copies(embedders)
        if graph is None and recipe == Recipe.shared():  # which counts rows by coverage
            recipe = dataclasses.replace(recipe, coverage=0.0)
        if graph is not None and any(shares_start(one) and not shares_start(one, graph) for one in embedders):
            recipe = dataclasses.replace(recipe, start=False)
        embedder = embedders if isinstance(self.embedder, tuple) else embedders[0]
        return dataclasses.replace(self, embedder=embedder, recipe=recipe)

    def resolved(self, graph: Graph | None) -> JobSettings:
        """Return the settings with every default filled in for one graph, and the embedder tuned by the recipe."""
        settings = self.tuned(graph)
        if graph is None:
            return settings
        sizes = {"dim": self.dim, "n_nodes": graph.n_nodes, "seed": self.seed}
        cutting = self.cutting.resolved(**sizes, free=settings.motions.free, large=is_large(graph))
        return dataclasses.replace(settings, cutting=cutting)

    def check_records(self, store: Store) -> None:
        """Refuse a store whose patches were cut, or embedded, with other settings: its records say with which."""
        if stored_record(store, "patch_graph") is None:
            return
        graph = {} if self.source.fingerprint is None else {"graph": self.source.fingerprint}
        check_patch_graph(store, {"cutting": describe(self.cutting), "seed": self.seed, **graph})
        embedders = self.embedders
        each = embedders * (stored_patch_graph(store).n_patches // len(embedders))
        check_embedder(store, each, self.seed, named=True)

    def to_parameters(self) -> dict[str, object]:
        """Return the settings as plain values, for JSON."""
        described = [describe(embedder) for embedder in self.embedders]
        return {
            "source": plain(vars(self.source)),
            "cutting": plain(vars(self.cutting)),
            "embedder": described if isinstance(self.embedder, tuple) else described[0],
            "dim": self.dim,
            "motions": plain(vars(self.motions)),
            "recipe": plain(vars(self.recipe)),
            "seed": self.seed,
        }

    @classmethod
    def from_parameters(cls, parameters: Parameters) -> JobSettings:
        """Return the settings of plain values, or refuse what cannot be settings."""
        try:
            kinds: dict[str, Any] = {"cutting": Cutting, "recipe": Recipe, "source": Source, "motions": Motions}
            parts: dict[str, Any] = {
                name: kind(**restore_values(parameters[name], UnavailableEmbedder)) for name, kind in kinds.items()
            }
            motions = parts.pop("motions")
            dim, seed = parameters["dim"], int(parameters["seed"])  # type: ignore[call-overload]
            if not is_size(dim) or not is_size(seed):
                raise ValueError(f"dim {dim!r} and seed {seed!r} are not both non-negative integers")

            def embedder(description: object) -> Embedder:
                return restore(description, lambda text: UnavailableEmbedder(text, dim, motions))  # type: ignore[return-value]

            described = parameters["embedder"]
            several = isinstance(described, list)
            embedders = tuple(map(embedder, described)) if several else embedder(described)  # type: ignore[call-overload]
            return cls(embedder=embedders, seed=seed, **parts)
        except (AttributeError, LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise FormatError(f"the settings of this job cannot be read ({str(error)[:200]}).") from error


def default_embedders(given: EmbedderLike | Sequence[EmbedderLike] | None, dim: int | None = None) -> Embedders:
    """Return what was given as one embedder, or as one for each patch; by default Propagation."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        return tuple(as_embedder(one, dim) for one in given)
    return Propagation(DIM if dim is None else dim) if given is None else as_embedder(given, dim)


def stored_settings(store: Store) -> JobSettings | None:
    """Return the settings in a store, or None if it has none; refuse damaged ones."""
    try:
        return JobSettings.from_parameters(store["settings"].parameters)
    except KeyError:
        return None
    except FormatError as error:
        raise FormatError(
            f"{error} The settings of {store_name(store)} are damaged. Run it with its edges and the flags that it was "
            f"made with (graphquilt embed EDGES --out {store_name(store)} …): they are written again, and everything "
            "else is kept."
        ) from error


def readable_settings(store: Store) -> tuple[JobSettings | None, FormatError | None]:
    """Return the settings in a store, if it has any, and what is wrong with them if they are damaged."""
    try:
        return stored_settings(store), None
    except FormatError as error:
        return None, error
