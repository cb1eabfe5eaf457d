"""The values that commands take. Their fields are the flags, and the text below a field is its help."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, get_type_hints

from cyclopts import Parameter

from graphquilt.errors import InputError, JobError, MissingExtraError

if TYPE_CHECKING:
    from graphquilt.embedders import Embedder
    from graphquilt.jobs import JobSettings, Source
    from graphquilt.partition import Partitioner
    from graphquilt.pipeline import Cutting, Recipe, Store

__all__ = [
    "CuttingFlags",
    "EmbedderFlags",
    "JobFolder",
    "Output",
    "RecipeFlags",
    "SourceFlags",
    "Workers",
    "columns_of",
    "job_settings",
    "share",
]

JobFolder = Annotated[Path, Parameter(help="The folder of the job.")]
OutFolder = Annotated[
    Path, Parameter(name=["--out", "-o"], help="The folder of the job. A job that is there is continued.")
]

EMBEDDERS = {"svd": "SVD", "vgae": "VGAE", "gae": "GAE", "dgi": "DGI"}
PARTITIONERS = {"metis": "Metis", "fennel": "Fennel", "kaminpar": "KaMinPar", "louvain": "Louvain", "leiden": "Leiden"}
EDGE_WEIGHTS = {"resistance": "Resistance", "conductance": "Conductance"}


def _class(word: str, table: dict[str, str], kind: str) -> type:
    import graphquilt

    if word not in table:
        raise InputError(f"'{word}' is not {kind}; choose one of {', '.join(table)}.")
    found: type = getattr(graphquilt, table[word])
    return found


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """How the result is printed, and where flags come from."""

    json: bool = False
    """Print the result as one JSON object."""
    config: Path | None = None
    """Take flags from this TOML file; flags on the command line win."""
    save_config: Path | None = None
    """Write the flags of this call to a TOML file, and do nothing else."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SourceFlags:
    """How the graph is read."""

    columns: str | None = None
    """Columns of a file of edges: source,target or source,target,weight, by position or name. [default: 0,1]"""
    features: Path | None = None
    """Node features, .npy or .npz (sparse): one row per node, in ascending order of the node ids."""
    labels: Path | None = None
    """Array of node classes (.npy), -1 for nodes without one."""
    directed: bool | None = None
    """Keep edges one-way."""
    largest_component: bool | None = None
    """Keep only the largest connected component."""

    def source(self, path: Path) -> Source:
        """Return the source of a job."""
        from graphquilt.jobs import Source

        return Source(
            path=str(path),
            columns=columns_of(self.columns or "0,1"),
            features=None if self.features is None else str(self.features),
            labels=None if self.labels is None else str(self.labels),
            directed=bool(self.directed),
            largest_component=bool(self.largest_component),
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CuttingFlags:
    """How the graph is cut into patches."""

    patches: Annotated[int | None, Parameter(name=["--patches", "-p"])] = None
    """Number of patches. [default: 10]"""
    partition: str | None = None
    """How the graph is partitioned: metis, fennel, kaminpar, louvain or leiden. [default: metis]"""
    degree: float | None = None
    """Mean number of neighbours of a patch. [default: from the number of patches]"""
    overlap: str | None = None
    """Least and largest overlap, as 256:1024. [default: from the dimension and the size of the patches]"""
    edge_weight: str | None = None
    """How patch edges are chosen: resistance, or conductance (for thousands of patches). [default: resistance]"""
    growth: float | None = None
    """How many times its cluster a patch may hold. [default: 10]"""
    seed: int | None = None
    """Seed of all random choices. [default: 0]"""

    def applied(self, cutting: Cutting, seed: int) -> Cutting:
        """Return a cutting with what the flags change."""
        from graphquilt.patches import Limits

        changes: dict[str, object] = {}
        if self.patches is not None or self.partition is not None or self.seed is not None:
            n_patches = cutting.n_patches if self.patches is None else self.patches
            word = self.partition or _word_of(cutting.partitioner, PARTITIONERS)
            changes["n_patches"] = n_patches
            changes["partitioner"] = cutting.partitioner if word is None else _partitioner(word, n_patches, seed)
            if self.patches not in (None, cutting.n_patches):
                changes |= {"degree": None, "overlap": None}
        if self.degree is not None:
            changes["degree"] = self.degree
        if self.overlap is not None:
            changes["overlap"] = _overlap(self.overlap)
        if self.edge_weight is not None:
            changes["edge_weight"] = _class(self.edge_weight, EDGE_WEIGHTS, "an edge weight")()
        if self.growth is not None:
            changes["limits"] = Limits(growth=self.growth)
        return dataclasses.replace(cutting, **changes)  # type: ignore[arg-type]


def _word_of(value: object, table: dict[str, str]) -> str | None:
    return next((word for word, name in table.items() if type(value).__name__ == name), None)


def _partitioner(word: str, n_patches: int, seed: int) -> Partitioner:
    kind = _class(word, PARTITIONERS, "a partitioner")
    known = {field.name for field in dataclasses.fields(kind)}
    values = {"n_patches": n_patches, "seed": seed}
    partitioner: Partitioner = kind(**{name: value for name, value in values.items() if name in known})
    return partitioner


def _overlap(text: str) -> tuple[int, int]:
    least, colon, most = text.partition(":")
    try:
        return int(least), int(most) if colon else 4 * int(least)
    except ValueError:
        raise InputError(f"--overlap is two numbers with a colon, as 256:1024, not '{text}'.") from None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EmbedderFlags:
    """What embeds the patches."""

    embedder: Annotated[str | None, Parameter(name=["--embedder", "-e"])] = None
    """svd, vgae, gae, dgi, or module:factory for one of your own. [default: svd, or that of the job]"""
    dim: Annotated[int | None, Parameter(name=["--dim", "-d"])] = None
    """Dimensions of the embedding. [default: 64, or that of the job]"""
    set: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    """A setting of the embedder, as NAME=VALUE; may be repeated."""

    def applied(
        self, current: Embedder | tuple[Embedder, ...] | None, recipe: Recipe
    ) -> Embedder | tuple[Embedder, ...]:
        """Return the embedder that the flags name, or the current one with what they change."""
        if self.dim is not None and self.dim < 1:
            raise InputError(f"--dim is at least 1, not {self.dim}.")
        if self.embedder is None and current is not None:
            if self.dim is None and not self.set:
                return current
            if isinstance(current, tuple) or not dataclasses.is_dataclass(current):
                raise InputError(f"--dim and --set cannot change {current!r}; name the embedder with --embedder.")
            changed = current if self.dim is None else dataclasses.replace(current, dim=self.dim)  # type: ignore[type-var]
            return _with_settings(changed, type(current).__name__, self.set)
        first = current[0] if isinstance(current, tuple) else current
        dim = self.dim or (64 if first is None else first.dim)
        word = self.embedder or "svd"
        if ":" in word:
            return _from_factory(word, dim, self.set)
        return _with_settings(recipe.tuned(_class(word, EMBEDDERS, "an embedder")(dim)), word, self.set)


def _from_factory(word: str, dim: int, settings: Sequence[str]) -> Embedder:
    """Import a module and let its factory make the embedder; modules of the current folder are found too."""
    module, _, name = word.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"--embedder {word} cannot be imported: {error}.") from error
    options = dict(_setting(text) for text in settings)
    try:
        embedder: Embedder = factory(dim, **options)
    except TypeError as error:
        raise InputError(f"{word} cannot be called with dim {dim} and {options or 'no settings'}: {error}.") from error
    if getattr(embedder, "dim", None) != dim or not callable(embedder):
        raise InputError(f"{word} returned {embedder!r}, which is not an embedder of {dim} dimensions.")
    return embedder


