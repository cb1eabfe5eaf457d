"""The graphs of the study of quality: those of :mod:`graphquilt.datasets`, and others in the same safe .npz form."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.datasets import dataset_names, load_dataset
from graphquilt.datasets.loading import dataset_folder
from graphquilt.errors import InputError
from graphquilt.evaluate import Split, hold_out_edges
from graphquilt.files import load_arrays
from graphquilt.graph import Graph

__all__ = ["FIRST_LOOK", "NAMES", "SHOWN", "hold_out", "official_splits", "open_graph", "without_features"]

SHOWN = {  # on which the default signal was chosen
    "cora": "Cora",
    "citeseer": "Citeseer",
    "amazon-photo": "Amazon photo",
    "gd-flickr": "Flickr",
    "gd-acm": "ACM",
    "het-tolokers": "Tolokers",
}
FIRST_LOOK = {  # looked at once, afterwards
    "pubmed": "Pubmed",
    "coauthor-cs": "Coauthor CS",
    "musae-twitch-de": "Twitch DE",
    "debian-bookworm": "Debian",
    "wordnet": "WordNet",
}
NAMES = {**SHOWN, **FIRST_LOOK}


@cache
def _arrays(name: str, data: Path | None) -> dict[str, AnyArray]:
    """Return the arrays of a data set that the library does not know."""
    path = dataset_folder(data) / name / f"{name}.npz"
    if not path.is_file():
        raise InputError(f"the data set '{name}' is not in {dataset_folder(data)}: expected {path}.")
    return load_arrays(path)


@cache
def open_graph(name: str, data: Path | None, *, largest_component: bool = True) -> Graph:
    """Return a data set with features and labels, once."""
    if name in dataset_names():
        return load_dataset(name, data=data, largest_component=largest_component)
    arrays = _arrays(name, data)
    parts = (arrays["x_data"], arrays["x_indices"], arrays["x_indptr"])
    X = sp.csr_array(parts, shape=tuple(arrays["x_shape"].tolist()), dtype=np.float32)
    rows, columns = arrays["edge_index"]
    A = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(X.shape[0], X.shape[0]))
    graph = Graph(A, X, labels=arrays["y"].astype(np.int64))
    return graph.largest_component()[0] if largest_component else graph


@cache
def without_features(graph: Graph) -> Graph:
    """Return a graph with its edges only."""
    return Graph.from_arrays(graph.indptr, graph.indices, graph.weights)


@cache
def hold_out(graph: Graph, seed: int) -> tuple[Graph, Int64Array]:
    """Return a graph without a tenth of its edges, and those edges."""
    return hold_out_edges(graph, fraction=0.1, seed=seed, connected=False)


@cache
def official_splits(name: str, data: Path | None) -> list[Split]:
    """Return the splits that a data set comes with; an empty list where it has none."""
    arrays = {} if name in dataset_names() else _arrays(name, data)
    if "train_masks" not in arrays:
        return []
    masks = (arrays[f"{part}_masks"] for part in ("train", "val", "test"))
    return [Split(*map(np.flatnonzero, split)) for split in zip(*masks, strict=True)]
