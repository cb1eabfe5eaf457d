"""The map of a job as a picture (PNG, SVG, PDF) or as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.errors import InputError
from graphquilt.files import translate_disk_errors, write_text
from graphquilt.jobs import Job
from graphquilt.progress import ProgressCallback
from graphquilt.report.colouring import Colouring
from graphquilt.report.drawing import new_figure, save_figure
from graphquilt.report.node_map import MapOptions, NodeMap, node_map
from graphquilt.report.page import render_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_map", "write_map"]

_NAMED = 20  # classes in the legend of a picture
_GREY = "#9aa4b2"
# The first ten colours of page.js.
_COLOURS = (
    "#3b7dd8",
    "#e07b39",
    "#2f9e6e",
    "#c94f6d",
    "#8a63c9",
    "#b58a1b",
    "#2aa3b5",
    "#8c6d5a",
    "#d46fb8",
    "#7f9a3a",
)
_FORMATS = (".html", ".png", ".svg", ".pdf")


def write_map(
    job: Job,
    path: str | Path,
    *,
    options: MapOptions = MapOptions(),
    progress: ProgressCallback | None = None,
) -> NodeMap:
    """Write the map of a job; the ending of ``path`` decides between a page (.html) and a picture (.png, .svg, .pdf).

    Returns
    -------
    NodeMap
        What was drawn.

    Raises
    ------
    JobError
        The job has no embedding.
    """
    path = Path(path)
    if path.suffix not in _FORMATS:
        raise InputError(f"{path.name} has no ending that a map can be written as; use one of {', '.join(_FORMATS)}.")
    drawn = node_map(job, options, progress=progress)
    if path.suffix != ".html":
        draw_map(drawn, path, title=Path(job.name).name)
        return drawn
    neighbours = drawn.nearest(np.asarray(job.embedding[drawn.rows]), progress)
    name = Path(job.name).name
    data = {"title": f"Map of {name}", "lead": "", "map": drawn.for_page(neighbours)}
    with translate_disk_errors(path.parent):
        write_text(path, render_page("map_page", title=f"Map of {name}", data=data, parts=["scatter.js"]))
    return drawn


def draw_map(drawn: NodeMap, path: str | Path, *, title: str = "") -> Path:
    """Draw a map in its first colouring: labels of a file, classes, or patches."""
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
    """Draw every class in a colour of its own; the first have a name in the legend."""
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
