"""Draw the figures of the paper's application: the reference map, scores over time, outliers per window."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import FloatArray, Int64Array
from graphquilt.errors import InputError, MissingExtraError
from graphquilt.report import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_outliers", "draw_reference", "draw_scores"]

_SOURCE, _DESTINATION, _FLAGGED = "#2563a8", "#c2571a", "#b42318"


def draw_outliers(
    path: str | Path, labels: Sequence[str], counts: dict[str, Int64Array], *, marked: npt.ArrayLike | None = None
) -> Path:
    """Draw the number of outliers per window, one panel per side (the paper's last figure).

    ``counts`` maps each side to an int array (windows,). The windows where ``marked`` (windows,) is True are shaded.
    """
    figure, panels = _window_panels(len(counts), 2.1, labels, marked)
    for panel, (side, count) in zip(panels, counts.items(), strict=True):
        panel.bar(np.arange(len(labels)), count, width=0.8, color=_SOURCE if side == "source" else _DESTINATION)
        panel.set_ylabel(f"outlying\n{side}s")
        panel.locator_params(axis="y", integer=True)
    return save_figure(figure, path)


def draw_scores(
    path: str | Path,
    labels: Sequence[str],
    scores: dict[str, FloatArray],
    *,
    limit: float,
    marked: npt.ArrayLike | None = None,
) -> Path:
    """Draw the severity of some nodes over time, one panel per node, with the limit as a line.

    ``scores`` maps each name to a float array (windows,); NaN leaves a gap. ``marked`` is as in :func:`draw_outliers`.
    """
    if not scores:
        raise InputError("no nodes were chosen to draw.")
    figure, panels = _window_panels(len(scores), 1.5, labels, marked)
    windows = np.arange(len(labels))
    for panel, (name, z) in zip(panels, scores.items(), strict=True):
        panel.plot(windows, z, color=_SOURCE, linewidth=1.2, marker="o", markersize=2.5)
        flagged = z > limit
        panel.plot(windows[flagged], z[flagged], "o", color=_FLAGGED, markersize=4.5)
        panel.axhline(limit, color=_FLAGGED, linestyle="--", linewidth=0.9)
        panel.set_title(name, fontsize=9, loc="left", pad=2)
        panel.set_ylabel("severity")
    return save_figure(figure, path)


def draw_reference(
    path: str | Path, reference: FloatArray, error: FloatArray, *, seed: int = 0, limit: int = 4_000, title: str = ""
) -> Path:
    """Draw the reference embedding by UMAP, coloured by each node's mean raw score (the paper's first figure).

    ``reference`` (n, d) are mean aligned positions and ``error`` (n,) mean raw scores; rows with NaN are left out. If
    there are more than ``limit`` nodes, a random sample of so many is drawn.
    """
    try:
        import umap
    except ImportError:
        raise MissingExtraError("the map of the reference", "viz") from None
    rows = np.flatnonzero(np.isfinite(reference).all(axis=1) & np.isfinite(error))
    if len(rows) < 10:
        raise InputError(f"{len(rows)} nodes have a reference position; a map needs at least 10.")
    rng = np.random.default_rng(seed)
    if len(rows) > limit:
        rows = np.sort(rng.choice(rows, limit, replace=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap warns that a seed prevents the use of threads
        flat = umap.UMAP(n_neighbors=min(15, len(rows) - 1), random_state=seed).fit_transform(reference[rows])
    figure = new_figure(6.4, 5.7, purpose="a figure")
    axes = figure.subplots()
    order = np.argsort(error[rows])  # the largest errors lie on top
    shade = np.log10(np.maximum(error[rows][order], np.finfo(float).tiny))
    low, high = np.quantile(shade, [0.01, 0.99])
    x, y = flat[order].T
    dots = axes.scatter(x, y, c=shade, s=6, cmap="viridis", vmin=low, vmax=high, linewidths=0)
    figure.colorbar(dots, ax=axes, label="mean distance from the reference position, log10")
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=10, loc="left")
    return save_figure(figure, path)


def _window_panels(
    count: int, height: float, labels: Sequence[str], marked: npt.ArrayLike | None
) -> tuple[Figure, list[Axes]]:
    """Return a figure with ``count`` panels above each other, whose common axis is the windows."""
    n = len(labels)
    flags = np.zeros(n, dtype=bool) if marked is None else np.asarray(marked, dtype=bool)
    if flags.shape != (n,):
        raise InputError(f"there are {n} windows and {flags.size} marks; give one for each.")
    figure = new_figure(8.0, 0.5 + height * count, purpose="a figure")
    panels = list(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])
    for panel in panels:
        for t in np.flatnonzero(flags):
            panel.axvspan(t - 0.5, t + 0.5, color="#fdecea", linewidth=0)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    # As many labels as fit beside each other on an axis of about 7 inches.
    n_labels = max(1, int(7.0 / (0.07 * max(map(len, labels), default=1) + 0.2)))
    ticks = range(0, n, max(1, -(-n // n_labels)))
    panels[-1].set_xticks(ticks, [labels[t] for t in ticks], fontsize=8)
    panels[-1].set_xlim(-0.7, n - 0.3)
    return figure, panels
