"""The study of federated alignment: parties alone, federated, central and full; noise, caps, and a party that lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from graphquilt import federated
from graphquilt.alignment import Alignment, align, centroid
from graphquilt.arrays import Float64Array, FloatArray, Int64Array
from graphquilt.embedders import VGAE, Embedder, Propagation
from graphquilt.errors import OverlapError
from graphquilt.evaluate import EvaluationOptions, InvariantLogistic, Split, quality, random_splits, reconstruction_auc
from graphquilt.graph import Graph
from graphquilt.jobs import Record
from graphquilt.jobs.description import plain
from graphquilt.patches import Metis
from studies.cells import Row, cell_seed, check_names
from studies.trainings import PROTOCOL, study_graph

__all__ = ["CAPS", "LIES", "MODELS", "NOISES", "FederatedCell", "federated_cells"]

MODELS: Mapping[str, Callable[[int], Embedder]] = {"propagation": Propagation, "vgae": VGAE}
WAYS = ("full", "alone", "federated", "started")
NOISES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
CAPS = (17, 24, 32, 64, 128, 256)
PUBLIC = 500  # nodes of the public sample that a shared start is made from
PER_CLASS = 20


class Networks(NamedTuple):
    """The networks of the parties: each has its own nodes and their direct neighbours."""

    own: list[Int64Array]  # the nodes of each party
    nodes: list[Int64Array]  # with their neighbours, ascending
    graphs: list[Graph]


@cache
def networks(dataset: str, data: Path | None, n_parties: int, seed: int) -> Networks:
    """Give every community of a graph to one party, with the direct neighbours of its nodes."""
    graph = study_graph(dataset, data)
    labels = Metis(n_parties, seed=seed)(graph)
    own = [np.flatnonzero(labels == k) for k in range(n_parties)]
    nodes = [np.union1d(mine, graph.adjacency[mine].indices) for mine in own]
    return Networks(own, nodes, [graph.subgraph(some) for some in nodes])


# What a party that lies does to the coordinates that it sends to one partner.
LIES: Mapping[str, Callable[[FloatArray, np.random.Generator], FloatArray]] = {
    "scrambled": lambda X, rng: X[rng.permutation(len(X))],
    "turned": lambda X, rng: X @ np.linalg.qr(rng.normal(size=(X.shape[1],) * 2))[0].astype(X.dtype),
    "shifted": lambda X, rng: X + (X.std() * rng.normal(size=X.shape[1])).astype(X.dtype),
}


@dataclass(frozen=True)
class FederatedCell:
    """One data set, number of parties, embedder and way, perhaps with noise, a cap or a lie.

    Attributes
    ----------
    dataset, model, way : str
        The way is ``full``, ``alone``, ``federated`` or ``started``, which is federated from a shared start.
    n_parties, dim, seed, splits : int
    noise : float
    cap : int, optional
    lie : str, optional
        One of LIES: every party in turn lies to all its partners.
    data : path, optional
        The folder with data sets.
    """

    dataset: str
    n_parties: int
    model: str
    dim: int
    way: str
    noise: float = 0.0
    cap: int | None = None
    lie: str | None = None
    seed: int = 0
    splits: int = 50
    data: Path | None = None

    @property
    def name(self) -> str:
        """Unique in the study."""
        extra = f"-noise{self.noise:g}" if self.noise else f"-cap{self.cap}" if self.cap else f"-{self.lie or 'plain'}"
        return f"{self.dataset}-{self.n_parties:02d}-{self.model}-d{self.dim:03d}-{self.way}{extra}"

    @property
    def group(self) -> str:
        """Every cell stands alone."""
        return self.name

    @property
    def parameters(self) -> Row:
        """Everything that the result depends on; where the data lie does not count."""
        own = {key: value for key, value in asdict(self).items() if key != "data"}
        return {**own, "embedder": plain(MODELS[self.model](self.dim)), "public": PUBLIC}

    def run(self, folder: Path) -> Record:  # noqa: ARG002
        """Compute the cell."""
        graph = study_graph(self.dataset, self.data)
        if self.way == "full":
            X = MODELS[self.model](self.dim)(graph, self.seed)
            return Record({}, asdict(quality(X, graph, options=self._options)))
        if self.way == "alone":
            return Record({}, self._alone(graph))
        return Record({}, self._lied(graph) if self.lie else self._together(graph))

    @property
    def _options(self) -> EvaluationOptions:
        return EvaluationOptions(seed=self.seed, splits=self.splits)

    @property
    def _networks(self) -> Networks:
        return networks(self.dataset, self.data, self.n_parties, self.seed)

    def _parties(self) -> list[federated.Party]:
        """Invite to a round, and let every party make its offer."""
        sample = None
        if self.way == "started":
            graph = study_graph(self.dataset, self.data)
            rng = np.random.default_rng(cell_seed(self.seed, "sample"))
            sample = graph.subgraph(np.sort(rng.choice(graph.n_nodes, min(PUBLIC, graph.n_nodes), replace=False)))
        embedder = MODELS[self.model](self.dim)
        agreed, key, start = federated.invite("study", embedder, seed=self.seed, sample=sample)
        sharing = federated.Sharing(noise=self.noise, cap=self.cap)
        return [
            federated.offer(graph, agreed, key, party=f"party-{k:02d}", sharing=sharing, start=start)
            for k, graph in enumerate(self._networks.graphs)
        ]

    def _alone(self, graph: Graph) -> Row:
        """Let every party classify its own nodes by its own labels, and reconstruct its own edges.

        The splits are those of the whole graph: a party has only the labels in them that are of its own nodes.
        """
        assert graph.labels is not None
        y = np.asarray(graph.labels)
        splits = random_splits(y, per_class=PER_CLASS, splits=self.splits, seed=self.seed)
        correct, tested, aucs = np.zeros(self.splits), np.zeros(self.splits), []
        cut = self._networks
        for party, own, nodes, network in zip(self._parties(), cut.own, cut.nodes, cut.graphs, strict=True):
            X = party.embedding[np.searchsorted(nodes, own)]
            accuracy, counts = _own_accuracy(X, y[own], own, splits)
            correct, tested = correct + accuracy * counts, tested + counts
            aucs.append(reconstruction_auc(party.embedding, network, seed=self.seed))
        shares = correct / tested
        return {"accuracy": float(shares.mean()), "accuracy_std": float(shares.std()), "auc": float(np.mean(aucs))}

    def _together(self, graph: Graph) -> Row:
        """Run a round, compare it with the alignment of the same embeddings in one place, and measure both."""
        parties = self._parties()
        result = _aligned(parties)
        patches = [(nodes, party.embedding) for nodes, party in zip(self._networks.nodes, parties, strict=True)]
        X = centroid(patches, result.alignment, n_nodes=graph.n_nodes)
        measured = {"federated": X, "unaligned": centroid(patches, _unmoved(result), n_nodes=graph.n_nodes)}
        row: Row = {}
        if not self.noise and not self.cap:
            central = align(patches, result.alignment.edges, **vars(parties[0].round.motions))
            Y = centroid(patches, central, n_nodes=graph.n_nodes)
            measured["central"] = Y
            row["difference"] = float(np.abs(X - Y).max() / np.abs(Y).max())
        else:
            del measured["unaligned"]
        for name, Z in measured.items():
            prefix = "" if name == "federated" else f"{name}_"
            row |= {f"{prefix}{key}": value for key, value in asdict(quality(Z, graph, options=self._options)).items()}
        errors = result.alignment.edge_errors
        cost = parties[0].noise_cost()
        return {
            **row,
            "pairs": len(result.pairs),
            "shared": float(np.median([pair.shared for pair in result.pairs])),
            "edge_error": float(np.median(errors)),
            "expected": result.pairs[0].expected,
            "displacement": 0.0 if cost is None else cost.displacement,
        }

    def _lied(self, graph: Graph) -> Row:
        """Let every party lie in turn; count how often it is found, and what the lie does to the others."""
        parties = self._parties()
        patches = [(nodes, party.embedding) for nodes, party in zip(self._networks.nodes, parties, strict=True)]
        rows = []
        for liar in range(self.n_parties):
            lied = _aligned(parties, lie=(liar, str(self.lie)), robust=True)
            bad = (lied.alignment.edges == liar).any(axis=1)
            errors = lied.alignment.edge_errors
            row: Row = {
                "found": lied.doubtful == (parties[liar].name,),
                "accused": [name for name in lied.doubtful if name != parties[liar].name],
                "error_of_liar": float(np.median(errors[bad])),
                "error_of_others": float(np.median(errors[~bad])),
                "distrusted": float((lied.alignment.edge_trust[bad] < 1).mean()),
                "distrusted_others": float((lied.alignment.edge_trust[~bad] < 1).mean()),
            }
            if liar == 0:
                others = np.sort(np.concatenate([own for k, own in enumerate(self._networks.own) if k != liar]))
                rest, part = graph.subgraph(others), patches[:liar] + patches[liar + 1 :]
                keep = np.delete(np.arange(self.n_parties), liar)
                for name, fit in (
                    ("honest", _aligned(parties).alignment),
                    ("believed", _aligned(parties, lie=(liar, str(self.lie))).alignment),
                    ("robust", lied.alignment),
                ):
                    X = centroid(part, fit.take(keep), n_nodes=graph.n_nodes, missing="nan")[others]
                    row[name] = quality(X, rest, options=self._options).accuracy
            rows.append(row)
        honest = _aligned(parties, robust=True)
        return {"lies": rows, "accused_without_a_lie": list(honest.doubtful)}


def _own_accuracy(
    X: FloatArray, y: Int64Array, own: Int64Array, splits: Sequence[Split]
) -> tuple[Float64Array, Float64Array]:
    """Return the accuracy of one party on its ``own`` test nodes in each split, and how many these are.

    ``X`` and ``y`` are the coordinates and classes of the own nodes. Where a party has no labels it is never right.
    """
    accuracy, counts = np.zeros(len(splits)), np.zeros(len(splits))
    for s, split in enumerate(splits):
        parts = (split.train, split.validation, split.test)
        train, validation, test = (np.searchsorted(own, np.intersect1d(own, part)) for part in parts)
        counts[s] = len(test)
        if len(train) and len(validation) and len(test):
            accuracy[s] = InvariantLogistic()(X, y, [Split(train, validation, test)])[0]
    return accuracy, counts


def _aligned(
    parties: Sequence[federated.Party], *, lie: tuple[int, str] | None = None, robust: bool = False
) -> federated.FederatedAlignment:
    """Let all pairs that share enough nodes measure, and align; one party may lie to all its partners."""
    measurements = []
    rng = np.random.default_rng(0)
    for pair in combinations(range(len(parties)), 2):
        sender, receiver = reversed(pair) if lie is not None and lie[0] == pair[1] else pair
        try:
            message = federated.reply(parties[sender], parties[receiver].offer)
        except OverlapError:
            continue
        if lie is not None and lie[0] == sender:
            coordinates = LIES[lie[1]](message.arrays["coordinates"], rng)
            changed = replace(message, arrays={**message.arrays, "coordinates": coordinates})
            message = changed.authenticated(parties[sender].key)
        measurements.append(federated.measure(parties[receiver], message))
    return federated.align(measurements, of_round=parties[0].round, robust=robust)


def _unmoved(result: federated.FederatedAlignment) -> Alignment:
    return Alignment.identity(result.alignment.n_patches, result.alignment.dim)


def federated_cells(
    datasets: Sequence[str],
    models: Sequence[str],
    parties: Sequence[int],
    *,
    dim: int = 16,
    seed: int = 0,
    splits: int = 50,
    data: Path | None = None,
) -> list[FederatedCell]:
    """List the cells. Noise, caps and lies are studied with the first embedder only; a cap is at least dim + 1."""
    for names, known, kind in ((datasets, PROTOCOL, "data set"), (models, MODELS, "model")):
        check_names(names, known, kind)
    cells = []
    for dataset in datasets:
        for n_parties in parties:
            for model in models:
                cell = FederatedCell(dataset, n_parties, model, dim, "federated", seed=seed, splits=splits, data=data)
                cells += [replace(cell, way=way) for way in WAYS]
                if model == models[0]:
                    cells += [replace(cell, noise=noise) for noise in NOISES]
                    cells += [replace(cell, cap=cap) for cap in CAPS if cap > dim]
                    cells += [replace(cell, lie=lie) for lie in LIES]
    return cells
