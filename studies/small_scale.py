"""The small-scale study of the paper: full training against aligned and unaligned patches, on three data sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

import numpy as np

from graphquilt.alignment import Alignment, centroid
from graphquilt.arrays import FloatArray
from graphquilt.errors import InputError
from graphquilt.evaluate import Classifier, EvaluationOptions, negative_distance, quality, reconstruction_auc
from graphquilt.graph import Graph
from graphquilt.jobs import Recipe, Record, stitch
from graphquilt.jobs.records import plain
from graphquilt.linalg import Motions
from studies.adam import AdamLogistic
from studies.cells import Row, cell_seed, check_names
from studies.trainings import MODELS, PROTOCOL, study_graph, study_patches, trained, training_fact

__all__ = ["DIMS", "SmallScaleCell", "measured", "small_cells"]

DIMS = (2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class SmallScaleCell:
    """One data set, one model, one dimension, one run: trained in full and in patches, and measured.

    Attributes
    ----------
    dataset, model : str
    dim, run_number, seed : int
    data : path, optional
        The folder with data sets.
    splits : int
        Random splits of the classification.
    keep : bool
        Keep the embeddings with the result, for pictures.
    """

    dataset: str
    model: str
    dim: int
    run_number: int
    seed: int = 0
    data: Path | None = None
    splits: int = 50
    keep: bool = False

    @property
    def name(self) -> str:
        """Unique in the study."""
        return f"{self.dataset}-{self.model}-d{self.dim:03d}-run{self.run_number}"

    @property
    def group(self) -> str:
        """Every cell has its own trainings."""
        return self.name

    @property
    def parameters(self) -> Row:
        """Everything that the result depends on; where the data lie does not count."""
        own = {key: value for key, value in asdict(self).items() if key not in ("data", "keep")}
        return {**own, "cutting": plain(PROTOCOL[self.dataset]), "negatives": 1 if self.model == "vgae" else None}

    def run(self, folder: Path) -> Record:
        """Train, stitch and measure all routes."""
        graph = study_graph(self.dataset, self.data)
        patch_graph = study_patches(self.dataset, self.data, self.seed)
        recipe = Recipe.paper()
        embedder = recipe.apply_to(MODELS[self.model](self.dim))
        seed = cell_seed(self.seed, self.dataset, self.model, self.dim, self.run_number)
        whole = trained(folder / f"{self.name}-full", graph, None, embedder, seed=seed, recipe=recipe)
        local = trained(folder / f"{self.name}-patches", graph, patch_graph, embedder, seed=seed, recipe=recipe)
        start = process_time()
        local.stitch()
        aligned = process_time()
        rotation_only = recipe.replace(motions=Motions(translate=False))
        identity = Alignment.identity(patch_graph.n_patches, self.dim)
        routes: dict[str, FloatArray] = {
            "full": whole.patches[0].coordinates,
            "l2g": local.embedding,
            "no-trans": centroid(local.patches, identity, n_nodes=graph.n_nodes),
            "rotation-only": stitch(patch_graph, local.patches, recipe=rotation_only)[1],
        }
        # This study repeats the paper's figures and classifies as the paper does.
        figures = {
            route: measured(X, graph, seed=self.seed, splits=self.splits, classifier=AdamLogistic())
            for route, X in routes.items()
        }
        end = process_time()
        result: Row = {
            "routes": figures,
            "epochs": int(training_fact(whole, "epochs")),
            "patch_sizes": patch_graph.sizes.tolist(),
            "oversampling": float(patch_graph.sizes.sum()) / graph.n_nodes,
            "stages": {
                "full": round(training_fact(whole, "seconds"), 2),
                "patches": round(training_fact(local, "seconds"), 2),
                "align": round(aligned - start, 2),
                "measure": round(end - aligned, 2),
            },
        }
        return Record({route: X.astype(np.float32) for route, X in routes.items()} if self.keep else {}, result)


def measured(X: FloatArray, graph: Graph, *, seed: int, splits: int, classifier: Classifier) -> dict[str, float]:
    """Return AUC by inner product and by distance, and the mean and spread of the accuracy over splits."""
    options = EvaluationOptions(seed=seed, splits=splits, classifier=classifier)
    figures: dict[str, float] = asdict(quality(X, graph, options=options))
    return {**figures, "auc_distance": reconstruction_auc(X, graph, seed=seed, score=negative_distance)}


def small_cells(
    datasets: Sequence[str],
    models: Sequence[str],
    dims: Sequence[int],
    runs: int,
    *,
    seed: int = 0,
    splits: int = 50,
    data: Path | None = None,
) -> list[SmallScaleCell]:
    """List the cells: data set by data set, run by run, small dimensions first."""
    check_names(datasets, PROTOCOL, "data set")
    check_names(models, MODELS, "model")
    if runs < 1 or any(dim < 1 for dim in dims):
        raise InputError(f"runs is {runs} and the dimensions are {tuple(dims)}; all must be at least 1.")
    return [
        SmallScaleCell(dataset, model, dim, run, seed=seed, data=data, splits=splits, keep=dim == max(dims))
        for dataset in datasets
        for run in range(runs)
        for dim in dims
        for model in models
    ]
