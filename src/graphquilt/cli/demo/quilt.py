"""The smallest demonstration of the method: a sheet of points cut into 60 patches, moved about and aligned."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt import __version__
from graphquilt.alignment import Alignment, align, centroid
from graphquilt.evaluate import procrustes_error
from graphquilt.cli.demo.quilt_picture import draw_stages, plane_colours
from graphquilt.testing import patchwork

__all__ = ["quilt_demo"]


def quilt_demo(out: str | Path, *, seed: int = 0) -> dict[str, Any]:
    """Align patches of a sheet of points; write ``quilt.png`` and ``quilt.json`` into ``out``, return the figures."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    sheet = patchwork(seed=seed)
    start = time.perf_counter()
    alignment = align(sheet.patches, sheet.edges)
    X = centroid(sheet.patches, alignment)
    seconds = time.perf_counter() - start
    apart = centroid(sheet.patches, Alignment.identity(len(sheet.patches), 2))
    spread = float(np.sqrt(sheet.points.var(axis=0).sum()))
    figures = {
        "graphquilt": __version__,
        "seed": seed,
        "patches": len(sheet.patches),
        "nodes": len(X),
        "dimensions": 2,
        "overlaps compared": len(sheet.edges),
        "seconds": round(seconds, 3),
        "noise of a coordinate": 0.01,
        "root mean square error against the truth": spread * procrustes_error(X, sheet.points),
        "the same without alignment (no-trans)": spread * procrustes_error(apart, sheet.points),
        "error left on an overlap": {
            "median": float(np.median(alignment.edge_errors)),
            "worst": float(alignment.edge_errors.max()),
            "worst edges": alignment.worst_edges(3),
        },
        "eigenvalues": [round(float(value), 6) for value in alignment.eigenvalues],
        "spectral gap": alignment.spectral_gap,
        "residual": alignment.residual,
        "in words": alignment.summary().splitlines(),
        "picture": "quilt.png",
    }
    draw_stages(sheet.patches, alignment, folder / "quilt.png", colours=plane_colours(sheet.points))
    (folder / "quilt.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return figures
