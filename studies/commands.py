"""The command line of the studies: ``python -m studies --help`` lists them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from graphquilt.cli import new_app
from graphquilt.cli.display import show, watching
from graphquilt.cli.flags import (
    POSITIVE,
    CuttingFlags,
    EmbedderFlags,
    Output,
    RecipeFlags,
    SourceFlags,
    StitchingFlags,
    Workers,
    job_settings,
)
from graphquilt.cli.graphs import DataFolder, memory_bytes
from studies.classifying import GridFlags, SplitFlags, classify_file, classify_job, numbers, words

if TYPE_CHECKING:
    from graphquilt.progress import Progress
    from studies.cells import Cell, Row

Flags = TypeVar("Flags", CuttingFlags, EmbedderFlags, RecipeFlags, StitchingFlags)

app = new_app("python -m studies", "Repeat a study of the paper.")

OutFolder = Annotated[
    Path, Parameter(name=["--out", "-o"], help="Where results are kept; a killed study resumes from there.")
]
Names = Annotated[str, Parameter(help="Names of data sets, with commas.")]
Models = Annotated[str, Parameter(help="vgae, dgi or both, with a comma.")]
Dims = Annotated[str, Parameter(help="Dimensions, with commas.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StudyFlags:
    """What all studies share."""

    splits: int = 50
    """Random splits of the classification."""
    seed: int = 0
    """Seed of all random choices."""
    data: DataFolder = None


def _report(event: Progress) -> None:
    print(f"{event.stage}: {event.done} of {event.total}", file=sys.stderr)


def _run(cells: Sequence[Cell], out: Path, workers: Workers) -> None:
    """Compute the cells of a study that are not finished in its folder."""
    from studies.cells import run_cells

    with workers.executor(len(cells)) as pool:
        run_cells(cells, out, executor=pool, progress=_report)


def _show(rows: list[Row], tables: Callable[[list[Row]], str], output: Output) -> None:
    print(json.dumps(rows) if output.json else tables(rows))


@app.command
def small(
    *,
    out: OutFolder = Path("small-scale"),
    datasets: Names = "cora,amazon-photo,pubmed",
    models: Models = "vgae,dgi",
    dims: Dims = "2,4,8,16,32,64,128",
    runs: Annotated[int, Parameter(help="Trainings, of which the best is kept.")] = 10,
    maps: Annotated[bool, Parameter(help="Draw UMAP pictures of the largest dimension.")] = True,
    study: StudyFlags = StudyFlags(),
    workers: Workers = Workers(workers=1),
    output: Output = Output(),
) -> None:
    """Train in full and in patches, align, and measure AUC and accuracy against the dimension."""
    from studies.small_scale import small_cells
    from studies.small_scale_report import tables, write_report

    cells = small_cells(
        words(datasets),
        words(models),
        numbers(dims, int, "--dims"),
        runs,
        seed=study.seed,
        splits=study.splits,
        data=study.data,
    )
    _run(cells, out, workers)
    _show(write_report(out, data=study.data, maps=maps), tables, output)


@app.command
def quality(
    *,
    out: OutFolder = Path("quality"),
    sets: Annotated[str, Parameter(help="Names of data sets, with commas; by default all eleven.")] = "",
    only: Annotated[str, Parameter(help="Parts, with commas: stitched, signals, chosen, flickr, tenths.")] = "",
    data: DataFolder = None,
    workers: Workers = Workers(workers=1),
    output: Output = Output(),
) -> None:
    """Measure what stitching loses against one patch, and the default signal against others."""
    from studies.npz_graphs import NAMES
    from studies.quality import PARTS, quality_cells
    from studies.quality_report import quality_page, write_quality

    cells = quality_cells(words(sets) or list(NAMES), words(only) or PARTS, data=data)
    _run(cells, out, workers)
    _show(write_quality(out), quality_page, output)


@app.command
def links(
    *,
    out: OutFolder = Path("links"),
    sets: Annotated[str, Parameter(help="Names of data sets, with commas; by default all thirteen.")] = "",
    data: DataFolder = None,
    workers: Workers = Workers(workers=1),
    output: Output = Output(),
) -> None:
    """Predict next and new links of snapshots, and held-out links of static graphs; check the probabilities."""
    from studies.links import link_cells
    from studies.links_report import links_page, write_links

    _run(link_cells(words(sets), data=data), out, workers)
    _show(write_links(out), links_page, output)


@app.command
def update(
    *,
    out: OutFolder = Path("update"),
    sets: Annotated[str, Parameter(help="Names of data sets, with commas; by default all three.")] = "",
    data: DataFolder = None,
    workers: Workers = Workers(workers=1),
    output: Output = Output(),
) -> None:
    """Update jobs of graphs that have changed, and compare them with jobs made afresh."""
    from studies.update import update_cells, update_page, write_update

    _run(update_cells(words(sets), data=data), out, workers)
    _show(write_update(out), update_page, output)


@app.command
def ablation(
    *,
    out: OutFolder = Path("ablation"),
    datasets: Names = "cora,amazon-photo",
    dim: Annotated[int, Parameter(help="Dimensions of the embedding.")] = 32,
    runs: Annotated[int, Parameter(help="Trainings, which are averaged.")] = 3,
    study: StudyFlags = StudyFlags(),
    workers: Workers = Workers(workers=1),
    output: Output = Output(),
) -> None:
    """Change how the graph is cut, one choice at a time, and measure what that does."""
    from studies.ablation import ablation_cells, ablation_table, write_ablation

    cells = ablation_cells(words(datasets), runs, dim=dim, seed=study.seed, splits=study.splits, data=study.data)
    _run(cells, out, workers)
    _show(write_ablation(out), ablation_table, output)


@app.command
def federated(
    *,
    out: OutFolder = Path("federated"),
    datasets: Names = "cora,citeseer,pubmed,coauthor-cs,wordnet,debian-bookworm",
    parties: Annotated[str, Parameter(help="Numbers of parties, with commas.")] = "3,10",
    dims: Annotated[str, Parameter(help="Dimensions of the embedding, with commas.")] = "16,64",
    cuts: Annotated[int, Parameter(help="Number of cuts among parties.", validator=POSITIVE)] = 3,
    study: StudyFlags = StudyFlags(splits=10),
    workers: Workers = Workers(workers=1),
    output: Output = Output(),
) -> None:
    """Cut a graph among parties: each alone, sums over all, and one graph; guards, garbage, links and time."""
    from studies.federated import federated_cells
    from studies.federated_report import federated_tables, write_federated

    cells = federated_cells(
        words(datasets),
        numbers(parties, int, "--parties"),
        cuts=cuts,
        dims=numbers(dims, int, "--dims"),
        splits=study.splits,
        data=study.data,
    )
    _run(cells, out, workers)
    _show(write_federated(out), federated_tables, output)


@app.command
def classify(
    path: Annotated[Path, Parameter(help="The folder of a job, or an embedding (.npy) together with --labels.")],
    *,
    labels: Annotated[
        Path | None,
        Parameter(help="Classes: a file with an id and a label in each row (CSV, TSV, Parquet), or an array (.npy)."),
    ] = None,
    splits: Annotated[int, Parameter(help="Random splits, without --split and --years.")] = 50,
    seed: Annotated[int, Parameter(help="Seed of all random choices.")] = 0,
    split: SplitFlags = SplitFlags(),
    grid: GridFlags = GridFlags(),
    output: Output = Output(),
) -> None:
    """Classify nodes as the paper does: by Adam over random splits, or by a grid of perceptrons with a given split."""
    figures = (classify_file if path.suffix == ".npy" else classify_job)(path, labels, (splits, seed), split, grid)
    show({"path": str(path), **figures}, as_json=output.json)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LargeFlags:
    """What the large-scale study reads and measures."""

    mag240m: Path
    """The folder of OGB-LSC MAG240M."""
    memory: str = "1G"
    """Memory in which the graph is built, as 4G."""
    max_edges: Annotated[int, Parameter(validator=POSITIVE)] = 1_000_000
    """Edges that the AUC is computed from."""
    map_nodes: int = 500_000
    """The most labelled papers on the map; 0 draws none."""


@app.command
def large(
    *,
    large: LargeFlags,
    out: OutFolder = Path("large-scale"),
    cutting: CuttingFlags = CuttingFlags(),
    embedder: EmbedderFlags = EmbedderFlags(),
    recipe: RecipeFlags = RecipeFlags(),
    stitching: StitchingFlags = StitchingFlags(),
    grid: GridFlags = GridFlags(),
    workers: Workers = Workers(workers=1),
    output: Output = Output(),
) -> None:
    """Repeat the paper's study of MAG240M from its files: cut, embed, align, and measure against patches as they are.

    Without flags this is the protocol of the paper: 10 000 patches by Fennel in two passes, conductance, degree 20,
    overlap 512:2048, VGAE in 128 dimensions, patches trained apart. With --recipe shared it is that of graphquilt: its
    own cut, and Propagation in 64 dimensions. Rerun the command to resume.
    """
    from studies.large import LargeStudy, reproduce_large
    from studies.large_report import large_table

    protocol: dict[str, object] = {"patches": 10_000, "seed": 0}
    model: dict[str, object] = {"embedder": "propagation", "dim": 64}
    if recipe.recipe != "shared":
        model = {"embedder": "vgae", "dim": 128}
        protocol |= {"partition": "fennel", "degree": 20.0, "overlap": "512:2048", "edge_weight": "conductance"}
    settings = job_settings(
        {},
        edges=(out / "graph", SourceFlags()),
        cutting=_filled(cutting, protocol),
        embedder=_filled(embedder, model),
        recipe=_filled(recipe, {"recipe": "paper"}),
        stitching=_filled(stitching, {"precision": "float32"}),
    )
    study = LargeStudy(
        source=large.mag240m,
        out=out,
        settings=settings,
        grid=grid.grid(),
        max_edges=large.max_edges,
        map_nodes=large.map_nodes,
        memory=memory_bytes(large.memory),
    )

    def pool(n_tasks: int) -> AbstractContextManager[Executor | None]:
        return workers.executor(n_tasks, settings.embedders)

    with watching() as progress:
        rows = reproduce_large(study, workers=pool, progress=progress)
    print(json.dumps(rows) if output.json else f"{large_table(rows)}\n{out / 'large.md'}")


def _filled(flags: Flags, defaults: Mapping[str, Any]) -> Flags:
    """Return flags with the values of the protocol where none is given."""
    return replace(flags, **{name: v for name, v in defaults.items() if getattr(flags, name) is None})


@app.command
def direction(
    *,
    sets: Names = "debian,wordnet,higgs",
    dim: Annotated[int, Parameter(help="Dimensions, half of them for targets.")] = 128,
    patches: Annotated[int, Parameter(validator=POSITIVE, help="Number of patches.")] = 10,
    features: Annotated[bool, Parameter(help="Use the features of the nodes, where there are any.")] = False,
    data: DataFolder = None,
) -> None:
    """Rank held-out links of directed graphs by Propagation with and without direction; one line of JSON each."""
    from graphquilt.datasets.loading import dataset_folder
    from studies.direction import measure

    for name in words(sets):
        for row in measure(dataset_folder(data), name, features=features, dim=dim, patches=patches):
            print(json.dumps(row), flush=True)


@app.command
def convert(name: str, *, data: DataFolder = None, output: Output = Output()) -> None:
    """Turn the pickles of a data set, or its cache of PyG, into NAME.npz; those of planetoid are downloaded."""
    from studies.raw_datasets import convert_dataset

    path = str(convert_dataset(name, data=data))
    print(json.dumps(path) if output.json else path)
