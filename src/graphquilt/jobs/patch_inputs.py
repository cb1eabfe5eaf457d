"""The data of one patch: its subgraph and what it knows of the rest of the graph, from the graph or from a store."""

from __future__ import annotations

import functools
import socket
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import numpy as np

from graphquilt.arrays import AnyArray, IntArray
from graphquilt.embedders.contract import Embedder
from graphquilt.embedders.shared_start import FarField, Survey, cut_patch, shares_start
from graphquilt.errors import FormatError, JobError
from graphquilt.graph import Graph
from graphquilt.graph.files import folder_version
from graphquilt.jobs.description import describe, differences
from graphquilt.jobs.records import graph_fingerprint, graph_of, graph_record, patch_graph_fingerprint
from graphquilt.jobs.store import Parameters, Record, Store, record_digest, store_name
from graphquilt.patches import CoarseGraph, NodeSets, PatchGraph, coarse_graph, fine_clusters, is_large
from graphquilt.progress import ProgressCallback

PatchInput: TypeAlias = tuple[IntArray, Graph, FarField | None]  # nodes, their subgraph, what is known of the rest
PER_NODE, FOR_ALL = "node_", "shared_"  # how the arrays of a survey are named in its record


@dataclass(frozen=True)
class GraphReference:
    """What a worker in another process cuts patches from; only these few words travel with a call.

    Attributes
    ----------
    folder : str
        The graph folder.
    graph : str
        The fingerprint of the graph.
    survey : str, optional
        The digest of the survey in the store.
    """

    folder: str
    graph: str
    survey: str | None = None


@dataclass(frozen=True, eq=False)
class StoredSurvey:
    """The survey of an embedder, and the digest of its record."""

    content: Survey
    digest: str


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


def survey_graph(
    store: Store,
    graph: Graph | None,
    embedder: Embedder,
    seed: int,
    patch_graph: PatchGraph,
    *,
    progress: ProgressCallback | None = None,
) -> StoredSurvey | None:
    """Survey the whole graph once for all patches, or open the survey that the store has.

    The survey also has ``patches``, the number of patches that each node is in. Return None if the embedder makes no
    survey, or if there is neither a graph nor a survey of it.
    """
    if not shares_start(embedder):
        return None
    several = patch_graph.n_patches > 1
    parameters: dict[str, object] = {"embedder": describe(embedder), "seed": seed}
    parameters["patches"] = patch_graph_fingerprint(patch_graph)
    clusters = None
    if graph is not None:
        parameters["graph"] = graph_fingerprint(graph)
        # Of a large graph that is not cut, clusters give the order in which its nodes are walked.
        if several or is_large(graph):
            clusters = far_clusters(store, graph, progress)
            parameters["clusters"] = record_digest(store, "clusters")
    try:
        record = store["survey"]
        changes = differences({name: record.parameters.get(name) for name in parameters}, parameters)
        survey = stored_survey(record)
        fits = graph is None or all(array.shape[:1] == (graph.n_nodes,) for array in survey.content.nodes.values())
        if not changes and fits:
            return survey
    except (KeyError, FormatError):
        pass
    if graph is None:
        return None
    made = embedder.survey(graph, seed, clusters=clusters, cut=several)
    nodes = {**made.nodes, "patches": _counts(patch_graph.node_sets, graph.n_nodes)}
    arrays = {f"{PER_NODE}{name}": array for name, array in sorted(nodes.items())}
    arrays |= {f"{FOR_ALL}{name}": array for name, array in sorted(made.shared.items())}
    store["survey"] = Record(arrays, parameters)
    return stored_survey(store["survey"])


def stored_survey(record: Record) -> StoredSurvey:
    """Return the survey that a record has."""
    return StoredSurvey(Survey(_named(record.arrays, PER_NODE), _named(record.arrays, FOR_ALL)), record.digest)


