"""Export: the embedding of a job as Parquet, CSV, TSV or word2vec text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import InputError
from graphquilt.files import beside, explained
from graphquilt.jobs.directory import DirectoryStore
from graphquilt.jobs.graphs import node_ids
from graphquilt.jobs.job import Job

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FORMATS", "export_embedding", "format_of", "write_embedding"]

_ROWS = 65_536  # rows in memory at once


def export_embedding(job: Job, path: str | os.PathLike[str], *, format: str | None = None) -> Path:  # noqa: A002
    """Write the embedding of a job, with the ids that its nodes came with.

    Parameters
    ----------
    job : Job
    path : path
        A file that is complete once it is there.
    format : {"parquet", "csv", "tsv", "word2vec"}, optional
        By default the ending of the name decides: ``.parquet``, ``.csv``, ``.tsv``; ``.txt``, ``.vec`` and ``.w2v`` are
        word2vec text (a line with the number of nodes and dimensions, then an id and its coordinates on each line).

    Returns
    -------
    path
    """
    path = Path(path)
    name = format_of(path, format)
    X = job.embedding
    write_embedding(path, _node_ids(job, len(X)), X, format=name)
    return path


def format_of(path: Path, format: str | None = None) -> str:  # noqa: A002
    """Return the format that is named, or else the one that the ending of the file stands for."""
    endings = {".txt": "word2vec", ".vec": "word2vec", ".w2v": "word2vec"}
    name = format or endings.get(path.suffix, path.suffix.removeprefix("."))
    if name not in FORMATS:
        raise InputError(f"'{name}' is not a format to export to; choose one of {', '.join(FORMATS)}.")
    return name


def write_embedding(path: Path, ids: pa.Array, X: AnyArray, *, format: str) -> None:  # noqa: A002
    """Write ids and the coordinates ``X (n, d)`` in one of the FORMATS, to a file that is complete once it is there."""
    with explained(path.parent), beside(path) as part:
        FORMATS[format](part, ids, X)
        os.replace(part, path)


def _node_ids(job: Job, n_nodes: int) -> pa.Array:
    import pyarrow as pa

    if isinstance(job.store, DirectoryStore) and job.settings.source.graph is not None:
        return pa.array(node_ids(job.store, n_nodes))
    ids = None if job.graph is None else job.graph.node_ids
    return pa.array(np.arange(n_nodes) if ids is None else ids)


def _pieces(ids: pa.Array, X: AnyArray) -> Iterator[tuple[pa.Array, AnyArray]]:
    for start in range(0, len(X), _ROWS):
        yield ids.slice(start, _ROWS), np.asarray(X[start : start + _ROWS])


def _parquet(path: Path, ids: pa.Array, X: AnyArray) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["node_id", *(f"x{k}" for k in range(X.shape[1]))]
    kinds = [ids.type, *[pa.from_numpy_dtype(X.dtype)] * X.shape[1]]
    with pq.ParquetWriter(path, pa.schema(list(zip(names, kinds, strict=True)))) as writer:
        for some, rows in _pieces(ids, X):
            writer.write_table(pa.table([some, *(pa.array(column) for column in rows.T.copy())], names=names))


def _separated(separator: str) -> Callable[[Path, pa.Array, AnyArray], None]:
    def write(path: Path, ids: pa.Array, X: AnyArray) -> None:
        import csv

        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter=separator, lineterminator="\n")
            writer.writerow(["node_id", *(f"x{k}" for k in range(X.shape[1]))])
            for some, rows in _pieces(ids, X):
                writer.writerows([i, *row] for i, row in zip(some.to_pylist(), rows.tolist(), strict=True))

    return write


def _word2vec(path: Path, ids: pa.Array, X: AnyArray) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{X.shape[0]} {X.shape[1]}\n")
        for some, rows in _pieces(ids, X):
            for i, row in zip(some.to_pylist(), rows.tolist(), strict=True):
                word = str(i)
                if not word or any(letter.isspace() for letter in word):
                    raise InputError(f"word2vec text cannot hold the node id {word!r}, which has blanks; use Parquet.")
                file.write(word + " " + " ".join(map(repr, row)) + "\n")


FORMATS: dict[str, Callable[[Path, pa.Array, AnyArray], None]] = {
    "parquet": _parquet,
    "csv": _separated(","),
    "tsv": _separated("\t"),
    "word2vec": _word2vec,
}
