"""A job's embedding in other people's formats: Parquet, CSV, TSV and word2vec text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import InputError, JobError
from graphquilt.files import beside, explained
from graphquilt.records import kept_embedding
from graphquilt.store import DirectoryStore

__all__ = ["FORMATS", "export_embedding"]

_ROWS = 65_536  # rows in memory at once


def export_embedding(store: DirectoryStore, path: str | os.PathLike[str], *, format: str | None = None) -> Path:  # noqa: A002
    """Write the embedding of a job, with the ids that its nodes came with.

    Parameters
    ----------
    store : DirectoryStore
    path : path
        A file that is complete once it is there.
    format : {"parquet", "csv", "tsv", "word2vec"}, optional
        By default what the name's ending says: ``.parquet``, ``.csv``, ``.tsv``; ``.txt``, ``.vec`` and ``.w2v`` are
        word2vec text (a line with the number of nodes and dimensions, then an id and its coordinates on each line).

    Returns
    -------
    path
    """
    path = Path(path)
    endings = {".txt": "word2vec", ".vec": "word2vec", ".w2v": "word2vec"}
    name = format or endings.get(path.suffix, path.suffix.removeprefix("."))
    if name not in FORMATS:
        raise InputError(f"'{name}' is not a format to export to; choose one of {', '.join(FORMATS)}.")
    X = kept_embedding(store)
    ids = _node_ids(store, len(X))
    with explained(path.parent), beside(path) as part:
        FORMATS[name](part, ids, X)
        os.replace(part, path)
    return path


def _node_ids(store: DirectoryStore, n_nodes: int) -> Any:
    import pyarrow.parquet as pq

    try:
        ids = pq.read_table(store.path / "node_ids.parquet")["node_id"].combine_chunks()
    except (OSError, KeyError, ValueError) as error:
        raise JobError(f"{store.path / 'node_ids.parquet'} cannot be read ({error}); align again.") from error
    if len(ids) != n_nodes:
        raise JobError(f"{store.path} has {len(ids)} node ids and {n_nodes} rows; align again to make both.")
    return ids


def _pieces(ids: Any, X: AnyArray) -> Iterator[tuple[Any, AnyArray]]:
    for start in range(0, len(X), _ROWS):
        yield ids.slice(start, _ROWS), np.asarray(X[start : start + _ROWS])


def _parquet(path: Path, ids: Any, X: AnyArray) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["node_id", *(f"x{k}" for k in range(X.shape[1]))]
    kinds = [ids.type, *[pa.from_numpy_dtype(X.dtype)] * X.shape[1]]
    with pq.ParquetWriter(path, pa.schema(list(zip(names, kinds, strict=True)))) as writer:
        for some, rows in _pieces(ids, X):
            writer.write_table(pa.table([some, *(pa.array(column) for column in rows.T.copy())], names=names))


def _separated(separator: str) -> Callable[[Path, Any, AnyArray], None]:
    def write(path: Path, ids: Any, X: AnyArray) -> None:
        import csv

        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter=separator, lineterminator="\n")
            writer.writerow(["node_id", *(f"x{k}" for k in range(X.shape[1]))])
            for some, rows in _pieces(ids, X):
                writer.writerows([i, *row] for i, row in zip(some.to_pylist(), rows.tolist(), strict=True))

    return write


def _word2vec(path: Path, ids: Any, X: AnyArray) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{X.shape[0]} {X.shape[1]}\n")
        for some, rows in _pieces(ids, X):
            for i, row in zip(some.to_pylist(), rows.tolist(), strict=True):
                word = str(i)
                if not word or any(letter.isspace() for letter in word):
                    raise InputError(f"word2vec text cannot hold the node id {word!r}, which has blanks; use Parquet.")
                file.write(word + " " + " ".join(map(repr, row)) + "\n")


FORMATS: dict[str, Callable[[Path, Any, AnyArray], None]] = {
    "parquet": _parquet,
    "csv": _separated(","),
    "tsv": _separated("\t"),
    "word2vec": _word2vec,
}
