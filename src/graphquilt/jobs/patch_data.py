"""The data of one patch: its subgraph and what it knows of the rest of the graph, from the graph or from a store."""

from __future__ import annotations

import functools
import socket
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from graphquilt.arrays import AnyArray, IntArray
from graphquilt.embedders.contract import Embedder
from graphquilt.embedders.shared_start import FarField, Survey, cut_patch, shares_start
from graphquilt.errors import FormatError, JobError
from graphquilt.graph import Graph
from graphquilt.graph.files import folder_version
from graphquilt.jobs.description import describe, differences, fingerprint
from graphquilt.jobs.records import graph_fingerprint, graph_of, graph_record
from graphquilt.jobs.store import Parameters, Record, Store, store_name
from graphquilt.patches import CoarseGraph, NodeSets, coarse_graph, fine_clusters, is_large
from graphquilt.progress import ProgressCallback

__all__ = ["Origin", "PatchData", "StoredSurvey", "far_clusters", "opened_data", "stored_data", "surveyed"]

PER_NODE, FOR_ALL = "node_", "shared_"  # how the arrays of a survey are named in its record


@dataclass(frozen=True)
class Origin:
    """What a worker in another process cuts patches from; only these few words travel with a call.

    Attributes
    ----------
    folder : str
        The graph folder.
    graph : str
        The fingerprint of the graph.
    survey : str, optional
        The fingerprint of the survey in the store.
    """

    folder: str
    graph: str
    survey: str | None = None


@dataclass(frozen=True, eq=False)
class StoredSurvey:
    """The survey of an embedder, and its fingerprint."""

    content: Survey
    fingerprint: str


def far_clusters(store: Store, graph: Graph, progress: ProgressCallback | None = None) -> CoarseGraph:
    """Return the fine clusters of a graph: those of the store, or new ones, which it then keeps."""
    parameters: dict[str, object] = {"graph": graph_fingerprint(graph)}
    try:
        record = store["clusters"]
        if dict(record.parameters) == parameters:
            return CoarseGraph.from_arrays(record.arrays, graph.n_nodes)
    except (KeyError, FormatError):
        pass
    coarse = coarse_graph(graph.undirected(), fine_clusters(graph.undirected(), progress=progress))
    store["clusters"] = Record(coarse.to_arrays(), parameters)
    return coarse


def surveyed(
    store: Store,
    graph: Graph | None,
    embedder: Embedder,
    seed: int,
    node_sets: Sequence[IntArray],
    *,
    progress: ProgressCallback | None = None,
) -> StoredSurvey | None:
    """Survey the whole graph once for all patches, or open the survey that the store has.

    The survey also has ``patches``, the number of patches that each node is in. None where the embedder makes none, or
    where there is neither a graph nor a survey of it.
    """
    if not shares_start(embedder):
        return None
    parameters: dict[str, object] = {"embedder": describe(embedder), "seed": seed, "cut": len(node_sets) > 1}
    if graph is not None:
        parameters["graph"] = graph_fingerprint(graph)
    try:
        record = store["survey"]
        changes = differences({name: record.parameters.get(name) for name in parameters}, parameters)
        found = stored_survey(record)
        fits = graph is None or all(array.shape[:1] == (graph.n_nodes,) for array in found.content.nodes.values())
        if not changes and fits:
            return found
    except (KeyError, FormatError):
        pass
    if graph is None:
        return None
    # Of a large graph that is not cut, clusters give the order in which its nodes are walked.
    needed = len(node_sets) > 1 or is_large(graph)
    clusters = far_clusters(store, graph, progress) if needed else None
    survey = embedder.survey(graph, seed, clusters=clusters, cut=len(node_sets) > 1)
    nodes = {**survey.nodes, "patches": _counts(node_sets, graph.n_nodes)}
    arrays = {f"{PER_NODE}{name}": array for name, array in sorted(nodes.items())}
    arrays |= {f"{FOR_ALL}{name}": array for name, array in sorted(survey.shared.items())}
    digest = fingerprint(*map(np.atleast_1d, arrays.values()))
    record = Record(arrays, {**parameters, "survey": digest})
    store["survey"] = record
    return stored_survey(record)


def stored_survey(record: Record) -> StoredSurvey:
    """Return the survey that a record has."""
    digest = record.parameters.get("survey")
    if not isinstance(digest, str):
        raise FormatError("the record of a survey does not have its fingerprint; it has to be made again.")
    return StoredSurvey(Survey(_named(record.arrays, PER_NODE), _named(record.arrays, FOR_ALL)), digest)


