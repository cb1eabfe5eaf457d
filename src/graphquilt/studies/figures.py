"""What the reports of all studies share: figures in two formats, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphquilt.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["figure_of", "markdown_table", "save_figure"]


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
