"""The commands that do the work: run, patch, embed, align, stitch."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from graphquilt.cli import app
from graphquilt.cli.display import show, show_advice, watching
from graphquilt.cli.values import (
    CuttingFlags,
    EmbedderFlags,
    JobFolder,
    OutFolder,
    Output,
    RecipeFlags,
    SourceFlags,
    StitchingFlags,
    given_flags,
    job_settings,
)
from graphquilt.cli.workers import Workers, share

if TYPE_CHECKING:
    from graphquilt.jobs import Job
    from graphquilt.progress import ProgressCallback

Strict = Annotated[bool, Parameter(negative="", help="Exit with code 3 if the fit is bad or doubtful.")]
Edges = Annotated[Path, Parameter(help="A file of edges, or a graph folder.")]


def _begin(
    out: Path,
    edges: tuple[Path, SourceFlags],
    cutting: CuttingFlags,
    embedder: EmbedderFlags,
    *,
    recipe: RecipeFlags = RecipeFlags(),
    stitching: StitchingFlags = StitchingFlags(),
    choose_by: Path | None = None,
    progress: ProgressCallback | None,
) -> Job:
    """Begin a job, or go on with the one that is there, and cut its graph."""
    from graphquilt.jobs import DirectoryStore, Job
    from graphquilt.jobs.flags import keep_flags

    store = DirectoryStore(out)
    resumed = "settings" in store
    settings = job_settings(store, edges=edges, cutting=cutting, embedder=embedder, recipe=recipe, stitching=stitching)
    job = Job.begin(store, settings)
    keep_flags(store, given_flags(embedder, cutting, recipe, stitching))
    if choose_by is not None:
        from graphquilt.graph.reading.node_tables import read_classes
        from graphquilt.jobs.export import job_ids

        job = job.choose(read_classes(choose_by, job_ids(job, job.n_nodes)))
    if resumed:
        print(f"graphquilt: {out} goes on with its own settings, where no flag changes them.", file=sys.stderr)
    n_patches, wanted = job.cut(progress=progress).n_patches, job.settings.cutting.n_patches
    if wanted is not None and n_patches < wanted:
        print(
            f"graphquilt: {wanted} patches were asked for and {n_patches} made: clusters with less than half of the "
            "least overlap are merged into their neighbours. A smaller --overlap or --dim allows more.",
            file=sys.stderr,
        )
    return job


def _fit(job: Job) -> dict[str, object]:
    from graphquilt.jobs.job import short_path

    alignment = job.alignment
    errors = alignment.edge_errors
    some = len(errors) > 0
    return {
        "patch_edges": len(errors),
        "mean_edge_error": float(errors.mean()) if some else None,
        "worst_edge_error": float(errors.max()) if some else None,
        "residual": float(alignment.residual) if some else None,
        "fit": alignment.summary().splitlines(),
        "embedding": short_path(str(Path(job.name) / "embedding.npy")),
    }


def _show_fit(result: dict[str, object], job: Job, *, strict: bool, output: Output) -> None:
    """Print the result of a job, what to do if the fit is bad, and leave with code 3 if ``strict`` forbids it."""
    from graphquilt.alignment.verdict import grade
    from graphquilt.jobs import fit_advice

    advice, word = fit_advice(job), grade(job.alignment)
    if output.json:
        show(result | _fit(job) | {"verdict": word, "advice": [asdict(one) for one in advice]}, as_json=True)
    else:
        show({name: value for name, value in (result | _fit(job)).items() if value is not None}, as_json=False)
        show_advice(advice)
    if strict and word in ("bad", "doubtful"):
        print(f"graphquilt: the fit is {word}, which --strict does not accept (exit code 3).", file=sys.stderr)
        sys.stdout.flush()
        raise SystemExit(3)


@app.command(help_epilogue="Example: graphquilt run edges.csv --features x.npy --dim 64 --patches 10 -e vgae --out job")
def run(
    edges: Edges,
    *,
    out: OutFolder = Path("job"),
    source: SourceFlags = SourceFlags(),
    cutting: CuttingFlags = CuttingFlags(),
    embedder: EmbedderFlags = EmbedderFlags(),
    recipe: RecipeFlags = RecipeFlags(),
    stitching: StitchingFlags = StitchingFlags(),
    workers: Workers = Workers(),
    choose_by: Annotated[Path | None, Parameter(help="Let the labels in this file choose the signal.")] = None,
    strict: Strict = False,
    output: Output = Output(),
) -> None:
    """Go from edges to an embedding: cut, embed, align. Run it again to resume."""
    from graphquilt.evaluate.pairs import count_pairs
    from graphquilt.jobs.flags import keep_flags

    with watching() as progress:
        job = _begin(
            out,
            (edges, source),
            cutting,
            embedder,
            recipe=recipe,
            stitching=stitching,
            choose_by=choose_by,
            progress=progress,
        )
        keep_flags(job.store, given_flags(workers))
        training, n_patches = job.settings.recipe, job.patch_graph.n_patches
        with workers.executor(training.runs * n_patches, job.settings.embedders) as pool:
            job.run(executor=pool, progress=progress)
    graph = job.graph
    assert graph is not None
    facts: dict[str, object] = {"nodes": graph.n_nodes, "edges": count_pairs(graph, exact=False), "patches": n_patches}
    facts |= {"weighted": graph.weights is not None, "dim": job.settings.dim, "recipe": training.name}
    _show_fit({"job": str(out), **facts, "runs": training.runs}, job, strict=strict, output=output)


@app.command(help_epilogue="Example: graphquilt patch graph --patches 10000 --partition fennel --overlap 512:2048")
def patch(
    edges: Edges,
    *,
    out: OutFolder = Path("job"),
    source: SourceFlags = SourceFlags(),
    cutting: CuttingFlags = CuttingFlags(),
    embedder: EmbedderFlags = EmbedderFlags(),
    data: Annotated[bool, Parameter(help="Also write the data of each patch, for machines without the graph.")] = False,
    output: Output = Output(),
) -> None:
    """Cut a graph into overlapping patches, which can be embedded here or on a cluster."""
    with watching() as progress:
        job = _begin(out, (edges, source), cutting, embedder, progress=progress)
        if data:
            job.write_patches(progress=progress)
    show({"job": str(out), **job.patch_graph.summary()}, as_json=output.json)


@app.command(help_epilogue="Example: graphquilt embed job --embedder dgi --dim 128 --shard $SLURM_ARRAY_TASK_ID/200")
def embed(
    job: JobFolder,
    *,
    embedder: EmbedderFlags = EmbedderFlags(),
    recipe: RecipeFlags = RecipeFlags(),
    stitching: StitchingFlags = StitchingFlags(),
    workers: Workers = Workers(),
    shard: Annotated[str | None, Parameter(help="Embed only share I of N, as I/N with I from 1 to N.")] = None,
    retries: Annotated[int, Parameter(help="How often a failing patch is tried again.")] = 1,
    output: Output = Output(),
) -> None:
    """Embed the patches of a job, here or on a cluster. Run it again, without flags, to do what is missing."""
    from graphquilt.jobs import Job
    from graphquilt.jobs.flags import keep_flags

    opened = Job.open(job)
    settings = job_settings(opened.store, embedder=embedder, recipe=recipe, stitching=stitching)
    total = settings.recipe.without_copies(settings.embedders).runs * opened.patch_graph.n_patches
    only = share(shard, total)
    opened = opened.revise(settings, only=only)
    keep_flags(opened.store, given_flags(embedder, recipe, stitching))
    n_patches = total if only is None else len(only)
    before = opened.embedded(only)
    with watching() as progress, workers.executor(n_patches, settings.embedders) as pool:
        opened.embed(executor=pool, progress=progress, retries=retries, only=only)
    counts = {"embedded": opened.embedded(only) - before, "already": before, "patches": total}
    show({"job": str(job), **counts}, as_json=output.json)


@app.command(help_epilogue="Example: graphquilt align job --robust")
def align(
    job: JobFolder,
    *,
    stitching: StitchingFlags = StitchingFlags(),
    workers: Workers = Workers(),
    strict: Strict = False,
    output: Output = Output(),
) -> None:
    """Align the embedded patches of a job and average them into one embedding."""
    from graphquilt.jobs import Job
    from graphquilt.jobs.flags import keep_flags

    opened = Job.open(job)
    opened = opened.revise(stitching.applied(opened.settings))
    keep_flags(opened.store, given_flags(stitching))
    with watching() as progress, workers.executor(len(opened.patches)) as pool:
        opened.stitch(executor=pool, progress=progress)
    _show_fit({"job": str(job)}, opened, strict=strict, output=output)


@app.command(help_epilogue="Example: graphquilt stitch a.vec b.parquet c.npz --out job")
def stitch(
    files: Annotated[
        tuple[Path, ...],
        Parameter(
            help="Files of ids and vectors: word2vec text, CSV, Parquet, .npz, .npy with ids beside it (a.ids.npy).",
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
    """Stitch embeddings that exist already, with any ids, into one: a job like any other."""
    from graphquilt.errors import InputError
    from graphquilt.jobs import DirectoryStore, JobSettings, foreign_job
    from graphquilt.jobs.foreign import FOREIGN
    from graphquilt.jobs.settings import Unknown

    if not files:
        raise InputError("FILES are missing; graphquilt stitch --help says what they are.")
    settings = stitching.applied(JobSettings(embedder=Unknown({"name": "files"}, 1), recipe=FOREIGN))
    job = foreign_job(DirectoryStore(out), list(files), settings.recipe)
    with watching() as progress, workers.executor(len(files)) as pool:
        job.stitch(executor=pool, progress=progress)
    graph = job.patch_graph
    result = {"job": str(out), "nodes": graph.n_nodes, "patches": graph.n_patches, "dim": job.settings.dim}
    _show_fit(result, job, strict=strict, output=output)
