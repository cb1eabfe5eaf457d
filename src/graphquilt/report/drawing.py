"""Make an empty figure, and write a figure to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from graphquilt.errors import MissingExtraError
from graphquilt.files import temporary_sibling, translate_disk_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["new_figure", "save_figure"]


def new_figure(width: float, height: float, *, purpose: str) -> Figure:
    """Return an empty figure, in inches; without matplotlib, an error says that ``purpose`` needs it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(purpose, "viz") from None
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as PNG, SVG or PDF, by the ending of ``path``; the file is complete once it has its name."""
    target = Path(path)
    with translate_disk_errors(target.parent), temporary_sibling(target) as part:
        figure.savefig(part, dpi=150, format=target.suffix[1:] or "png")
        os.replace(part, target)
    return target
