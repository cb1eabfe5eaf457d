"""The commands that do the work: run, patch, embed, align."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphquilt.cli import app, config, options
from graphquilt.cli.display import resumable, show, watching

if TYPE_CHECKING:
    from graphquilt.graph import Graph
    from graphquilt.patches import PatchGraph
    from graphquilt.progress import ProgressCallback
    from graphquilt.store import DirectoryStore


def _again() -> str:
    return shlex.join(["graphquilt", *sys.argv[1:]])


def _cut(
    store: DirectoryStore,
    path: Path,
    *,
    columns: str,
    features: Path | None,
    labels: Path | None,
    directed: bool,
    largest: bool,
    partition: str,
    patches: int,
    dim: int,
    degree: float | None,
    overlap: str | None,
    edge_weight: str,
    seed: int,
    progress: ProgressCallback | None,
) -> tuple[Graph, PatchGraph]:
    """Return the job's graph and patches: those it has, or those it is to be made with."""
    from graphquilt.cli import choices
    from graphquilt.stages import job_graph, keep_graph, make_patches

    which = choices.columns(columns)
    made_from = choices.origin(
        path, columns=which, features=features, labels=labels, directed=directed, largest_component=largest
    )
    graph = job_graph(store, made_from)
    if graph is None:
        graph = choices.read_graph(
            path, columns=which, features=features, labels=labels, directed=directed, largest=largest
        )
        as_it_is = path.is_dir() and features is None and labels is None and not largest
        keep_graph(store, graph, made_from, folder=path if as_it_is else None)
    quilt = make_patches(
        store,
        graph,
        choices.partitioner(partition, patches, seed),
        n_patches=patches,
        dim=dim,
        degree=degree,
        overlap=choices.overlap(overlap),
        edge_weight=choices.edge_weight(edge_weight),
        seed=seed,
        progress=progress,
    )
    if quilt.n_patches < patches:
        typer.echo(
            f"graphquilt: {patches} patches were asked for and {quilt.n_patches} made: clusters with less than half of "
            "the least overlap are merged into their neighbours. A smaller --overlap or --dim allows more.",
            err=True,
        )
    return graph, quilt


def _alignment(alignment: Any) -> dict[str, Any]:
    errors = alignment.edge_errors
    return {
        "patch_edges": len(alignment.edges),
        "mean_edge_error": float(errors.mean()) if len(errors) else 0.0,
        "worst_edge_error": float(errors.max()) if len(errors) else 0.0,
        "residual": float(alignment.residual),
        "fit": alignment.summary().splitlines(),
    }


@app.command(epilog="Example: `graphquilt run edges.csv --features x.npy --dim 64 --patches 10 -e vgae --out job`")
def run(
    context: typer.Context,
    edges: Annotated[Path, typer.Argument(help="A file of edges, or a graph folder.", show_default=False)],
    *,
    out: options.Out = Path("job"),
    dim: options.Dim = 64,
    patches: options.Patches = 10,
    embedder: options.Embedder = "svd",
    settings: options.Settings = None,
    columns: options.Columns = "0,1",
    features: options.Features = None,
    labels: options.Labels = None,
    directed: options.Directed = False,
    largest_component: options.Largest = False,
    partition: options.Partition = "metis",
    degree: options.Degree = None,
    overlap: options.Overlap = None,
    edge_weight: options.Weight = "resistance",
    robust: options.Robust = False,
    recipe: options.Recipe = None,
    runs: options.Runs = None,
    rounds: options.Rounds = None,
    seed: options.Seed = 0,
    workers: options.Workers = None,
    dask: options.Dask = None,
    dask_resource: options.Resources = None,
    json: options.Json = False,
    config_file: config.Config = None,  # noqa: ARG001  (its callback has done the work)
    save_config: config.SaveConfig = None,
) -> None:
    """Go from edges to an embedding: patches, their embeddings, alignment. Run it again to resume."""
    if save_config is not None:
        config.save(context, save_config)
        return
    from graphquilt.cli import choices
    from graphquilt.locking import job_lock
    from graphquilt.pipeline import embed_in_rounds, without_copies
    from graphquilt.stages import align_job
    from graphquilt.store import DirectoryStore

    store = DirectoryStore(out)
    how = choices.recipe(recipe, runs, rounds, store)
    model = choices.embedder(embedder, dim, settings, how)
    how = without_copies(how, model)
    with resumable(_again()), job_lock(out), watching() as progress:
        graph, quilt = _cut(
            store,
            edges,
            columns=columns,
            features=features,
            labels=labels,
            directed=directed,
            largest=largest_component,
            partition=partition,
            patches=patches,
            dim=dim,
            degree=degree,
            overlap=overlap,
            edge_weight=edge_weight,
            seed=seed,
            progress=progress,
        )
        with choices.hands(workers, dask, dask_resource, how.runs * quilt.n_patches) as pool:
            embed_in_rounds(
                graph, quilt, model, recipe=how, robust=robust, seed=seed, executor=pool, store=store, progress=progress
            )
            alignment = align_job(store, robust=robust, executor=pool, progress=progress)
    result = {"job": str(out), "nodes": graph.n_nodes, "edges": graph.n_edges, "patches": quilt.n_patches, "dim": dim}
    result |= {"recipe": how.name, "runs": how.runs, "rounds": how.rounds}
    show(result | _alignment(alignment) | {"embedding": str(out / "embedding.npy")}, as_json=json)


