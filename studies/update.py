"""The study of updates: nodes and edges are held back, a job is made without them, updated, and made afresh."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, BoolArray, FloatArray, Int64Array
from graphquilt.datasets.loading import dataset_folder
from graphquilt.embedders import Propagation
from graphquilt.evaluate import Split, classification_accuracy, hold_out_edges, link_prediction_auc
from graphquilt.evaluate.classification import InvariantLogistic, random_splits
from graphquilt.files import load_arrays
from graphquilt.graph import Graph
from graphquilt.jobs import DirectoryStore, Job, Record, Result, Store, embed, update
from graphquilt.jobs.versions import found_again
from graphquilt.patches import default_partitioner
from studies.cells import Row, check_names, read_cells
from studies.npz_graphs import NAMES, hold_out, open_graph

__all__ = ["UpdateCell", "update_cells", "update_page", "write_update"]

T = TypeVar("T")
SETS = ("wordnet", "debian-bookworm")
RELEASES = "debian-releases"
NODES, EDGES = 0.01, 0.02  # held back
PARTS = 30  # into which a graph is cut; local changes lie in the first, which has about 3 % of the nodes
SPLITS, PER_CLASS, RANK = 20, 20, 16
SEEDS = range(3)
_FIGURES = "update", "cpu", "untouched", "accuracy", "auc", "classifier", "corrected"


@dataclass(frozen=True)
class UpdateCell:
    """One update: of a data set with changes ``where`` ("local" or "random"), or from one release to the next."""

    dataset: str
    where: str = "random"
    seed: int = 0  # of what is held back
    dim: int = 64
    n_patches: int = 10
    data: Path | None = None

    @property
    def name(self) -> str:
        """Unique in the study."""
        return f"{self.dataset}-{self.where}-p{self.n_patches}-s{self.seed}"

    @property
    def group(self) -> str:
        """Every cell stands alone."""
        return self.name

    @property
    def parameters(self) -> Row:
        """Everything that the result depends on."""
        return {key: value for key, value in asdict(self).items() if key != "data"} | {"version": 3}

    def run(self, folder: Path) -> Record:
        """Embed the graph before, update the job, and compare it with a job made afresh."""
        refresh = self.dataset == RELEASES
        if refresh:
            before, after, held_out, whole = _releases(self.data)
        else:
            whole = open_graph(self.dataset, self.data)
            visible, held_out = hold_out(whole, 0)
            after = visible.with_attributes(node_ids=np.arange(visible.n_nodes))
            before = _held_back(after, self.seed, local=self.where == "local")
        store, fresh_store = DirectoryStore(folder / f"{self.name}-job"), DirectoryStore(folder / f"{self.name}-fresh")
        for each in (store, fresh_store):
            shutil.rmtree(each.folder, ignore_errors=True)
        embed(_small(), self.dim, n_patches=2)  # compiles what all of them need
        _, seconds_before = _timed(lambda: self._embed(before, store))
        old = np.array(Job.open(store).embedding)
        done, seconds = _timed(lambda: update(store, after, refresh=refresh))
        _, seconds_fresh = _timed(lambda: self._embed(after, fresh_store))
        job = Job.open(store)
        ids = job.graph.node_ids if job.graph is not None and job.graph.node_ids is not None else np.arange(len(old))
        names = np.arange(after.n_nodes) if after.node_ids is None else after.node_ids
        rows = np.argsort(ids)[np.searchsorted(np.sort(ids), names)]
        X, fresh = np.asarray(job.embedding)[rows], np.asarray(Job.open(fresh_store).embedding)
        order = np.random.default_rng(self.seed + 1).permutation(after.n_nodes)
        permuted = np.empty_like(fresh)  # a second fresh job: its clusters and patches are others
        permuted[order] = self._embed(after.subgraph(order), {}).embedding
        place = np.full(len(ids), -1)
        place[rows] = np.arange(len(rows))
        stayed = np.flatnonzero(place[: len(old)] >= 0)  # rows of the job; place says where these are in the new graph
        untouched = _untouched(before, after, stayed, place[stayed])
        figures: Row = {"update": asdict(done), "cpu": [seconds_before, seconds, seconds_fresh]}
        a, b = old[stayed], X[place[stayed]]
        figures["untouched"] = [int(untouched.sum()), float((_cosines(a, b)[untouched] >= 0.99).mean())]
        figures["accuracy"] = [_accuracy(Z, after.labels) for Z in (X, fresh)] + [_accuracy(old, before.labels)]
        figures["accuracy"].append(_accuracy(permuted, after.labels))
        figures["auc"] = [link_prediction_auc(Z, held_out, whole, seed=0) for Z in (X, fresh, permuted)]
        figures["classifier"] = _old_classifier(a, b, np.asarray(after.labels)[place[stayed]])
        if refresh:
            figures["corrected"] = found_again(a, _corrected(b, a), np.arange(len(a)))
        for each in (store, fresh_store):
            shutil.rmtree(each.folder, ignore_errors=True)
        return Record({}, figures)

    def _embed(self, graph: Graph, store: Store) -> Result:
        return embed(graph, self.dim, embedder=Propagation(self.dim), n_patches=self.n_patches, store=store)


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    begun = time.process_time()
    return call(), time.process_time() - begun


def _small() -> Graph:
    ring = sp.csr_array(np.roll(np.eye(300), 1, 0) + np.roll(np.eye(300), -1, 0))
    return Graph(ring, np.random.default_rng(0).normal(size=(300, 130)))


def _held_back(graph: Graph, seed: int, *, local: bool) -> Graph:
    """Return the graph without 1 % of its nodes and, with theirs, at least 2 % of its edges."""
    rng, n = np.random.default_rng(seed), graph.n_nodes
    A = sp.triu(graph.adjacency, 1).tocoo()
    region = np.ones(n, dtype=bool)
    if local:
        region = default_partitioner(PARTS)(graph) == seed
    away = rng.choice(np.flatnonzero(region), int(NODES * n), replace=False)
    gone = np.zeros(n, dtype=bool)
    gone[away] = True
    without = ~(gone[A.row] | gone[A.col])
    left = np.flatnonzero(without & region[A.row] & region[A.col])
    more = max(int(EDGES * A.nnz) - int((~without).sum()), 0)
    without[rng.choice(left, min(more, len(left)), replace=False)] = False
    B = sp.csr_array((A.data[without], (A.row[without], A.col[without])), shape=(n, n))
    return Graph(sp.csr_array(B + B.T), graph.features, labels=graph.labels).subgraph(np.flatnonzero(~gone))


def _releases(data: Path | None) -> tuple[Graph, Graph, Int64Array, Graph]:
    """Return Debian's dependencies in 2021 and, without a tenth of them, in 2023; with these edges and all of 2023."""
    arrays = load_arrays(dataset_folder(data) / RELEASES / f"{RELEASES}.npz")

    def release(name: str) -> Graph:
        n, y, (u, v, _) = len(arrays["names"]), arrays[f"y_{name}"].astype(np.int64), arrays[f"edges_{name}"].T
        A = sp.csr_array((np.ones(len(u)), (u, v)), shape=(n, n))
        A = sp.csr_array(A + A.T > 0).astype(np.float64)
        A.setdiag(0)
        whole = Graph(A, labels=y, node_ids=arrays["names"])
        return whole.subgraph(np.flatnonzero((y >= 0) & (whole.degrees > 0)))

    whole = release("bookworm")
    visible, held_out = hold_out_edges(whole, fraction=0.1, seed=0, connected=False)
    return release("bullseye"), visible, held_out, whole


