"""The paper's classifier for large data: a grid of perceptrons, trained on batches that are read when needed."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import InputError, needs_extra
from graphquilt.evaluate.checks import checked_labels
from graphquilt.evaluate.classify import Split
from graphquilt.progress import ProgressCallback, report

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Grid", "GridResult", "Perceptron", "mlp_grid"]


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
        Its accuracy on the test nodes, which are used for no other perceptron.
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
    progress: ProgressCallback | None = None,
) -> GridResult:
    """Train every perceptron of a grid with early stopping on the validation loss, and test the best.

    Parameters
    ----------
    X : array (n, d)
        Only the rows of one batch are read at a time, so that a memory map of any size can be used.
    y : int array (n,)
        Classes; nodes with -1 are left out.
    split : Split
        Nodes to train on, to decide when to stop, and to test on.
    seed : int
        Seed of all random choices: initial weights, dropout and the order of the batches.
    grid : Grid, optional
    device : str
        The device of torch, such as ``cuda``.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.arange(300) % 3
    >>> X = np.eye(3, dtype=np.float32)[y] + np.random.default_rng(0).normal(0, 0.1, (300, 3)).astype(np.float32)
    >>> split = Split(np.arange(200), np.arange(200, 250), np.arange(250, 300))
    >>> small = Grid(hidden=(16,), layers=(2,), dropout=(0.0,), learning_rate=(0.01,), batch_size=100)
    >>> mlp_grid(X, y, split, seed=0, grid=small).accuracy
    1.0
    """
    with needs_extra("mlp_grid", "torch"):
        import torch
    grid = grid or Grid()
    labels = checked_labels(y, len(X))
    names = np.unique(labels[split.train][labels[split.train] >= 0])
    if len(names) < 2:
        raise InputError(f"the training nodes have {len(names)} class; a classifier needs at least two.")
    known = np.isin(labels, names)
    parts = Split(*(nodes[known[nodes]] for nodes in (split.train, split.validation, split.test)))
    for word, nodes in vars(parts).items():
        if len(nodes) == 0:
            raise InputError(f"no {word} node has a label of a class that is trained on.")
    data = _Data(X, np.searchsorted(names, labels), grid.batch_size, device)
    trials, best, lowest, settings = [], None, np.inf, list(grid)
    for number, setting in enumerate(settings):
        report(progress, "perceptrons", number, len(settings))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = _network(X.shape[1], len(names), setting).to(device)
            trial = _train(model, data, parts, rate=setting.learning_rate, grid=grid, seed=seed)
        trials.append({**vars(setting), **trial})
        if trial["validation_loss"] < lowest:
            lowest, best = trial["validation_loss"], (setting, model)
    report(progress, "perceptrons", len(settings), len(settings))
    if best is None:
        raise InputError(f"none of {len(settings)} perceptrons has a finite validation loss; lower the learning rates.")
    return GridResult(best[0], data.score(best[1], parts.test)[1], tuple(trials))


class _Data:
    """Reads batches of rows from memory or disk, in the order of the rows, and checks them."""

    def __init__(self, X: AnyArray, classes: Int64Array, batch_size: int, device: str) -> None:
        self._X, self._classes, self._size, self._device = X, classes, batch_size, device

    def batches(self, nodes: Int64Array) -> Iterator[tuple[Tensor, Tensor]]:
        import torch

        for part in np.array_split(nodes, -(-len(nodes) // self._size)):
            rows = np.sort(part)  # a memory map is read in order
            block = np.asarray(self._X[rows], dtype=np.float32)
            bad = ~np.isfinite(block).all(axis=1)
            if bad.any():
                raise InputError(
                    f"{int(bad.sum())} of {len(rows)} rows of a batch are not finite, the first is that of node "
                    f"{int(rows[bad.argmax()])}; leave those nodes out of the split."
                )
            yield torch.from_numpy(block).to(self._device), torch.from_numpy(self._classes[rows]).to(self._device)

    def score(self, model: nn.Module, nodes: Int64Array) -> tuple[float, float]:
        """Return mean cross entropy and accuracy on these nodes."""
        import torch

        model.eval()
        loss, hits = 0.0, 0
        with torch.no_grad():
            for block, classes in self.batches(nodes):
                scores = model(block)
                loss += float(torch.nn.functional.cross_entropy(scores, classes, reduction="sum"))
                hits += int((scores.argmax(1) == classes).sum())
        return loss / len(nodes), hits / len(nodes)


def _network(width: int, n_classes: int, setting: Perceptron) -> nn.Module:
    """Build linear, batch norm, ReLU, dropout for each hidden layer, and a linear layer at the end."""
    from torch import nn

    parts: list[nn.Module] = []
    for _ in range(setting.layers - 1):
        linear, norm = nn.Linear(width, setting.hidden), nn.BatchNorm1d(setting.hidden)
        parts += [linear, norm, nn.ReLU(), nn.Dropout(setting.dropout)]
        width = setting.hidden
    return nn.Sequential(*parts, nn.Linear(width, n_classes))


def _train(model: nn.Module, data: _Data, split: Split, *, rate: float, grid: Grid, seed: int) -> dict[str, float]:
    """Train until the validation loss has not fallen for ``patience`` epochs, and set the best weights."""
    import torch

    rng = np.random.default_rng(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    lowest, accuracy, stale, epoch = np.inf, 0.0, 0, 0
    best = copy.deepcopy(model.state_dict())
    while epoch < grid.max_epochs and stale < grid.patience:
        epoch += 1
        model.train()
        for block, classes in data.batches(rng.permutation(split.train)):
            if len(block) < 2:
                continue  # batch norm has no variance to divide by
            optimiser.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(model(block), classes))
            optimiser.step()
        loss, share = data.score(model, split.validation)
        stale += 1
        if loss < lowest:
            lowest, accuracy, stale = loss, share, 0
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return {"validation_loss": float(lowest), "validation_accuracy": accuracy, "epochs": epoch}
