"""The paper's classifier for large data: a grid of perceptrons, trained on batches that are read when needed."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import FormatError, InputError, JobError, needs_extra
from graphquilt.evaluate import Split
from graphquilt.evaluate.positions import checked_labels
from graphquilt.files import translate_disk_errors, write_text
from graphquilt.files.checksums import read_sealed, sealed_text
from graphquilt.jobs import Job, record_evaluation
from graphquilt.jobs.store import store_folder
from graphquilt.progress import ProgressCallback, report
from studies.fixed_splits import fixed_split

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Grid", "GridResult", "Perceptron", "classify_job", "mlp_grid"]

_MEASURED = ("validation_loss", "validation_accuracy", "epochs")


@dataclass(frozen=True)
class Perceptron:
    """One point of the grid: width of the hidden layers, number of all layers, dropout, learning rate."""

    hidden: int
    layers: int
    dropout: float
    learning_rate: float


@dataclass(frozen=True)
class Grid:
    """The perceptrons to try, and how each is trained; the defaults are the 108 of the paper."""

    hidden: tuple[int, ...] = (128, 256, 512, 1024)
    layers: tuple[int, ...] = (2, 3, 4)
    dropout: tuple[float, ...] = (0.0, 0.25, 0.5)
    learning_rate: tuple[float, ...] = (0.01, 0.001, 0.0001)
    batch_size: int = 100_000
    max_epochs: int = 1000
    patience: int = 20

    def __iter__(self) -> Iterator[Perceptron]:
        for values in itertools.product(self.hidden, self.layers, self.dropout, self.learning_rate):
            yield Perceptron(*values)


@dataclass(frozen=True)
class GridResult:
    """The result of a grid.

    Attributes
    ----------
    best : Perceptron
        The perceptron with the lowest validation loss.
    accuracy : float
        Its accuracy on the test nodes, which decide nothing.
    trials : tuple of dict
        The settings, validation loss and accuracy, and epochs of each perceptron.
    """

    best: Perceptron
    accuracy: float
    trials: tuple[dict[str, float], ...]


def mlp_grid(
    X: AnyArray,
    y: npt.ArrayLike,
    split: Split,
    *,
    seed: int,
    grid: Grid | None = None,
    device: str = "cpu",
    keep: Path | None = None,
    progress: ProgressCallback | None = None,
) -> GridResult:
    """Train every perceptron of a grid with early stopping on the validation loss, and test the best.

    Parameters
    ----------
    X : array (n, d)
        Only the rows of one batch are read at a time; a memory map may be of any size.
    y : int array (n,)
        Classes; nodes with -1 are left out. Of a memory map only the nodes of the split are read.
    split : Split
        Nodes to train on, to decide when to stop, and to test on.
    seed : int
        Seed of all random choices: initial weights, dropout and the order of the batches.
    grid : Grid, optional
    device : str
        The device of torch, such as ``cuda``.
    keep : path, optional
        A JSON file for the perceptrons that are trained: a grid that was stopped resumes from it.
    progress : callable, optional

    """
    with needs_extra("mlp_grid", "torch"):
        import torch
    grid = grid or Grid()
    train, validation, test, n_classes = _labelled(X, y, split)
    data = _Data(X, grid.batch_size, device)
    identity = _identity(X, (train, validation, test), grid, seed) if keep is not None else ""
    finished = {} if keep is None else _finished(keep, identity)
    trials, best, lowest, settings = [], None, np.inf, list(grid)
    for number, setting in enumerate(settings):
        report(progress, "perceptrons", number, len(settings))
        trial = finished.get(setting)
        if trial is None or (trial["validation_loss"] < lowest and "test_accuracy" not in trial):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = _network(X.shape[1], n_classes, setting).to(device)
                trial = _train(model, data, (train, validation), rate=setting.learning_rate, grid=grid, seed=seed)
            if trial["validation_loss"] < lowest:
                trial["test_accuracy"] = data.score(model, test)[1]
            if keep is not None:
                finished[setting] = trial
                _keep_trials(keep, identity, finished)
        if trial["validation_loss"] < lowest:
            lowest, best = trial["validation_loss"], (setting, trial["test_accuracy"])
        trials.append({**vars(setting), **{name: trial[name] for name in _MEASURED}})
    report(progress, "perceptrons", len(settings), len(settings))
    if best is None:
        raise InputError(f"none of {len(settings)} perceptrons has a finite validation loss; lower the learning rates.")
    return GridResult(*best, tuple(trials))


def classify_job(
    job: Job,
    parts: Mapping[str, Int64Array],
    *,
    labels: AnyArray | None = None,
    grid: Grid | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> GridResult:
    """Train the grid on the embedding of a job, and record the result in the job; a job in a folder can be resumed.

    Parameters
    ----------
    job : Job
    parts : mapping of str to int array
        Nodes for ``train``, ``valid`` and perhaps ``test``, by their ids in the files of the graph if these are
        integers; see :func:`fixed_split`.
    labels : array (n,), optional
        A class for each node; by default those of the graph.
    grid : Grid, optional
    seed : int
    progress : callable, optional
    """
    X, graph = job.embedding, job.graph
    labels = graph.labels if labels is None and graph is not None else labels
    if labels is None:
        raise JobError(f"the graph of {job.name} has no labels; give them.")
    ids = None if graph is None else graph.node_ids
    if ids is not None and ids.dtype.kind in "iu":
        parts = {name: np.flatnonzero(np.isin(ids, nodes)) for name, nodes in parts.items()}
    split = fixed_split(parts, labels, seed=seed)
    folder = store_folder(job.store)
    keep = None if folder is None else folder / "perceptrons.grid"
    result = mlp_grid(X, labels, split, seed=seed, grid=grid, keep=keep, progress=progress)
    record_evaluation(job, {"mlp": {"accuracy": result.accuracy, "perceptron": asdict(result.best)}})
    return result


@dataclass(frozen=True, eq=False)
class _Rows:
    """Nodes and their classes, numbered 0..C-1."""

    nodes: Int64Array
    classes: Int64Array


def _labelled(X: AnyArray, y: npt.ArrayLike, split: Split) -> tuple[_Rows, _Rows, _Rows, int]:
    """Return the nodes of each part that have a class which is trained on, and the number of classes."""
    if X.ndim != 2 or X.dtype.kind not in "iuf":
        raise InputError(f"an embedding is a matrix with one row of numbers per node; this is {X.dtype} {X.shape}.")
    labels = y if isinstance(y, np.ndarray) else np.asarray(y)
    if labels.shape != (len(X),):
        checked_labels(labels[:0], len(X))
    parts = vars(split).items()
    of_part = {name: checked_labels(labels[nodes], len(nodes)) for name, nodes in parts}
    names = np.unique(of_part["train"][of_part["train"] >= 0])
    if len(names) < 2:
        raise InputError(f"the training nodes have {len(names)} class; a classifier needs at least two.")
    rows = []
    for name, nodes in parts:
        known = np.isin(of_part[name], names)
        if not known.any():
            raise InputError(f"no {name} node has a label of a class that is trained on.")
        rows.append(_Rows(nodes[known], np.searchsorted(names, of_part[name][known])))
    return rows[0], rows[1], rows[2], len(names)


def _identity(X: AnyArray, parts: Sequence[_Rows], grid: Grid, seed: int) -> str:
    """Return a digest of what a trial depends on beside its perceptron; of the embedding, the validation rows count."""
    digest = hashlib.sha256(
        repr((X.shape, X.dtype.str, seed, grid.batch_size, grid.max_epochs, grid.patience)).encode()
    )
    for rows in parts:
        digest.update(rows.nodes.tobytes() + rows.classes.tobytes())
    for first in range(0, len(parts[1].nodes), 10_000):
        digest.update(np.ascontiguousarray(X[np.sort(parts[1].nodes[first : first + 10_000])]).tobytes())
    return digest.hexdigest()


def _finished(path: Path, identity: str) -> dict[Perceptron, dict[str, float]]:
    """Return the trials in a file; none where it is not there, is damaged, or has those of something else."""
    try:
        content, whole = read_sealed(path)
        if not whole or content.get("of") != identity or not isinstance(content.get("trials"), list):
            return {}
        trials: dict[Perceptron, dict[str, float]] = {}
        for entry in content["trials"]:  # type: ignore[attr-defined]
            setting, trial = Perceptron(**entry["perceptron"]), entry["trial"]
            if not all(isinstance(trial[name], int | float) for name in (*_MEASURED, *set(trial) & {"test_accuracy"})):
                return {}
            trials[setting] = trial
    except (FormatError, OSError, TypeError, KeyError):
        return {}
    return trials


def _keep_trials(path: Path, identity: str, trials: dict[Perceptron, dict[str, float]]) -> None:
    entries = [{"perceptron": asdict(setting), "trial": trial} for setting, trial in trials.items()]
    with translate_disk_errors(path.parent):
        write_text(path, sealed_text({"of": identity, "trials": entries}))


class _Data:
    """Reads batches of rows from memory or disk, in the order of the rows, and checks them."""

    def __init__(self, X: AnyArray, batch_size: int, device: str) -> None:
        self._X, self._size, self._device = X, batch_size, device

    def batches(self, labelled: _Rows, order: Int64Array) -> Iterator[tuple[Tensor, Tensor]]:
        import torch

        for places in np.array_split(order, -(-len(order) // self._size)):
            part = places[np.argsort(labelled.nodes[places])]  # a memory map is read in order
            rows = labelled.nodes[part]
            block = np.asarray(self._X[rows], dtype=np.float32)
            bad = ~np.isfinite(block).all(axis=1)
            if bad.any():
                raise InputError(
                    f"{int(bad.sum())} of {len(rows)} rows of a batch are not finite, the first is that of node "
                    f"{int(rows[bad.argmax()])}; leave those nodes out of the split."
                )
            yield torch.from_numpy(block).to(self._device), torch.from_numpy(labelled.classes[part]).to(self._device)

    def score(self, model: nn.Module, labelled: _Rows) -> tuple[float, float]:
        """Return mean cross entropy and accuracy on these nodes."""
        import torch

        model.eval()
        loss, hits, count = 0.0, 0, len(labelled.nodes)
        with torch.no_grad():
            for block, classes in self.batches(labelled, np.arange(count)):
                scores = model(block)
                loss += float(torch.nn.functional.cross_entropy(scores, classes, reduction="sum"))
                hits += int((scores.argmax(1) == classes).sum())
        return loss / count, hits / count


def _network(width: int, n_classes: int, setting: Perceptron) -> nn.Module:
    """Build linear, batch norm, ReLU, dropout for each hidden layer, and a linear layer at the end."""
    from torch import nn

    parts: list[nn.Module] = []
    for _ in range(setting.layers - 1):
        linear, norm = nn.Linear(width, setting.hidden), nn.BatchNorm1d(setting.hidden)
        parts += [linear, norm, nn.ReLU(), nn.Dropout(setting.dropout)]
        width = setting.hidden
    return nn.Sequential(*parts, nn.Linear(width, n_classes))


def _train(
    model: nn.Module, data: _Data, parts: tuple[_Rows, _Rows], *, rate: float, grid: Grid, seed: int
) -> dict[str, float]:
    """Train until the validation loss has not fallen for ``patience`` epochs, and set the best weights."""
    import torch

    (train, validation), rng = parts, np.random.default_rng(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    lowest, accuracy, stale, epoch = np.inf, 0.0, 0, 0
    best = copy.deepcopy(model.state_dict())
    while epoch < grid.max_epochs and stale < grid.patience:
        epoch += 1
        model.train()
        for block, classes in data.batches(train, rng.permutation(len(train.nodes))):
            if len(block) < 2:
                continue  # batch norm has no variance to divide by
            optimiser.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(model(block), classes))
            optimiser.step()
        loss, share = data.score(model, validation)
        stale += 1
        if loss < lowest:
            lowest, accuracy, stale = loss, share, 0
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return {"validation_loss": float(lowest), "validation_accuracy": accuracy, "epochs": epoch}
