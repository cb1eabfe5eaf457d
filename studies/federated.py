"""The study of sums over parties: each alone, all together, and one graph; guards, garbage, links and time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphquilt import federated
from graphquilt.arrays import AnyArray, BoolArray, Float64Array, FloatArray, Int64Array
from graphquilt.embedders import Propagation
from graphquilt.evaluate import (
    InvariantLogistic,
    Split,
    cosine,
    random_splits,
    reconstruction_auc,
    roc_auc,
    sample_non_edges,
)
from graphquilt.federated.signal import CommonSignal
from graphquilt.graph import Graph
from graphquilt.jobs import Record
from graphquilt.patches import Metis
from studies.cells import Row, cell_seed, check_names
from studies.npz_graphs import NAMES, hold_out, open_graph, without_features

__all__ = ["DIMS", "WAYS", "FederatedCell", "federated_cells"]

DIMS = (16, 64)
BUCKETS = 2048
PER_CLASS = 20
GARBAGE = 16  # directions that a party invents
WAYS = ("full", "alone", "sums", "guarded", "counts", "garbage")
PRIVATE: Mapping[str, int] = {f"epsilon-{epsilon}": epsilon for epsilon in (1, 4, 8)}
GUARDS: Mapping[str, int] = {"per_bucket": 4, "least": 3}
LINK_SETS, LINK_PARTIES = ("wordnet", "debian-bookworm"), 5


class Party(NamedTuple):
    """A party: its own nodes in the whole graph, and its network."""

    name: str
    own: Int64Array
    network: federated.Network


@cache
def graph_of(dataset: str, data: Path | None, signal: str) -> Graph:
    """Return a data set, with its features or with its edges only."""
    if dataset == "blocks":
        from graphquilt.datasets import load_dataset

        graph = load_dataset("blocks")
    else:
        graph = open_graph(dataset, data)
    return without_features(graph) if signal == "edges" else graph


@cache
def labels_of(dataset: str, data: Path | None) -> Int64Array:
    """Return the classes of a data set."""
    return np.asarray(graph_of(dataset, data, "features").labels)


@cache
def parties_of(graph: Graph, n_parties: int, cut: int) -> list[Party]:
    """Give every community of a graph to one party, which knows the edges that touch its own nodes and no others."""
    labels = Metis(n_parties, seed=cut + (cut > 0))(graph)  # METIS takes 0 and 1 for the same seed
    made = []
    for k in range(n_parties):
        own = np.flatnonzero(labels == k)
        nodes = np.union1d(own, graph.adjacency[own].indices)
        part = graph.subgraph(nodes).with_attributes(node_ids=nodes)
        made.append(Party(f"party-{k:02d}", own, federated.Network.of(part, np.searchsorted(nodes, own))))
    return made


class Outcome(NamedTuple):
    """A round that was run on values, in the most dimensions; fewer are its first columns."""

    X: FloatArray
    steps: int
    bytes: int  # that each party sends
    cpu: float  # seconds in which all parties contribute
    walk: float  # seconds in which all parties would spread the same columns
    buckets: int

    def shares(self, parties: Sequence[Party], dim: int) -> list[float]:
        """Return the share that each party keeps of its own signal."""
        return [float(np.square(self.X[party.own, :dim]).sum() / len(party.own)) for party in parties]


def run_round(
    graph: Graph, parties: Sequence[Party], dim: int, *, seed: int, garbage: int | None = None, **guards: Any
) -> Outcome:
    """Run a round of sums among parties; one of them may contribute garbage of the right size."""
    key = np.random.default_rng(seed).bytes(32)
    invitation, key = federated.invite(
        "study",
        dim,
        [party.name for party in parties],
        key=key,
        features=0 if graph.features is None else int(graph.features.shape[1]),
        terms=federated.Terms(buckets=BUCKETS if graph.features is None else 0, **guards),
    )
    members = [federated.join(party.network, invitation, key, party=party.name) for party in parties]
    agreed = federated.Round.of(invitation, [member.card for member in members])
    answer, sent, cpu = None, 0, 0.0
    while answer is None or not answer.complete:
        begun = time.process_time()
        made = [
            federated.contribute(party.network, agreed, member, received=answer)
            for party, member in zip(parties, members, strict=True)
        ]
        cpu += time.process_time() - begun
        if garbage is not None:
            made[garbage] = _garbage(made[garbage], parties[garbage], agreed, members[garbage], seed)
        sent += made[0].values.nbytes
        answer = federated.combine(agreed, made, before=answer)
    X = np.zeros((graph.n_nodes, dim), dtype=np.float32)
    for party, member in zip(parties, members, strict=True):
        X[party.own] = federated.embed(party.network, agreed, member, answer).embedding
    return Outcome(X, answer.step, sent, cpu, _walk_time(parties, agreed, key), agreed.signal.buckets)


def _walk_time(parties: Sequence[Party], agreed: federated.Round, key: bytes) -> float:
    """Return the seconds in which all parties spread the columns of the round once."""
    embedder, total = agreed.signal.embedder(agreed.invitation.dim), 0.0
    for party in parties:
        graph, far = agreed.signal.place(party.network, agreed.invitation.bucket_key(key))
        if agreed.signal.is_wide:
            basis = np.eye(agreed.signal.features, embedder.basis_width, dtype=np.float32)
            embedder = replace(embedder, start={"basis": basis})
        begun = time.process_time()
        embedder.prepare(graph, 0, far=far)
        total += time.process_time() - begun
    return total


def _garbage(
    made: federated.Contribution, party: Party, agreed: federated.Round, member: federated.Member, seed: int
) -> federated.Contribution:
    """Return a contribution with the moment of unit rows along few random directions in place of the party's own."""
    _, plain = federated.plain_sum(party.network, agreed, member)
    width = agreed.signal.features + agreed.signal.buckets
    V = np.linalg.qr(np.random.default_rng(seed).normal(size=(width, GARBAGE)))[0]
    upper = (party.network.n_own / GARBAGE * V @ V.T)[np.triu(np.ones((width, width), dtype=bool))]
    false = np.append(np.rint(upper * 2.0 ** agreed.bits("moment")).astype(np.int64), 0).view(np.uint64)
    return replace(made, values=made.values - plain + false).signed(member.signing)


