"""``graphquilt demo``: watch the method work, with nothing to prepare. Here: a sheet of points cut into 60 patches."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter
from scipy.spatial import ConvexHull

from graphquilt import __version__
from graphquilt.alignment import Alignment, align, centroid
from graphquilt.arrays import AnyArray, Float64Array, FloatArray
from graphquilt.cli.display import show, watching
from graphquilt.cli.flags import Output
from graphquilt.cli.workers import Workers
from graphquilt.drawing import points_svg, sample_rows
from graphquilt.embedders import VGAE
from graphquilt.errors import MissingExtraError, needs_extra
from graphquilt.evaluate import EvaluationOptions, procrustes_error, quality
from graphquilt.graph import Graph
from graphquilt.jobs import Cutting, DirectoryStore, Job, JobSettings, Recipe, embed_patches, record_evaluation
from graphquilt.kernels import one_thread
from graphquilt.patches import Patch
from graphquilt.progress import ProgressCallback, report
from graphquilt.report import new_figure
from graphquilt.testing import patchwork

NEIGHBOURS = 8
DIM = 16
PATCHES = 8
_DIGITS_NEED = {"sklearn": "eval", "torch": "torch", "matplotlib": "viz"}  # packages, and the extras that have them
TITLES = {
    "full": "one model of the whole graph",
    "stitched": f"stitched from {PATCHES} patches",
    "no-trans": "patches apart, not aligned",
}


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
        results["quilt"] = _quilt(out, seed, quiet=output.json)
    missing = {extra for package, extra in _DIGITS_NEED.items() if find_spec(package) is None}
    if example == "all" and missing:
        results["blocks"] = _blocks(out, seed, missing, quiet=output.json)
    elif example in ("all", "digits"):
        results["digits"] = _digits(out, seed, workers, quiet=output.json)
    if output.json:
        show(results, as_json=True)


def _quilt(out: Path, seed: int, *, quiet: bool) -> dict[str, object]:
    figures = quilt_demo(out, seed=seed)
    if not quiet:
        print("\n".join(figures["in words"]))
        print(
            f"Distance from the truth: {figures['root mean square error against the truth']:.4f} "
            f"(without alignment {figures['the same without alignment (no-trans)']:.2f})."
        )
        print(f"Picture: {out / figures['picture']}   figures: {out / 'quilt.json'}")
    return figures


def _blocks(out: Path, seed: int, missing: set[str], *, quiet: bool) -> dict[str, object]:
    """Embed a generated graph, which needs no extra, in a job with its page; in place of the digits."""
    from graphquilt.datasets import load_dataset
    from graphquilt.jobs import compare, embed
    from graphquilt.report import write_job_report

    with watching() as progress:
        result = embed(load_dataset("blocks"), DIM, n_patches=PATCHES, seed=seed, store=out / "job", progress=progress)
        comparison = compare(result, options=EvaluationOptions(splits=10), progress=progress)
        picture = comparison.save_picture(out / "blocks.svg")
        page = write_job_report(result.as_job(), out / "report.html", progress=progress)
    if not quiet:
        print(f"A generated graph of {len(result.embedding)} nodes in {PATCHES} patches, by the default embedder:")
        print(comparison)
        print(f"Picture: {picture}   job: {out / 'job'}")
        print(f"Report, to open in a browser: {page.absolute()}")
        extras = ",".join(sorted(missing))
        print(f"The digits, which VGAE embeds, need more: pip install 'graphquilt[{extras}]'")
    return {"routes": {route: asdict(one) for route, one in comparison.items()}, "report": page.name}


def _digits(out: Path, seed: int, workers: Workers, *, quiet: bool) -> dict[str, object]:
    from graphquilt.jobs import Job
    from graphquilt.report import write_job_report

    with watching() as progress, workers.executor(PATCHES) as pool:
        figures = digits_demo(out, seed=seed, executor=pool, progress=progress)
        page = write_job_report(Job.open(out / "job"), out / "report.html", progress=progress)
    if not quiet:
        print(figures["data"])
        for route, title in TITLES.items():
            measured = figures[route]
            print(f"  {title:<30} AUC {measured['auc']:.3f}   accuracy {measured['accuracy']:.3f}")
        print(f"Picture: {out / 'digits.png'}   figures: {out / 'digits.json'}   job: {out / 'job'}")
        print(f"Report, to open in a browser: {page.absolute()}")
    return {**figures, "report": page.name}


def quilt_demo(out: str | Path, *, seed: int = 0) -> dict[str, Any]:
    """Align patches of a sheet of points; write a picture and ``quilt.json`` into ``out``, return the figures."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    sheet = patchwork(seed=seed)
    before = time.perf_counter()
    alignment = align(sheet.patches, sheet.edges)
    X = centroid(sheet.patches, alignment)
    seconds = time.perf_counter() - before
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
    try:
        _draw_stages(sheet.patches, alignment, folder / "quilt.png", _plane_colours(sheet.points))
    except MissingExtraError:  # a plainer picture, without matplotlib
        figures["picture"] = "quilt.svg"
        rows = sample_rows(len(X))
        eighths = np.argsort(np.argsort(sheet.points[rows, 0], kind="stable"), kind="stable") * 8 // len(rows)
        panels = {"patches as given": apart[rows], "stitched": X[rows]}
        (folder / "quilt.svg").write_text(points_svg(panels, eighths), encoding="utf-8")
    (folder / "quilt.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return figures


def _draw_stages(patches: Sequence[Patch], alignment: Alignment, path: Path, shades: Float64Array) -> None:
    """Draw four panels of patches in the plane."""
    X = centroid(patches, alignment)
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


def _plane_colours(X: AnyArray) -> Float64Array:
    """Return a colour ``(n, 3)`` for each point of the plane ``X (n, 2)`` that changes smoothly with its position."""
    low, high = X.min(axis=0), X.max(axis=0)
    u, v = ((X - low) / np.maximum(high - low, 1e-12)).T
    shades = np.stack([0.15 + 0.8 * u, 0.25 + 0.55 * v, 0.85 - 0.6 * u * (0.4 + 0.6 * v)], axis=1)
    return np.asarray(np.clip(shades, 0, 1), dtype=np.float64)


def digits_graph() -> Graph:
    """Return scikit-learn's 1797 digits as a nearest-neighbour graph, with pixels as features and digits as labels."""
    with needs_extra("the digits demo", "eval"):
        from sklearn.datasets import load_digits
        from sklearn.neighbors import kneighbors_graph

    digits = load_digits()
    A = kneighbors_graph(digits.data, NEIGHBOURS)
    graph = Graph(A.maximum(A.T), (digits.data / 16).astype(np.float32), labels=digits.target)
    return graph.largest_component()[0]


def digits_demo(
    out: str | Path, *, seed: int = 0, executor: Executor | None = None, progress: ProgressCallback | None = None
) -> dict[str, Any]:
    """Embed the digits from patches, beside full training and patches apart; write ``digits.json`` and a picture."""
    folder, graph = Path(out), digits_graph()
    model = VGAE(DIM, lr=0.01, max_epochs=300)
    settings = JobSettings(
        embedder=model, cutting=Cutting(PATCHES, overlap=(128, 512)), recipe=Recipe.shared(), seed=seed
    )
    job = Job.begin(DirectoryStore(folder / "job"), settings, graph)
    times = [time.perf_counter()]
    patch_graph = job.cut(progress=progress)
    times.append(time.perf_counter())
    job.embed(executor=executor, progress=progress)
    times.append(time.perf_counter())
    alignment = job.stitch(executor=executor, progress=progress)
    times.append(time.perf_counter())
    report(progress, "full training, for comparison", 0, 1)
    identity = Alignment.identity(patch_graph.n_patches, DIM)
    apart = embed_patches(graph, patch_graph, model, recipe=Recipe.paper(), seed=seed, executor=executor)
    embeddings = {
        "full": model(graph, seed),
        "stitched": job.embedding,
        "no-trans": centroid(apart, identity, n_nodes=graph.n_nodes),
    }
    times.append(time.perf_counter())
    report(progress, "full training, for comparison", 1, 1)
    with one_thread():
        options = EvaluationOptions(seed=seed)
        routes = {route: quality(X, graph, options=options) for route, X in embeddings.items()}
        measured = {route: asdict(value) for route, value in routes.items()}
        record_evaluation(job, {"routes": {"l2g" if name == "stitched" else name: measured[name] for name in measured}})
        _draw(folder / "digits.png", embeddings, measured, np.asarray(graph.labels))
    stages = zip(("patches", "embedding", "alignment", "full training"), np.diff(times), strict=True)
    figures = {
        "data": f"{graph.n_nodes} digits, {graph.n_edges} edges, {patch_graph.n_patches} patches, {DIM} dimensions",
        "method": "VGAE on each patch, from a shared start",
        **measured,
        "seconds": {stage: round(float(seconds), 2) for stage, seconds in stages},
        "patches": {"nodes": patch_graph.sizes.tolist(), "edges": len(patch_graph.edges)},
        "mean edge error": float(alignment.edge_errors.mean()),
        "picture": "digits.png",
        "job": "job",
    }
    (folder / "digits.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return figures


def _draw(
    path: Path, embeddings: Mapping[str, FloatArray], measured: Mapping[str, Mapping[str, float]], labels: AnyArray
) -> None:
    with needs_extra("the picture of the digits", "viz,eval"):
        import matplotlib as mpl
        from sklearn.manifold import TSNE

    figure = new_figure(13, 4.9, purpose="drawing the digits")
    colours = mpl.colormaps["tab10"]
    for axes, (route, X) in zip(figure.subplots(1, 3), embeddings.items(), strict=True):
        points = TSNE(2, random_state=0, perplexity=30, max_iter=500).fit_transform(X)
        for digit in range(10):
            chosen = labels == digit
            axes.scatter(*points[chosen].T, s=7, color=colours(digit), linewidths=0)
            axes.annotate(
                str(digit), np.median(points[chosen], axis=0), fontsize=13, fontweight="bold", ha="center", va="center"
            )
        figures = measured[route]
        axes.set_title(f"{TITLES[route]}\nAUC {figures['auc']:.3f}, accuracy {figures['accuracy']:.3f}")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
    figure.suptitle(
        f"{len(labels)} handwritten digits as a graph of neighbours, VGAE in {DIM} dimensions, seen by t-SNE"
    )
    figure.savefig(path, dpi=110)
