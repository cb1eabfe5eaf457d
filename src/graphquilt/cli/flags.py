"""The values that commands take: their fields are flags, in named groups, and the text below a field is its help."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

import graphquilt as gq
from graphquilt.errors import InputError, JobError, MissingExtraError

if TYPE_CHECKING:
    from graphquilt.arrays import AnyArray
    from graphquilt.embedders import Embedder
    from graphquilt.jobs import Cutting, Job, JobSettings, Recipe, Source, Store


MAIN = "Parameters"  # what most people use comes first; the groups below follow
INPUT, CUTTING, EMBEDDER, ALIGNMENT, RUNNING = (
    Group(name, sort_key=place) for place, name in enumerate(("Input", "Cutting", "Embedder", "Alignment", "Running"))
)
JobFolder = Annotated[Path, Parameter(help="The folder of the job.")]
OutFolder = Annotated[Path, Parameter(name=["--out", "-o"], help="The folder of the job; an existing job is resumed.")]

POSITIVE = Number(gte=1)
PARTITIONERS = {name.lower(): name for name in ("Metis", "Multilevel", "Fennel", "Louvain", "Leiden")}
EDGE_WEIGHTS = {"resistance": "Resistance", "conductance": "Conductance"}
_TUNED = {"negatives", "blend"}  # by a recipe


def named_class(word: str, table: Mapping[str, str], kind: str) -> type[Any]:
    """Return the public class that a word of the command line stands for."""
    if word not in table:
        raise InputError(f"'{word}' is not {kind}; choose one of {', '.join(table)}.")
    named: type[Any] = getattr(gq, table[word])
    return named


def read_classes_of(job: Job, labels: Path | None) -> AnyArray | None:
    """Return the class of each node of a job from a file, -1 for none."""
    from graphquilt.graph.reading.node_tables import read_classes
    from graphquilt.jobs.export import job_ids

    return None if labels is None else read_classes(labels, job_ids(job, job.n_nodes))


def given(flags: object) -> dict[str, Any]:
    """Return the flags, or figures, that are given, by name."""
    return {name: value for name, value in vars(flags).items() if value is not None}


@Parameter(name="*", group=MAIN)
@dataclass(frozen=True, kw_only=True)
class Output:
    """How the result is printed."""

    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Print the result as JSON."""


@Parameter(name="*", group=INPUT)
@dataclass(frozen=True, kw_only=True)
class SourceFlags:
    """How the graph is read."""

    columns: str | None = None
    """Columns of the edge list: source,target[,weight], by position or name. [default: by name, else 0,1]"""
    features: Annotated[Path | None, Parameter(group=MAIN)] = None
    """Node features: a table with an id column, or .npy or .npz (sparse), one row per node in ascending id order."""
    labels: Annotated[Path | None, Parameter(group=MAIN)] = None
    """Node classes: a table with an id column, or an array (.npy) in the same order, -1 for nodes without one."""
    directed: bool | None = None
    """Treat edges as directed."""
    bad_rows: Literal["stop", "skip"] | None = None
    """Rows without an id, with a weight that is not a number, or with too few cells: stop, or leave them out."""
    duplicates: Literal["max", "sum", "last", "count"] | None = None
    """Weight of an edge that is there more than once: the largest, the sum, the last, or how often it is there."""
    largest_component: bool | None = None
    """Keep only the largest connected component."""
    half_life: str | None = None
    """Read times, and let weights halve with age, as 30d; --columns are then source,target,time."""

    def apply_to(self, source: Source, path: Path) -> Source:
        """Return the source with this path and what the flags change."""
        changes = given(self) | {name: str(path) for name, path in given(self).items() if isinstance(path, Path)}
        changes |= {} if self.columns is None else {"columns": parse_columns(self.columns)}
        before = {name: getattr(source, name) for name in vars(self)}
        return gq.jobs.Source(**{"path": str(path)} | before | changes)


