"""Training with torch: Adam, early stopping, the choice of a device and of the number of threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.errors import ConvergenceError, InputError
from graphquilt.progress import ProgressCallback, report

_lock = threading.Lock()
_users = 0
_original = 1


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch use ``count`` threads inside the block; None leaves the number unchanged.

    The number belongs to the calling thread, but a new thread starts with the number that was set last anywhere. All
    concurrent blocks therefore restore the number that the first of them replaced.
    """
    global _users, _original  # noqa: PLW0603
    if count is None:
        yield
        return
    with _lock:
        if _users == 0:
            _original = torch.get_num_threads()
        _users += 1
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            torch.set_num_threads(_original)


def check_device(name: str) -> None:
    """Refuse a device that this machine does not have."""
    kind = name.split(":", maxsplit=1)[0]
    if kind not in {"cpu", "cuda", "mps"}:
        raise InputError(f"the device {name!r} is not known; choose 'cpu', 'cuda' (or 'cuda:1' …) or 'mps'.")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        number = int(name.split(":")[1]) if ":" in name else 0
        if number >= count:
            raise InputError(
                f"the device {name!r} is not available: torch {torch.__version__} finds {count} CUDA devices. "
                "Use device='cpu', or install a torch built for CUDA and check the driver."
            )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise InputError(
            f"the device 'mps' is not available: torch {torch.__version__} finds no Metal device. Use device='cpu'."
        )


@contextmanager
def session(device: str, thread_count: int | None, size: str) -> Iterator[None]:
    """Check the device, limit the threads inside the block, and explain what to reduce if memory runs out."""
    check_device(device)
    with threads(thread_count):
        try:
            yield
        except torch.OutOfMemoryError as full:
            raise InputError(
                f"the memory of {device} does not hold a training on {size}. Reduce hidden or dim, cut the graph into "
                f"more and smaller patches, or use device='cpu'. ({str(full).splitlines()[0]})"
            ) from full


class Parameters:
    """Named weights in one vector ``flat`` (k,); ``named`` has the views of it that gradients are computed for."""

    def __init__(self, values: Mapping[str, AnyArray], *, device: str, dtype: torch.dtype) -> None:
        self.shapes = {name: value.shape for name, value in values.items()}
        joined = np.concatenate([np.ravel(value) for value in values.values()])
        self.flat = torch.as_tensor(joined, dtype=dtype, device=device).clone()
        self.named = {name: view.requires_grad_(True) for name, view in self.views(self.flat).items()}

    def views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the named views of a flat vector."""
        parts = torch.split(flat, [math.prod(shape) for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}


@dataclass(frozen=True)
class Schedule:
    """The learning rate and the length of a training."""

    lr: float
    max_epochs: int
    patience: int
    weight_decay: float


class Adam:
    """Adam with its default decay rates (Kingma and Ba 2015); importing that of torch.optim takes seconds."""

    def __init__(self, parameters: Parameters, schedule: Schedule) -> None:
        self.schedule, self.epoch = schedule, 0
        self.weights = [view.detach() for view in parameters.named.values()]
        flats = [torch.zeros_like(parameters.flat) for _ in range(3)]
        self.first, self.second, self.spare = ([*parameters.views(flat).values()] for flat in flats)

    def step(self, gradients: Iterable[torch.Tensor]) -> None:
        """Move the weights by one step, given one gradient for each; the gradients may be overwritten."""
        self.epoch += 1
        size = -self.schedule.lr / (1 - 0.9**self.epoch)
        root = 1 / math.sqrt(1 - 0.999**self.epoch)
        for w, g, m, v, spare in zip(self.weights, gradients, self.first, self.second, self.spare, strict=True):
            if self.schedule.weight_decay:
                g.add_(w, alpha=self.schedule.weight_decay)
            m.lerp_(g, 0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            torch.sqrt(v, out=spare).mul_(root).add_(1e-8)
            w.addcdiv_(m, spare, value=size)


def train(
    parameters: Parameters,
    loss_of: Callable[[Mapping[str, torch.Tensor]], torch.Tensor],
    schedule: Schedule,
    *,
    progress: ProgressCallback | None = None,
) -> Float64Array:
    """Minimise ``loss_of(named weights)``; leave the best weights in ``parameters`` and return the losses."""
    best, best_loss, waited = parameters.flat.clone(), math.inf, 0
    adam, leaves = Adam(parameters, schedule), [*parameters.named.values()]
    losses: list[float] = []
    for epoch in range(1, schedule.max_epochs + 1):
        loss = loss_of(parameters.named)
        gradients = torch.autograd.grad(loss, leaves)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ConvergenceError(
                f"the loss became {value} in epoch {epoch} with a learning rate of {schedule.lr:g}. Lower lr, "
                "scale the features down, or look for extreme values in them.",
                residual=value,
            )
        losses.append(value)
        report(progress, "training", epoch, schedule.max_epochs, values={"epoch": epoch, "loss": value})
        if value < best_loss:
            best_loss, waited = value, 0
            best.copy_(parameters.flat)
        else:
            waited += 1
            if waited >= schedule.patience:
                break
        adam.step(gradients)
    parameters.flat.copy_(best)
    return np.array(losses)
