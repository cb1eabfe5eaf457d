"""The main job on data that is inside a dependency: handwritten digits, each joined to the digits most like it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.alignment import Alignment, centroid
from graphquilt.arrays import AnyArray
from graphquilt.embedders import VGAE
from graphquilt.errors import MissingExtraError
from graphquilt.evaluate import EvaluationOptions, ScikitLogistic, quality
from graphquilt.graph import Graph
from graphquilt.jobs import DirectoryStore, Processes
from graphquilt.jobs.lock import job_lock
from graphquilt.kernels import one_thread
from graphquilt.partition import Metis
from graphquilt.pipeline import embed_patches
from graphquilt.progress import ProgressCallback, report
from graphquilt.stages import align_job, job_graph, keep_graph, make_patches

__all__ = ["digits_demo", "digits_graph"]

NEIGHBOURS = 8
DIM = 16
PATCHES = 8
SPLITS = 50


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
    out: str | Path, *, seed: int = 0, workers: int = 2, progress: ProgressCallback | None = None
) -> dict[str, Any]:
    """Embed the digits from patches, beside full training and unaligned patches; write ``digits.json`` and a picture.

    Parameters
    ----------
    out : path
        Folder; the job is in ``out/job`` and is resumed if it is there.
    seed : int
    workers : int

    Returns
    -------
    dict
        AUC and accuracy of ``full``, ``stitched`` and ``no-trans``, the seconds of each stage, and file names.
    """
    folder = Path(out)
    store = DirectoryStore(folder / "job")
    model = VGAE(DIM, lr=0.01, max_epochs=300)
    made_from = {"data": "scikit-learn's digits", "neighbours": NEIGHBOURS}
    seconds: dict[str, float] = {}
    with job_lock(store.path), Processes(workers) as pool:
        graph = job_graph(store, made_from)
        if graph is None:
            graph = digits_graph()
            keep_graph(store, graph, made_from)
        start = time.perf_counter()
        quilt = make_patches(
            store, graph, Metis(PATCHES, seed), n_patches=PATCHES, dim=DIM, overlap=(128, 512), seed=seed
        )
        seconds["patches"], start = time.perf_counter() - start, time.perf_counter()
        patches = embed_patches(graph, quilt, model, seed=seed, executor=pool, store=store, progress=progress)
        seconds["embedding"], start = time.perf_counter() - start, time.perf_counter()
        alignment = align_job(store, executor=pool)
        seconds["alignment"], start = time.perf_counter() - start, time.perf_counter()
    report(progress, "full training, for comparison", 0, 1)
    embeddings = {
        "full": model(graph, seed),
        "stitched": np.asarray(store["embedding"].arrays["embedding"]),
        "no-trans": centroid(patches, Alignment.identity(quilt.n_patches, DIM), n_nodes=graph.n_nodes),
    }
    seconds["full training"] = time.perf_counter() - start
    report(progress, "full training, for comparison", 1, 1)
    with one_thread():
        measured = {name: _measure(X, graph, seed) for name, X in embeddings.items()}
    figures = {
        "data": f"{graph.n_nodes} digits, {graph.n_edges // 2} edges, {quilt.n_patches} patches, {DIM} dimensions",
        "method": "VGAE on each patch, aligned",
        **measured,
        "seconds": {stage: round(value, 2) for stage, value in seconds.items()},
        "patches": {"nodes": quilt.sizes.tolist(), "edges": len(quilt.edges)},
        "mean edge error": float(alignment.edge_errors.mean()),
        "picture": "digits.png",
        "job": "job",
    }
    with one_thread():
        _draw(folder / "digits.png", embeddings, measured, _labels(graph))
    (folder / "digits.json").write_text(json.dumps(figures, indent=2) + "\n")
    return figures


def _labels(graph: Graph) -> AnyArray:
    return np.asarray(graph.labels)


def _measure(X: AnyArray, graph: Graph, seed: int) -> dict[str, float]:
    options = EvaluationOptions(seed=seed, splits=SPLITS, classifier=ScikitLogistic())
    names = {"auc": "reconstruction AUC", "accuracy": "accuracy", "accuracy_std": "accuracy std"}
    return {names[key]: round(value, 4) for key, value in asdict(quality(X, graph, options=options)).items()}


def _flat(X: AnyArray) -> AnyArray:
    """Two dimensions to look at."""
    from sklearn.manifold import TSNE

    model = TSNE(2, random_state=0, perplexity=30, max_iter=500)
    made: AnyArray = model.fit_transform(X)
    return made


def _draw(path: Path, embeddings: dict[str, AnyArray], measured: dict[str, dict[str, float]], y: AnyArray) -> None:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    titles = {
        "full": "one model of the whole graph",
        "stitched": "stitched from 8 patches",
        "no-trans": "the same patches, not aligned",
    }
    figure = Figure(figsize=(13, 4.9), layout="constrained")
    FigureCanvasAgg(figure)
    colours = mpl.colormaps["tab10"]
    for axes, (name, X) in zip(figure.subplots(1, 3), embeddings.items(), strict=True):
        flat = _flat(X)
        for digit in range(10):
            chosen = y == digit
            axes.scatter(*flat[chosen].T, s=7, color=colours(digit), linewidths=0)
            axes.annotate(
                str(digit), np.median(flat[chosen], axis=0), fontsize=13, fontweight="bold", ha="center", va="center"
            )
        found = measured[name]
        axes.set_title(f"{titles[name]}\nAUC {found['reconstruction AUC']:.3f}, accuracy {found['accuracy']:.3f}")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
    figure.suptitle("1797 handwritten digits as a nearest-neighbour graph, VGAE in 16 dimensions, seen by t-SNE")
    figure.savefig(path, dpi=110)