@Parameter(name="*", group=CUTTING)
@dataclass(frozen=True, kw_only=True)
class CuttingFlags:
    """How the graph is cut into patches."""

    patches: Annotated[int | None, Parameter(name=["--patches", "-p"], group=MAIN)] = None
    """Number of patches. [default: 1 below 5000 nodes, else 10, or one per 50000 nodes if that is more]"""
    partition: str | None = None
    """metis, multilevel, fennel, louvain or leiden. [default: metis; multilevel above 4M entries]"""
    degree: float | None = None
    """Mean number of neighbouring patches. [default: depends on the number of patches]"""
    overlap: str | None = None
    """Smallest and largest overlap, e.g. 256:1024. [default: depends on dimensions and patch sizes]"""
    edge_weight: str | None = None
    """Weight of patch edges: resistance, or conductance for thousands of patches. [default: resistance]"""
    each_component: bool | None = None
    """Align each connected component alone, for embedders without a shared start."""
    seed: Annotated[int | None, Parameter(group=MAIN)] = None
    """Random seed. [default: 0]"""

    def apply_to(self, cutting: Cutting, seed: int) -> Cutting:
        """Return the cutting with what the flags change."""
        changes: dict[str, Any] = {}
        if self.patches is not None or self.partition is not None or self.seed is not None:
            n_patches = cutting.n_patches if self.patches is None else self.patches
            changes = {"n_patches": n_patches, "partitioner": self._partitioner(cutting.partitioner, n_patches, seed)}
            if n_patches != cutting.n_patches:
                changes |= {"degree": None, "overlap": None}
        if self.degree is not None:
            changes["degree"] = self.degree
        if self.overlap is not None:
            changes["overlap"] = _overlap(self.overlap)
        if self.edge_weight is not None:
            changes["edge_weight"] = named_class(self.edge_weight, EDGE_WEIGHTS, "an edge weight")()
        if self.each_component is not None:
            changes["components"] = "each" if self.each_component else None
        return dataclasses.replace(cutting, **changes)

    def _partitioner(self, current: object, n_patches: int | None, seed: int) -> object:
        """Return the named or the current partitioner; its class if the number of patches follows from the graph."""
        word = self.partition or {name: word for word, name in PARTITIONERS.items()}.get(type(current).__name__)
        if word is None:
            return current
        kind = named_class(word, PARTITIONERS, "a partitioner")
        if n_patches is None:
            return kind
        known = {field.name for field in dataclasses.fields(kind)}
        values = {name: value for name, value in {"n_patches": n_patches, "seed": seed}.items() if name in known}
        return dataclasses.replace(current, **values) if isinstance(current, kind) else kind(**values)


def _overlap(text: str) -> tuple[int, int]:
    least, colon, most = text.partition(":")
    try:
        return int(least), int(most) if colon else 4 * int(least)
    except ValueError:
        raise InputError(f"--overlap takes two integers with a colon, e.g. 256:1024, not '{text}'.") from None


@Parameter(name="*", group=EMBEDDER)
@dataclass(frozen=True, kw_only=True)
class EmbedderFlags:
    """What embeds the patches."""

    embedder: Annotated[str | None, Parameter(name=["--embedder", "-e"], group=MAIN)] = None
    """propagation, svd, vgae, gae, dgi, or module:factory for your own. [default: the job's, or propagation]"""
    dim: Annotated[int | None, Parameter(name=["--dim", "-d"], validator=POSITIVE, group=MAIN)] = None
    """Dimensions of the embedding. [default: the job's, or 64]"""
    set: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    """Setting of the embedder, NAME=VALUE; repeatable."""

    def apply_to(self, settings: JobSettings, recipe: Recipe) -> Embedder | tuple[Embedder, ...]:
        """Return the embedder that the flags name, or that of the settings with what the flags change."""
        from graphquilt.cli.embedder import changed_embedder, named_embedder

        if self.embedder is not None:
            return named_embedder(self.embedder, self.dim or settings.dim, self.set, recipe)
        changed = self.dim is not None or self.set
        return changed_embedder(settings.embedder, self.dim, self.set) if changed else settings.embedder


