"""The smallest demonstration of the method: a sheet of points cut into 60 patches, thrown about and sewn together."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt import __version__
from graphquilt.alignment import Alignment, align, centroid
from graphquilt.evaluate import procrustes_error
from graphquilt.report.quilt import draw_stages, plane_colours
from graphquilt.synthetic import patchwork

__all__ = ["quilt_demo"]


def quilt_demo(out: str | Path, *, seed: int = 0) -> dict[str, Any]:
    """Align a synthetic quilt, write ``quilt.png`` and ``quilt.json`` into the folder ``out``, return the figures."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    made = patchwork(seed=seed)
    start = time.perf_counter()
    alignment = align(made.patches, made.edges)
    X = centroid(made.patches, alignment)
    seconds = time.perf_counter() - start
    apart = centroid(made.patches, Alignment.identity(len(made.patches), 2))
    spread = float(np.sqrt(made.points.var(axis=0).sum()))
    figures = {
        "graphquilt": __version__,
        "seed": seed,
        "patches": len(made.patches),
        "nodes": len(X),
        "dimensions": 2,
        "overlaps compared": len(made.edges),
        "seconds": round(seconds, 3),
        "noise of a coordinate": 0.01,
        "root mean square error against the truth": spread * procrustes_error(X, made.points),
        "the same without alignment (no-trans)": spread * procrustes_error(apart, made.points),
        "error left on an overlap": {
            "median": float(np.median(alignment.edge_errors)),
            "worst": float(alignment.edge_errors.max()),
            "worst edges": alignment.worst_edges(3).tolist(),
        },
        "eigenvalues": [round(float(value), 6) for value in alignment.eigenvalues],
        "spectral gap": alignment.spectral_gap,
        "residual": alignment.residual,
        "in words": alignment.summary().splitlines(),
        "picture": "quilt.png",
    }
    draw_stages(made.patches, alignment, folder / "quilt.png", colours=plane_colours(made.points))
    (folder / "quilt.json").write_text(json.dumps(figures, indent=2) + "\n")
    return figures
