"""The trainings of a study: jobs in folders, which are resumed and shared by all cells that need them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from graphquilt.arrays import Int64Array
from graphquilt.datasets import load_dataset
from graphquilt.embedders import DGI, SVD, VGAE, Embedder
from graphquilt.evaluate import hold_out_edges
from graphquilt.graph import Graph
from graphquilt.jobs import Cutting, DirectoryStore, Job, JobSettings, Recipe, cut
from graphquilt.jobs.records import keep_patch_graph, patch_key
from graphquilt.patches import PatchGraph

__all__ = ["MODELS", "PROTOCOL", "held_out", "study_graph", "study_patches", "trained", "training_fact"]

MODELS: Mapping[str, type[VGAE] | type[DGI]] = {"vgae": VGAE, "dgi": DGI}

PROTOCOL: Mapping[str, Cutting] = {
    "cora": Cutting(10, degree=4, overlap=(256, 1024)),
    "amazon-photo": Cutting(10, degree=4, overlap=(256, 1024)),
    "pubmed": Cutting(20, degree=5, overlap=(256, 1024)),
    # not in the paper: for trying the studies without any data, and for other graphs
    "blocks": Cutting(5, degree=3, overlap=(40, 160)),
    "citeseer": Cutting(10, degree=4, overlap=(256, 1024)),
    "coauthor-cs": Cutting(20, degree=5, overlap=(256, 1024)),
    "wordnet": Cutting(20, degree=5, overlap=(256, 1024)),
}


@cache
def study_graph(name: str, data: Path | None) -> Graph:
    """Open a data set, once."""
    return load_dataset(name, data=data)


@cache
def held_out(name: str, data: Path | None, seed: int) -> tuple[Graph, Int64Array]:
    """Return a data set without a tenth of its edges, and those edges."""
    return hold_out_edges(study_graph(name, data), fraction=0.1, seed=seed)


@cache
def study_patches(name: str, data: Path | None, seed: int, *, links: bool = False) -> PatchGraph:
    """Cut a data set as the protocol says; the same for every model, dimension and run."""
    graph = held_out(name, data, seed)[0] if links else study_graph(name, data)
    # Whether overlaps suffice for a dimension is seen in training.
    return cut(graph, embedder=SVD(1), cutting=PROTOCOL[name], recipe=Recipe(), seed=seed)


def trained(
    path: Path, graph: Graph, patch_graph: PatchGraph | None, embedder: Embedder, *, seed: int, recipe: Recipe
) -> Job:
    """Return a job in a folder with all its patches trained; what the folder has is not trained again.

    Parameters
    ----------
    path : path
        The folder. Recipes that differ in runs or stitching may share one.
    graph : Graph
    patch_graph : PatchGraph or None
        None trains the whole graph as one patch.
    embedder : Embedder
    seed : int
        Seed of the training; the graph has been cut already.
    recipe : Recipe

    Raises
    ------
    JobError
        The folder has trainings with another embedder or seed.
    """
    store = DirectoryStore(path)
    patches = PatchGraph.from_patches([np.arange(graph.n_nodes)]) if patch_graph is None else patch_graph
    keep_patch_graph(store, patches, graph)
    job = Job(store, JobSettings(embedder=embedder, recipe=recipe, seed=seed), graph)
    job.embed()
    # The data of patches can be cut again, and that of hundreds of trainings would take tens of gigabytes.
    for file in sorted(path.glob("patches/*/graph.*")):
        file.unlink()
    return job


def training_fact(job: Job, fact: str) -> float:
    """Return the sum over all trainings of a job of a fact that their records hold, as ``seconds`` or ``epochs``."""
    total = 0.0
    for patch in range(job.settings.recipe.runs * job.patch_graph.n_patches):
        value = job.store[patch_key(patch, "embedding")].parameters.get(fact, 0)
        assert isinstance(value, int | float)
        total += value
    return total
