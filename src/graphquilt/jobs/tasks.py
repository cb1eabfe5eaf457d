"""One patch to be embedded: its data, its seed, and the task that a worker performs."""

from __future__ import annotations

import dataclasses
import functools
import os
import socket
import traceback
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, IntArray
from graphquilt.embedders.contract import Embedder, Fit, check_spread, checked_fit
from graphquilt.embedders.shared_start import (
    Arrays,
    FarField,
    SharedStart,
    checked_arrays,
    cut_patch,
    shares_start,
    with_start,
)
from graphquilt.embedders.walks import reversed_graph
from graphquilt.errors import EmbedderError, FormatError, InputError, JobError, MissingExtraError
from graphquilt.graph import Graph
from graphquilt.graph.files import folder_version
from graphquilt.graph.structure import Features
from graphquilt.jobs.records import StoredSurvey, graph_fingerprint, patch_key, stored_survey
from graphquilt.jobs.store import Parameters, Record, Store, store_name
from graphquilt.jobs.stored_patches import PatchRows, patch_counts, shared_rows
from graphquilt.jobs.versions import turn
from graphquilt.kernels import settle_worker
from graphquilt.patches import NodeSets
from graphquilt.progress import ProgressCallback, resource_usage

PatchInput: TypeAlias = tuple[IntArray, Graph, FarField | None]  # nodes, their subgraph, what is known of the rest
_CURVE = 33  # points of a loss curve that are kept
GROUPED, HELD = 1 << 32, 1 << 30  # bytes of a graph of which patches are read in groups, and of such a group
_ENTRIES = 1 << 20  # nodes whose edges are read at once


def embedder_of_run(embedder: Embedder, run: int) -> Embedder:
    """Return the embedder of one run: an ``init_seed`` is raised by the number of the run, and runs differ."""
    start, value = getattr(embedder, "init_seed", None), cast(Any, embedder)
    if start is None or not dataclasses.is_dataclass(value) or isinstance(value, type):
        return embedder
    return cast(Embedder, dataclasses.replace(value, init_seed=start + run))


@dataclass(frozen=True)
class GraphReference:
    """What a worker in another process cuts patches from; only these few words travel with a call."""

    folder: str  # of the graph
    graph: str  # its fingerprint
    survey: str | None = None  # the digest of the survey in the store