@app.command(
    epilog="Example: `graphquilt patch graph --patches 10000 --partition fennel --degree 20 --overlap 512:2048`"
)
def patch(
    context: typer.Context,
    graph: Annotated[Path, typer.Argument(help="A graph folder, or a file of edges.", show_default=False)],
    *,
    out: options.Out = Path("job"),
    dim: options.Dim = 64,
    patches: options.Patches = 10,
    columns: options.Columns = "0,1",
    features: options.Features = None,
    labels: options.Labels = None,
    directed: options.Directed = False,
    largest_component: options.Largest = False,
    partition: options.Partition = "metis",
    degree: options.Degree = None,
    overlap: options.Overlap = None,
    edge_weight: options.Weight = "resistance",
    seed: options.Seed = 0,
    json: options.Json = False,
    config_file: config.Config = None,  # noqa: ARG001  (its callback has done the work)
    save_config: config.SaveConfig = None,
) -> None:
    """Cut a graph into overlapping patches, each a folder that can be embedded on its own."""
    if save_config is not None:
        config.save(context, save_config)
        return
    from graphquilt.locking import job_lock
    from graphquilt.stages import cut_patches
    from graphquilt.store import DirectoryStore

    store = DirectoryStore(out)
    with resumable(_again()), job_lock(out), watching() as progress:
        whole, quilt = _cut(
            store,
            graph,
            columns=columns,
            features=features,
            labels=labels,
            directed=directed,
            largest=largest_component,
            partition=partition,
            patches=patches,
            dim=dim,
            degree=degree,
            overlap=overlap,
            edge_weight=edge_weight,
            seed=seed,
            progress=progress,
        )
        cut_patches(store, whole, quilt, progress)
    show({"job": str(out), **quilt.summary()}, as_json=json)


