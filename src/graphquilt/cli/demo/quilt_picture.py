"""Draw the stages of a real alignment, as in the paper's schematic: patches as given, rotated, shifted, averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.spatial import ConvexHull

from graphquilt.alignment import Alignment, centroid
from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.errors import InputError
from graphquilt.patches import Patch
from graphquilt.report import new_figure

__all__ = ["draw_stages", "plane_colours"]


def draw_stages(
    patches: Sequence[Patch], alignment: Alignment, path: str | Path, *, colours: AnyArray | None = None
) -> None:
    """Draw four panels of patches in the plane to ``path`` (PNG or SVG, by its ending).

    The panels show the patches as given, with rotations synchronised, with translations synchronised, and the centroid.

    Parameters
    ----------
    colours : float array (n, 3), optional
        The colour of each node, the same in all panels; by default it follows from the final position of the node.
    """
    dim = alignment.dim
    if dim != 2:
        raise InputError(f"only alignments in 2 dimensions can be drawn; this alignment has {dim} dimensions.")
    X = centroid(patches, alignment, missing="nan")
    shades = plane_colours(X) if colours is None else colours
    identity = Alignment.identity(alignment.n_patches, 2)
    rotated = replace(identity, scales=alignment.scales, rotations=alignment.rotations)
    panels = [
        ("a  patches as given", identity),
        ("b  rotations synchronised", rotated),
        ("c  translations synchronised", alignment),
        ("d  centroid", None),
    ]
    figure = new_figure(11, 7.4, purpose="drawing the alignment")
    grid = figure.subplots(2, 2)
    for axes, (title, stage) in zip(grid.ravel(), panels, strict=True):
        if stage is None:
            axes.scatter(*X.T, c=shades, s=7, linewidths=0)
        else:
            for k, (nodes, Y) in enumerate(patches):
                Z = stage.apply(k, Y)
                axes.scatter(*Z.T, c=shades[nodes], s=5, linewidths=0, alpha=0.8)
                corners = ConvexHull(Z).vertices
                axes.plot(*Z[np.r_[corners, corners[0]]].T, color="0.35", linewidth=0.5, alpha=0.7)
        axes.set_title(title, loc="left", fontsize=11)
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    figure.savefig(path, dpi=150)


def plane_colours(X: AnyArray) -> Float64Array:
    """Return a colour ``(n, 3)`` for each point of the plane ``X (n, 2)`` that changes smoothly with its position."""
    low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
    u, v = ((X - low) / np.maximum(high - low, 1e-12)).T
    shades = np.stack([0.15 + 0.8 * u, 0.25 + 0.55 * v, 0.85 - 0.6 * u * (0.4 + 0.6 * v)], axis=1)
    return np.asarray(np.clip(shades, 0, 1), dtype=np.float64)