def _untouched(before: Graph, after: Graph, stayed: Int64Array, place: Int64Array) -> BoolArray:
    """Return which nodes have the same edges as before, and neighbours of which that is true."""
    rows = np.full(before.n_nodes, -1)
    rows[stayed] = place
    A = before.adjacency.tocoo()
    there = (rows[A.row] >= 0) & (rows[A.col] >= 0)
    ends = (rows[A.row[there]], rows[A.col[there]])
    D = abs(after.adjacency - sp.csr_array((A.data[there], ends), shape=after.adjacency.shape))
    touched = np.asarray(D.sum(axis=1)).ravel() > 0
    lost = np.zeros(before.n_nodes, dtype=bool)
    lost[A.row[~there]] = True
    touched[rows[lost & (rows >= 0)]] = True
    return np.asarray(~(touched | (np.asarray(after.adjacency @ touched) > 0)))[place]


def _cosines(a: FloatArray, b: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(axis=1) / np.where(lengths > 0, lengths, 1))


def _accuracy(X: FloatArray, labels: AnyArray | None) -> float:
    y = np.asarray(labels)
    return float(classification_accuracy(X, y, splits=SPLITS, seed=0, skip_small=True).mean())


def _old_classifier(before: FloatArray, after: FloatArray, labels: AnyArray) -> list[float]:
    """Return the accuracy of classifiers that were trained on the rows before, on those and on the rows after."""
    large = np.flatnonzero(np.bincount(labels[labels >= 0]) >= 2 * PER_CLASS)
    nodes = np.flatnonzero(np.isin(labels, large))
    y = np.searchsorted(large, labels[nodes])
    splits = random_splits(y, per_class=PER_CLASS, splits=SPLITS, seed=0)
    both, twice = np.concatenate([before[nodes], after[nodes]]), np.concatenate([y, y])
    later = [Split(split.train, split.validation, split.test + len(y)) for split in splits]
    return [float(InvariantLogistic()(both, twice, part).mean()) for part in (splits, later)]


