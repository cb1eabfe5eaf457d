"""The figures of the paper's application: the reference map, scores over time, outliers a day."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import FloatArray, Int64Array
from graphquilt.errors import InputError, MissingExtraError

__all__ = ["draw_outliers", "draw_reference", "draw_scores"]

_SOURCE, _DESTINATION, _HOT = "#2563a8", "#c2571a", "#b42318"


def draw_outliers(
    path: str | Path,
    labels: Sequence[str],
    counts: dict[str, Int64Array],
    *,
    marked: npt.ArrayLike | None = None,
) -> Path:
    """Draw the number of outliers a window, one panel a side, with marked windows shaded (the paper's last figure).

    Parameters
    ----------
    path : path of a PNG, SVG or PDF
    labels : sequence of str
        One a window.
    counts : dict
        Side to int array (windows,).
    marked : bool array (windows,), optional
        Known attack days, say.
    """
    figure, panels = _panels(len(counts), 8.0, 2.1)
    at = np.arange(len(labels))
    for panel, (side, count) in zip(panels, counts.items(), strict=True):
        _shade(panel, marked, len(labels))
        panel.bar(at, count, width=0.8, color=_SOURCE if side == "source" else _DESTINATION)
        panel.set_ylabel(f"outlying\n{side}s")
        _plain(panel)
    _ticks(panels[-1], labels)
    return _save(figure, path)


def draw_scores(
    path: str | Path,
    labels: Sequence[str],
    scores: dict[str, FloatArray],
    *,
    limit: float,
    marked: npt.ArrayLike | None = None,
) -> Path:
    """Draw the standardised scores of chosen nodes over time, one panel a node, with the limit as a line.

    Parameters
    ----------
    scores : dict
        Name to float array (windows,); NaN leaves a gap.
    limit : float
        The quantile above which a node is flagged.
    """
    if not scores:
        raise InputError("no nodes were chosen to draw.")
    figure, panels = _panels(len(scores), 8.0, 1.5)
    at = np.arange(len(labels))
    for panel, (name, z) in zip(panels, scores.items(), strict=True):
        _shade(panel, marked, len(labels))
        panel.plot(at, z, color=_SOURCE, linewidth=1.2, marker="o", markersize=2.5)
        hot = np.nan_to_num(z, nan=-np.inf) > limit
        panel.plot(at[hot], np.asarray(z)[hot], "o", color=_HOT, markersize=4.5)
        panel.axhline(limit, color=_HOT, linestyle="--", linewidth=0.9)
        panel.set_title(name, fontsize=9, loc="left", pad=2)
        panel.set_ylabel("z")
        _plain(panel)
    _ticks(panels[-1], labels)
    return _save(figure, path)


def draw_reference(
    path: str | Path,
    reference: FloatArray,
    error: FloatArray,
    *,
    seed: int = 0,
    limit: int = 4_000,
    title: str = "",
) -> Path:
    """Draw the reference embedding by UMAP, coloured by each node's mean raw score (the paper's first figure).

    Parameters
    ----------
    reference : float array (n, d)
        Mean aligned positions; rows with NaN are left out.
    error : float array (n,)
    limit : int
        More nodes than this are sampled.
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
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap says that a seed costs it its threads
        flat = umap.UMAP(n_neighbors=min(15, len(rows) - 1), random_state=seed).fit_transform(reference[rows])
    figure, panels = _panels(1, 6.4, 5.2)
    order = np.argsort(error[rows])  # the largest errors lie on top
    shade = np.log10(np.maximum(error[rows][order], np.finfo(float).tiny))
    low, high = np.quantile(shade, [0.01, 0.99])
    dots = panels[0].scatter(*flat[order].T, c=shade, s=6, cmap="viridis", vmin=low, vmax=high, linewidths=0)
    figure.colorbar(dots, ax=panels[0], label="mean distance to the reference, log10")
    panels[0].set_xticks([])
    panels[0].set_yticks([])
    panels[0].set_title(title, fontsize=10, loc="left")
    return _save(figure, path)


def _panels(count: int, width: float, height: float) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("a figure", "viz") from None
    figure = Figure(figsize=(width, 0.5 + height * count), layout="constrained")
    panels = figure.subplots(count, 1, sharex=True, squeeze=False)
    return figure, list(panels[:, 0])


def _shade(panel: Any, marked: npt.ArrayLike | None, n: int) -> None:
    if marked is None:
        return
    flags = np.asarray(marked, dtype=bool)
    if flags.shape != (n,):
        raise InputError(f"there are {n} windows and {flags.size} marks; give one for each.")
    for t in np.flatnonzero(flags):
        panel.axvspan(t - 0.5, t + 0.5, color="#fdecea", linewidth=0)


def _ticks(panel: Any, labels: Sequence[str]) -> None:
    every = max(1, -(-len(labels) // 12))
    panel.set_xticks(range(0, len(labels), every), [labels[t] for t in range(0, len(labels), every)], fontsize=8)
    panel.set_xlim(-0.7, len(labels) - 0.3)


def _plain(panel: Any) -> None:
    for edge in ("top", "right"):
        panel.spines[edge].set_visible(False)
    panel.tick_params(labelsize=8)


def _save(figure: Any, path: str | Path) -> Path:
    target = Path(path)
    figure.savefig(target, dpi=150)
    return target