def _with_settings(embedder: Embedder, word: str, settings: Sequence[str]) -> Embedder:
    hints = get_type_hints(type(embedder))
    known = {field.name for field in dataclasses.fields(embedder) if field.name not in ("dim", "motions")}  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for text in settings:
        name, value = _setting(text)
        if name not in known:
            raise InputError(f"'{name}' is no setting of {word}; it has {', '.join(sorted(known)) or 'none'}.")
        if not _fits(value, hints[name]):
            kind = getattr(hints[name], "__name__", hints[name])
            raise InputError(f"{name} of {word} takes {kind}, as --set {name}=VALUE; this is '{text}'.")
        values[name] = value
    return dataclasses.replace(embedder, **values) if values else embedder  # type: ignore[type-var]


def _setting(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set takes NAME=VALUE; this is '{text}'.")
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = {"true": True, "false": False, "none": None}.get(value.strip().lower(), value.strip())
    return name.strip().replace("-", "_"), parsed


def _fits(value: object, kind: type | UnionType) -> bool:
    """Return whether a value is of the type of a field; whole numbers are numbers, truth values are not."""
    kinds = kind.__args__ if isinstance(kind, UnionType) else (kind,)
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) or (isinstance(value, int) and float in kinds)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StitchingFlags:
    """How embedded patches are aligned and averaged."""

    robust: bool | None = None
    """Doubt overlaps that contradict the others."""
    scale: bool | None = None
    """Undo scales. [default: as the embedder needs]"""
    rotate: bool | None = None
    """Undo rotations. [default: as the embedder needs]"""
    translate: bool | None = None
    """Undo shifts. [default: as the embedder needs]"""
    coverage: float | None = None
    """Power of coverage as the weight of each row. [default: the recipe's]"""
    refine: int | None = None
    """Sweeps of Procrustes analysis. [default: the recipe's]"""
    branching: int | None = None
    """Align level by level, this many patches at a time. [default: all at once]"""

    def changes(self, settings: JobSettings) -> dict[str, object]:
        """Return the fields of the recipe that the flags change."""
        changes: dict[str, object] = {}
        for name in ("robust", "coverage", "refine", "branching"):
            if getattr(self, name) is not None:
                changes[name] = getattr(self, name)
        motions = {name: getattr(self, name) for name in ("scale", "rotate", "translate")}
        motions = {name: value for name, value in motions.items() if value is not None}
        if motions:
            changes["motions"] = dataclasses.replace(settings.recipe.motions or settings.motions, **motions)
        return changes

    def applied(self, settings: JobSettings) -> JobSettings:
        """Return settings with what the flags change."""
        return dataclasses.replace(settings, recipe=settings.recipe.changed(**self.changes(settings)))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RecipeFlags:
    """How often patches are trained."""

    recipe: str | None = None
    """paper, best or reconstruction. [default: train each patch once, with the embedder as it is]"""
    runs: int | None = None
    """Train every patch this often and align all runs together. [default: the recipe's]"""
    rounds: int | None = None
    """Train again this often, pulled towards the consensus. [default: the recipe's]"""

    def applied(self, recipe: Recipe) -> Recipe:
        """Return the named recipe, or the given one, with what the flags change."""
        from graphquilt.pipeline import Recipe

        base = recipe if self.recipe is None else Recipe.named(self.recipe)
        counts = {name: getattr(self, name) for name in ("runs", "rounds")}
        return base.changed(**{name: value for name, value in counts.items() if value is not None})


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Workers:
    """Who does the work."""

    workers: Annotated[int | None, Parameter(name=["--workers", "-w"])] = None
    """Processes on this machine. [default: one per core]"""
    dask: str | None = None
    """Address of a Dask scheduler whose workers do the work."""
    dask_resource: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    """What each patch takes of a Dask worker, as GPU=1; may be repeated."""

    def count(self, n_tasks: int) -> int:
        """Return how many processes to use: as many as asked for, or one for each core that has a task."""
        if self.workers is not None and self.workers < 1:
            raise InputError(f"--workers is at least 1, not {self.workers}.")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.workers or max(1, min(cores, n_tasks))

    @contextlib.contextmanager
    def executor(self, n_tasks: int, uses: Sequence[object] = ()) -> Iterator[Executor | None]:
        """Lend the executor: a Dask cluster, processes here, or None for a plain loop.

        ``uses`` are objects that the workers need; modules of one file that they come from are sent to a cluster.
        """
        if self.dask is not None:
            with self._cluster(self.dask, uses) as pool:
                yield pool
            return
        n_workers = self.count(n_tasks)
        if n_workers == 1:
            yield None
            return
        from graphquilt.jobs import Processes

        with Processes(n_workers) as processes:
            yield processes

    @contextlib.contextmanager
    def _cluster(self, address: str, uses: Sequence[object]) -> Iterator[Executor]:
        try:
            from distributed import Client
        except ImportError as error:
            raise MissingExtraError("--dask", "dask") from error
        needs: dict[str, float] = {}
        for text in self.dask_resource:
            name, _, amount = text.partition("=")
            try:
                needs[name] = float(amount)
            except ValueError:
                raise InputError(f"--dask-resource is a name and a number, as GPU=1, not '{text}'.") from None
        try:
            client = Client(address, set_as_default=False)
        except (OSError, ValueError) as error:
            raise JobError(f"there is no Dask scheduler at {address}: {error}") from error
        options = {"resources": needs} if needs else {}
        with client:
            for path in _loose_modules(uses):
                client.upload_file(path)
            with client.get_executor(pure=False, retries=2, **options) as pool:
                yield pool


