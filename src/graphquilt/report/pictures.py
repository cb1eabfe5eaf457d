"""The map of a job as a picture (PNG, SVG, PDF) by matplotlib."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.errors import MissingExtraError
from graphquilt.files import temporary_sibling, translate_disk_errors
from graphquilt.report.node_map import Colouring, NodeMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GREY = "#9aa4b2"
# The first ten colours of page.js.
_COLOURS = "#3b7dd8 #e07b39 #2f9e6e #c94f6d #8a63c9 #b58a1b #2aa3b5 #8c6d5a #d46fb8 #7f9a3a".split()  # noqa: SIM905
_NAMED = 20  # classes in the legend of a map


def new_figure(width: float, height: float, *, purpose: str) -> Figure:
    """Return an empty figure of this size in inches; ``purpose`` is for the error if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(purpose, "viz") from None
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure atomically as PNG, SVG or PDF, by the suffix of ``path``."""
    target = Path(path)
    with translate_disk_errors(target.parent), temporary_sibling(target) as part:
        figure.savefig(part, dpi=150, format=target.suffix[1:] or "png")
        os.replace(part, target)
    return target


def draw_map(drawn: NodeMap, path: str | Path, *, title: str = "") -> Path:
    """Draw a map in its first colouring: labels from a file, classes, or patches."""
    figure = new_figure(9, 7.2, purpose="a map as a picture")
    axes = figure.subplots()
    colouring, (x, y) = drawn.colourings[0], drawn.points.T
    size = float(np.clip(40_000 / len(x), 0.6, 22))
    if drawn.density is not None:
        (left, bottom), side = drawn.square
        extent = (left, left + side, bottom, bottom + side)
        axes.imshow(np.log1p(drawn.density), origin="lower", extent=extent, cmap="Greys", alpha=0.5, aspect="equal")
    if colouring.numbers is not None:
        known = np.isfinite(colouring.numbers)
        axes.scatter(x[~known], y[~known], s=size, c=_GREY, linewidths=0, alpha=0.4)
        order = np.flatnonzero(known)[np.argsort(colouring.numbers[known], kind="stable")]
        low, high = colouring.limits
        dots = axes.scatter(x[order], y[order], s=size, c=colouring.numbers[order], vmin=low, vmax=high, linewidths=0)
        figure.colorbar(dots, ax=axes, label=colouring.name, shrink=0.7)
    else:
        _draw_classes(axes, colouring, drawn, size)
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=13, loc="left", fontweight="bold")
    figure.text(0.01, 0.005, drawn.about, fontsize=7.5, color="#56627a", wrap=True)
    return save_figure(figure, path)


def _draw_classes(axes: Axes, colouring: Colouring, drawn: NodeMap, size: float) -> None:
    """Draw every class in its own colour; the legend names the first."""
    from matplotlib.collections import PathCollection
    from matplotlib.colors import hsv_to_rgb

    assert colouring.classes is not None
    x, y = drawn.points.T
    others = np.array([hsv_to_rgb((k * 0.382 % 1, 0.55 + 0.1 * (k % 3), 0.8)) for k in range(len(colouring.names))])
    absent = colouring.classes < 0
    if absent.any():
        axes.scatter(x[absent], y[absent], s=size, c=_GREY, linewidths=0, alpha=0.4, label=colouring.absent)
    for k, name in enumerate(colouring.names):
        chosen = colouring.classes == k
        label = (name if len(name) <= 32 else f"{name[:31]}…").replace("$", r"\$") if k < _NAMED else None
        colour = _COLOURS[k] if k < len(_COLOURS) else others[k]
        axes.scatter(x[chosen], y[chosen], s=size, color=colour, linewidths=0, alpha=0.8, label=label)
    if len(colouring.names) > 1:
        rest = len(colouring.names) - _NAMED
        title = colouring.name if rest <= 0 else f"{colouring.name} (and {rest} more)"
        legend = axes.legend(title=title, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)
        for handle in legend.legend_handles:
            if isinstance(handle, PathCollection):
                handle.set_sizes([26.0])
