"""A shared start from public sample data: all parties embed in one frame, and alignment measures how they agree."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.embedders import Embedder, agree, shares_start
from graphquilt.errors import InputError
from graphquilt.files import array_checksum
from graphquilt.graph import Graph

__all__ = ["sample_start", "start_checksum"]


def sample_start(embedder: Embedder, sample: Graph, seed: int) -> dict[str, AnyArray]:
    """Return the shared start that an embedder makes of a sample, as if the sample were the only patch of a job.

    Raises
    ------
    InputError
        The embedder has no shared start, or the sample has no features. Without features a start would refer to parts
        of the sample, which the graphs of the parties do not have.
    """
    if sample.features is None or not shares_start(embedder, sample):
        raise InputError(
            f"{type(embedder).__name__} cannot make a shared start of this sample: the embedder must have a shared "
            "start, and the sample must have features like those of the parties. Leave out the sample, and the "
            "alignment finds the motion of each party."
        )
    start = agree(embedder, [(sample, None)], seed).start
    assert start is not None
    return {name: np.asarray(array) for name, array in start.items()}


def start_checksum(arrays: Mapping[str, AnyArray]) -> str:
    """Return the SHA-256 of names, types, shapes and values of the arrays of a start."""
    parts = [
        f"{name} {array.dtype.str} {array.shape} {array_checksum(array)}" for name, array in sorted(arrays.items())
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