def _loose_modules(values: Sequence[object]) -> list[str]:
    """Return the files of modules that belong to no package: nobody has installed them on the workers."""
    names = {type(value).__module__ for value in values} | {getattr(value, "__module__", "") for value in values}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in names if name and "." not in name}
    return sorted(path for path in files if path is not None and "site-packages" not in path)


def job_settings(
    store: Store, *, cutting: CuttingFlags, embedder: EmbedderFlags, recipe: RecipeFlags, stitching: StitchingFlags
) -> JobSettings:
    """Return the settings of a new job, or of the job in the store, with what the flags change."""
    from graphquilt.jobs import JobSettings
    from graphquilt.jobs.settings import stored_settings
    from graphquilt.pipeline import Cutting, Recipe

    stored = stored_settings(store)
    train = recipe.applied(Recipe() if stored is None else stored.recipe)
    seed = cutting.seed if cutting.seed is not None else 0 if stored is None else stored.seed
    settings = JobSettings(
        embedder=embedder.applied(None if stored is None else stored.embedder, train),
        cutting=cutting.applied(Cutting() if stored is None else stored.cutting, seed),
        recipe=train,
        seed=seed,
    )
    return stitching.applied(settings)


def columns_of(text: str) -> tuple[int | str, ...]:
    """Return which columns of a file of edges are source, target and perhaps weight, by position or name."""
    words = [word.strip() for word in text.split(",")]
    if not 2 <= len(words) <= 3 or not all(words):
        raise InputError(f"--columns is source,target or source,target,weight by position or name; this is '{text}'.")
    return tuple(int(word) if word.isdigit() else word for word in words)


def share(text: str | None, n_patches: int) -> range | None:
    """Return the patches of share ``I/N``: I - 1, I - 1 + N, and so on."""
    if text is None:
        return None
    try:
        number, count = (int(part) for part in text.split("/"))
    except ValueError:
        raise InputError(f"--shard is two numbers with a slash, as 3/200, not '{text}'.") from None
    if not 1 <= number <= count:
        raise InputError(f"--shard {text}: shares are numbered 1/{count} to {count}/{count}.")
    return range(number - 1, n_patches, count)
