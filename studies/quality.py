"""The study of quality: stitched patches against one patch, and the default signal against others, on eleven graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from time import process_time

import numpy as np

from graphquilt.alignment.verdict import grade
from graphquilt.arrays import Float64Array, FloatArray, Int64Array
from graphquilt.datasets.loading import block_graph
from graphquilt.embedders import Propagation, Signal
from graphquilt.errors import needs_extra
from graphquilt.evaluate import (
    InvariantLogistic,
    Split,
    classification_accuracy,
    cosine,
    link_prediction_auc,
    random_splits,
)
from graphquilt.graph import Graph
from graphquilt.jobs import Record, Result, choose_by_labels, embed
from graphquilt.jobs.choosing import _candidates as signal_candidates
from graphquilt.jobs.records import plain
from studies.cells import Row, check_names
from studies.npz_graphs import NAMES, hold_out, official_splits, open_graph, without_features

__all__ = ["CHOSEN", "PARTS", "SIGNALS", "QualityCell", "quality_cells"]

SIGNALS = {
    "default": Signal(),
    "features": Signal.features(),
    "edges": Signal.edges(),
    "both": Signal(spread=1, raw=0, near=0, clusters=0.25, doubt=0, role=0, power=1),
    "raw": Signal.own_features(),
    "classes": Signal.classes(),
    "links": Signal.links(),
}
PARTS = ("stitched", "signals", "chosen", "flickr", "tenths")
CHOSEN = "chosen"  # a signal that the training labels of each split choose
PER_CLASS = 20  # labels for training
SPLITS = 20  # of labels, and parts of the held-out edges: both are kept, for paired standard errors
TENTHS_DIMS = (128, 256, 512)
PENALTIES = (0.01, 0.1, 1.0)  # C of scikit-learn, chosen on validation nodes
ORDER = ((10, 128), (1, 128), (1, 32), (10, 32), (4, 128), (4, 32), (50, 128), (50, 32))  # patches and dimensions
LARGE = ("debian-bookworm", "wordnet")  # more than 25 000 nodes: one seed, and after the others


@dataclass(frozen=True)
class QualityCell:
    """One embedding of one data set, and what it is worth.

    Attributes
    ----------
    dataset : str
    dim, n_patches : int
    signal : str
        One of ``SIGNALS``, or ``"chosen"``: by the training labels of each split, and no others.
    features : bool
        Whether the graph keeps its features.
    far_field : bool
        Whether patches know what lies around them.
    tenths : bool
        Classify the whole graph by random splits into 10, 10 and 80 %, and predict no edges.
    seed : int
        Of the cut.
    data : path, optional
        The folder with data sets.
    """

    dataset: str
    dim: int
    n_patches: int = 1
    signal: str = "default"
    features: bool = True
    far_field: bool = True
    tenths: bool = False
    seed: int = 0
    data: Path | None = None

    @property
    def name(self) -> str:
        """Unique in the study."""
        notes = [
            "" if self.features else "-edges",
            "" if self.far_field else "-alone",
            "-tenths" if self.tenths else "",
        ]
        return f"{self.dataset}-{self.signal}{''.join(notes)}-d{self.dim:03d}-p{self.n_patches:02d}-seed{self.seed}"

    @property
    def group(self) -> str:
        """Every cell stands alone."""
        return self.name

    @property
    def parameters(self) -> Row:
        """Everything that the result depends on; where the data lie does not count."""
        own = {key: value for key, value in asdict(self).items() if key != "data"}
        if self.signal == CHOSEN:
            own["candidates"] = {name: plain(signal) for name, signal in signal_candidates().items()}
        return {**own, "embedder": plain(self._embedder)}

    @property
    def _embedder(self) -> Propagation:
        return Propagation(self.dim, signal=SIGNALS.get(self.signal, Signal()), far_field=self.far_field)

    def run(self, folder: Path) -> Record:  # noqa: ARG002
        """Embed the graph, and embed it once more without a tenth of its edges, which are then predicted."""
        _warm_up()
        graph = open_graph(self.dataset, self.data, largest_component=not self.tenths)
        y = np.asarray(graph.labels)
        if self.signal == CHOSEN:
            return Record({}, _choose(graph, self.dim, 5 if self.dataset in LARGE else SPLITS))
        start = process_time()
        fit = self._embedded(graph)
        result: Row = {"cost": round(process_time() - start, 2), "grade": grade(fit.alignment)}
        if self.tenths:
            accuracies = InvariantLogistic()(fit.embedding, y, _tenths(len(y)))
            return Record({}, {**result, "accuracies": accuracies.tolist()})
        accuracies = classification_accuracy(fit.embedding, y, splits=SPLITS, seed=0, skip_small=True)
        result["accuracies"] = accuracies.tolist()
        visible, edges = hold_out(graph, 0)
        result["links"] = _link_aucs(self._embedded(visible).embedding, edges, graph).tolist()
        splits = official_splits(self.dataset, self.data)
        if splits and self.n_patches == 1 and self.dim == 128:
            result["roc_aucs"] = _roc_aucs(fit.embedding, y, splits).tolist()
        return Record({}, result)

    def _embedded(self, graph: Graph) -> Result:
        graph = graph if self.features else without_features(graph)
        return embed(graph, self.dim, embedder=self._embedder, n_patches=self.n_patches, seed=self.seed)


def _choose(graph: Graph, dim: int, count: int) -> Row:
    """Let the training labels of each split choose a signal, and classify the split by it."""
    start = process_time()
    embeddings = {name: Propagation(dim, signal=signal)(graph, 0) for name, signal in signal_candidates().items()}
    y = np.asarray(graph.labels)
    accuracies = {
        name: classification_accuracy(X, y, splits=SPLITS, seed=0, skip_small=True) for name, X in embeddings.items()
    }
    names, sizes = np.unique(y[y >= 0], return_counts=True)
    nodes = np.flatnonzero(np.isin(y, names[sizes > PER_CLASS]))  # as classification_accuracy leaves classes out
    classes = np.searchsorted(names[sizes > PER_CLASS], y[nodes])
    choices = []
    for split in random_splits(classes, per_class=PER_CLASS, splits=SPLITS, seed=0)[:count]:
        labels = np.full(len(y), -1)
        labels[nodes[split.train]] = classes[split.train]
        choices.append(choose_by_labels(embeddings, labels).name)
    return {
        "cost": round(process_time() - start, 2),
        "grade": "unknown",
        "accuracies": [float(accuracies[name][k]) for k, name in enumerate(choices)],
        "choices": choices,
    }


@cache
def _warm_up() -> None:
    """Embed a small graph in all ways first: no cell then pays for loading and compiling."""
    graph = block_graph(n_classes=15)  # 300 features: wide ones are reduced first
    for each in (graph, without_features(graph)):
        for n_patches in (1, 4):
            embed(each, 8, n_patches=n_patches)


def _link_aucs(X: FloatArray, edges: Int64Array, graph: Graph) -> Float64Array:
    """Return the AUC by cosine of each part of the held-out edges, against as many non-edges of its own."""
    order = np.random.default_rng(0).permutation(len(edges))
    parts = np.array_split(edges[order], SPLITS)
    return np.array([link_prediction_auc(X, part, graph, seed=k, score=cosine) for k, part in enumerate(parts)])


def _tenths(n: int) -> list[Split]:
    """Return random splits into 10 % for training, 10 % for validation and 80 % for tests."""
    rng, a = np.random.default_rng(0), n // 10
    orders = [rng.permutation(n) for _ in range(SPLITS)]
    return [Split(order[:a], order[a : 2 * a], order[2 * a :]) for order in orders]


def _roc_aucs(X: FloatArray, y: Int64Array, splits: Sequence[Split]) -> Float64Array:
    """Return the ROC AUC of two classes on the test nodes of each split, by logistic regression."""
    with needs_extra("the ROC AUC of classes", "eval"):
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import roc_auc_score

    deviation = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    aucs = []
    for split in splits:
        models = [LogisticRegression(C=C, max_iter=300).fit(Z[split.train], y[split.train]) for C in PENALTIES]
        scores = [model.decision_function(Z) for model in models]
        best = max(scores, key=lambda score: roc_auc_score(y[split.validation], score[split.validation]))
        aucs.append(roc_auc_score(y[split.test], best[split.test]))
    return np.array(aucs)


def quality_cells(
    datasets: Sequence[str] = tuple(NAMES), parts: Sequence[str] = PARTS, *, data: Path | None = None
) -> list[QualityCell]:
    """List the cells, those that matter most first; large graphs and more seeds come last."""
    check_names(datasets, (*NAMES, "blocks"), "data set")
    check_names(parts, PARTS, "part")
    large = [name for name in datasets if name in LARGE]
    small = [name for name in datasets if name not in LARGE]
    cells = [*_cells(small, parts), *_cells(large, parts)]
    if "stitched" in parts:
        cells += [
            QualityCell(name, 128, 10, features=features, seed=seed)
            for seed in (1, 2)
            for name in small
            for features in (True, False)
        ]
    return [replace(cell, data=data) for cell in dict.fromkeys(cells)]


def _cells(datasets: Sequence[str], parts: Sequence[str]) -> list[QualityCell]:
    cells: list[QualityCell] = []
    for n_patches, dim in ORDER:
        if "stitched" in parts:
            cells += [
                QualityCell(name, dim, n_patches, features=features) for name in datasets for features in (True, False)
            ]
        if (n_patches, dim) != (1, 128):
            continue
        if "signals" in parts:
            cells += [QualityCell(name, dim, signal=signal) for name in datasets for signal in SIGNALS]
        if "chosen" in parts:
            cells += [QualityCell(name, dim, signal=CHOSEN) for name in datasets]
        if "flickr" in parts and "gd-flickr" in datasets:
            cells += _flickr_cells()
    if "tenths" in parts:
        cells += [
            QualityCell(name, dim, signal=signal, tenths=True)
            for name in ("amazon-photo", "coauthor-cs")
            if name in datasets
            for dim in TENTHS_DIMS
            for signal in ("default", "classes")
        ]
    return cells


def _flickr_cells() -> list[QualityCell]:
    """List the cells of spread features alone, with the far field and without."""
    cells = [QualityCell("gd-flickr", 32, n_patches, "features") for n_patches in (1, 10, 4)]
    return [*cells, *(replace(cell, far_field=False) for cell in cells[1:])]