@dataclass(frozen=True, eq=False)
class PatchInputs:
    """Cuts the data of patches from the graph."""

    graph: Graph | None  # None if all patches were embedded elsewhere
    node_sets: Sequence[IntArray]
    survey: StoredSurvey | None = None  # where patches get a shared start
    _held: dict[int, tuple[Graph, IntArray, Features | None]] = field(default_factory=dict)  # the group at hand

    def extract(self, patch: int) -> PatchInput:
        """Return the nodes of a patch, ordered by far cluster, their subgraph, and what it knows of the rest."""
        if self.graph is None:
            raise JobError(f"patch {patch} is not embedded, and no graph was given to cut it from.")
        nodes = self.ordered_nodes(patch)
        if self.survey is None or self._views is None:
            return nodes, self.graph.subgraph(nodes), None
        if self._group_size is None:
            return nodes, *cut_patch(self._views[0], nodes, self.survey, backwards=self._views[1])
        edges, members, features = self._group(patch // self._group_size)
        part, far = cut_patch(edges, nodes, self.survey)
        rows = None if features is None else features[np.searchsorted(members, nodes)]
        return nodes, part.with_attributes(features=rows), far

    @functools.cached_property
    def _group_size(self) -> int | None:
        """How many patches are read together; None if the graph is small enough to stay in the disk cache."""
        if self.graph is None or self.graph.folder is None or self._views is None or self._views[1] is not None:
            return None
        size = sum(getattr(array, "nbytes", 0) for array in (self.graph.indices, self.graph.features))
        return None if size < GROUPED else max(1, HELD * len(self.node_sets) // size)

    def _group(self, group: int) -> tuple[Graph, IntArray, Features | None]:
        """Return the graph with the edges of a group of patches only, their nodes, and the features of these.

        Nodes of a patch lie everywhere in the files. A group of patches is therefore read in the order of the files.
        """
        if group not in self._held:
            assert self._views is not None
            assert self._group_size is not None
            self._held.clear()
            graph, first = self._views[0], group * self._group_size
            wanted = np.zeros(graph.n_nodes, dtype=bool)
            for k in range(first, min(first + self._group_size, len(self.node_sets))):
                wanted[self.node_sets[k]] = True
            members = np.flatnonzero(wanted)
            starts = graph.indptr[members]
            counts = graph.indptr[members + 1] - starts
            ends = np.zeros(graph.n_nodes + 1, dtype=np.int64)
            ends[members + 1] = counts
            columns = np.empty(counts.sum(), dtype=graph.indices.dtype)
            values = None if graph.weights is None else np.empty(len(columns), dtype=graph.weights.dtype)
            filled = 0
            for a in range(0, len(members), _ENTRIES):
                sizes = counts[a : a + _ENTRIES]
                entries = np.repeat(starts[a : a + _ENTRIES] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
                columns[filled : filled + len(entries)] = graph.indices[entries]
                if values is not None and graph.weights is not None:
                    values[filled : filled + len(entries)] = graph.weights[entries]
                filled += len(entries)
            np.cumsum(ends, out=ends)
            edges = Graph.from_arrays(ends, columns, values, labels=graph.labels, node_ids=graph.node_ids)
            self._held[group] = edges, members, None if graph.features is None else graph.features[members]
        return self._held[group]

    @functools.cached_property
    def _views(self) -> tuple[Graph, Graph | None] | None:
        """The undirected graph; or, for a survey that keeps directions, the graph, and the graph turned round."""
        if self.graph is None or self.survey is None:
            return None
        directed = "targets" in self.survey.shared
        return (self.graph, reversed_graph(self.graph)) if directed else (self.graph.undirected(), None)

    def ordered_nodes(self, patch: int) -> IntArray:
        """Return the nodes of a patch in the order in which they are cut."""
        nodes = np.asarray(self.node_sets[patch], dtype=np.int64)
        if self.survey is not None and "cluster" in self.survey.nodes:
            nodes = nodes[np.argsort(self.survey.nodes["cluster"][nodes], kind="stable")]
        return nodes

    @functools.cached_property
    def reference(self) -> GraphReference | None:
        """What workers cut the same data from; None if the graph is not in a folder."""
        if self.graph is None or self.graph.folder is None:
            return None
        return GraphReference(
            self.graph.folder, graph_fingerprint(self.graph), None if self.survey is None else self.survey.digest
        )


@functools.lru_cache(maxsize=2)
def _open_inputs(store: Hashable, reference: GraphReference, version: object) -> PatchInputs:  # noqa: ARG001
    """Open the graph folder, node lists and survey, which stay open until a file of the graph has changed."""
    graph, records = Graph.open(reference.folder), cast(Store, store)
    if graph_fingerprint(graph) != reference.graph:
        raise FormatError(f"{reference.folder} has the graph {graph_fingerprint(graph)}, not {reference.graph}.")
    survey = None if reference.survey is None else stored_survey(records["survey"])
    if survey is not None and survey.digest != reference.survey:
        raise FormatError("the survey of the graph was made again meanwhile; run again.")
    patches = records["patch_graph"].arrays
    return PatchInputs(graph, NodeSets(patches["nodes"], patches["starts"]), survey)


@dataclass(frozen=True, eq=False)
class Start:
    """The shared start of one run: its arrays, the digest of its record, and the key under which the store has it."""

    arrays: Mapping[str, AnyArray]
    digest: str
    key: str
    kept: str | None  # the name of what patches keep from the round that made it; None if they did not make it


@dataclass(frozen=True)
class PatchTask:
    """One patch to embed, or to prepare for the shared start; with a ``store``, a worker writes the result to it."""

    patch: int
    content: str  # "embedding", or "kept0" for the first round of the shared start
    embedder: Embedder
    seed: int
    driver: tuple[str, int]  # host and process id
    parameters: Parameters  # what the marker will hold; a worker may know the embedder's class by another name
    aligned: bool  # whether the patch will be turned or scaled to fit others, and has to extend somewhere
    inputs: PatchInputs | GraphReference | PatchInput  # what the patch is cut from, here or in a worker, or its data
    start: tuple[str, str] | None = None  # key and digest of the shared start in the store
    kept: Arrays | str | None = None  # what this patch keeps from the last round, or its key in the store
    precision: str | None = None  # the type that the embedding is stored in, unless it is that of the embedder
    rows: PatchRows | None = None  # where the rows go that are not kept
    store: Store | None = None
    rotation: Float64Array | None = None  # onto the frame of an earlier version


@dataclass(frozen=True)
class TaskOutcome:
    """The outcome of a task; small if a store in a folder holds the arrays.

    ``kind`` says how an error is to be taken: the patch "failed" and may be tried again, the error is "final" because
    it would come again, "fatal" because no patch can succeed, or the "embedder" breaks its promise.
    """

    facts: Mapping[str, float] = field(default_factory=dict)  # a few numbers for those who watch
    losses: Sequence[tuple[int, float]] = ()  # epochs and their loss
    arrays: Mapping[str, AnyArray] | None = None
    error: str | None = None
    kind: Literal["failed", "final", "fatal", "embedder"] = "failed"
    trace: str = ""

    def record(self, parameters: Parameters) -> Record:
        """Return what the store keeps: the arrays, with what made them, the facts and the losses."""
        curve = {"losses": [list(pair) for pair in self.losses]} if self.losses else {}
        return Record(self.arrays or {}, {**parameters, **self.facts, **curve})


def thin_curve(losses: Sequence[float] | Float64Array) -> list[tuple[int, float]]:
    """Return at most 33 pairs of an epoch and its loss, the first and the last among them."""
    epochs = np.unique(np.linspace(1, len(losses), min(len(losses), _CURVE)).astype(np.int64))
    return [(k, float(f"{losses[k - 1]:.6g}")) for k in epochs.tolist() if np.isfinite(losses[k - 1])]


def perform(task: PatchTask, progress: ProgressCallback | None = None) -> TaskOutcome:
    """Embed one patch. Never raises: an exception that cannot be pickled would take the whole pool with it."""
    if task.driver != (socket.gethostname(), os.getpid()):
        settle_worker()
    try:
        embedder, kept, finished = task.embedder, task.kept, None
        if isinstance(kept, str):
            kept = cast(Store, task.store)[kept].arrays
        if task.start is not None:
            started = _stored_start(cast(Hashable, task.store), *task.start)
            embedder = with_start(cast(SharedStart, embedder), started)
        if task.content == "embedding" and kept is not None and shares_start(embedder):
            finished = embedder.finish(kept)
        nodes, graph, far = _input(task, whole=finished is None)
        with resource_usage() as cost:
            if task.content == "embedding":
                options: dict[str, Any] = {"far": far, "kept": kept} if shares_start(embedder) else {}
                where: dict[str, Any] = {"where": f"patch {task.patch}", "progress": progress}
                fit = finished or checked_fit(embedder, cast(Graph, graph), task.seed, **where, **options)
                arrays: Arrays = {"embedding": _coordinates(task, fit, embedder, nodes)}
                facts, losses = fit.facts, thin_curve(fit.losses)
                if len(fit.losses):
                    facts = {**facts, "epochs": len(fit.losses), "loss": float(fit.losses[-1])}
            else:
                made = cast(SharedStart, embedder).prepare(cast(Graph, graph), task.seed, far=far)
                arrays = checked_arrays(made, f"preparation of {type(embedder).__name__} for patch {task.patch}")
                facts, losses = {}, []
        outcome = TaskOutcome({**facts, **cost}, losses, arrays)
        if task.store is None:
            return outcome
        _keep(task.store, task, outcome, nodes)
        return TaskOutcome(outcome.facts)
    except (JobError, MissingExtraError) as error:
        return TaskOutcome(error=str(error), kind="fatal")
    except InputError as error:
        kind: Literal["embedder", "final"] = "embedder" if isinstance(error, EmbedderError) else "final"
        return TaskOutcome(error=str(error).removesuffix("."), kind=kind)
    except Exception as error:
        return TaskOutcome(error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())


def _keep(store: Store, task: PatchTask, outcome: TaskOutcome, nodes: IntArray) -> None:
    """Write what a task has made: rows that are not kept go to their file first."""
    marked = {**task.parameters, "worker": f"{socket.gethostname()}:{os.getpid()}"}
    if task.rows is not None and outcome.arrays is not None:
        counts = _patch_counts(cast(Hashable, store), task.parameters["patches"])
        X, shared = outcome.arrays["embedding"], shared_rows(counts, np.sort(nodes))
        marked["rows"] = task.rows.write(X[~shared])
        outcome = replace(outcome, arrays={"embedding": X[shared]})
    store[patch_key(task.patch, task.content)] = outcome.record(marked)


def _coordinates(task: PatchTask, fit: Fit, embedder: Embedder, nodes: IntArray) -> AnyArray:
    """Return an embedding as it is stored: in the frame of the job, in ascending order of the nodes, in its type."""
    if task.aligned:
        check_spread(fit.embedding, embedder, f"patch {task.patch}")
    X = np.asarray(fit.embedding)
    X = X if task.rotation is None else turn(X, task.rotation)
    X = X[np.argsort(nodes)] if np.any(np.diff(nodes) < 0) else X
    with np.errstate(over="ignore"):
        rounded = X if task.precision is None else X.astype(task.precision, copy=False)
    if task.precision is not None and not np.isfinite(rounded).all():
        raise InputError(
            f"coordinates as large as {np.abs(X).max():.3g} do not fit into {task.precision}; use another --precision."
        )
    return rounded


def _input(task: PatchTask, *, whole: bool) -> tuple[IntArray, Graph | None, FarField | None]:
    """Return the nodes of a patch, their graph, and what is known of the rest; or only the nodes."""
    inputs, store = task.inputs, cast(Store, task.store)
    if isinstance(inputs, tuple):
        return inputs
    if isinstance(inputs, GraphReference):
        try:
            inputs = _open_inputs(cast(Hashable, store), inputs, folder_version(inputs.folder))
        except FormatError as error:
            raise JobError(
                f"{socket.gethostname()} cannot cut patches from the graph of {store_name(store)}: {error} All workers "
                "need the graph in its folder."
            ) from error
    patch = task.patch % len(inputs.node_sets)  # it may be another run of this one
    return inputs.extract(patch) if whole else (inputs.ordered_nodes(patch), None, None)


@functools.lru_cache(maxsize=2)
def _patch_counts(store: Hashable, patches: object) -> AnyArray:  # noqa: ARG001
    """Open the counts of these patches once per worker: the file of the survey is checked when it is opened."""
    return patch_counts(cast(Store, store))


@functools.lru_cache(maxsize=2)
def _stored_start(store: Hashable, key: str, digest: str) -> Mapping[str, AnyArray]:  # noqa: ARG001
    """Open the shared start once per worker, not once per task."""
    return cast(Store, store)[key].arrays
