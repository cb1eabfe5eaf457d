"""The command that measures an embedding: evaluate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from graphquilt.cli import app
from graphquilt.cli.display import show, watching
from graphquilt.cli.values import POSITIVE, Output
from graphquilt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphquilt.arrays import AnyArray, Int64Array
    from graphquilt.evaluate import EvaluationOptions, Grid, GridResult
    from graphquilt.jobs import Job

Number = TypeVar("Number", int, float)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MeasuringFlags:
    """How an embedding is measured."""

    max_edges: int | None = None
    """Look at this many edges at most. [default: all]"""
    splits: int = 50
    """Random splits for the classification."""
    paper_classifier: bool = False
    """Classify as the paper does, by Adam; that accuracy depends on the axes."""
    seed: int = 0
    """Seed of all random choices."""

    def options(self, *, classify: bool) -> EvaluationOptions:
        """Return the options of the library; without ``classify`` only links are measured."""
        from graphquilt.evaluate import AdamLogistic, EvaluationOptions, InvariantLogistic

        classifier = (AdamLogistic() if self.paper_classifier else InvariantLogistic()) if classify else None
        return EvaluationOptions(seed=self.seed, splits=self.splits, max_edges=self.max_edges, classifier=classifier)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GridFlags:
    """The perceptrons that are trained; the defaults are the 108 of the paper."""

    hidden: str = "128,256,512,1024"
    """Widths of hidden layers of perceptrons, with commas."""
    layers: str = "2,3,4"
    """Numbers of layers of perceptrons, with commas."""
    dropout: str = "0,0.25,0.5"
    """Shares of dropout of perceptrons, with commas."""
    learning_rate: str = "0.01,0.001,0.0001"
    """Learning rates of perceptrons, with commas."""
    batch_size: Annotated[int, Parameter(validator=POSITIVE)] = 100_000
    """Rows that a perceptron reads at a time."""
    max_epochs: Annotated[int, Parameter(validator=POSITIVE)] = 1000
    """The most epochs of a perceptron."""
    patience: Annotated[int, Parameter(validator=POSITIVE)] = 20
    """Epochs without a lower validation loss after which a perceptron is trained no longer."""

    def grid(self) -> Grid:
        """Return the grid of the library."""
        from graphquilt.evaluate import Grid

        return Grid(
            _numbers(self.hidden, int, "--hidden"),
            _numbers(self.layers, int, "--layers"),
            _numbers(self.dropout, float, "--dropout"),
            _numbers(self.learning_rate, float, "--learning-rate"),
            self.batch_size,
            self.max_epochs,
            self.patience,
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SplitFlags:
    """What perceptrons are trained and tested on."""

    mlp: Annotated[bool, Parameter(negative="")] = False
    """Classify by the paper's grid of perceptrons for large data, with --split or --years."""
    split: Path | None = None
    """Nodes for training, validation and tests: an .npz file, a folder of .npy or text files, or a .pt file."""
    years: Path | None = None
    """A year for each node (.npy), to split the labelled nodes by."""
    until: str = "2018,2019"
    """The last year of training and the last of validation; later ones are for tests."""

    def parts(self, labels: AnyArray, ids: AnyArray | None = None) -> dict[str, Int64Array]:
        """Return the nodes of each part of the split, by their ``ids`` where these are whole numbers."""
        from graphquilt.evaluate import read_split, split_by_years
        from graphquilt.jobs.source import read_array

        if (self.split is None) == (self.years is None):
            raise InputError("--mlp needs to know what to train on: give either --split or --years.")
        if self.split is not None:
            return read_split(self.split)
        until = _numbers(self.until, int, "--until")
        years = read_array(self.years, "years")
        if len(until) != 2 or years is None:
            raise InputError(f"--until is two years with a comma, as 2018,2019, not '{self.until}'.")
        if ids is None or ids.dtype.kind not in "iu":
            return split_by_years(years, labels, (until[0], until[1]))
        known = years[ids] if len(years) > int(ids.max()) else years  # years of the graph before it was cut
        return {name: ids[rows] for name, rows in split_by_years(known, labels, (until[0], until[1])).items()}


def _numbers(text: str, kind: Callable[[str], Number], flag: str) -> tuple[Number, ...]:
    try:
        numbers = tuple(kind(word) for word in text.split(",") if word.strip())
    except ValueError:
        numbers = ()
    if not numbers:
        raise InputError(f"{flag} is numbers with commas between them, not '{text}'.")
    return numbers