@Parameter(name="*", group=ALIGNMENT)
@dataclass(frozen=True, kw_only=True)
class StitchingFlags:
    """How embedded patches are aligned and averaged."""

    robust: bool | None = None
    """Down-weight overlaps inconsistent with the rest."""
    scale: bool | None = None
    """Undo scales. [default: depends on the embedder; yes for align]"""
    rotate: bool | None = None
    """Undo rotations. [default: depends on the embedder; yes for align]"""
    translate: bool | None = None
    """Undo shifts. [default: depends on the embedder; yes for align]"""
    coverage: float | None = None
    """Weight rows by (share of the node's edges inside the patch) ** this power. [default: the recipe's; align: 0]"""
    refine: int | None = None
    """Sweeps of generalised Procrustes analysis. [default: the recipe's; 0 for align]"""
    branching: int | None = None
    """Align hierarchically, this many patches at a time. [default: all at once]"""
    precision: Literal["float64", "float32", "float16"] | None = None
    """Number type of the embedding; float16 also halves the patches. [default: float32]"""
    keep_patches: bool | None = None
    """Keep embedded patches. [default: yes, unless they lie in one frame and take more than a gigabyte]"""

    def apply_to(self, settings: JobSettings) -> JobSettings:
        """Return the settings with what the flags change."""
        changes = given(self)
        motions = {name: changes.pop(name) for name in ("scale", "rotate", "translate") if name in changes}
        if motions:
            changes["motions"] = dataclasses.replace(settings.recipe.motions or settings.motions, **motions)
        return dataclasses.replace(settings, recipe=settings.recipe.replace(**changes))


@Parameter(name="*", group=EMBEDDER)
@dataclass(frozen=True, kw_only=True)
class RecipeFlags:
    """How patches are trained."""

    recipe: str | None = None
    """Training and alignment preset: shared, reconstruction or paper. [default: shared]"""
    runs: int | None = None
    """Train each patch this many times and align all runs together. [default: the recipe's]"""
    start: bool | None = None
    """Give all patches a shared start, if the embedder supports it. [default: the recipe's]"""
    purpose: Annotated[str | None, Parameter(name="--for")] = None
    """Purpose, which weights the signal: classes or links. [default: both]"""

    def apply_to(self, recipe: Recipe) -> Recipe:
        """Return the named recipe, or the given one, with what the flags change."""
        changes = given(self)
        base = recipe if self.recipe is None else gq.Recipe.named(str(changes.pop("recipe")))
        return base.replace(**changes)


def job_settings(
    store: Store,
    *,
    edges: tuple[Path, SourceFlags] | None = None,
    cutting: CuttingFlags = CuttingFlags(),
    embedder: EmbedderFlags = EmbedderFlags(),
    recipe: RecipeFlags = RecipeFlags(),
    stitching: StitchingFlags = StitchingFlags(),
) -> JobSettings:
    """Return the settings of the stored job, or of a new one, with what the flags change."""
    from graphquilt.jobs.settings import readable_settings

    stored, damage = readable_settings(store)
    if damage is not None and edges is None:
        raise damage
    before = stored or gq.JobSettings(embedder=gq.Propagation(64), recipe=gq.Recipe.shared())
    training = recipe.apply_to(before.recipe)
    seed = before.seed if cutting.seed is None else cutting.seed
    model = embedder.apply_to(before, training)
    # What is set by hand wins over the recipe, which is applied again wherever the embedder has a default.
    by_hand = {text.partition("=")[0].strip().replace("-", "_") for text in embedder.set}
    training = training.replace(
        **{name: getattr(model, name) for name in by_hand & given(training).keys() & _TUNED if hasattr(model, name)}
    )
    settings = gq.JobSettings(
        embedder=model,
        cutting=cutting.apply_to(before.cutting, seed),
        recipe=training,
        seed=seed,
        source=before.source if edges is None else edges[1].apply_to(before.source, edges[0]),
    )
    old, new = ((s.dim, s.source.directed, s.source.largest_component) for s in (before, settings))
    if old != new and cutting.overlap is None and "patch_graph" not in store:  # the default depends on these
        settings = dataclasses.replace(settings, cutting=dataclasses.replace(settings.cutting, overlap=None))
    return stitching.apply_to(settings)


