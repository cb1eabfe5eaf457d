"""Commands that repeat the paper's studies, and those about data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphquilt.cli import app

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from graphquilt.progress import Progress

reproduce = typer.Typer(no_args_is_help=True, help="Repeat a study of the paper.")
datasets = typer.Typer(no_args_is_help=True, help="Which data sets are there, and fetching them.")
app.add_typer(reproduce, name="reproduce")
app.add_typer(datasets, name="datasets")

DataOption = Annotated[Path | None, typer.Option("--data", envvar="GRAPHQUILT_DATA", help="The folder with data sets.")]
OutOption = Annotated[Path, typer.Option("--out", help="Where results are kept; a killed study goes on from there.")]
WorkersOption = Annotated[int, typer.Option("--workers", min=0, help="Worker processes; 0 computes in this one.")]
DaskOption = Annotated[str | None, typer.Option("--dask", help="Address of a Dask scheduler, in place of workers.")]
SplitsOption = Annotated[int, typer.Option("--splits", min=1, help="Random splits of the classification.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Of everything random.")]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _say(event: Progress) -> None:
    typer.echo(f"{event.stage}: {event.done} of {event.total}", err=True)


def _numbers(text: str) -> list[int]:
    from graphquilt.errors import InputError

    try:
        return [int(word) for word in _words(text)]
    except ValueError:
        raise InputError(f"dimensions are whole numbers with commas between them; this is '{text}'.") from None


def _executor(workers: int, dask: str | None) -> AbstractContextManager[Executor | None]:
    """Open what computes the cells, and close it."""
    from graphquilt.cli.choices import hands

    return hands(workers, dask)


@reproduce.command("small")
def small(
    *,
    out: OutOption = Path("small-scale"),
    sets: Annotated[str, typer.Option("--datasets", help="Names, with commas.")] = "cora,amazon-photo,pubmed",
    models: Annotated[str, typer.Option("--models", help="vgae, dgi or both.")] = "vgae,dgi",
    dims: Annotated[str, typer.Option("--dims", help="Dimensions, with commas.")] = "2,4,8,16,32,64,128",
    runs: Annotated[int, typer.Option("--runs", min=1, help="Trainings, of which the best is kept.")] = 10,
    splits: SplitsOption = 50,
    seed: SeedOption = 0,
    data: DataOption = None,
    workers: WorkersOption = 0,
    dask: DaskOption = None,
    maps: Annotated[bool, typer.Option("--maps/--no-maps", help="Draw UMAP pictures of the largest dimension.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Train in full and in patches, align, and measure: AUC and accuracy against the dimension."""
    from graphquilt.studies.small_scale import reproduce_small, small_cells
    from graphquilt.studies.small_scale_report import tables

    cells = small_cells(
        _words(sets),
        _words(models),
        _numbers(dims),
        runs,
        seed=seed,
        splits=splits,
        data=None if data is None else str(data),
    )
    with _executor(workers, dask) as pool:
        rows = reproduce_small(cells, out, executor=pool, progress=_say, maps=maps)
    typer.echo(json.dumps(rows) if as_json else tables(rows))


@reproduce.command("quality")
def quality(
    *,
    out: OutOption = Path("quality"),
    sets: Annotated[
        str, typer.Option("--datasets", help="Names, with commas.")
    ] = "cora,citeseer,amazon-photo,pubmed,coauthor-cs",
    models: Annotated[str, typer.Option("--models", help="vgae, dgi or both.")] = "vgae,dgi",
    dims: Annotated[str, typer.Option("--dims", help="Dimensions, with commas.")] = "8,32,128",
    columns: Annotated[str, typer.Option("--columns", help="Ways to an embedding, with semicolons; all of them.")] = "",
    repetitions: Annotated[int, typer.Option("--repetitions", min=1, max=3, help="With other seeds.")] = 3,
    links: Annotated[bool, typer.Option("--links", help="Hold out a tenth of the edges and predict them.")] = False,
    splits: SplitsOption = 50,
    seed: SeedOption = 0,
    data: DataOption = None,
    workers: WorkersOption = 0,
    dask: DaskOption = None,
) -> None:
    """Measure what closes the gap to full training: aligned runs, regularised training, coverage, consensus."""
    from graphquilt.studies.quality import COLUMNS, quality_cells, reproduce_quality

    cells = quality_cells(
        _words(sets),
        _words(models),
        _numbers(dims),
        [word.strip() for word in columns.split(";") if word.strip()] or list(COLUMNS),
        repetitions=repetitions,
        links=links,
        seed=seed,
        splits=splits,
        data=None if data is None else str(data),
    )
    with _executor(workers, dask) as pool:
        typer.echo(reproduce_quality(cells, out, executor=pool, progress=_say))


@reproduce.command("ablation")
def ablation(
    *,
    out: OutOption = Path("ablation"),
    sets: Annotated[str, typer.Option("--datasets", help="Names, with commas.")] = "cora,amazon-photo",
    dim: Annotated[int, typer.Option("--dim", min=1, help="Dimension of the embedding.")] = 32,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Trainings, averaged.")] = 3,
    splits: SplitsOption = 50,
    seed: SeedOption = 0,
    data: DataOption = None,
    workers: WorkersOption = 0,
    dask: DaskOption = None,
) -> None:
    """Change how the graph is cut, one choice at a time, and see what it does."""
    from graphquilt.studies.ablation import ablation_cells, reproduce_ablation

    where = None if data is None else str(data)
    cells = ablation_cells(_words(sets), runs, dim=dim, seed=seed, splits=splits, data=where)
    with _executor(workers, dask) as pool:
        typer.echo(reproduce_ablation(cells, out, executor=pool, progress=_say))


@datasets.command("list")
def list_datasets(
    data: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which data sets have a name here, and which are in the folder."""
    from graphquilt.datasets import dataset_files, dataset_names
    from graphquilt.errors import InputError

    found: dict[str, str | None] = {}
    for name in dataset_names():
        try:
            found[name] = "made on the spot" if name == "blocks" else dataset_files(name, data)[0]
        except InputError:
            found[name] = None
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, form in found.items():
        typer.echo(f"{name:14} {form or '–'}")


@datasets.command("show")
def show_dataset(name: str, data: DataOption = None) -> None:
    """Read a data set and print its counts."""
    from graphquilt.datasets import load_dataset

    graph = load_dataset(name, data=data)
    classes = 0 if graph.labels is None else len(set(graph.labels[graph.labels >= 0].tolist()))
    width = 0 if graph.features is None else graph.features.shape[1]
    typer.echo(
        f"{name}: {graph.n_nodes} nodes, {graph.n_edges} edges (both directions), {width} features, {classes} classes"
    )


@datasets.command("fetch")
def fetch(name: str, data: DataOption = None) -> None:
    """Download a data set into the folder, and check it."""
    from graphquilt.datasets import fetch_dataset

    for path in fetch_dataset(name, data=data, progress=_say):
        typer.echo(str(path))
