"""The main job on data that is inside a dependency: handwritten digits, each joined to the digits most like it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.alignment import Alignment, centroid
from graphquilt.arrays import AnyArray, FloatArray
from graphquilt.embedders import VGAE
from graphquilt.errors import MissingExtraError
from graphquilt.evaluate import EvaluationOptions, quality
from graphquilt.graph import Graph
from graphquilt.jobs import DirectoryStore, Job, JobSettings, record_evaluation
from graphquilt.kernels import one_thread
from graphquilt.jobs import Cutting, Recipe, embed_patches
from graphquilt.progress import ProgressCallback, report

__all__ = ["PATCHES", "TITLES", "digits_demo", "digits_graph"]

NEIGHBOURS = 8
DIM = 16
PATCHES = 8
TITLES = {
    "full": "one model of the whole graph",
    "stitched": f"stitched from {PATCHES} patches",
    "no-trans": "patches apart, not aligned",
}


def digits_graph() -> Graph:
    """Return scikit-learn's 1797 digits as a nearest-neighbour graph, with pixels as features and digits as labels."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.neighbors import kneighbors_graph
    except ImportError as error:
        raise MissingExtraError("the digits demo", "eval") from error

    digits = load_digits()
    A = kneighbors_graph(digits.data, NEIGHBOURS)
    graph = Graph(A.maximum(A.T), (digits.data / 16).astype(np.float32), labels=digits.target)
    return graph.largest_component()[0]


def digits_demo(
    out: str | Path, *, seed: int = 0, executor: Executor | None = None, progress: ProgressCallback | None = None
) -> dict[str, Any]:
    """Embed the digits from patches, beside full training and patches apart; write ``digits.json`` and a picture.

    Parameters
    ----------
    out : path
        Folder; the job is in ``out/job`` and is resumed if it is there.
    seed : int
    executor : Executor, optional
        Embeds the patches.
    progress : callable, optional

    Returns
    -------
    dict
        AUC and accuracy of ``full``, ``stitched`` and ``no-trans``, the seconds of each stage, and file names.
    """
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
        "data": f"{graph.n_nodes} digits, {graph.n_edges} edges, {patch_graph.n_patches} patches, "
        f"{DIM} dimensions",
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


def _plane(X: FloatArray) -> AnyArray:
    """Return a picture of an embedding in the plane, (n, 2)."""
    from sklearn.manifold import TSNE

    points: AnyArray = TSNE(2, random_state=0, perplexity=30, max_iter=500).fit_transform(X)
    return points


def _draw(
    path: Path, embeddings: Mapping[str, FloatArray], measured: Mapping[str, Mapping[str, float]], labels: AnyArray
) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.9), layout="constrained")
    colours = mpl.colormaps["tab10"]
    for axes, (route, X) in zip(figure.subplots(1, 3), embeddings.items(), strict=True):
        points = _plane(X)
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
