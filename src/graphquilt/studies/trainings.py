"""Trainings that several cells of a study need: each is done once, kept in a file, and opened after that."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from graphquilt.arrays import FloatArray, IntArray
from graphquilt.errors import JobError
from graphquilt.graph import Graph
from graphquilt.patches import Patch, PatchGraph
from graphquilt.pipeline import embed_patches
from graphquilt.pipeline.consensus import Round

__all__ = ["Training", "train_patches", "train_whole"]


@dataclass(frozen=True, eq=False)
class Training:
    """Embedded patches (or the whole graph as one patch), and what they cost.

    Attributes
    ----------
    patches : list of Patch
    seconds : float
        CPU seconds of the training.
    epochs : int
        Of a whole graph; 0 for patches.
    """

    patches: list[Patch]
    seconds: float
    epochs: int = 0

    @property
    def whole(self) -> FloatArray:
        """The only patch's coordinates."""
        return self.patches[0].coordinates


def settings_of(embedder: Any, seed: int) -> str:
    """Return what a training depends on: the embedder, where it differs from its defaults, and the seed.

    Examples
    --------
    >>> from graphquilt.embedders import VGAE
    >>> settings_of(VGAE(8, dropout=0.5), 3)
    'VGAE dim=8 dropout=0.5, seed 3'
    """
    fields = dataclasses.fields(embedder)
    said = [
        (field.name, getattr(embedder, field.name))
        for field in fields
        if field.default != getattr(embedder, field.name)
    ]
    return " ".join([type(embedder).__name__, *(f"{name}={value}" for name, value in said)]) + f", seed {seed}"


def train_whole(folder: Path, name: str, graph: Graph, embedder: Any, *, seed: int) -> Training:
    """Embed the whole graph, or open ``trainings/NAME.npz`` where that was done already."""

    def train() -> tuple[list[FloatArray], int]:
        fit = embedder.fit(graph, seed)
        return [fit.embedding], len(fit.losses)

    return _kept(folder, name, [np.arange(graph.n_nodes)], settings_of(embedder, seed), train)


def train_patches(
    folder: Path,
    name: str,
    graph: Graph,
    quilt: PatchGraph,
    embedder: Any,
    *,
    seed: int,
    consensus: Round | None = None,
) -> Training:
    """Embed every patch, or open ``trainings/NAME.npz`` where that was done already.

    See :func:`graphquilt.embed_patches` for ``consensus``.
    """

    def train() -> tuple[list[FloatArray], int]:
        return [patch.coordinates for patch in embed_patches(graph, quilt, embedder, seed=seed, consensus=consensus)], 0

    return _kept(folder, name, quilt.node_sets, settings_of(embedder, seed), train)


def _kept(
    folder: Path,
    name: str,
    nodes: Sequence[IntArray],
    settings: str,
    train: Callable[[], tuple[list[FloatArray], int]],
) -> Training:
    path = folder.parent / "trainings" / f"{name}.npz"
    if not path.exists():
        start = process_time()
        embeddings, epochs = train()
        seconds = process_time() - start
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{name}.{os.getpid()}.npz")
        rows = np.concatenate([X.astype(np.float32) for X in embeddings])
        np.savez(scratch, rows=rows, seconds=seconds, epochs=epochs, made_with=settings)
        scratch.replace(path)
    with np.load(path, allow_pickle=False) as kept:
        rows, seconds, epochs = kept["rows"], float(kept["seconds"]), int(kept["epochs"])
        if str(kept["made_with"]) != settings or len(rows) != sum(map(len, nodes)):
            raise JobError(
                f"{path} was made with {kept['made_with']}, not with {settings}; remove it, or use another folder."
            )
    parts = np.split(rows, np.cumsum([len(each) for each in nodes])[:-1])
    return Training([Patch(*pair) for pair in zip(nodes, parts, strict=True)], seconds, epochs)