@app.command(epilog="Example: `graphquilt embed job --embedder dgi --dim 128 --shard $SLURM_ARRAY_TASK_ID/200`")
def embed(
    context: typer.Context,
    job: options.Job,
    *,
    embedder: Annotated[
        str | None, typer.Option("--embedder", "-e", help="svd, vgae, gae or dgi.  [default: the job's, or else svd]")
    ] = None,
    dim: Annotated[
        int | None, typer.Option("--dim", "-d", min=1, help="Dimensions.  [default: what the patches were made for]")
    ] = None,
    settings: options.Settings = None,
    recipe: options.Recipe = None,
    runs: options.Runs = None,
    rounds: options.Rounds = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Of everything that is random.  [default: the job's, or else 0]")
    ] = None,
    workers: options.Workers = None,
    dask: options.Dask = None,
    dask_resource: options.Resources = None,
    shard: Annotated[
        str | None, typer.Option("--shard", metavar="I/N", help="Embed only share I of N, from 1 to N.")
    ] = None,
    retries: Annotated[int, typer.Option("--retries", min=0, help="How often a failing patch is tried again.")] = 1,
    json: options.Json = False,
    config_file: config.Config = None,  # noqa: ARG001  (its callback has done the work)
    save_config: config.SaveConfig = None,
) -> None:
    """Embed the patches of a job, here or on a cluster. Run it again, without flags, to do what is missing."""
    if save_config is not None:
        config.save(context, save_config)
        return
    from graphquilt.cli import choices
    from graphquilt.pipeline import embed_in_rounds, without_copies
    from graphquilt.records import kept_patch_graph
    from graphquilt.stages import job_graph
    from graphquilt.store import DirectoryStore

    store = DirectoryStore(job)
    quilt = kept_patch_graph(store)
    begun = store["embed"].parameters if "embed" in store else None
    how = choices.recipe(recipe, runs, rounds, store)
    if embedder is None and begun is not None:
        model = choices.kept_embedder(store, dim, settings, None if recipe is None else how)
    else:
        model = choices.embedder(embedder or "svd", dim or choices.made_for(store), settings, how)
    if seed is None:
        seed = 0 if begun is None else begun["seed"]
    how = without_copies(how, model)
    quilt.check_dim(model.dim)
    total = how.runs * quilt.n_patches
    only = choices.share(shard, total)
    with resumable(_again()), watching() as progress:
        n = total if only is None else len(only)
        graph = job_graph(store)
        with choices.hands(workers, dask, dask_resource, max(n, 1)) as pool:
            embed_in_rounds(
                graph,
                quilt,
                model,
                recipe=how,
                seed=seed,
                executor=pool,
                store=store,
                progress=progress,
                retries=retries,
                only=only,
            )
    show({"job": str(job), "embedded": n, "patches": total, "rounds": how.rounds}, as_json=json)


@app.command(epilog="Example: `graphquilt align job --robust`")
def align(
    context: typer.Context,
    job: options.Job,
    *,
    scale: Annotated[
        bool | None, typer.Option("--scale/--no-scale", help="Undo scales.  [default: as the embedder needs]")
    ] = None,
    rotate: Annotated[
        bool | None, typer.Option("--rotate/--no-rotate", help="Undo rotations.  [default: as the embedder needs]")
    ] = None,
    translate: Annotated[
        bool | None, typer.Option("--translate/--no-translate", help="Undo shifts.  [default: as the embedder needs]")
    ] = None,
    robust: options.Robust = False,
    branching: Annotated[
        int | None, typer.Option("--branching", min=2, help="Align level by level, so many patches at a time.")
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option("--coverage", min=0, help="Power of coverage as weight.  [default: the recipe's]"),
    ] = None,
    refine: Annotated[
        int | None, typer.Option("--refine", min=0, help="Sweeps of Procrustes analysis.  [default: the recipe's]")
    ] = None,
    workers: options.Workers = 1,
    dask: options.Dask = None,
    json: options.Json = False,
    config_file: config.Config = None,  # noqa: ARG001  (its callback has done the work)
    save_config: config.SaveConfig = None,
) -> None:
    """Align the embedded patches of a job and average them into one embedding."""
    if save_config is not None:
        config.save(context, save_config)
        return
    from graphquilt.cli import choices
    from graphquilt.locking import job_lock
    from graphquilt.stages import align_job
    from graphquilt.store import DirectoryStore

    store = DirectoryStore(job)
    with resumable(_again()), job_lock(job), watching() as progress, choices.hands(workers, dask, None, 2) as pool:
        alignment = align_job(
            store,
            scale=scale,
            rotate=rotate,
            translate=translate,
            robust=robust,
            branching=branching,
            coverage=coverage,
            sweeps=refine,
            executor=pool,
            progress=progress,
        )
    show({"job": str(job), **_alignment(alignment), "embedding": str(job / "embedding.npy")}, as_json=json)
