"""The study of links: snapshots by the protocol of the field, held-out links of static graphs, calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, FloatArray, Int64Array
from graphquilt.datasets.loading import dataset_folder
from graphquilt.embedders import Propagation
from graphquilt.errors import InputError
from graphquilt.evaluate import average_precision, rank_links, roc_auc
from graphquilt.files import load_arrays
from graphquilt.graph import Graph
from graphquilt.jobs import Record, embed
from graphquilt.prediction import LinkModel, fit_later_links, fit_links, link_components
from graphquilt.prediction.candidates import candidate_pairs, pair_keys, unit_rows
from graphquilt.prediction.model import are_new
from studies.cells import Row, check_names
from studies.npz_graphs import hold_out, open_graph

__all__ = ["SNAPSHOTS", "STATIC", "SnapshotCell", "StaticCell", "link_cells"]

SNAPSHOTS = ("dyn-enron10", "dyn-dblp")
CHOSEN_ON = ("cora", "citeseer", "gd-acm", "amazon-photo", "gd-flickr")  # components and penalty were chosen on these
FIRST_LOOK = (
    "pubmed",
    "coauthor-cs",
    "musae-twitch-de",
    "het-tolokers",
    "debian-bookworm",
    "wordnet",
)  # looked at once
STATIC = (*CHOSEN_ON, *FIRST_LOOK)
COUNTS = ("cosine", "common neighbours", "Adamic-Adar", "resource allocation")  # alone
TESTED = 3  # last snapshots
DRAWS = 5  # of non-edges
EDGES = np.linspace(0, 1, 11)  # of the groups of probabilities


@dataclass(frozen=True)
class SnapshotCell:
    """The links of the last three snapshots, each predicted from those before it.

    Edges of the past weigh half as much per snapshot. What makes a link is learnt from the snapshot before.
    """

    dataset: str
    dim: int = 32
    data: Path | None = None

    @property
    def name(self) -> str:
        """Unique in the study."""
        return f"{self.dataset}-d{self.dim:03d}"

    @property
    def group(self) -> str:
        """Every cell stands alone."""
        return self.name

    @property
    def parameters(self) -> Row:
        """Everything that the result depends on."""
        return {"dataset": self.dataset, "dim": self.dim, "draws": DRAWS, "version": 1}

    def run(self, folder: Path) -> Record:  # noqa: ARG002
        """Return AUC and average precision of next and of new links, by the score and by cosine alone."""
        snapshots = _snapshots(self.dataset, self.data)
        figures: dict[str, list[tuple[float, float]]] = {}
        for t in range(len(snapshots) - TESTED, len(snapshots)):
            past = Graph(_past(snapshots, t))
            X = unit_rows(_embed_one(past, self.dim))
            later = np.argwhere(np.triu(snapshots[t - 1].toarray()))
            model = fit_later_links(Graph(_past(snapshots, t - 1)), later, lambda g: _embed_one(g, self.dim))
            joined, before = snapshots[t].toarray() > 0, snapshots[t - 1].toarray() > 0
            links, others = np.argwhere(np.triu(joined, 1)), np.argwhere(np.triu(~joined, 1))
            for question, positive in (("next", links), ("new", links[~before[tuple(links.T)]])):
                for draw in range(DRAWS):
                    negative = others[np.random.default_rng(draw).choice(len(others), len(positive), replace=False)]
                    parts = [link_components(past, X, pairs) for pairs in (positive, negative)]
                    for score, values in (
                        ("score", [model.score(part) for part in parts]),
                        ("cosine", [part[:, 0] for part in parts]),
                    ):
                        pair = roc_auc(*values), average_precision(*values)
                        figures.setdefault(f"{question}, {score}", []).append(pair)
        return Record({}, {"figures": figures})


@dataclass(frozen=True)
class StaticCell:
    """The links of a graph that were held out, predicted from the others.

    Attributes
    ----------
    n_patches : int
        With more than one, the embedding is stitched.
    seed : int
        Of the held-out edges.
    """

    dataset: str
    n_patches: int = 1
    seed: int = 0
    dim: int = 64
    data: Path | None = None

    @property
    def name(self) -> str:
        """Unique in the study."""
        return f"{self.dataset}-d{self.dim:03d}-p{self.n_patches:02d}-seed{self.seed}"

    @property
    def group(self) -> str:
        """Every cell stands alone."""
        return self.name

    @property
    def parameters(self) -> Row:
        """Everything that the result depends on; where the data lie does not count."""
        return {key: value for key, value in asdict(self).items() if key != "data"} | {"version": 2}

    def run(self, folder: Path) -> Record:  # noqa: ARG002
        """Rank the held-out links by the score and by each component alone, and compare probabilities with truth."""
        graph = open_graph(self.dataset, self.data)
        visible, held_out = hold_out(graph, self.seed)

        def embed_graph(part: Graph) -> FloatArray:
            return embed(part, self.dim, embedder=Propagation(self.dim), n_patches=self.n_patches).embedding

        X = unit_rows(embed_graph(visible))
        model = fit_links(visible, embed_graph, seed=1000 + self.seed)
        known: dict[bytes, Float64Array] = {}  # all scores are asked about the same pairs

        def components(pairs: Int64Array) -> Float64Array:
            key = pairs.tobytes()
            if key not in known:
                known[key] = link_components(visible, X, pairs)
            return known[key]

        scores: dict[str, Callable[[Int64Array], FloatArray]] = {"score": lambda pairs: model.score(components(pairs))}
        scores |= {name: lambda pairs, k=k: components(pairs)[:, k] for k, name in enumerate(COUNTS)}  # type: ignore[misc]
        rankings = {name: asdict(rank_links(score, held_out, graph, seed=self.seed)) for name, score in scores.items()}
        calibration = _calibration(model, visible, X, held_out)
        return Record({}, {"rankings": rankings, **calibration, "coefficients": model.coefficients.tolist()})


def _calibration(model: LinkModel, graph: Graph, X: FloatArray, held_out: Int64Array) -> Row:
    """Return the number, mean probability and share of links of the candidates in each tenth of the probabilities."""
    n = graph.n_nodes
    keys = np.unique(pair_keys(candidate_pairs(graph, X, np.arange(n)), n))
    components = link_components(graph, X, np.column_stack(np.divmod(keys, n)))
    new = are_new(components)
    p, is_link = model.probability(model.score(components[new])), np.isin(keys[new], pair_keys(held_out, n))
    group = np.minimum(np.digitize(p, EDGES) - 1, 9)
    counts = np.bincount(group, minlength=10)
    means, shares = (np.bincount(group, values, minlength=10) / np.maximum(counts, 1) for values in (p, is_link))
    return {"counts": counts.tolist(), "means": means.tolist(), "shares": shares.tolist(), "found": int(is_link.sum())}


def _snapshots(name: str, data: Path | None) -> list[sp.csr_array]:
    """Return the symmetric adjacency of each snapshot, without loops."""
    path = dataset_folder(data) / name / f"{name}.npz"
    if not path.is_file():
        raise InputError(f"the data set '{name}' is not in {dataset_folder(data)}: expected {path}.")
    arrays = load_arrays(path)
    n, edges = int(arrays["num_nodes"]), arrays["edges"]
    snapshots = []
    for t in range(int(arrays["num_snapshots"])):
        u, v = edges[(edges[:, 0] == t) & (edges[:, 1] != edges[:, 2]), 1:].T
        A = sp.csr_array((np.ones(2 * len(u)), (np.r_[u, v], np.r_[v, u])), shape=(n, n))
        snapshots.append(sp.csr_array((A > 0).astype(np.float64)))
    return snapshots


def _past(snapshots: Sequence[sp.csr_array], t: int) -> sp.csr_array:
    """Return the sum of the snapshots before t, halved for each step back."""
    total = snapshots[t - 1]
    for s in range(t - 1):
        total = total + snapshots[s] * 0.5 ** (t - 1 - s)
    return sp.csr_array(total)


def _embed_one(graph: Graph, dim: int) -> FloatArray:
    return embed(graph, dim, embedder=Propagation(dim), n_patches=1).embedding


def link_cells(datasets: Sequence[str] = (), *, data: Path | None = None) -> list[SnapshotCell | StaticCell]:
    """List the cells: one patch and ten of every graph, and three seeds of the smallest."""
    names = list(datasets) or [*SNAPSHOTS, *STATIC]
    check_names(names, (*SNAPSHOTS, *STATIC), "data set")
    cells: list[SnapshotCell | StaticCell] = [SnapshotCell(name, data=data) for name in names if name in SNAPSHOTS]
    static = [name for name in names if name in STATIC]
    cells += [StaticCell(name, patches, data=data) for patches in (1, 10) for name in static]
    small = [name for name in static if name in ("cora", "citeseer")]
    cells += [StaticCell(name, 1, seed, data=data) for name in small for seed in (1, 2)]
    return cells
