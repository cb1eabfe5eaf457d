"""The commands that look at a job: evaluate, inspect, plan, export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphquilt.cli import app, options
from graphquilt.cli.display import show, watching

if TYPE_CHECKING:
    from graphquilt.evaluate import Diagnosis, EvaluationOptions
    from graphquilt.graph import Graph
    from graphquilt.store import DirectoryStore


@app.command(epilog="Example: `graphquilt evaluate job --labels y.npy`")
def evaluate(
    job: options.Job,
    *,
    labels: options.Labels = None,
    max_edges: Annotated[
        int | None, typer.Option("--max-edges", min=1, help="Look at this many edges at most.  [default: all]")
    ] = None,
    splits: Annotated[int, typer.Option("--splits", min=1, help="Random splits for the classification.")] = 50,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Say what local training, averaging and alignment lose.")
    ] = False,
    full: Annotated[
        Path | None, typer.Option("--full", help="An embedding of the whole graph (.npy) to diagnose against.")
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Measure how well an embedding tells edges from non-edges, and classes from each other."""
    from graphquilt.cli.choices import completed, read_array
    from graphquilt.errors import JobError
    from graphquilt.evaluate import EvaluationOptions, quality
    from graphquilt.records import fingerprint, job_graph, kept_embedding
    from graphquilt.store import DirectoryStore, Record

    store = DirectoryStore(job)
    X, graph = kept_embedding(store), job_graph(store)
    if graph is None:
        raise JobError(
            f"{job} has an embedding but no graph to measure it with, for it was made from patches alone: in Python, "
            f"graphquilt.stages.compare({str(job)!r}, graph) measures it with a graph that you have."
        )
    if labels is not None:
        graph = completed(graph, None, read_array(labels, "labels"))
    settings = EvaluationOptions(seed=seed, splits=splits, max_edges=max_edges)
    scores = quality(X, graph, options=settings)
    result: dict[str, Any] = {"reconstruction_auc": scores.auc}
    numbers: dict[str, Any] = {}  # which the sentences of the diagnosis say as well
    if scores.accuracy is not None:
        result |= {"accuracy": scores.accuracy, "accuracy_std": scores.accuracy_std, "splits": splits}
    if diagnose or full is not None:
        whole = None if full is None else read_array(full, "an embedding")
        found = _diagnosis(store, graph, X, whole, settings)
        result["diagnosis"] = str(found).splitlines()
        numbers = {"losses": found.losses, "unit": found.measure}
    how = {"seed": seed, "max_edges": max_edges, "embedding": fingerprint(X)}
    store["evaluation"] = Record({}, result | numbers | how)
    show({"job": str(job), **result, **(numbers if json else {})}, as_json=json)


def _diagnosis(store: DirectoryStore, graph: Graph, X: Any, full: Any, settings: EvaluationOptions) -> Diagnosis:
    from graphquilt.evaluate import diagnose
    from graphquilt.fanout import embedded_patches
    from graphquilt.records import kept_alignment
    from graphquilt.stages import kept_weights

    patches, weights = embedded_patches(store), kept_weights(store, graph)
    return diagnose(graph, patches, kept_alignment(store), X=X, weights=weights, full=full, options=settings)


@app.command(epilog="Example: `graphquilt inspect job --verify`")
def inspect(
    job: options.Job,
    *,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every file with its checksum.")] = False,
    json: options.Json = False,
) -> None:
    """Say what a job holds, how it was made, and what comes next."""
    from graphquilt.stages import in_words, job_status
    from graphquilt.store import DirectoryStore

    status = job_status(DirectoryStore(job), verify=verify)
    if json:
        show(status, as_json=True)
        return
    if "embedded" in status:
        status["embedded"] = in_words(status["embedded"], status.pop("wanted"))
    stages = {name: value if value else "not yet" for name, value in status.pop("stages").items()}
    show({"job": status.pop("job"), **stages, **status}, as_json=False)


@app.command(epilog="Example: `graphquilt export job embedding.parquet`")
def export(
    job: options.Job,
    file: Annotated[Path, typer.Argument(help="Where to write; the ending tells the format.", show_default=False)],
    *,
    format: Annotated[  # noqa: A002
        str | None, typer.Option("--format", help="parquet, csv, tsv or word2vec.  [default: from the ending]")
    ] = None,
    json: options.Json = False,
) -> None:
    """Write the embedding with the ids of its nodes as Parquet, CSV, TSV or word2vec text."""
    from graphquilt.export import export_embedding
    from graphquilt.store import DirectoryStore

    path = export_embedding(DirectoryStore(job), file, format=format)
    show({"file": str(path), "bytes": path.stat().st_size}, as_json=json)


@app.command(epilog="Example: `graphquilt plan job --embedder vgae --dim 128 --workers 8`")
def plan(
    job: options.Job,
    *,
    embedder: options.Embedder = "svd",
    dim: Annotated[
        int | None, typer.Option("--dim", "-d", min=1, help="Dimensions.  [default: what the patches were made for]")
    ] = None,
    settings: options.Settings = None,
    recipe: options.Recipe = None,
    runs: options.Runs = None,
    rounds: options.Rounds = None,
    workers: options.Workers = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Estimate time, memory and disk of each stage from a small probe, and say what to change if it does not fit."""
    import dataclasses

    from graphquilt.cli import choices
    from graphquilt.pipeline import without_copies
    from graphquilt.planning import plan_job
    from graphquilt.records import kept_patch_graph
    from graphquilt.store import DirectoryStore

    store = DirectoryStore(job)
    quilt = kept_patch_graph(store)
    how = choices.recipe(recipe, runs, rounds)
    model = choices.embedder(embedder, dim or choices.made_for(store), settings, how)
    how = without_copies(how, model)
    quilt.check_dim(model.dim)
    n = choices.cores(workers, how.runs * quilt.n_patches)
    with watching() as progress:
        found = plan_job(store, model, recipe=how, workers=n, seed=seed, progress=progress)
    if json:
        show(dataclasses.asdict(found) | {"workers": n}, as_json=True)
        return
    typer.echo(f"{'stage':<12}{'time':>12}{'memory':>12}{'disk':>12}    ({n} workers)")
    for stage in found.stages:
        memory, disk = f"{stage.memory / 1e9:.2f} GB", f"{stage.disk / 1e9:.2f} GB"
        typer.echo(f"{stage.stage:<12}{_duration(stage.seconds):>12}{memory:>12}{disk:>12}")
    free = f"{found.memory_available / 1e9:.1f} GB of memory, {found.disk_available / 1e9:.1f} GB of disk"
    typer.echo(f"free: {free}")
    for line in found.advice or ("It fits.",):
        typer.echo(line)


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
