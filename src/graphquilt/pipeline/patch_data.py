"""The data of one patch: its subgraph with as much around it as the embedder uses, from the graph or from a store."""

from __future__ import annotations

import functools
import socket
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from graphquilt.arrays import AnyArray, IntArray
from graphquilt.embedders.contract import Context, Embedder, Surroundings, can_start
from graphquilt.errors import FormatError, JobError
from graphquilt.graph import Graph
from graphquilt.graph.files import folder_version
from graphquilt.patches import NodeSets
from graphquilt.patches.context import surrounding_nodes
from graphquilt.pipeline.description import describe, differences, fingerprint
from graphquilt.pipeline.records import graph_fingerprint, graph_of, graph_record
from graphquilt.pipeline.store import Parameters, Record, Store, store_name

__all__ = ["Origin", "PatchData", "Survey", "opened_data", "stored_data", "surveyed"]


@dataclass(frozen=True)
class Origin:
    """What a worker in another process cuts patches from; only these few words travel with a call.

    Attributes
    ----------
    folder : str
        The graph folder.
    graph : str
        The fingerprint of the graph.
    surrounded, context
        As in :class:`PatchData`.
    survey : str, optional
        The fingerprint of the survey in the store.
    """

    folder: str
    graph: str
    surrounded: bool = False
    context: Context | None = None
    survey: str | None = None


@dataclass(frozen=True, eq=False)
class Survey:
    """What an embedder found out about the whole graph: named arrays with one row per node, and their fingerprint."""

    arrays: Mapping[str, AnyArray]
    fingerprint: str


def surveyed(
    store: Store, graph: Graph | None, embedder: Embedder, seed: int, node_sets: Sequence[IntArray]
) -> Survey | None:
    """Survey the whole graph once for all patches, or open the survey that the store has.

    The survey also has ``patches``, the number of patches that each node is in. None where the embedder makes none, or
    where there is neither a graph nor a survey of it.
    """
    survey = getattr(embedder, "survey", None)
    if survey is None or not can_start(embedder):
        return None
    parameters: dict[str, object] = {"embedder": describe(embedder), "seed": seed}
    if graph is not None:
        parameters["graph"] = graph_fingerprint(graph)
    try:
        record = store["survey"]
        changes = differences({name: record.parameters.get(name) for name in parameters}, parameters)
        fits = graph is None or all(array.shape[:1] == (graph.n_nodes,) for array in record.arrays.values())
        if not changes and fits:
            return Survey(record.arrays, str(record.parameters["survey"]))
    except (KeyError, FormatError):
        pass
    if graph is None:
        return None
    arrays = dict(sorted({**survey(graph, seed), "patches": _counts(node_sets, graph.n_nodes)}.items()))
    digest = fingerprint(*map(np.atleast_1d, arrays.values()))
    store["survey"] = Record(arrays, {**parameters, "survey": digest})
    return Survey(arrays, digest)


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
    surrounded : bool
        Whether the embedder uses what lies around a patch, because all patches get a shared start.
    context : Context, optional
        How much of the graph around each patch goes with it.
    survey : Survey, optional
    """

    graph: Graph | None
    node_sets: Sequence[IntArray]
    surrounded: bool = False
    context: Context | None = None
    survey: Survey | None = None

    @classmethod
    def of(
        cls,
        graph: Graph | None,
        node_sets: Sequence[IntArray],
        embedder: Embedder,
        *,
        start: bool,
        survey: Survey | None,
    ) -> PatchData:
        """Return the data that the patches of an embedder need, with or without a shared start."""
        if not (start and can_start(embedder)):
            return cls(graph, node_sets)
        return cls(graph, node_sets, True, getattr(embedder, "context", None), survey)

    def cut(self, patch: int) -> tuple[IntArray, Graph, Surroundings | None]:
        """Return the nodes of a patch and of its surroundings, their subgraph, and what is known about them."""
        if self.graph is None:
            raise JobError(f"the data of patch {patch} is not there, and no graph was given to cut it from.")
        inner = np.asarray(self.node_sets[patch], dtype=np.int64)
        if not self.surrounded:
            return inner, self.graph.subgraph(inner), None
        nodes = inner
        if self.context is not None:
            outer = surrounding_nodes(self.graph, inner, **vars(self.context))
            nodes = np.concatenate([inner, outer])
        arrays = {} if self.survey is None else self.survey.arrays
        survey = {name: np.asarray(array[nodes]) for name, array in arrays.items()}
        return nodes, self.graph.subgraph(nodes), Surroundings(len(inner), self.graph.n_nodes, survey)

    @functools.cached_property
    def origin(self) -> Origin | None:
        """What workers cut the same data from; None where the graph is not in a folder."""
        if self.graph is None or self.graph.folder is None:
            return None
        survey = None if self.survey is None else self.survey.fingerprint
        return Origin(self.graph.folder, graph_fingerprint(self.graph), self.surrounded, self.context, survey)

    def record(self, patch: int) -> Record:
        """Return the data of a patch as a store keeps it."""
        nodes, graph, surroundings = self.cut(patch)
        record = graph_record(nodes, graph, surroundings)
        return replace(record, parameters={**record.parameters, **self._parameters})

    def suits(self, parameters: Parameters) -> bool:
        """Return whether the data in a store, which has these parameters, has the surroundings that are wanted."""
        return not self.surrounded or all(parameters.get(name) == value for name, value in self._parameters.items())

    @property
    def _parameters(self) -> dict[str, object]:
        if not self.surrounded:
            return {}
        survey = None if self.survey is None else self.survey.fingerprint
        return {"context": None if self.context is None else describe(self.context), "survey": survey}


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
            "(graphquilt patch --data)."
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
        record = records["survey"]
        survey = Survey(record.arrays, str(record.parameters.get("survey")))
        if survey.fingerprint != origin.survey:
            raise FormatError("the survey of the graph was made again meanwhile; run again.")
    return PatchData(graph, NodeSets(patches["nodes"], patches["starts"]), origin.surrounded, origin.context, survey)


def stored_data(store: Store, key: str, *, surrounded: bool, n_nodes: int) -> tuple[Graph, Surroundings | None]:
    """Return the graph of a patch from a store, with its surroundings if the embedder uses them.

    ``n_nodes`` is the number of nodes of the whole graph.
    """
    _, graph, surroundings = graph_of(store[key])
    if surrounded:
        return graph, surroundings or Surroundings(graph.n_nodes, n_nodes, {})
    if surroundings is None or surroundings.n_inner == graph.n_nodes:
        return graph, None
    return graph.subgraph(np.arange(surroundings.n_inner)), None
