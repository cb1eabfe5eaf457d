"""Maps that stay put, where rows allow it: earlier places are kept; and maps as pictures by matplotlib."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array
from graphquilt.errors import FormatError, InputError, MissingExtraError, QuiltError
from graphquilt.files import temporary_sibling, translate_disk_errors
from graphquilt.graph.reading.ids import find_ids
from graphquilt.jobs import Job, Record
from graphquilt.jobs.export import job_ids
from graphquilt.linalg import nearest_orthogonal
from graphquilt.report.node_map import Colouring, MapOptions, NodeMap, Plane, nearest_rows, node_map, sample_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_KEY = "map"
_NEAR = 5  # nodes of the earlier map between which a new one begins


@dataclass(frozen=True, eq=False)
class EarlierMap:
    """Places (k, 2) on an earlier map, ids, its plane unless by UMAP, and a ``rotation`` (d, d) onto its rows."""

    ids: AnyArray
    points: Float64Array
    plane: Plane | None
    rotation: Float64Array | None

    def choose_rows(self, ids: AnyArray, present: Int64Array, limit: int, *, seed: int) -> Int64Array:
        """Return the rows to draw: nodes of the earlier map that are still there, then a sample of new ones."""
        known = find_ids(ids, self.ids)
        stayed = np.intersect1d(known, present)
        new = np.setdiff1d(present, stayed)
        sample = sample_rows(len(new), max(limit - len(stayed), 0), seed=seed)
        return np.sort(np.concatenate([stayed[:limit], new[sample]]))

    def turn(self, X: FloatArray) -> FloatArray:
        """Return rows in the frame of the earlier map."""
        return X if self.rotation is None else np.asarray(X @ self.rotation)

    def begin(self, X: Float64Array, ids: AnyArray) -> tuple[Float64Array, Int64Array]:
        """Return where each row begins: where it was, or between the nearest that were there; and which were there."""
        place = find_ids(self.ids, ids)
        there = np.flatnonzero(place >= 0)
        points = np.zeros((len(X), 2))
        points[there] = self.points[place[there]]
        for row in np.flatnonzero(place < 0).tolist():
            near = nearest_rows(np.vstack([X[row], X[there]]), min(_NEAR, len(there)))[0] - 1
            points[row] = points[there[near]].mean(axis=0)
        return points, there


def earlier_map(job: Job, options: MapOptions) -> EarlierMap:
    """Return the map that another job has drawn, or that this one had drawn before its update."""
    assert options.like is not None
    like = Job.open(options.like)
    same = like.name == job.name
    found = _stored(like, umap=options.umap)
    if found is None:
        if same:
            raise InputError(f"{job.name} has no such map yet: draw one before the update, or name a copy of the job.")
        drawn = node_map(like, replace(options, like=None, colour=None))
        found = _ids_of(drawn), drawn.points, drawn.plane
    if same:
        return EarlierMap(*found, None)
    X, Y = job.embedding, like.embedding
    if X.shape[1] != Y.shape[1]:
        raise InputError(f"{like.name} has {Y.shape[1]} dimensions and {job.name} has {X.shape[1]}; they must agree.")
    rows = find_ids(job_ids(job, len(X)), job_ids(like, len(Y)))
    both = np.flatnonzero(rows >= 0)
    if len(both) <= 2:
        raise InputError(f"{like.name} and {job.name} have {len(both)} ids in common; a map like another needs more.")
    product = np.asarray(X[rows[both]], dtype=np.float64).T @ np.asarray(Y[both], dtype=np.float64)
    return EarlierMap(*found, nearest_orthogonal(product))


def keep_map(job: Job, drawn: NodeMap, *, umap: bool) -> None:
    """Keep the places of a map in its job, for a later one; a job that cannot be written to is left as it is."""
    arrays: dict[str, AnyArray] = {"ids": _ids_of(drawn), "points": drawn.points}
    if drawn.plane is not None:
        arrays |= {"centre": drawn.plane.centre, "axes": drawn.plane.axes, "share": np.array(drawn.plane.share)}
    with contextlib.suppress(QuiltError, OSError):
        job.store[_KEY] = Record(arrays, {"umap": umap})


def _stored(job: Job, *, umap: bool) -> tuple[AnyArray, Float64Array, Plane | None] | None:
    try:
        record = job.store[_KEY]
        arrays = record.arrays
        if record.parameters["umap"] != umap:
            return None
        plane = None if umap else Plane(arrays["centre"], arrays["axes"], float(arrays["share"]))
        return arrays["ids"], np.asarray(arrays["points"]), plane
    except (KeyError, FormatError):
        return None


def _ids_of(drawn: NodeMap) -> AnyArray:
    return drawn.rows if drawn.ids is None else np.asarray(drawn.ids)


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
