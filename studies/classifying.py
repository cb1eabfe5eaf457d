"""Flags and work of ``python -m studies classify``: the paper's classifiers on a job or on an embedding in a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from graphquilt.cli.display import watching
from graphquilt.cli.flags import POSITIVE
from graphquilt.errors import InputError

if TYPE_CHECKING:
    from graphquilt.arrays import AnyArray, Int64Array
    from studies.perceptrons import Grid, GridResult

__all__ = ["GridFlags", "SplitFlags", "classify_file", "classify_job", "numbers", "words"]

Number = TypeVar("Number", int, float)


def words(text: str) -> list[str]:
    """Return the words of a list that is separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str, kind: Callable[[str], Number], flag: str) -> tuple[Number, ...]:
    """Return the numbers of a list that is separated by commas."""
    try:
        numbers = tuple(kind(word) for word in words(text))
    except ValueError:
        numbers = ()
    if not numbers:
        raise InputError(f"{flag} takes numbers separated by commas, not '{text}'.")
    return numbers


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GridFlags:
    """The perceptrons that are trained; the defaults are the 108 of the paper."""

    hidden: str = "128,256,512,1024"
    """Widths of the hidden layers, separated by commas."""
    layers: str = "2,3,4"
    """Numbers of layers, separated by commas."""
    dropout: str = "0,0.25,0.5"
    """Dropout rates, separated by commas."""
    learning_rate: str = "0.01,0.001,0.0001"
    """Learning rates, separated by commas."""
    batch_size: Annotated[int, Parameter(validator=POSITIVE)] = 100_000
    """Rows per batch."""
    max_epochs: Annotated[int, Parameter(validator=POSITIVE)] = 1000
    """Maximum number of epochs."""
    patience: Annotated[int, Parameter(validator=POSITIVE)] = 20
    """Stop after this many epochs without a lower validation loss."""

    def grid(self) -> Grid:
        """Return the grid."""
        from studies.perceptrons import Grid

        return Grid(
            numbers(self.hidden, int, "--hidden"),
            numbers(self.layers, int, "--layers"),
            numbers(self.dropout, float, "--dropout"),
            numbers(self.learning_rate, float, "--learning-rate"),
            self.batch_size,
            self.max_epochs,
            self.patience,
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SplitFlags:
    """What the perceptrons are trained and tested on."""

    split: Path | None = None
    """Nodes for training, validation and tests: an .npz file, a folder of .npy or text files, or a .pt file."""
    years: Path | None = None
    """A year for each node (.npy), to split the labelled nodes by."""
    until: str = "2018,2019"
    """The last year of training and the last of validation; later ones are for tests."""

    @property
    def is_given(self) -> bool:
        """Whether there is a split to train the grid on."""
        return self.split is not None or self.years is not None

    def parts(self, labels: AnyArray, ids: AnyArray | None = None) -> dict[str, Int64Array]:
        """Return the nodes of each part of the split, by their ``ids`` if these are integers."""
        from graphquilt.jobs.source import read_array
        from studies.fixed_splits import read_split, split_by_years

        if self.split is not None and self.years is not None:
            raise InputError("give either --split or --years, not both.")
        if self.split is not None:
            return read_split(self.split)
        until = numbers(self.until, int, "--until")
        years = read_array(self.years, "years")
        if len(until) != 2 or years is None:
            raise InputError(f"--until takes two years separated by a comma, such as 2018,2019, not '{self.until}'.")
        if ids is None or ids.dtype.kind not in "iu":
            return split_by_years(years, labels, (until[0], until[1]))
        known = years[ids] if len(years) > int(ids.max()) else years  # years of the graph before it was cut
        return {name: ids[rows] for name, rows in split_by_years(known, labels, (until[0], until[1])).items()}


def classify_job(
    path: Path, labels: Path | None, random: tuple[int, int], split: SplitFlags, grid: GridFlags
) -> dict[str, object]:
    """Classify the nodes of a job by their embedding, and record the accuracy; ``random`` has splits and seed."""
    from graphquilt.evaluate import EvaluationOptions
    from graphquilt.graph.reading.node_tables import read_classes
    from graphquilt.jobs import Job, evaluate_job
    from graphquilt.jobs.export import job_ids
    from studies import perceptrons
    from studies.adam import AdamLogistic

    job, (splits, seed) = Job.open(path), random
    classes = None if labels is None else read_classes(labels, job_ids(job, job.n_nodes))
    trained: dict[str, object] = {}
    if split.is_given:  # before the long work: errors in the split come first
        known = job.graph.labels if classes is None and job.graph is not None else classes
        if known is None:
            raise InputError(f"{job.name} has no labels to train perceptrons on; give them with --labels.")
        parts = split.parts(known, None if job.graph is None else job.graph.node_ids)
        with watching() as progress:
            result = perceptrons.classify_job(job, parts, labels=known, grid=grid.grid(), seed=seed, progress=progress)
            trained = _figures(result)
    options = EvaluationOptions(seed=seed, splits=splits, classifier=None if split.is_given else AdamLogistic())
    measured = asdict(evaluate_job(job, labels=classes, options=options).quality)
    return {name: value for name, value in measured.items() if value is not None} | trained


def classify_file(
    path: Path, labels: Path | None, random: tuple[int, int], split: SplitFlags, grid: GridFlags
) -> dict[str, object]:
    """Classify the rows of an embedding in a file; ``random`` has splits and seed."""
    from graphquilt.evaluate import classification_accuracy
    from graphquilt.jobs.source import read_array
    from studies.adam import AdamLogistic
    from studies.fixed_splits import fixed_split
    from studies.perceptrons import mlp_grid

    X, classes = read_array(path, "an embedding"), read_array(labels, "labels")
    if X is None or classes is None:
        raise InputError(f"{path} is an embedding without labels: give them with --labels.")
    splits, seed = random
    if not split.is_given:
        accuracy = classification_accuracy(
            X, classes, splits=splits, seed=seed, classifier=AdamLogistic(), skip_small=True
        )
        return {"accuracy": float(accuracy.mean()), "accuracy_std": float(accuracy.std())}
    parts = fixed_split(split.parts(classes), classes, seed=seed)
    with watching() as progress:
        return _figures(mlp_grid(X, classes, parts, seed=seed, grid=grid.grid(), progress=progress))


def _figures(result: GridResult) -> dict[str, object]:
    return {"accuracy": result.accuracy, "perceptron": asdict(result.best), "perceptrons": len(result.trials)}