def count_round(graph: Graph, parties: Sequence[Party], dim: int, *, seed: int) -> FloatArray:
    """Embed with walks that are divided by the true number of nodes in each bucket, which nobody has in a round."""
    signal, key = CommonSignal(buckets=BUCKETS), np.random.default_rng(seed).bytes(32)
    placed = [signal.place(party.network, key) for party in parties]
    column = np.full(graph.n_nodes, -1)
    for party, (_, far) in zip(parties, placed, strict=True):
        filled = np.flatnonzero(far.nodes["column"] >= 0)
        column[np.asarray(party.network.graph.node_ids)[filled]] = far.nodes["column"][filled]
    counts = np.bincount(column[column >= 0], minlength=BUCKETS)
    gain = np.maximum((column >= 0).sum() / np.maximum(counts, 1), 1).astype(np.float32)
    placed = [(network, replace(far, shared={**far.shared, "gain": gain})) for network, far in placed]
    embedder = signal.embedder(dim)
    total, kept = None, [embedder.prepare(network, 0, far=far) for network, far in placed]
    for one in kept:
        total = embedder.add(total, embedder.contribute(one))
    assert total is not None
    embedder, X = embedder.combine(total, 0), np.zeros((graph.n_nodes, dim), dtype=np.float32)
    for party, (network, far), one in zip(parties, placed, kept, strict=True):
        X[party.own] = np.asarray(embedder.fit(network, 0, far=far, kept=one).embedding)[party.network.own]
    return X


def correct(X: AnyArray, y: Int64Array, splits: Sequence[Split]) -> BoolArray:
    """Return which nodes one classifier for all parties gets right in each split, (splits, n)."""
    points = np.asarray(X, dtype=np.float64) - np.mean(X, axis=0, dtype=np.float64)
    points = np.c_[points / max(np.sqrt(np.square(points).sum(axis=1).mean()), 1e-300), np.ones(len(y))]
    W = InvariantLogistic().fit(np.asarray(X), y, list(splits))
    return np.stack([(weights @ points.T).argmax(axis=0) == y for weights in W])


