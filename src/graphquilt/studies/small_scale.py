"""The small-scale study of the paper: full training against aligned and unaligned patches, on three data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from graphquilt.alignment import Alignment, AlignOptions, align, centroid
from graphquilt.arrays import FloatArray
from graphquilt.datasets import load_dataset
from graphquilt.embedders import DGI, VGAE
from graphquilt.errors import InputError
from graphquilt.evaluate import EvaluationOptions, negative_distance, quality, reconstruction_auc
from graphquilt.graph import Graph
from graphquilt.linalg.motions import Motions
from graphquilt.partition import Metis, merge_small
from graphquilt.patches import PatchGraph, patch_graph
from graphquilt.progress import ProgressCallback
from graphquilt.studies.cells import cell_seed, run_cells
from graphquilt.studies.trainings import train_patches, train_whole

__all__ = [
    "DIMS",
    "PROTOCOL",
    "Quilting",
    "SmallScaleCell",
    "cut_as_protocol",
    "quilted",
    "reproduce_small",
    "small_cells",
    "study_graph",
    "study_quality",
]

DIMS = (2, 4, 8, 16, 32, 64, 128)
# As many non-edges as edges, as in the paper; our own default is twice as many.
MODELS: Mapping[str, Callable[[int], VGAE | DGI]] = {"vgae": partial(VGAE, negatives=1), "dgi": DGI}


@dataclass(frozen=True)
class Quilting:
    """How a data set is cut: number of patches, mean degree of the patch graph, least and most overlap."""

    n_patches: int
    degree: int
    overlap: tuple[int, int] = (256, 1024)


PROTOCOL: Mapping[str, Quilting] = {
    "cora": Quilting(10, 4),
    "amazon-photo": Quilting(10, 4),
    "pubmed": Quilting(20, 5),
    # not in the paper: for trying the study out without any data, and for another citation graph
    "blocks": Quilting(5, 3, (40, 160)),
    "citeseer": Quilting(10, 4),
    "coauthor-cs": Quilting(20, 5),
}


@cache
def study_graph(name: str, data: str | None) -> Graph:
    """Open a data set, once."""
    return load_dataset(name, data=data)


@cache
def quilted(name: str, data: str | None, seed: int) -> PatchGraph:
    """Cut a data set as the protocol says; the same for every model, dimension and run."""
    return cut_as_protocol(study_graph(name, data), name, seed)


def cut_as_protocol(graph: Graph, name: str, seed: int) -> PatchGraph:
    """Cut a graph as the protocol says for the data set of this name."""
    how = PROTOCOL[name]
    labels = merge_small(graph, Metis(how.n_patches, seed=seed)(graph), how.overlap[0] // 2)
    return patch_graph(graph, labels, degree=how.degree, overlap=how.overlap, seed=seed)


@dataclass(frozen=True)
class SmallScaleCell:
    """One data set, one model, one dimension, one run: trained in full and in patches, and measured.

    Attributes
    ----------
    dataset, model : str
    dim, run, seed : int
    data : str, optional
        The folder with data sets.
    splits : int
        Random splits of the classification.
    keep : bool
        Leave the embeddings in the folder, for pictures.
    """

    dataset: str
    model: str
    dim: int
    run_number: int
    seed: int = 0
    data: str | None = None
    splits: int = 50
    keep: bool = False

    @property
    def name(self) -> str:
        """Unique in the study."""
        return f"{self.dataset}-{self.model}-d{self.dim:03d}-run{self.run_number}"

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that the result depends on; where the data lie does not count."""
        own = {key: value for key, value in asdict(self).items() if key not in ("data", "keep")}
        return {**own, "quilting": asdict(PROTOCOL[self.dataset]), "negatives": 1 if self.model == "vgae" else None}

    def run(self, folder: Path) -> dict[str, Any]:
        """Train, stitch and measure all routes."""
        graph, quilt = study_graph(self.dataset, self.data), quilted(self.dataset, self.data, self.seed)
        embedder = MODELS[self.model](self.dim)
        seed = cell_seed(self.seed, self.dataset, self.model, self.dim, self.run_number)
        full = train_whole(folder, f"{self.name}-full", graph, embedder, seed=seed)
        local = train_patches(folder, f"{self.name}-patches", graph, quilt, embedder, seed=seed)
        patches = local.patches
        embedded = process_time()
        alignment = align(patches, quilt.edges)
        aligned = process_time()
        rotation = align(patches, quilt.edges, options=AlignOptions(motions=Motions(translate=False)))
        identity = Alignment.identity(quilt.n_patches, self.dim)
        routes: dict[str, FloatArray] = {"full": full.whole}
        for route, each in (("l2g", alignment), ("no-trans", identity), ("rotation-only", rotation)):
            routes[route] = centroid(patches, each, n_nodes=graph.n_nodes)
        if self.keep:
            for route, X in routes.items():
                np.save(folder / f"{self.name}-{route}.npy", X.astype(np.float32))
        measured = {route: study_quality(X, graph, seed=self.seed, splits=self.splits) for route, X in routes.items()}
        done = process_time()
        return {
            "routes": measured,
            "epochs": full.epochs,
            "patch_sizes": [len(nodes) for nodes in quilt.node_sets],
            "oversampling": sum(len(nodes) for nodes in quilt.node_sets) / graph.n_nodes,
            "stages": {
                "full": round(full.seconds, 2),
                "patches": round(local.seconds, 2),
                "align": round(aligned - embedded, 2),
                "measure": round(done - aligned, 2),
            },
        }


