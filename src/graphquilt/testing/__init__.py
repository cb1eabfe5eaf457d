"""Checks of your own partitioner, embedder or store, and problems with known answers to try them on."""

from graphquilt.testing.checks import EmbedderReport, check_embedder, check_partitioner, check_store
from graphquilt.testing.quilts import Quilt, patchwork, quilt, random_rotations

__all__ = [
    "EmbedderReport",
    "Quilt",
    "check_embedder",
    "check_partitioner",
    "check_store",
    "patchwork",
    "quilt",
    "random_rotations",
]
