"""Small pictures in SVG, without any package: points by class, and a network of patches. Notebooks show them."""

from __future__ import annotations

import html
from collections.abc import Mapping

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, IntArray

SIDE = 260  # pixels
DRAWN = 1000  # points of a picture
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
_GREY, _MARGIN = "#999", 0.06
_FEW = 60  # patches whose discs show their number


def sample_rows(n: int) -> IntArray:
    """Return the rows that a picture of n points shows, evenly spaced."""
    return np.linspace(0, n - 1, min(n, DRAWN)).astype(np.int64)


def main_plane(X: AnyArray) -> Float64Array:
    """Return the points X (k, d) in their two main directions, (k, 2)."""
    centred = np.asarray(X, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(centred), 2))
    points[:, : min(2, len(directions))] = centred @ directions[:2].T
    return points


def layout(n_patches: int, edges: AnyArray, *, seed: int = 0) -> Float64Array:
    """Place patches in the unit square, (p, 2): springs along edges, repulsion (Fruchterman and Reingold 1991)."""
    rng = np.random.default_rng(seed)
    p = n_patches
    X = rng.uniform(-0.5, 0.5, (p, 2))
    ideal = 1 / np.sqrt(max(p, 1))
    i, j = edges[:, 0], edges[:, 1]
    # Beyond a few hundred patches each is repelled by a sample of the others, chosen again in every step.
    sample = min(p, 400)
    steps = 150 if p <= 400 else 60
    for step in range(steps):
        others = np.arange(p) if sample == p else rng.choice(p, sample, replace=False)
        gap = X[:, None] - X[None, others]
        squared = np.maximum((gap**2).sum(axis=2), 1e-6)
        force = (gap * (ideal**2 / squared)[:, :, None]).sum(axis=1) * (p / sample)
        along = X[i] - X[j]
        pull = along * (np.sqrt((along**2).sum(axis=1)) / ideal)[:, None]
        np.subtract.at(force, i, pull)
        np.add.at(force, j, pull)
        force -= 0.3 * ideal * p**0.5 * X  # keeps components from drifting away
        length = np.maximum(np.sqrt((force**2).sum(axis=1)), 1e-9)
        heat = 0.15 * (1 - step / steps) + 1e-3
        X = X + force / length[:, None] * np.minimum(length, heat)[:, None]
    X -= X.min(axis=0)
    return np.asarray(X / np.maximum(X.max(axis=0), 1e-9))


def points_svg(panels: Mapping[str, AnyArray], classes: IntArray | None = None) -> str:
    """Return panels side by side, each with its title and the same points (k, 2), coloured by ``classes`` (k,)."""
    top = 22 if any(panels) else 0
    parts = []
    for k, (title, points) in enumerate(panels.items()):
        span = float(np.abs(points).max(initial=0)) or 1.0
        corner = np.array([k * SIDE, top])
        places = (corner + SIDE / 2 * (1 + (1 - _MARGIN) * points / span)).round(1)
        labels = np.zeros(len(points), dtype=np.int64) if classes is None else np.asarray(classes)
        if title:
            parts.append(_text(k * SIDE + SIDE / 2, 15, title))
        parts += [
            f'<circle cx="{x:g}" cy="{y:g}" r="2" fill="{_COLOURS[label % len(_COLOURS)] if label >= 0 else _GREY}"/>'
            for (x, y), label in zip(places.tolist(), labels.tolist(), strict=True)
        ]
    return _svg(parts, SIDE * len(panels), SIDE + top)


def network_svg(sizes: AnyArray, edges: AnyArray, widths: AnyArray, errors: AnyArray | None = None) -> str:
    """Return a network of patches: discs by ``sizes`` (p,), lines by ``widths`` (m,), red by ``errors`` up to 1."""
    p = len(sizes)
    at = (SIDE * (_MARGIN + (1 - 2 * _MARGIN) * layout(p, edges))).round(1)
    strokes = (0.5 + 3 * widths / max(float(np.max(widths, initial=0)), 1e-300)) * min(1, _FEW / p)
    shares = np.zeros(len(edges)) if errors is None else np.clip(np.nan_to_num(errors, nan=1.0), 0, 1)
    parts = [
        f'<line x1="{at[i, 0]:g}" y1="{at[i, 1]:g}" x2="{at[j, 0]:g}" y2="{at[j, 1]:g}" stroke-width="{stroke:.2g}" '
        f'stroke="rgb({int(150 + 75 * share)},{int(150 - 100 * share)},{int(150 - 100 * share)})"/>'
        for (i, j), stroke, share in zip(edges.tolist(), strokes.tolist(), shares.tolist(), strict=True)
    ]
    radii = np.sqrt(sizes / max(float(np.max(sizes, initial=0)), 1e-300)) * (13 if p <= _FEW else 60 / np.sqrt(p))
    for k, ((x, y), radius) in enumerate(zip(at.tolist(), radii.tolist(), strict=True)):
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{max(radius, 1):.2g}" fill="{_COLOURS[0]}"/>')
        parts += [_text(x, y + 3, str(k), size=9, fill="white")] if p <= _FEW else []
    return _svg(parts, SIDE, SIDE)


def _text(x: float, y: float, text: str, *, size: int = 12, fill: str = _GREY) -> str:
    words = html.escape(text)
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="middle" fill="{fill}">{words}</text>'


def _svg(parts: list[str], width: int, height: int) -> str:
    style = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {style}>{"".join(parts)}</svg>'
