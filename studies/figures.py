"""What the reports of all studies share: figures in two formats, and tables in Markdown."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphquilt.arrays import AnyArray, Float32Array
from graphquilt.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["figure_of", "markdown_table", "save_figure", "umap_plane"]


def figure_of(columns: int, lines: int, width: float, height: float) -> tuple[Figure, Any]:
    """Return a figure and its axes (lines, columns), each of this size in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("drawing the study", "viz") from error
    figure = Figure(figsize=(width * columns, height * lines), layout="constrained")
    return figure, figure.subplots(lines, columns, squeeze=False)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as ``path``.png and ``path``.svg."""
    for kind in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{kind}"), dpi=150, metadata={"Date": None} if kind == "svg" else None)


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown.

    Examples
    --------
    >>> print(markdown_table(["a", "b"], [["1", "2"]]), end="")
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines)) + "\n"


def umap_plane(X: AnyArray) -> Float32Array:
    """Return UMAP's picture of an embedding in the plane, (n, 2)."""
    try:
        import umap
    except ImportError as error:
        raise MissingExtraError("UMAP pictures", "viz") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a seed makes it single-threaded, and it says so every time
        model = umap.UMAP(n_neighbors=min(15, len(X) - 1), random_state=0)
        return np.asarray(model.fit_transform(np.asarray(X)), dtype=np.float32)