def study_quality(X: FloatArray, graph: Graph, *, seed: int, splits: int) -> dict[str, float]:
    """Return AUC by inner product and by distance, and the mean and spread of the accuracy over splits."""
    scores = asdict(quality(X, graph, options=EvaluationOptions(seed=seed, splits=splits)))
    return {**scores, "auc_distance": reconstruction_auc(X, graph, seed=seed, score=negative_distance)}


def small_cells(
    datasets: Sequence[str],
    models: Sequence[str],
    dims: Sequence[int],
    runs: int,
    *,
    seed: int = 0,
    splits: int = 50,
    data: str | None = None,
) -> list[SmallScaleCell]:
    """List the cells: data set by data set, run by run, small dimensions first."""
    for words, known, kind in ((datasets, PROTOCOL, "data set"), (models, MODELS, "model")):
        for word in words:
            if word not in known:
                raise InputError(f"the study has no {kind} '{word}'; it knows {', '.join(known)}.")
    if runs < 1 or any(dim < 1 for dim in dims):
        raise InputError(f"runs is {runs} and the dimensions are {tuple(dims)}; all must be at least 1.")
    return [
        SmallScaleCell(dataset, model, dim, run, seed=seed, data=data, splits=splits, keep=dim == max(dims))
        for dataset in datasets
        for run in range(runs)
        for dim in dims
        for model in models
    ]


def reproduce_small(
    cells: Sequence[SmallScaleCell],
    out: Path,
    *,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
    maps: bool = True,
) -> list[dict[str, Any]]:
    """Compute the cells that are not finished in ``out``, and write ``results.json``, ``tables.md`` and figures.

    Parameters
    ----------
    cells : sequence of SmallScaleCell
        See :func:`small_cells`.
    out : path
    executor : Executor, optional
        Runs the cells; None computes them here.
    progress : callable, optional
    maps : bool
        Draw UMAP pictures of the largest dimension too.

    Returns
    -------
    list of dict
        See :func:`graphquilt.studies.small_scale_report.summarise`.
    """
    from graphquilt.studies.small_scale_report import write_report

    run_cells(cells, out, executor=executor, progress=progress)
    return write_report(out, data=cells[0].data, maps=maps)