def parse_columns(text: str | None) -> tuple[int | str, ...] | None:
    """Return the columns of source, target and optionally weight or time, by position or name."""
    if text is None:
        return None
    words = [word.strip() for word in next(csv.reader([text], skipinitialspace=True), [])]
    if not 2 <= len(words) <= 3 or not all(words):
        raise InputError(f"--columns takes source,target or source,target,weight, by position or name, not '{text}'.")
    return tuple(int(word) if word.isdigit() else word for word in words)


@Parameter(name="*", group=RUNNING)
@dataclass(frozen=True, kw_only=True)
class Workers:
    """Who does the work."""

    workers: Annotated[int | None, Parameter(name=["--workers", "-w"], validator=POSITIVE, group=MAIN)] = None
    """Processes on this machine. [default: one per core]"""
    dask: str | None = None
    """Address of a Dask scheduler whose workers to use."""
    dask_resource: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    """Resource that each patch takes of a Dask worker, e.g. GPU=1; repeatable."""

    def count(self, n_tasks: int) -> int:
        """Return the number of processes: the flag's, or one per core that has a task."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.workers or max(1, min(cores, n_tasks))

    @contextlib.contextmanager
    def executor(self, n_tasks: int, uses: Sequence[object] = ()) -> Iterator[Executor | None]:
        """Lend the executor: a Dask cluster, processes here, or None for a plain loop.

        ``uses`` are objects that the workers need; single-file modules that define them are sent to a cluster.
        """
        if self.dask is not None:
            with self._cluster(self.dask, uses) as pool:
                yield pool
            return
        n_workers = self.count(n_tasks)
        if n_workers == 1:
            yield None
            return

        with gq.Processes(n_workers) as processes:
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
                raise InputError(f"--dask-resource takes a name and a number, e.g. GPU=1, not '{text}'.") from None
        for name in ("distributed", "distributed.client", "tornado.application", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # no tracebacks: an error here is one sentence
        try:
            client = Client(address, set_as_default=False)
        except (OSError, ValueError) as error:
            raise JobError(f"no Dask scheduler at {address}: {error}") from error
        except (TypeError, RuntimeError) as error:  # certificates are missing, or encryption is required
            raise JobError(f"no safe way to the Dask scheduler at {address}: {error}. See SECURITY.md.") from error
        options = {"resources": needs} if needs else {}
        with client:
            for path in _loose_modules(uses):
                client.upload_file(path)
            with client.get_executor(pure=False, retries=2, **options) as pool:
                yield pool


def _loose_modules(values: Sequence[object]) -> list[str]:
    """Return the files of modules outside any package, which are not installed on the workers."""
    names = {type(value).__module__ for value in values} | {getattr(value, "__module__", "") for value in values}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in names if name and "." not in name}
    return sorted(path for path in files if path is not None and "site-packages" not in path)


def shard_patches(text: str | None, n_patches: int) -> range | None:
    """Return the patches of shard ``I/N``: I - 1, I - 1 + N, and so on."""
    if text is None:
        return None
    try:
        number, count = (int(part) for part in text.split("/"))
    except ValueError:
        raise InputError(f"--shard takes two integers with a slash, e.g. 3/200, not '{text}'.") from None
    if not 1 <= number <= count:
        raise InputError(f"--shard {text}: shards are numbered 1/{count} to {count}/{count}.")
    return range(number - 1, n_patches, count)
