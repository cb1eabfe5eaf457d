"""The graph of a job: where it comes from, its copy in the folder of the job, and the ids of its nodes."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, JobError
from graphquilt.files import check_inside, translate_disk_errors
from graphquilt.files.stamps import large_file
from graphquilt.graph import Graph
from graphquilt.graph.files import attach, unverified, with_checksums
from graphquilt.graph.files import open_graph as open_folder
from graphquilt.jobs.description import differences
from graphquilt.jobs.directory import DirectoryStore
from graphquilt.jobs.records import graph_fingerprint
from graphquilt.jobs.settings import JobSettings, check_matches_records
from graphquilt.jobs.source import Source
from graphquilt.jobs.store import Record, Store, locked, store_folder, store_name

_IDS = "node_ids"

_log = logging.getLogger(__name__)


def settle_graph(
    store: Store,
    settings: JobSettings,
    graph: Graph | None,
    stored: JobSettings | None,
    damage: FormatError | None = None,
) -> tuple[JobSettings, Graph | None]:
    """Find the graph of a job, and write it to the folder of the store where that does not have it.

    ``stored`` are the settings of a job that is resumed, and ``damage`` says why they cannot be read. Return the
    settings with every default filled in for the graph, and the graph.
    """
    given = graph is not None or settings.source.path is not None
    source, keep = settings.source, stored is None
    if graph is None:
        source = source.identified(None if stored is None else stored.source)
        same = source.path is None or (source.checksums and stored and stored.source.input() == source.input())
        if stored is not None and same:
            try:
                graph = open_graph(store, stored.source)
            except FormatError as error:
                if source.path is None or stored.source.graph != "graph":
                    raise
                _log.warning("the graph is read from its source again: %s", error)
                keep = True
        if graph is None and (source.path is not None or "patch_graph" not in store):
            graph = source.read()
    graph = None if graph is None else with_checksums(graph)
    source = replace(source, fingerprint=None if graph is None else graph_fingerprint(graph))
    if stored is not None and stored.source.fingerprint != source.fingerprint:
        _refuse_other_input(store, stored.source, source)
        keep = True
    elif stored is not None:
        source = stored.source
    settings = replace(settings, source=source).resolved(graph)
    if damage is not None:
        check_matches_records(store, settings)
        _log.warning("the settings are written again: %s", damage)
    folder = store_folder(store)
    if graph is not None and folder is not None:
        if keep or (given and not _is_kept(store, source, graph)):
            with locked(store):
                settings = replace(settings, source=_keep_graph(store, source, graph))
        graph = with_checksums(graph, str(folder / str(settings.source.graph)))
    return settings, graph


def _refuse_other_input(store: Store, stored: Source, source: Source) -> None:
    """Refuse another graph than the one whose patches the store has."""
    if "patch_graph" in store:
        changes = differences(stored.input(), source.input()) or (
            f"graph with fingerprint {stored.fingerprint} (now {source.fingerprint})"
        )
        raise JobError(
            f"{store_name(store)} was made from other input: {changes}. Use another folder, or remove this one first."
        )


def _keep_graph(store: Store, source: Source, graph: Graph) -> Source:
    """Keep a graph, unless it is in a graph folder of its own, and its node ids; return the source that says where."""
    job = store_folder(store)
    assert job is not None
    DirectoryStore(job).create()  # first: a folder with a graph and nothing else in it is not known as a job
    folder = "graph"
    with translate_disk_errors(job):
        if graph.folder is not None and Path(graph.folder) != job / "graph":
            folder = graph.folder
        else:
            check_inside(job / "graph", job)
            file = large_file(graph.features)
            graph.save(job / "graph") if file is None else _save_referring(graph, job / "graph", file)
    ids = graph.node_ids
    arrays = {} if ids is None else {_IDS: ids.astype(str) if ids.dtype.hasobject else ids}
    store[_IDS] = Record(arrays, {"n_nodes": graph.n_nodes, "ids": "0..n-1" if ids is None else "given"})
    return replace(source, graph=folder)


def _save_referring(graph: Graph, folder: Path, features: Path) -> None:
    """Write a graph whose features stay in their file."""
    csr = graph.indptr, graph.indices, graph.weights
    edges = Graph.from_arrays(*csr, labels=graph.labels, node_ids=graph.node_ids, directed=graph.directed)
    edges.save(folder)
    attach(folder, features=features)


def _is_kept(store: Store, source: Source, graph: Graph) -> bool:
    """Return whether a job has the ids of its nodes, and the graph if that was only in memory; say so if not."""
    what = "node ids are"
    try:
        node_ids(store, graph.n_nodes)
        what = "graph is"
        if graph.folder is None:
            open_graph(store, source)
    except (JobError, FormatError) as error:
        _log.warning("the %s written again: %s", what, error)
        return False
    return True


def open_graph(store: Store, source: Source) -> Graph | None:
    """Open the graph that a job was begun with, or return None if the store does not have it.

    Raises
    ------
    JobError
        Another graph lies in its place.
    """
    path = _folder(store, source)
    if path is None:
        return None
    graph = Graph.open(path)
    if graph_fingerprint(graph) != source.fingerprint:
        raise JobError(
            f"{store_name(store)} was begun with another graph than the one that is now in {path} (fingerprint "
            f"{source.fingerprint}, now {graph_fingerprint(graph)}). Put the first one back, or use another folder for "
            "the job."
        )
    return graph


def graph_damage(store: Store, source: Source) -> tuple[list[str], list[str]]:
    """Read the whole graph of a job; return what is damaged, and what has no checksum to compare it with."""
    path = _folder(store, source)
    if path is None:
        return [], []
    try:
        open_folder(path, verify=True)
        sentence = unverified(path)
    except FormatError as error:
        return [str(error)], []
    return [], [] if sentence is None else [sentence]


def _folder(store: Store, source: Source) -> Path | None:
    folder = store_folder(store)
    return None if source.graph is None or folder is None else folder / source.graph


def node_ids(store: Store, n_nodes: int) -> AnyArray:
    """Return the ids that :func:`settle_graph` stored."""
    remedy = "Run the job again with its edges (graphquilt embed EDGES --out JOB), or begin it again in another folder"
    try:
        record = store[_IDS]
    except (KeyError, FormatError) as error:
        problem = "are not there" if isinstance(error, KeyError) else f"are damaged: {error}"
        raise JobError(f"the node ids of {store_name(store)} {problem}. {remedy}.".replace(".. ", ". ")) from error
    numbered = record.parameters.get("ids") == "0..n-1"
    ids: AnyArray | None = np.arange(n_nodes) if numbered else record.arrays.get(_IDS)
    if ids is None or ids.shape != (n_nodes,) or record.parameters.get("n_nodes") != n_nodes:
        raise JobError(f"the node ids of {store_name(store)} do not fit its embedding of {n_nodes} rows. {remedy}.")
    return ids
