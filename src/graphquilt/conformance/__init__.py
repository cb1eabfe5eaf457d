"""Checks that you can run on a partitioner, an embedder or a store of your own."""

from graphquilt.conformance.embedder import check_embedder
from graphquilt.conformance.partitioner import check_partitioner
from graphquilt.conformance.stitching import EmbedderReport
from graphquilt.conformance.store import check_store

__all__ = ["EmbedderReport", "check_embedder", "check_partitioner", "check_store"]
