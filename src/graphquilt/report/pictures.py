"""Pictures (PNG, SVG, PDF) by matplotlib: of a patch graph, and of the map of a job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.drawing import layout
from graphquilt.errors import MissingExtraError
from graphquilt.files import temporary_sibling, translate_disk_errors
from graphquilt.patches import PatchGraph
from graphquilt.report.node_map import Colouring, NodeMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#22303c"
_GREY = "#9aa4b2"
# The first ten colours of page.js.
_COLOURS = "#3b7dd8 #e07b39 #2f9e6e #c94f6d #8a63c9 #b58a1b #2aa3b5 #8c6d5a #d46fb8 #7f9a3a".split()  # noqa: SIM905
_FEW = 60  # with at most this many patches, each disc shows its number
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


def draw_patch_graph(patch_graph: PatchGraph, path: str | os.PathLike[str] | None = None, *, seed: int = 0) -> Figure:
    """Draw the patch graph, and the distributions of patch sizes, degrees and overlaps.

    The area of a disc shows the size of its patch, its colour the number of its patch edges, and the width of a line
    the overlap. With ``path``, the picture is written there (``.png``, ``.svg``, ``.pdf``).
    """
    figure = new_figure(11, 6.6, purpose="draw_patch_graph")
    grid = figure.add_gridspec(3, 2, width_ratios=[2.3, 1])
    _draw_network(
        figure.add_subplot(grid[:, 0]), patch_graph, layout(patch_graph.n_patches, patch_graph.edges, seed=seed)
    )
    histograms = (
        (patch_graph.sizes, "nodes per patch", "patches", "#3b6ea5"),
        (patch_graph.degrees, "patch edges per patch", "patches", "#c46a3a"),
        (patch_graph.overlaps, "nodes shared by two joined patches", "patch edges", "#4b8a5f"),
    )
    for row, (values, label, counted, colour) in enumerate(histograms):
        axes = figure.add_subplot(grid[row, 1], xlabel=label, ylabel=counted)
        _draw_histogram(axes, values, colour)
    figure.suptitle(
        f"{patch_graph.n_patches:,} patches of {patch_graph.n_nodes:,} nodes, {len(patch_graph.edges):,} patch edges; "
        f"each node is in {patch_graph.summary()['node_oversampling']:.2f} patches on average",
        fontsize=12,
        color=_INK,
    )
    if path is not None:
        save_figure(figure, path)
    return figure


def _draw_network(axes: Axes, patch_graph: PatchGraph, X: Float64Array) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.ticker import MaxNLocator

    p, degrees = patch_graph.n_patches, patch_graph.degrees
    if len(patch_graph.edges):
        widths = (0.3 + 2.5 * patch_graph.overlaps / patch_graph.overlaps.max()) * min(1, _FEW / p)
        lines = list(X[patch_graph.edges])
        axes.add_collection(LineCollection(lines, linewidths=widths, colors="#9aa7b2", alpha=0.7))
    area = patch_graph.sizes / patch_graph.sizes.max() * (1400 if p <= _FEW else 60_000 / p)
    discs = axes.scatter(
        X[:, 0], X[:, 1], s=np.maximum(area, 4), c=degrees, cmap="YlOrBr", edgecolors=_INK, linewidths=0.6, zorder=2
    )
    if p <= _FEW:
        is_dark = degrees > degrees.min() + 0.65 * np.ptp(degrees)
        for k, (x, y) in enumerate(X):
            colour = "white" if is_dark[k] else _INK
            axes.text(x, y, str(k), ha="center", va="center", fontsize=8, color=colour, zorder=3)
    ticks = MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True)
    bar = axes.figure.colorbar(discs, ax=axes, location="bottom", shrink=0.6, pad=0.02, ticks=ticks)
    bar.set_label("patch edges of the patch", fontsize=9, color=_INK)
    axes.margins(0.08)
    axes.set_axis_off()
    if patch_graph.placement_arbitrary:
        axes.set_title("Several components: where one lies relative to another means nothing", fontsize=9, color=_INK)


def _draw_histogram(axes: Axes, values: Int64Array, colour: str) -> None:
    if len(values) == 0:
        axes.text(0.5, 0.5, "none", ha="center", va="center", transform=axes.transAxes, color=_INK)
    else:
        low, high = int(values.min()), int(values.max())
        whole = high - low < 25
        bins = np.arange(low - 0.5, high + 1.5) if whole else np.linspace(low, high, 25)
        axes.hist(values, bins=bins.tolist(), color=colour, edgecolor="white", linewidth=0.5)
        axes.axvline(values.mean(), color=_INK, linewidth=1, linestyle="--")
        title = f"smallest {low:,}, mean {values.mean():,.1f}, largest {high:,}"
        axes.set_title(title, fontsize=8, color=_INK, loc="right")
    for name in (axes.xaxis.label, axes.yaxis.label):
        name.set(fontsize=9, color=_INK)
    axes.tick_params(labelsize=8, colors=_INK)
    axes.locator_params(axis="x", integer=True, nbins=7)
    axes.locator_params(axis="y", integer=True)
    axes.spines[["top", "right"]].set_visible(False)


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
