"""The commands that do the work: embed, or cut, embed-patches and stitch; update; and align."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

import graphquilt as gq
from graphquilt.cli import app
from graphquilt.cli.display import show, watching
from graphquilt.cli.flags import (
    EMBEDDER,
    RUNNING,
    CuttingFlags,
    EmbedderFlags,
    JobFolder,
    OutFolder,
    Output,
    RecipeFlags,
    SourceFlags,
    StitchingFlags,
    Workers,
    job_settings,
    read_classes_of,
    shard_patches,
)
from graphquilt.errors import InputError

if TYPE_CHECKING:
    from graphquilt.jobs import DirectoryStore, Job, JobSettings
    from graphquilt.progress import ProgressCallback

Strict = Annotated[bool, Parameter(negative="", help="Exit with code 3 if the fit is bad or doubtful.")]
Edges = Annotated[Path, Parameter(help="An edge list, or a graph folder.")]


def _begin(
    store: DirectoryStore, settings: JobSettings, progress: ProgressCallback | None, choose_by: Path | None = None
) -> Job:
    """Begin or resume a job, and cut its graph."""
    resumed = "settings" in store
    job = gq.Job.begin(store, settings)
    classes = read_classes_of(job, choose_by)
    job = job if classes is None else job.choose(classes)
    if resumed:
        print(f"graphquilt: resuming {store.folder} with its settings and the flags given.", file=sys.stderr)
    n_patches, requested = job.cut(progress=progress).n_patches, job.settings.cutting.n_patches
    if requested is not None and n_patches < requested:
        print(
            f"graphquilt: {n_patches} patches instead of {requested}: clusters below half of the smallest overlap were "
            "merged into their neighbours. Lower --overlap or --dim for more patches.",
            file=sys.stderr,
        )
    return job


def _show_fit(facts: dict[str, object], job: Job, *, strict: bool, output: Output) -> None:
    """Print the result of a job; exit with code 3 if ``strict`` forbids it."""
    from graphquilt.jobs.store import short_path

    alignment, word = job.alignment, gq.alignment.grade(job.alignment)
    errors = alignment.edge_errors
    result = facts | {
        "patch_edges": len(errors),
        "mean_edge_error": float(errors.mean()) if len(errors) else None,
        "worst_edge_error": float(errors.max()) if len(errors) else None,
        "residual": float(alignment.residual) if len(errors) else None,
        "fit": alignment.summary(job.patch_names).splitlines(),
        "embedding": short_path(str(Path(job.name) / "embedding.npy")),
    }
    if output.json:
        show(result | {"verdict": word}, as_json=True)
    else:
        show({name: value for name, value in result.items() if value is not None}, as_json=False)
    if strict and word in ("bad", "doubtful"):
        print(f"graphquilt: the fit is {word}, which --strict does not accept (exit code 3).", file=sys.stderr)
        sys.stdout.flush()
        raise SystemExit(3)


@app.command(help_epilogue="Example: graphquilt embed edges.csv --features x.npy --dim 64 --patches 10 --out job")
def embed(
    edges: Edges,
    *,
    out: OutFolder = Path("job"),
    source: SourceFlags = SourceFlags(),
    cutting: CuttingFlags = CuttingFlags(),
    embedder: EmbedderFlags = EmbedderFlags(),
    recipe: RecipeFlags = RecipeFlags(),
    stitching: StitchingFlags = StitchingFlags(),
    workers: Workers = Workers(),
    choose_by: Annotated[
        Path | None, Parameter(help="Choose the signal by cross-validation on these labels.", group=EMBEDDER)
    ] = None,
    strict: Strict = False,
    output: Output = Output(),
) -> None:
    """Embed a graph: cut, embed-patches and stitch in one command. Rerun it to resume."""
    store = gq.DirectoryStore(out)
    settings = job_settings(
        store, edges=(edges, source), cutting=cutting, embedder=embedder, recipe=recipe, stitching=stitching
    )
    with watching() as progress:
        job = _begin(store, settings, progress, choose_by)
        training, n_patches = job.settings.recipe, job.patch_graph.n_patches
        with workers.executor(training.runs * n_patches, job.settings.embedders) as pool:
            job.run(executor=pool, progress=progress)
    graph = job.graph
    assert graph is not None
    facts: dict[str, object] = {"nodes": graph.n_nodes, "edges": graph.n_edges, "patches": n_patches}
    facts |= {"weighted": graph.weights is not None, "dim": job.settings.dim, "recipe": training.name}
    _show_fit({"job": str(out), **facts, "runs": training.runs}, job, strict=strict, output=output)


@app.command(help_epilogue="Example: graphquilt cut graph --patches 10000 --partition fennel --overlap 512:2048")
def cut(
    edges: Edges,
    *,
    out: OutFolder = Path("job"),
    source: SourceFlags = SourceFlags(),
    cutting: CuttingFlags = CuttingFlags(),
    embedder: EmbedderFlags = EmbedderFlags(),
    output: Output = Output(),
) -> None:
    """Cut a graph into overlapping patches, to embed here or on a cluster."""
    store = gq.DirectoryStore(out)
    settings = job_settings(store, edges=(edges, source), cutting=cutting, embedder=embedder)
    with watching() as progress:
        job = _begin(store, settings, progress)
    show({"job": str(out), **job.patch_graph.summary()}, as_json=output.json)


@app.command(help_epilogue="Example: graphquilt embed-patches job --embedder dgi --shard $SLURM_ARRAY_TASK_ID/200")
def embed_patches(
    job: JobFolder,
    *,
    embedder: EmbedderFlags = EmbedderFlags(),
    recipe: RecipeFlags = RecipeFlags(),
    stitching: StitchingFlags = StitchingFlags(),
    workers: Workers = Workers(),
    shard: Annotated[str | None, Parameter(help="Embed only shard I/N of the patches, I from 1 to N.")] = None,
    retries: Annotated[int, Parameter(help="Retries of a failing patch.", group=RUNNING)] = 1,
    output: Output = Output(),
) -> None:
    """Embed the patches of a job, here or on a cluster. Rerun it without flags to embed what is missing."""
    opened = gq.Job.open(job)
    settings = job_settings(opened.store, embedder=embedder, recipe=recipe, stitching=stitching)
    total = settings.recipe.without_copies(settings.embedders).runs * opened.patch_graph.n_patches
    only = shard_patches(shard, total)
    opened = opened.revise(settings, only=only)
    n_patches = total if only is None else len(only)
    before = opened.count_embedded(only)
    with watching() as progress, workers.executor(n_patches, settings.embedders) as pool:
        opened.embed(executor=pool, progress=progress, retries=retries, only=only)
    counts = {"embedded": opened.count_embedded(only) - before, "already": before, "patches": total}
    show({"job": str(job), **counts}, as_json=output.json)


@app.command(help_epilogue="Example: graphquilt stitch job --robust")
def stitch(
    job: JobFolder,
    *,
    stitching: StitchingFlags = StitchingFlags(),
    workers: Workers = Workers(),
    strict: Strict = False,
    output: Output = Output(),
) -> None:
    """Align the embedded patches of a job and average them into one embedding."""
    opened = gq.Job.open(job)
    opened = opened.revise(stitching.apply_to(opened.settings))
    with watching() as progress, workers.executor(len(opened.patches)) as pool:
        opened.stitch(executor=pool, progress=progress)
    _show_fit({"job": str(job)}, opened, strict=strict, output=output)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ChangeFlags:
    """What has changed, and how it is taken."""

    add: Path | None = None
    """Instead of the whole graph, edges that came."""
    remove: Path | None = None
    """Edges that went."""
    features: Path | None = None
    """Features of new nodes, or other ones of old nodes: a table with an id column."""
    refresh: Annotated[bool, Parameter(negative="")] = False
    """Make everything again, with new directions, turned onto the old ones."""
    anyway: Annotated[bool, Parameter(negative="")] = False
    """Accept a graph that has few ids in common with the job, or less than half of its edges."""


@app.command(help_epilogue="Example: graphquilt update job edges-of-today.csv")
def update(
    job: JobFolder,
    edges: Annotated[Path | None, Parameter(help="The whole graph as it is now.")] = None,
    *,
    change: ChangeFlags = ChangeFlags(),
    workers: Workers = Workers(),
    output: Output = Output(),
) -> None:
    """Bring a job up to date with a graph that has changed; rows and frame stay. Rerun it to resume."""
    opened = gq.Job.open(job)
    n_tasks = opened.settings.recipe.runs * opened.patch_graph.n_patches
    with watching() as progress, workers.executor(n_tasks, opened.settings.embedders) as pool:
        done = gq.update(opened, edges, **vars(change), executor=pool, progress=progress)
    facts = {name: value for name, value in asdict(done).items() if value is not None}
    facts["redone"] = f"{done.redone} of {facts.pop('n_patches')} patches"
    show({"job": str(job), **(asdict(done) if output.json else facts), "verdict": done.verdict}, as_json=output.json)


@app.command(help_epilogue="Example: graphquilt align a.vec b.parquet c.npz --out job")
def align(
    files: Annotated[
        tuple[Path, ...],
        Parameter(
            help="Ids and vectors: word2vec text, CSV, Parquet, .npz, or a.npy with ids in a.ids.npy.",
            negative="",
            show_default=False,
        ),
    ] = (),
    *,
    out: OutFolder = Path("job"),
    stitching: StitchingFlags = StitchingFlags(),
    workers: Workers = Workers(),
    strict: Strict = False,
    output: Output = Output(),
) -> None:
    """Align existing embeddings, whatever their ids, and average them into one."""
    from graphquilt.jobs.settings import UnavailableEmbedder
    from graphquilt.jobs.stitching import ALIGN_DEFAULTS

    if not files:
        raise InputError("FILES are missing; see graphquilt align --help.")
    unknown = UnavailableEmbedder({"name": "files"}, 1)
    settings = stitching.apply_to(gq.JobSettings(embedder=unknown, recipe=ALIGN_DEFAULTS))
    job = gq.jobs.import_patches(gq.DirectoryStore(out), list(files), settings.recipe)
    with watching() as progress, workers.executor(len(files)) as pool:
        job.stitch(executor=pool, progress=progress)
    graph = job.patch_graph
    result = {"job": str(out), "nodes": graph.n_nodes, "patches": graph.n_patches, "dim": job.settings.dim}
    _show_fit(result, job, strict=strict, output=output)