def _named(arrays: Mapping[str, AnyArray], prefix: str) -> dict[str, AnyArray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _counts(node_sets: Sequence[IntArray], n_nodes: int) -> AnyArray:
    """Return the number of node sets that each node is in, uint16 (n,); it stops at 65 535."""
    counts = np.zeros(n_nodes, dtype=np.uint16)
    for nodes in node_sets:
        counts[nodes] += counts[nodes] < np.iinfo(counts.dtype).max
    return counts


@dataclass(frozen=True, eq=False)
class PatchInputs:
    """Cuts the data of patches from the graph.

    Attributes
    ----------
    graph : Graph or None
        None if a store has the data of every patch.
    node_sets : sequence of int arrays
    survey : StoredSurvey, optional
        Where patches get a shared start.
    """

    graph: Graph | None
    node_sets: Sequence[IntArray]
    survey: StoredSurvey | None = None

    def extract(self, patch: int) -> PatchInput:
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
    def reference(self) -> GraphReference | None:
        """What workers cut the same data from; None if the graph is not in a folder."""
        if self.graph is None or self.graph.folder is None:
            return None
        survey = None if self.survey is None else self.survey.digest
        return GraphReference(self.graph.folder, graph_fingerprint(self.graph), survey)

    def record(self, patch: int) -> Record:
        """Return the data of a patch as a store keeps it."""
        nodes = np.asarray(self.node_sets[patch], dtype=np.int64)  # ascending, as other programs expect them
        if self.survey is None:
            record = graph_record(*self.extract(patch))
        else:
            assert self.graph is not None
            record = graph_record(nodes, *cut_patch(self.graph.undirected(), nodes, self.survey.content))
        return replace(record, parameters={**record.parameters, **self._parameters})

    def suits(self, parameters: Parameters) -> bool:
        """Return whether the data in a store, which has these parameters, knows what is wanted of the rest."""
        return all(parameters.get(name) == value for name, value in self._parameters.items())

    @property
    def _parameters(self) -> dict[str, object]:
        return {} if self.survey is None else {"survey": self.survey.digest}


def open_inputs(store: Store, reference: GraphReference) -> PatchInputs:
    """Open what a worker cuts patches from: the graph folder, and node lists and survey in the store.

    They stay open for the next call, until a file of the graph has changed.

    Raises
    ------
    JobError
        The graph cannot be opened here, or is not the one that the job is about.
    """
    try:
        return _open_inputs(cast(Hashable, store), reference, folder_version(reference.folder))
    except FormatError as error:
        raise JobError(
            f"{socket.gethostname()} cannot cut patches from the graph of {store_name(store)}: {error} All workers "
            "need the graph in its folder; for workers that do not have it, write the data of the patches first "
            "(graphquilt cut --data)."
        ) from error


@functools.lru_cache(maxsize=2)
def _open_inputs(store: Hashable, reference: GraphReference, version: object) -> PatchInputs:  # noqa: ARG001
    graph, records = Graph.open(reference.folder), cast(Store, store)
    if graph_fingerprint(graph) != reference.graph:
        raise FormatError(
            f"the graph in {reference.folder} has the fingerprint {graph_fingerprint(graph)}, and the job was begun "
            f"with {reference.graph}."
        )
    patches = records["patch_graph"].arrays
    survey = None
    if reference.survey is not None:
        survey = stored_survey(records["survey"])
        if survey.digest != reference.survey:
            raise FormatError("the survey of the graph was made again meanwhile; run again.")
    return PatchInputs(graph, NodeSets(patches["nodes"], patches["starts"]), survey)


def stored_input(store: Store, key: str, *, far_field: bool) -> PatchInput:
    """Return the nodes and the graph of a patch from a store, and with a survey what it knows of the rest."""
    nodes, graph, far = graph_of(store[key])
    if not far_field or far is None:
        return nodes, graph, None
    return nodes, graph, replace(far, shared=stored_survey(store["survey"]).content.shared)