def _corrected(rows: FloatArray, target: FloatArray) -> FloatArray:
    """Return rows plus the map of rank 16 of them that comes closest to the target."""
    X, Y = rows.astype(np.float64), target.astype(np.float64)
    W = np.linalg.lstsq(X, Y - X, rcond=None)[0]
    _, _, V = np.linalg.svd(X @ W, full_matrices=False)
    return np.asarray(X + X @ W @ V[:RANK].T @ V[:RANK])


def update_cells(datasets: Sequence[str] = (), *, data: Path | None = None) -> list[UpdateCell]:
    """List the cells: local changes and changes at random of two graphs, and new directions for the next release."""
    names = list(datasets) or [*SETS, RELEASES]
    check_names(names, (*SETS, RELEASES), "data set")
    kinds = [(name, where, seed) for name in names if name in SETS for where in ("local", "random") for seed in SEEDS]
    cells = [UpdateCell(*kind, data=data) for kind in kinds]
    return cells + [UpdateCell(RELEASES, "refresh", data=data) for name in names if name == RELEASES]


def write_update(out: Path) -> list[Row]:
    """Write the table of all finished cells to ``update.md``, and return the cells."""
    rows = _means(read_cells(out))
    (out / "update.md").write_text(update_page(rows), encoding="utf-8")
    return rows


def _means(rows: list[Row]) -> list[Row]:
    """Return one row for each data set and kind of change: the means over seeds of what is held back."""
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        kinds.setdefault((row["parameters"]["dataset"], row["parameters"]["where"]), []).append(row)
    return [
        {**same[0], **_mean([{name: row[name] for name in _FIGURES if name in row} for row in same])}
        for same in kinds.values()
    ]


def _mean(values: list[Any]) -> Any:
    """Return the mean of numbers, or of the numbers in lists and dictionaries of one shape."""
    if isinstance(values[0], dict):
        return {name: _mean([value[name] for value in values]) for name in values[0]}
    if isinstance(values[0], list):
        return [_mean(list(pair)) for pair in zip(*values, strict=True)]
    return sum(values) / len(values) if isinstance(values[0], int | float) else values[0]


def update_page(rows: list[Row]) -> str:
    """Return the table in Markdown."""
    lines = ["| | must |" + "".join(f" {_title(row)} |" for row in rows), "|---|---|" + "---|" * len(rows)]
    for title, must, cell in _LINES:
        lines.append(f"| {title} | {must} |" + "".join(f" {cell(row)} |" for row in rows))
    return "\n".join([*lines, ""])


def _title(row: Row) -> str:
    own = row["parameters"]
    return f"{NAMES.get(own['dataset'], 'Debian 2021 → 2023')}, {own['where']}"


def _difference(values: Sequence[float], unit: float, digits: int) -> str:
    return f"{unit * values[0]:.{digits}f} ({unit * (values[0] - values[1]):+.{digits}f})"


_LINES: tuple[tuple[str, str, Callable[[Row], str]], ...] = (
    (
        "edges added, removed; nodes added, gone",
        "",
        lambda row: ", ".join(
            f"{row['update'][name]:.0f}" for name in ("edges_added", "edges_removed", "nodes_added", "nodes_gone")
        ),
    ),
    ("patches embedded again", "", lambda row: f"{row['update']['redone']:.3g} of {row['update']['n_patches']}"),
    ("accuracy, % (against a fresh job)", "≥ −.5", lambda row: _difference(row["accuracy"], 100, 1)),
    ("accuracy of a second fresh job, nodes permuted, %", "", lambda row: f"{100 * row['accuracy'][3]:.1f}"),
    ("accuracy of the job before, %", "", lambda row: f"{100 * row['accuracy'][2]:.1f}"),
    ("link AUC (against a fresh job)", "≥ −.005", lambda row: _difference(row["auc"], 1, 4)),
    (
        "CPU seconds of the update, and of a fresh job",
        "≤ 15 % local, ≤ 50 % random",
        lambda row: "{1:.1f}, {2:.1f} ({share:.0%})".format(*row["cpu"], share=row["cpu"][1] / row["cpu"][2]),
    ),
    (
        "nodes with unchanged surroundings: cosine of old and new row ≥ .99",
        "95 %",
        lambda row: f"{row['untouched'][1]:.1%} of {row['untouched'][0]:.0f}",
    ),
    (
        "a classifier of the old rows, on the new ones (against the old ones), %",
        "≥ −1",
        lambda row: _difference(row["classifier"][::-1], 100, 1),
    ),
    (
        "own new row among the ten nearest to the old one",
        "≥ .97; refresh: reported",
        lambda row: (
            f"{row['update']['found']:.3f}"
            + (f", with a map of rank 16 {row['corrected']:.3f}" if "corrected" in row else "")
        ),
    ),
)
