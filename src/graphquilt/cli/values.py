"""The values that commands take. Their fields are the flags, and the text below a field is its help."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import Parameter
from cyclopts.validators import Number

from graphquilt.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from graphquilt.embedders import Embedder
    from graphquilt.jobs import Cutting, JobSettings, Recipe, Source, Store
    from graphquilt.patches import Partitioner

__all__ = [
    "POSITIVE",
    "CuttingFlags",
    "EmbedderFlags",
    "JobFolder",
    "OutFolder",
    "Output",
    "RecipeFlags",
    "SourceFlags",
    "StitchingFlags",
    "changed",
    "given_flags",
    "job_settings",
    "named_class",
]

JobFolder = Annotated[Path, Parameter(help="The folder of the job.")]
OutFolder = Annotated[
    Path, Parameter(name=["--out", "-o"], help="The folder of the job. A job that is there is continued.")
]

POSITIVE = Number(gte=1)
PARTITIONERS = {
    "metis": "Metis",
    "multilevel": "Multilevel",
    "fennel": "Fennel",
    "kaminpar": "KaMinPar",
    "louvain": "Louvain",
    "leiden": "Leiden",
}
EDGE_WEIGHTS = {"resistance": "Resistance", "conductance": "Conductance"}


_TUNED = ("negatives", "blend")  # by a recipe
_READING = ("directed", "largest_component")
T = TypeVar("T", bound="DataclassInstance")


def named_class(word: str, table: Mapping[str, str], kind: str) -> type[Any]:
    """Return the public class of graphquilt that a word of the command line stands for."""
    import graphquilt

    if word not in table:
        raise InputError(f"'{word}' is not {kind}; choose one of {', '.join(table)}.")
    named: type[Any] = getattr(graphquilt, table[word])
    return named


def changed(value: T, changes: Mapping[str, object]) -> T:
    """Return a dataclass with other values in some of its fields."""
    return dataclasses.replace(value, **changes)


def _values(flags: object, *names: str) -> dict[str, object]:
    """Return the flags of these names that are given."""
    return {name: getattr(flags, name) for name in names if getattr(flags, name) is not None}


def given_flags(*groups: DataclassInstance) -> dict[str, object]:
    """Return the flags of these groups that are given, by name, as plain values."""
    given: dict[str, object] = {}
    for group in groups:
        for field in dataclasses.fields(group):
            value = getattr(group, field.name)
            if value != field.default:
                given[field.name] = list(value) if isinstance(value, tuple) else value
    return given


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """How the result is printed, and where flags come from."""

    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Print the result as JSON."""
    config: Path | None = None
    """Take flags from this TOML file; flags on the command line win."""
    save_config: Path | None = None
    """Write the flags of this call to a TOML file, and do nothing else."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SourceFlags:
    """How the graph is read."""

    columns: str | None = None
    """Columns of a file of edges: source,target or source,target,weight, by position or name. [default: by their
    names, or 0,1]"""
    features: Path | None = None
    """Node features: a table with an id column (CSV, TSV, Parquet), or .npy or .npz (sparse) with one row per node in
    ascending order of the ids."""
    labels: Path | None = None
    """Node classes: a table with an id column, or an array (.npy) in the same order, -1 for nodes without one."""
    directed: bool | None = None
    """Keep edges one-way."""
    largest_component: bool | None = None
    """Keep only the largest connected component."""

    def applied(self, source: Source, path: Path) -> Source:
        """Return a source at this path, read as the flags say and else as before."""
        from graphquilt.jobs import Source

        files = {name: str(value) for name, value in _values(self, "features", "labels").items()}
        columns = {} if self.columns is None else {"columns": _columns(self.columns)}
        before = {name: getattr(source, name) for name in ("columns", "features", "labels", *_READING)}
        return changed(Source(path=str(path)), {**before, **columns, **files, **_values(self, *_READING)})


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CuttingFlags:
    """How the graph is cut into patches."""

    patches: Annotated[int | None, Parameter(name=["--patches", "-p"])] = None
    """Number of patches. [default: 1 below 5000 nodes, then 10, and one per 50 000 nodes where that is more]"""
    partition: str | None = None
    """How the graph is partitioned: metis, multilevel, fennel, kaminpar, louvain or leiden. [default: metis, or
    multilevel above four million entries]"""
    degree: float | None = None
    """Mean number of neighbours of a patch. [default: from the number of patches]"""
    overlap: str | None = None
    """Least and largest overlap, as 256:1024. [default: from the dimension and the size of the patches]"""
    edge_weight: str | None = None
    """How patch edges are chosen: resistance, or conductance (for thousands of patches). [default: resistance]"""
    growth: float | None = None
    """How many times its cluster a patch may hold. [default: 10]"""
    each_component: bool | None = None
    """Align each component of the graph alone, where the embedder has no shared start."""
    degree_limit: int | None = None
    """Largest number of neighbours of one patch. [default: as many as its growth allows]"""
    passes: int | None = None
    """How often Fennel visits all nodes. [default: 2]"""
    balance: float | None = None
    """Largest cluster of Fennel as a multiple of the mean. [default: 1.1]"""
    order: Literal["natural", "random", "breadth-first"] | None = None
    """In which order Fennel visits nodes. [default: natural]"""
    seed: int | None = None
    """Seed of all random choices. [default: 0]"""

    def applied(self, cutting: Cutting, seed: int) -> Cutting:
        """Return a cutting with what the flags change."""
        changes: dict[str, object] = {}
        streaming = _values(self, "passes", "balance", "order")
        if _values(self, "patches", "partition", "seed") or streaming:
            n_patches = cutting.n_patches if self.patches is None else self.patches
            changes["n_patches"] = n_patches
            partitioner = _partitioner(self.partition, cutting.partitioner, n_patches, seed)
            changes["partitioner"] = _streamed(partitioner, streaming)
            if n_patches != cutting.n_patches:
                changes |= {"degree": None, "overlap": None}
        changes |= _values(self, "degree")
        if self.overlap is not None:
            changes["overlap"] = _overlap(self.overlap)
        if self.edge_weight is not None:
            changes["edge_weight"] = named_class(self.edge_weight, EDGE_WEIGHTS, "an edge weight")()
        if self.each_component is not None:
            changes["components"] = "each" if self.each_component else None
        limits = _values(self, "growth") | ({} if self.degree_limit is None else {"degree": self.degree_limit})
        if limits:
            changes["limits"] = changed(cutting.limits, limits)
        return changed(cutting, changes)


def _partitioner(
    word: str | None, current: Partitioner | type | None, n_patches: int | None, seed: int
) -> Partitioner | type | None:
    """Return the named partitioner, or the current one, for this many patches and this seed.

    Where the number is not known yet, because it follows from the graph, that is the class.
    """
    word = word or next((word for word, name in PARTITIONERS.items() if type(current).__name__ == name), None)
    if word is None:
        return current
    kind = named_class(word, PARTITIONERS, "a partitioner")
    if n_patches is None:
        return kind
    known = {field.name for field in dataclasses.fields(kind)}
    values = {name: value for name, value in (("n_patches", n_patches), ("seed", seed)) if name in known}
    partitioner: Partitioner = changed(current, values) if isinstance(current, kind) else kind(**values)
    return partitioner


def _streamed(partitioner: Partitioner | type | None, settings: Mapping[str, object]) -> Partitioner | type | None:
    """Return Fennel with other settings; these suit no other partitioner."""
    from graphquilt.patches import Fennel

    if not settings:
        return partitioner
    if isinstance(partitioner, Fennel):
        return changed(partitioner, settings)
    flags = " and ".join(f"--{name}" for name in settings)
    missing = "--patches" if partitioner is Fennel else "--partition fennel"
    raise InputError(f"{flags} can be set for Fennel with a number of patches only; add {missing}.")


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
    """propagation, svd, vgae, gae, dgi, or module:factory for your own. [default: propagation, or that of the job]"""
    dim: Annotated[int | None, Parameter(name=["--dim", "-d"], validator=POSITIVE)] = None
    """Dimensions of the embedding. [default: 64, or that of the job]"""
    set: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    """A setting of the embedder, as NAME=VALUE; may be repeated."""

    def applied(self, settings: JobSettings, recipe: Recipe) -> Embedder | tuple[Embedder, ...]:
        """Return the embedder that the flags name, or the one of the settings with what they change."""
        from graphquilt.cli.embedder import changed_embedder, named_embedder

        if self.embedder is not None:
            return named_embedder(self.embedder, self.dim or settings.dim, self.set, recipe)
        if self.dim is None and not self.set:
            return settings.embedder
        return changed_embedder(settings.embedder, self.dim, self.set)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StitchingFlags:
    """How embedded patches are aligned and averaged."""

    robust: bool | None = None
    """Doubt overlaps that contradict the others."""
    scale: bool | None = None
    """Undo scales. [default: as the embedder needs; stitch always does]"""
    rotate: bool | None = None
    """Undo rotations. [default: as the embedder needs; stitch always does]"""
    translate: bool | None = None
    """Undo shifts. [default: as the embedder needs; stitch always does]"""
    coverage: float | None = None
    """Power of coverage as the weight of each row. [default: the recipe's, 0 for stitch]"""
    refine: int | None = None
    """Sweeps of Procrustes analysis. [default: the recipe's, 0 for stitch]"""
    branching: int | None = None
    """Align level by level, this many patches at a time. [default: all at once]"""
    precision: Literal["float64", "float32", "float16"] | None = None
    """Type of the embedding. [default: float64]"""

    def applied(self, settings: JobSettings) -> JobSettings:
        """Return settings with what the flags change."""
        changes = _values(self, "robust", "coverage", "refine", "branching", "precision")
        motions = _values(self, "scale", "rotate", "translate")
        if motions:
            changes["motions"] = changed(settings.recipe.motions or settings.motions, motions)
        return changed(settings, {"recipe": settings.recipe.changed(**changes)})


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RecipeFlags:
    """How often patches are trained."""

    recipe: str | None = None
    """shared, reconstruction or paper. [default: shared]"""
    runs: int | None = None
    """Train every patch this often and align all runs together. [default: the recipe's]"""
    start: bool | None = None
    """Give all patches a shared start, where the embedder has one. [default: the recipe's]"""
    purpose: Annotated[str | None, Parameter(name="--for")] = None
    """What the embedding is for: classes or links. Weights what is spread over the graph. [default: both]"""

    def applied(self, recipe: Recipe) -> Recipe:
        """Return the named recipe, or the given one, with what the flags change."""
        from graphquilt.jobs import Recipe

        base = recipe if self.recipe is None else Recipe.named(self.recipe)
        return base.changed(**_values(self, "runs", "start", "purpose"))


def job_settings(
    store: Store,
    *,
    edges: tuple[Path, SourceFlags] | None = None,
    cutting: CuttingFlags = CuttingFlags(),
    embedder: EmbedderFlags = EmbedderFlags(),
    recipe: RecipeFlags = RecipeFlags(),
    stitching: StitchingFlags = StitchingFlags(),
) -> JobSettings:
    """Return the settings of the job in the store, or those of a new job, with what the flags change."""
    from graphquilt.embedders import Propagation
    from graphquilt.jobs import JobSettings, Recipe
    from graphquilt.jobs.settings import readable_settings

    stored, damage = readable_settings(store)
    if damage is not None and edges is None:
        raise damage
    before = stored or JobSettings(embedder=Propagation(64), recipe=Recipe.shared())
    training = recipe.applied(before.recipe)
    seed = before.seed if cutting.seed is None else cutting.seed
    model = embedder.applied(before, training)
    # What is set by hand wins over the recipe, which is applied again wherever the embedder has a default.
    by_hand = {text.partition("=")[0].strip().replace("-", "_") for text in embedder.set}
    training = training.changed(
        **{name: getattr(model, name) for name in by_hand & _values(training, *_TUNED).keys() if hasattr(model, name)}
    )
    settings = JobSettings(
        embedder=model,
        cutting=cutting.applied(before.cutting, seed),
        recipe=training,
        seed=seed,
        source=before.source if edges is None else edges[1].applied(before.source, edges[0]),
    )
    old, new = ((s.dim, s.source.directed, s.source.largest_component) for s in (before, settings))
    if old != new and cutting.overlap is None and "patch_graph" not in store:  # the default depends on these
        settings = changed(settings, {"cutting": changed(settings.cutting, {"overlap": None})})
    return stitching.applied(settings)


def _columns(text: str) -> tuple[int | str, ...]:
    """Return which columns of a file of edges are source, target and perhaps weight, by position or name."""
    words = [word.strip() for word in next(csv.reader([text], skipinitialspace=True), [])]
    if not 2 <= len(words) <= 3 or not all(words):
        raise InputError(f"--columns is source,target or source,target,weight by position or name; this is '{text}'.")
    return tuple(int(word) if word.isdigit() else word for word in words)
