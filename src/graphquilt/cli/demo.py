"""``graphquilt demo``: watch the method work, with nothing to prepare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter

from graphquilt.alignment import Alignment, align, centroid
from graphquilt.arrays import FloatArray
from graphquilt.cli.display import show, watching
from graphquilt.cli.flags import Output, Workers
from graphquilt.datasets import load_dataset
from graphquilt.drawing import points_svg, sample_rows
from graphquilt.embedders import VGAE, Embedder, Propagation
from graphquilt.errors import needs_extra
from graphquilt.evaluate import EvaluationOptions, procrustes_error
from graphquilt.graph import Graph
from graphquilt.jobs import Cutting, Recipe, compare, embed
from graphquilt.report import write_job_report
from graphquilt.testing import Quilt, patchwork

NEIGHBOURS = 8
DIM = 16
PATCHES = 5
_DIGITS_NEED = {"sklearn": "eval", "torch": "torch"}  # packages, and the extras that have them


def demo(
    example: Annotated[
        Literal["quilt", "digits", "all"],
        Parameter(
            help="quilt: a sheet of points, stitched from 60 patches. digits: a graph of handwritten digits, embedded "
            "from patches and compared with one model of the whole graph."
        ),
    ] = "all",
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="Where to write the results.")] = Path("demo"),
    seed: Annotated[int, Parameter(help="Random seed.")] = 0,
    workers: Workers = Workers(),
    output: Output = Output(),
) -> None:
    """Run built-in examples end to end and print where the results are."""
    results: dict[str, object] = {}
    if example in ("all", "quilt"):
        results["quilt"] = quilt_demo(out, seed=seed, quiet=output.json)
    missing = ",".join(sorted({extra for package, extra in _DIGITS_NEED.items() if find_spec(package) is None}))
    if example == "all" and missing:
        results["blocks"] = graph_demo("blocks", out, workers, seed=seed, quiet=output.json)
        if not output.json:
            print(f"The digits, which VGAE embeds, need more: pip install 'graphquilt[{missing}]'")
    elif example in ("all", "digits"):
        results["digits"] = graph_demo("digits", out, workers, seed=seed, quiet=output.json)
    if output.json:
        show(results, as_json=True)


def graph_demo(
    name: Literal["digits", "blocks"], out: Path, workers: Workers, *, seed: int = 0, quiet: bool = False
) -> dict[str, object]:
    """Embed a graph from patches, compare with one model of the whole and with patches apart, and write the results."""
    graph = digits_graph() if name == "digits" else load_dataset("blocks")
    embedder: Embedder = VGAE(DIM, lr=0.01, max_epochs=300) if name == "digits" else Propagation(DIM)
    cutting = Cutting(PATCHES, overlap=(256, 700) if name == "digits" else None)
    recipe = Recipe.paper() if name == "digits" else Recipe.shared()
    with watching() as progress, workers.executor(PATCHES) as pool:
        work: dict[str, Any] = {"executor": pool, "progress": progress, "store": out / "job"}
        result = embed(graph, embedder=embedder, cutting=cutting, recipe=recipe, seed=seed, **work)
        comparison = compare(result, options=EvaluationOptions(seed=seed), progress=progress)
        picture = comparison.save_picture(out / f"{name}.svg")
        page = write_job_report(result.as_job(), out / "report.html", progress=progress)
    if not quiet:
        what = "Handwritten digits, joined to those that look alike" if name == "digits" else "A generated graph"
        print(f"{what}: {graph.n_nodes} nodes in {PATCHES} patches, by {type(embedder).__name__} in {DIM} dimensions.")
        print("full: one model of the whole graph; l2g: stitched patches; no-trans: the same patches, not aligned.")
        print(comparison)
        print(f"Picture: {picture}   job: {out / 'job'}")
        print(f"Report, to open in a browser: {page.absolute()}")
    return {"routes": {route: asdict(one) for route, one in comparison.items()}, "report": page.name}


def quilt_demo(folder: Path, *, seed: int = 0, quiet: bool = False) -> dict[str, Any]:
    """Align patches of a sheet of points, write a picture into a folder, and return how far the points are off."""
    folder.mkdir(parents=True, exist_ok=True)
    sheet = patchwork(seed=seed)
    alignment = align(sheet.patches, sheet.edges)
    X = centroid(sheet.patches, alignment)
    identity = Alignment.identity(len(sheet.patches), 2)
    spread = float(np.sqrt(sheet.points.var(axis=0).sum()))
    error, error_apart = (spread * procrustes_error(Y, sheet.points) for Y in (X, centroid(sheet.patches, identity)))
    figures = {"patches": len(sheet.patches), "error": error, "error without alignment": error_apart}
    rotated = replace(identity, scales=alignment.scales, rotations=alignment.rotations)
    stages = {"patches as given": identity, "rotations synchronised": rotated, "translations synchronised": alignment}
    (folder / "quilt.svg").write_text(_draw_stages(sheet, stages, X), encoding="utf-8")
    if not quiet:
        print(alignment.summary())
        print(f"Distance from the truth: {error:.4f} (without alignment {error_apart:.2f}).")
        print(f"Picture: {folder / 'quilt.svg'}")
    return figures


def _draw_stages(sheet: Quilt, stages: Mapping[str, Alignment], X: FloatArray) -> str:
    """Return panels of some points of the patches after each stage, and of their centroid, coloured by true place."""
    nodes = np.concatenate([patch.nodes for patch in sheet.patches])
    rows = sample_rows(len(nodes))
    panels = {
        title: np.concatenate([stage.apply(k, Y) for k, (_, Y) in enumerate(sheet.patches)])[rows]
        for title, stage in stages.items()
    }
    panels = {
        title: Z - (Z.min(axis=0) + Z.max(axis=0)) / 2 for title, Z in (panels | {"centroid": X[nodes[rows]]}).items()
    }
    stripes = np.argsort(np.argsort(sheet.points[:, 0], kind="stable"), kind="stable") * 8 // len(X)
    return points_svg(panels, stripes[nodes[rows]])


def digits_graph() -> Graph:
    """Return scikit-learn's 1797 digits as a nearest-neighbour graph, with pixels as features and digits as labels."""
    with needs_extra("the digits demo", "eval"):
        from sklearn.datasets import load_digits
        from sklearn.neighbors import kneighbors_graph

    digits = load_digits()
    A = kneighbors_graph(digits.data, NEIGHBOURS)
    graph = Graph(A.maximum(A.T), (digits.data / 16).astype(np.float32), labels=digits.target)
    return graph.largest_component()[0]