def _named(arrays: Mapping[str, AnyArray], prefix: str) -> dict[str, AnyArray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _counts(node_sets: Sequence[IntArray], n_nodes: int) -> AnyArray:
    """Return the number of node sets that each node is in, uint16 (n,); it stops at 65 535."""
    counts = np.zeros(n_nodes, dtype=np.uint16)
    for nodes in node_sets:
        counts[nodes] += counts[nodes] < np.iinfo(counts.dtype).max
    return counts


@dataclass(frozen=True, eq=False)
class PatchData:
    """Cuts the data of patches from the graph.

    Attributes
    ----------
    graph : Graph or None
        None where a store has the data of every patch.
    node_sets : sequence of int arrays
    survey : StoredSurvey, optional
        Where patches get a shared start.
    """

    graph: Graph | None
    node_sets: Sequence[IntArray]
    survey: StoredSurvey | None = None

    def cut(self, patch: int) -> tuple[IntArray, Graph, FarField | None]:
        """Return the nodes of a patch, their subgraph, and what is known of the rest.

        With far clusters the nodes come cluster by cluster: neighbours are then near each other in memory.
        """
        if self.graph is None:
            raise JobError(f"the data of patch {patch} is not there, and no graph was given to cut it from.")
        nodes = self.ordered_nodes(patch)
        if self.survey is None:
            return nodes, self.graph.subgraph(nodes), None
        return nodes, *cut_patch(self.graph.undirected(), nodes, self.survey.content)

    def ordered_nodes(self, patch: int) -> IntArray:
        """Return the nodes of a patch in the order in which they are cut."""
        nodes = np.asarray(self.node_sets[patch], dtype=np.int64)
        if self.survey is not None and "cluster" in self.survey.content.nodes:
            nodes = nodes[np.argsort(self.survey.content.nodes["cluster"][nodes], kind="stable")]
        return nodes

    @functools.cached_property
    def origin(self) -> Origin | None:
        """What workers cut the same data from; None where the graph is not in a folder."""
        if self.graph is None or self.graph.folder is None:
            return None
        survey = None if self.survey is None else self.survey.fingerprint
        return Origin(self.graph.folder, graph_fingerprint(self.graph), survey)

    def record(self, patch: int) -> Record:
        """Return the data of a patch as a store keeps it."""
        nodes = np.asarray(self.node_sets[patch], dtype=np.int64)  # ascending, as other programs expect them
        if self.survey is None:
            record = graph_record(*self.cut(patch))
        else:
            assert self.graph is not None
            record = graph_record(nodes, *cut_patch(self.graph.undirected(), nodes, self.survey.content))
        return replace(record, parameters={**record.parameters, **self._parameters})

    def suits(self, parameters: Parameters) -> bool:
        """Return whether the data in a store, which has these parameters, knows what is wanted of the rest."""
        return all(parameters.get(name) == value for name, value in self._parameters.items())

    @property
    def _parameters(self) -> dict[str, object]:
        return {} if self.survey is None else {"survey": self.survey.fingerprint}


def opened_data(store: Store, origin: Origin) -> PatchData:
    """Open what a worker cuts patches from: the graph folder, and node lists and survey in the store.

    They stay open for the next call, until a file of the graph has changed.

    Raises
    ------
    JobError
        The graph cannot be opened here, or is not the one that the job is about.
    """
    try:
        return _opened_data(cast(Hashable, store), origin, folder_version(origin.folder))
    except FormatError as error:
        raise JobError(
            f"{socket.gethostname()} cannot cut patches from the graph of {store_name(store)}: {error} All workers "
            "need the graph in its folder; for workers that do not have it, write the data of the patches first "
            "(graphquilt cut --data)."
        ) from error


@functools.lru_cache(maxsize=2)
def _opened_data(store: Hashable, origin: Origin, version: object) -> PatchData:  # noqa: ARG001
    graph, records = Graph.open(origin.folder), cast(Store, store)
    if graph_fingerprint(graph) != origin.graph:
        raise FormatError(
            f"the graph in {origin.folder} has the fingerprint {graph_fingerprint(graph)}, and the job was begun with "
            f"{origin.graph}."
        )
    patches = records["patch_graph"].arrays
    survey = None
    if origin.survey is not None:
        survey = stored_survey(records["survey"])
        if survey.fingerprint != origin.survey:
            raise FormatError("the survey of the graph was made again meanwhile; run again.")
    return PatchData(graph, NodeSets(patches["nodes"], patches["starts"]), survey)


def stored_data(store: Store, key: str, *, surveyed: bool) -> tuple[IntArray, Graph, FarField | None]:
    """Return the nodes and the graph of a patch from a store, and with a survey what it knows of the rest."""
    nodes, graph, far = graph_of(store[key])
    if not surveyed or far is None:
        return nodes, graph, None
    return nodes, graph, replace(far, shared=stored_survey(store["survey"]).content.shared)