def own_accuracies(X: FloatArray, y: Int64Array, parts: Sequence[Int64Array], splits: Sequence[Split]) -> Float64Array:
    """Return the accuracy of each party on its own test nodes, when it learns from its own labels only."""
    scores = np.zeros((len(parts), len(splits)))
    for k, own in enumerate(parts):
        for s, split in enumerate(splits):
            train, validation, test = (
                np.searchsorted(own, np.intersect1d(own, part)) for part in (split.train, split.validation, split.test)
            )
            if len(train) and len(validation) and len(test):
                one = [Split(train, validation, test)]
                scores[k, s] = InvariantLogistic()(X[own], y[own], one)[0]
    return np.asarray(scores.mean(axis=1))


@dataclass(frozen=True)
class FederatedCell:
    """One data set, signal, number of parties, cut and way; all dimensions.

    Attributes
    ----------
    dataset, signal, way : str
        The signal is ``features`` or ``edges``; the way is one of WAYS, or ``links``.
    n_parties, cut, splits : int
        The cut is the seed of the communities; a whole graph has no parties.
    """

    dataset: str
    signal: str
    n_parties: int
    cut: int
    way: str
    dims: tuple[int, ...] = DIMS
    splits: int = 10
    data: Path | None = None

    @property
    def name(self) -> str:
        """Unique in the study."""
        return f"{self.dataset}-{self.signal}-{self.n_parties:02d}-{self.way}-cut{self.cut}"

    @property
    def group(self) -> str:
        """Every cell stands alone."""
        return self.name

    @property
    def parameters(self) -> Row:
        """Everything that the result depends on; where the data lie does not count."""
        own = {key: value for key, value in asdict(self).items() if key != "data"}
        return {**own, "buckets": BUCKETS, "guards": dict(GUARDS)}

    def run(self, folder: Path) -> Record:  # noqa: ARG002
        """Compute the cell."""
        graph = graph_of(self.dataset, self.data, self.signal)
        if self.way == "links":
            return Record({}, self._links(graph))
        return Record({}, self._whole(graph) if self.way == "full" else self._parties(graph))

    @property
    def _seed(self) -> int:
        return cell_seed(self.dataset, self.cut, self.n_parties)

    @property
    def _splits(self) -> list[Split]:
        """Random splits of the nodes in classes that are large enough."""
        y = labels_of(self.dataset, self.data)
        nodes = np.flatnonzero((y >= 0) & (np.bincount(np.maximum(y, 0))[y] > PER_CLASS))
        parts = random_splits(y[nodes], per_class=PER_CLASS, splits=self.splits, seed=0)
        return [Split(nodes[part.train], nodes[part.validation], nodes[part.test]) for part in parts]

    def _whole(self, graph: Graph) -> Row:
        """Embed one graph: by default, and with the signal of the rounds."""
        same = CommonSignal(features=1) if self.signal == "features" else CommonSignal(buckets=1)
        row: Row = {}
        for dim in self.dims:
            models = {"": Propagation(dim), "same_": same.embedder(dim)}
            row[f"d{dim}"] = {
                k: v for word, model in models.items() for k, v in self._of(model(graph, 0), word).items()
            }
        return row

    def _parties(self, graph: Graph) -> Row:
        parties, y = parties_of(graph, self.n_parties, self.cut), labels_of(self.dataset, self.data)
        parts = [party.own for party in parties]
        if self.way == "alone":
            row: Row = {}
            for dim in self.dims:
                X = np.zeros((graph.n_nodes, dim), dtype=np.float32)
                for party in parties:
                    X[party.own] = np.asarray(Propagation(dim)(party.network.graph, 0))[party.network.own]
                each, sizes = own_accuracies(X, y, parts, self._splits), [len(part) for part in parts]
                row[f"d{dim}"] = {"accuracy": float(np.average(each, weights=sizes)), "each": each.tolist()}
            return row
        if self.way == "counts":
            X = count_round(graph, parties, max(self.dims), seed=self._seed)
            return {f"d{dim}": self._of(X[:, :dim]) for dim in self.dims}
        guards = GUARDS if self.way == "guarded" else {}
        guards = {name: value for name, value in guards.items() if self.signal == "edges" or name == "least"}
        guards |= {"epsilon": PRIVATE[self.way]} if self.way in PRIVATE else {}
        garbage = 0 if self.way == "garbage" else None
        done = run_round(graph, parties, max(self.dims), seed=self._seed, garbage=garbage, **guards)
        row = {name: getattr(done, name) for name in ("steps", "bytes", "cpu", "walk", "buckets")}
        for dim in self.dims:
            figures = self._of(done.X[:, :dim], parts=parts)
            row[f"d{dim}"] = {**figures, "shares": done.shares(parties, dim)}
        return row

    def _of(self, X: AnyArray, word: str = "", parts: Sequence[Int64Array] = ()) -> Row:
        """Return accuracy and AUC, and the accuracy on the nodes of each part."""
        graph, y, splits = (
            graph_of(self.dataset, self.data, self.signal),
            labels_of(self.dataset, self.data),
            self._splits,
        )
        right = correct(X, y, splits)
        tests = [np.isin(np.arange(len(y)), split.test) for split in splits]
        scores = [hit[test].mean() for hit, test in zip(right, tests, strict=True)]
        row: Row = {
            f"{word}accuracy": float(np.mean(scores)),
            f"{word}auc": float(reconstruction_auc(X, graph, seed=0)),
        }
        if parts:
            asked = np.stack(tests)
            row["each"] = [float(right[:, part][asked[:, part]].mean()) for part in parts]
        return row

    def _links(self, graph: Graph) -> Row:
        """Hold out a tenth of the edges; tell those inside parties and across from non-edges inside and across."""
        known, held_out = hold_out(graph, self.cut)
        parties = parties_of(known, self.n_parties, self.cut)
        owner = np.empty(graph.n_nodes, dtype=np.int64)
        for k, party in enumerate(parties):
            owner[party.own] = k
        others = sample_non_edges(graph, 8 * len(held_out), seed=self.cut)
        row: Row = {"inside": int((owner[held_out[:, 0]] == owner[held_out[:, 1]]).sum()), "held_out": len(held_out)}
        done = run_round(known, parties, max(self.dims), seed=self._seed)
        row |= {name: getattr(done, name) for name in ("steps", "bytes", "cpu", "walk", "buckets")}
        for dim in self.dims:
            figures: Row = {"shares": done.shares(parties, dim)}
            for word, X in (("full", np.asarray(Propagation(dim)(known, 0))), ("sums", done.X[:, :dim])):
                for where, same in (("inside", True), ("across", False)):
                    pairs = [e[(owner[e[:, 0]] == owner[e[:, 1]]) == same] for e in (held_out, others)]
                    scores = [cosine(X[p[:, 0]], X[p[:, 1]]) for p in pairs]
                    figures[f"{word}_{where}"] = roc_auc(*scores)
            row[f"d{dim}"] = figures
        return row


