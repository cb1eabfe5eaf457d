"""The graph of a job in a folder: its copy, or where it lies, and the ids that its nodes have outside."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.errors import JobError
from graphquilt.files import beside, explained
from graphquilt.graph import Graph
from graphquilt.jobs.directory import DirectoryStore
from graphquilt.jobs.source import Source
from graphquilt.pipeline.records import graph_fingerprint
from graphquilt.pipeline.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["keep_graph", "node_ids", "open_graph"]

_IDS = "node_ids.parquet"


def keep_graph(store: DirectoryStore, source: Source, graph: Graph) -> Source:
    """Keep a graph, unless it is in a graph folder of its own, and its node ids; return the source that says where."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    store.start()  # first: a folder with a graph and nothing else in it is not known as a job
    folder = source.path if source.is_graph_folder else "graph"
    ids = np.arange(graph.n_nodes) if graph.node_ids is None else graph.node_ids
    with explained(store.path):
        if not source.is_graph_folder:
            graph.save(store.path / "graph")
        with beside(store.path / _IDS) as part:
            pq.write_table(pa.table({"node_id": pa.array(ids)}), part)
            os.replace(part, store.path / _IDS)
    return replace(source, graph=folder)


def open_graph(store: Store, source: Source) -> Graph | None:
    """Open the graph that a job was begun with, or return None where the store does not have it.

    Raises
    ------
    JobError
        Another graph lies in its place.
    """
    if source.graph is None or not isinstance(store, DirectoryStore):
        return None
    path = store.path / source.graph
    graph = Graph.open(path)
    if graph_fingerprint(graph) != source.fingerprint:
        raise JobError(
            f"{store} was begun with another graph than the one that is now in {path} (fingerprint "
            f"{source.fingerprint}, now {graph_fingerprint(graph)}). Put the first one back, or use another folder for "
            "the job."
        )
    return graph


def node_ids(store: DirectoryStore, n_nodes: int) -> pa.Array:
    """Return the ids that :func:`keep_graph` has written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = store.path / _IDS
    again = "begin the job again in another folder"
    try:
        with pq.ParquetFile(path) as file:
            rows, kind = file.metadata.num_rows, file.schema_arrow.field("node_id").type
            if rows != n_nodes:
                raise JobError(f"{path} has {rows} node ids for {n_nodes} rows; {again}.")
            if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise JobError(f"{path} has node ids of type {kind}, and not integers or text; {again}.")
            column = file.read(columns=["node_id"])["node_id"].combine_chunks()
        column.validate(full=True)
    except (pa.ArrowException, OSError, KeyError, ValueError, MemoryError) as error:
        raise JobError(f"{path} cannot be read ({error}); {again}.") from error
    if len(column) != n_nodes or column.null_count:
        raise JobError(f"{path} has {len(column) - column.null_count} node ids for {n_nodes} rows; {again}.")
    return column