@app.command(help_epilogue="Example: graphquilt evaluate job --labels labels.csv")
def evaluate(
    job: Annotated[Path, Parameter(help="The folder of the job; with --mlp also an embedding (.npy).")],
    *,
    labels: Annotated[
        Path | None,
        Parameter(help="Classes: a file with an id and a label in each row (CSV, TSV, Parquet), or an array (.npy)."),
    ] = None,
    diagnose: Annotated[bool, Parameter(help="Measure what each step loses, and what one encoder would give.")] = False,
    compare: Annotated[
        bool, Parameter(help="Measure the patches without alignment too, and the embedding of --full.")
    ] = False,
    full: Annotated[Path | None, Parameter(help="An embedding of the whole graph (.npy) to compare with.")] = None,
    measuring: MeasuringFlags = MeasuringFlags(),
    split: SplitFlags = SplitFlags(),
    grid: GridFlags = GridFlags(),
    output: Output = Output(),
) -> None:
    """Measure how well an embedding separates edges from non-edges, and classes from each other."""
    from graphquilt.graph.reading.node_tables import read_classes
    from graphquilt.jobs import Job, compare_job, evaluate_job
    from graphquilt.jobs.export import job_ids
    from graphquilt.jobs.source import read_array

    if job.suffix == ".npy":
        classes = read_array(labels, "labels")
        show({"embedding": str(job), **_of_file(job, classes, split, grid, measuring.seed)}, as_json=output.json)
        return
    opened, whole = Job.open(job), read_array(full, "an embedding")
    classes = None if labels is None else read_classes(labels, job_ids(opened, opened.n_nodes))
    options = measuring.options(classify=not split.mlp)
    # Before the long work: what is wrong with the split is said first.
    perceptrons = _of_job(opened, classes, split, grid, measuring.seed) if split.mlp else {}
    evaluation = evaluate_job(opened, labels=classes, full=whole, diagnosis=diagnose, options=options)
    figures = {name: value for name, value in asdict(evaluation.quality).items() if value is not None} | perceptrons
    if evaluation.diagnosis is not None:
        figures["diagnosis"] = str(evaluation.diagnosis).splitlines()
        if output.json:  # the sentences hold these figures too
            figures |= {"losses": evaluation.diagnosis.losses, "unit": evaluation.diagnosis.measure}
            if evaluation.diagnosis.shared is not None:
                figures["shared"] = asdict(evaluation.diagnosis.shared)
    if compare:
        graph = None if classes is None or opened.graph is None else opened.graph.with_attributes(labels=classes)
        figures["routes"] = {
            route: {name: value for name, value in asdict(measured).items() if value is not None}
            for route, measured in compare_job(opened, graph=graph, full=whole, options=options).items()
        }
    show({"job": str(job), **figures}, as_json=output.json)


def _of_job(job: Job, classes: AnyArray | None, split: SplitFlags, grid: GridFlags, seed: int) -> dict[str, Any]:
    """Train the grid of perceptrons on the embedding of a job."""
    from graphquilt.jobs import classify_job

    if classes is None:
        classes = None if job.graph is None else job.graph.labels
    if classes is None:
        raise InputError(f"{job.name} has no labels to train perceptrons on; give them with --labels.")
    parts = split.parts(classes, None if job.graph is None else job.graph.node_ids)
    with watching() as progress:
        return _figures(classify_job(job, parts, labels=classes, grid=grid.grid(), seed=seed, progress=progress))


def _of_file(path: Path, classes: AnyArray | None, split: SplitFlags, grid: GridFlags, seed: int) -> dict[str, Any]:
    """Train the grid of perceptrons on an embedding in a file."""
    from graphquilt.evaluate import fixed_split, mlp_grid
    from graphquilt.jobs.source import read_array

    X = read_array(path, "an embedding")
    if X is None or not split.mlp or classes is None:
        raise InputError(f"{path} is an embedding without a graph: give --mlp and --labels to classify its nodes.")
    parts = fixed_split(split.parts(classes), classes, seed=seed)
    with watching() as progress:
        return _figures(mlp_grid(X, classes, parts, seed=seed, grid=grid.grid(), progress=progress))


def _figures(result: GridResult) -> dict[str, Any]:
    return {"accuracy": result.accuracy, "perceptron": asdict(result.best), "perceptrons": len(result.trials)}