def federated_cells(
    datasets: Sequence[str],
    parties: Sequence[int],
    *,
    cuts: int = 3,
    dims: Sequence[int] = DIMS,
    splits: int = 10,
    data: Path | None = None,
) -> list[FederatedCell]:
    """List the cells: the first cut of all, then the others. Citeseer has edges only, and links have their own sets."""
    check_names(datasets, {**NAMES, "blocks": ""}, "data set")
    cells = []
    for cut in range(cuts):
        for dataset in datasets:
            if dataset in LINK_SETS:
                cells.append(FederatedCell(dataset, "edges", LINK_PARTIES, cut, "links"))
                continue
            for signal in ("edges",) if dataset == "citeseer" else ("features", "edges"):
                if cut == 0:
                    cells.append(FederatedCell(dataset, signal, 0, 0, "full"))
                for n_parties in parties:
                    ways = list(WAYS[1:] if cut == 0 else WAYS[1:3])
                    if cut == 0 and dataset == "citeseer":
                        ways.remove("guarded")  # its borders have too few nodes for 64 columns of four
                    if cut == 0 and signal == "features":
                        ways.remove("counts")
                        if dataset == "coauthor-cs":
                            ways.remove("garbage")  # the moment of garbage is not that of a wide signal
                        else:
                            ways += list(PRIVATE)  # is for one message
                    cells += [FederatedCell(dataset, signal, n_parties, cut, way) for way in ways]
    return [replace(cell, dims=tuple(dims), splits=splits, data=data) for cell in cells]
