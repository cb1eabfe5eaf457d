"""Read an embedding in blocks of rows: for the neighbours of a node, and to write it in formats of other programs."""

from __future__ import annotations

import contextlib
import difflib
import functools
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, BoolArray, Float64Array, Int64Array
from graphquilt.errors import InputError, JobError, counted
from graphquilt.files import array_writer, atomic_file, save_arrays, translate_disk_errors
from graphquilt.jobs.job import Job
from graphquilt.jobs.stitching import Result
from graphquilt.jobs.versions import gone_nodes

logger = logging.getLogger(__name__)
Dtype = Literal["float32", "float64"]

_ROWS = 65_536  # rows in memory at once, and in a row group of Parquet
_UNSAFE = re.compile(r"[=@\t\r]|[+-](?![0-9.]+$)|.*[\x00-\x08\x0b-\x1f\x7f-\x9f]", re.DOTALL)
_ENDINGS = {".txt": "word2vec", ".vec": "word2vec", ".w2v": "word2vec", ".pq": "parquet"}


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows to write, which are read, converted and scaled block by block."""

    ids: AnyArray
    X: AnyArray
    dtype: np.dtype[np.floating]
    unit: bool

    @property
    def dim(self) -> int:
        return int(self.X.shape[1])

    @property
    def digits(self) -> int:
        """How many digits distinguish any two numbers of this type."""
        return 17 if self.dtype.itemsize == 8 else 9

    def blocks(self) -> Iterator[tuple[AnyArray, AnyArray]]:
        for start in range(0, len(self.X), _ROWS):
            rows = np.array(self.X[start : start + _ROWS], dtype=np.float64)
            if self.unit:
                lengths = np.linalg.norm(rows, axis=1, keepdims=True)
                rows /= np.where(lengths > 0, lengths, 1)
            yield np.asarray(self.ids[start : start + _ROWS]), rows.astype(self.dtype)

    def named_rows(self) -> Iterator[tuple[object, tuple[float, ...]]]:
        for ids, rows in self.blocks():
            yield from ((i, tuple(row)) for i, row in zip(ids.tolist(), rows.tolist(), strict=True))


def export_embedding(
    job: Job,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    dtype: Dtype = "float32",
    unit: bool = False,
) -> Path:
    """Write the embedding of a job with its node ids, and return the path; memory does not depend on the rows.

    Parameters
    ----------
    path : path
        The file appears when it is complete.
    format : {"npy", "parquet", "csv", "tsv", "word2vec", "neo4j"}, optional
        By default the suffix decides: ``.npy``, ``.parquet``, ``.csv``, ``.tsv``; ``.txt``, ``.vec`` and ``.w2v`` are
        word2vec text (a line with the number of nodes and dimensions, then one line per node with its id and 6 digits
        of each coordinate). ``npy`` is a matrix in C order, as FAISS expects, with the ids in a second file:
        ``x.npy`` and ``x.ids.npy``. ``neo4j`` is CSV for ``neo4j-admin database import``, with the coordinates as one
        ``float[]``.
    dtype : {"float32", "float64"}
        Word2vec text is float32 only.
    unit : bool
        Scale every row to length 1: inner products become cosines. Rows of zeros stay.
    """
    path = Path(path)
    name = format_of(path, format)
    if dtype not in ("float32", "float64"):
        raise InputError(f"dtype must be float32 or float64, not {dtype!r}.")
    if name == "word2vec" and dtype == "float64":
        raise InputError("word2vec text has only 6 digits. For float64, export to .npy, .parquet, .csv or .tsv.")
    X = job.embedding
    ids, gone = job_ids(job, len(X)), gone_nodes(job.store, len(X))
    if gone is not None:
        ids, X = ids[~gone], np.asarray(X)[~gone]
    write_embedding(path, ids, X, format=name, dtype=dtype, unit=unit)
    return path


def format_of(path: Path, format: str | None = None) -> str:  # noqa: A002
    """Return the named format, or the one that the suffix of the file stands for."""
    name = format or _ENDINGS.get(path.suffix, path.suffix.removeprefix("."))
    if not name:
        raise InputError(
            f"{path} has no suffix. Add .npy, .parquet, .csv, .tsv, or .vec for word2vec text; or name the format: "
            f"{', '.join(FORMATS)}."
        )
    if name not in FORMATS:
        raise InputError(f"'{name}' is not an export format; choose one of {', '.join(FORMATS)}.")
    return name


def write_embedding(
    path: Path,
    ids: AnyArray,
    X: AnyArray,
    *,
    format: str,  # noqa: A002
    dtype: Dtype,
    unit: bool = False,
) -> None:
    """Write ``ids (n,)`` and coordinates ``X (n, d)`` in one of the FORMATS; see :func:`export_embedding`."""
    with translate_disk_errors(path.parent):
        FORMATS[format](path, _Rows(ids, X, np.dtype(dtype), unit))


def job_ids(job: Job, n_nodes: int) -> AnyArray:
    """Return the ids (n,) that the nodes of a job came with: those of its graph, or of patches without a graph."""
    ids = None if job.graph is None else job.graph.node_ids
    if job.graph is None:
        with contextlib.suppress(KeyError):
            ids = job.store["node_ids"].arrays.get("node_ids")
    ids = np.arange(n_nodes) if ids is None else ids.astype(str) if ids.dtype.hasobject else ids
    if ids.shape != (n_nodes,):
        raise JobError(f"{job.name} has {n_nodes} nodes and ids of shape {ids.shape}. Make it again in another folder.")
    return ids


def _npy(path: Path, rows: _Rows) -> None:
    save_arrays(path.with_suffix(".ids.npy"), {"ids": np.asarray(rows.ids)})
    with array_writer(path, rows.dtype, rows.X.shape[1:]) as file:
        for _, block in rows.blocks():
            file.append(np.ascontiguousarray(block, dtype=rows.dtype))


def _parquet(path: Path, rows: _Rows) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["node_id", *(f"x{k}" for k in range(rows.dim))]
    kinds = [pa.array(np.asarray(rows.ids[:1])).type, *[pa.from_numpy_dtype(rows.dtype)] * rows.dim]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    with atomic_file(path) as file, pq.ParquetWriter(file, schema) as writer:
        for ids, block in rows.blocks():
            columns = [pa.array(ids), *(pa.array(column) for column in block.T.copy())]
            writer.write_table(pa.table(columns, names=names))


def _lines(path: Path, rows: _Rows, *, separator: str = ",", together: bool = False) -> None:
    """Write one line per node, coordinates ``together`` in one cell; quotes keep blanks and zeros of text ids."""
    layout = (";" if together else separator).join([f"%.{rows.digits}g"] * rows.dim)
    header = ["nodeId:ID", "embedding:float[]"] if together else ["node_id", *(f"x{k}" for k in range(rows.dim))]
    n_unsafe, first = 0, ""
    with atomic_file(path) as file:
        file.write(f"{separator.join(header)}\n".encode())
        for i, row in rows.named_rows():
            cell = str(i)
            if isinstance(i, str):
                if _UNSAFE.match(cell):
                    n_unsafe, first = n_unsafe + 1, first or cell
                cell = '"' + cell.replace('"', '""') + '"'
            file.write(f"{cell}{separator}{layout % row}\n".encode())
    if n_unsafe:
        logger.warning(
            "%s: %s would be run as a formula by a spreadsheet, or change a terminal, such as %r. They were written as "
            "they are: open the file only in programs that take ids as text.",
            path,
            counted(n_unsafe, "id"),
            first[:40],
        )


def _word2vec(path: Path, rows: _Rows) -> None:
    layout = " ".join(["%.6g"] * rows.dim)
    with atomic_file(path) as file:
        file.write(f"{len(rows.X)} {rows.dim}\n".encode())
        for i, row in rows.named_rows():
            word = str(i)
            if not word or any(letter.isspace() for letter in word):
                raise InputError(f"word2vec text cannot hold the node id {word!r} with spaces; use Parquet.")
            file.write(f"{word} {layout % row}\n".encode())


FORMATS: dict[str, Callable[[Path, _Rows], None]] = {
    "npy": _npy,
    "parquet": _parquet,
    "csv": _lines,
    "tsv": functools.partial(_lines, separator="\t"),
    "word2vec": _word2vec,
    "neo4j": functools.partial(_lines, together=True),
}


_COMPARED = 100_000  # ids whose spelling is compared with that of an unknown one

Metric = Literal["cosine", "inner"]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Ids (k,) of the nodes nearest to ``node``, nearest first; their rows in the embedding, and their scores (k,)."""

    node: object
    ids: AnyArray
    rows: Int64Array
    scores: Float64Array


def neighbours(
    embedding: npt.ArrayLike | Result | Job,
    node: int | str,
    *,
    k: int = 10,
    metric: Metric = "cosine",
    ids: npt.ArrayLike | None = None,
) -> Neighbours:
    """Find the k nodes nearest to a node, exactly; the embedding is read once, block by block.

    Parameters
    ----------
    embedding : float array (n, d), Result or Job
        An array may be a memory map.
    node : int or str
        The id of a node, or its row if there are no ids.
    k : int
        At most this many.
    metric : {"cosine", "inner"}
        Score by the cosine of the angle, or by the inner product.
    ids : array (n,), optional
        The ids of the rows of an array; results and jobs know theirs.

    Examples
    --------
    >>> nearest = neighbours([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], "a", k=2, ids=["a", "b", "c"])
    >>> nearest.ids.tolist(), nearest.scores.round(2).tolist()
    (['b', 'c'], [0.99, 0.0])
    """
    X, known = _rows_and_ids(embedding, ids)
    if metric not in ("cosine", "inner"):
        raise InputError(f"metric is 'cosine' or 'inner', not {metric!r}.")
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k must be a positive integer, not {k!r}.")
    job = embedding.job if isinstance(embedding, Result) else embedding
    row, gone = node_row(known, node), gone_nodes(job.store, len(X)) if isinstance(job, Job) else None
    refuse_gone(gone, row, known)
    target = np.array(X[row], dtype=np.float64)
    if metric == "cosine":
        if not np.any(target):
            raise InputError(f"node {node!r} lies at the origin, where angles mean nothing; use the inner product.")
        target /= np.linalg.norm(target)
    left_out = np.array([row]) if gone is None else np.union1d(np.flatnonzero(gone), row)
    rows, scores = _largest(X, target, left_out, min(int(k), len(X) - len(left_out)), metric)
    return Neighbours(node, known[rows], rows, scores)


def refuse_gone(gone: BoolArray | None, rows: int | Int64Array, ids: AnyArray) -> None:
    """Refuse nodes that are gone."""
    asked = np.atleast_1d(rows).ravel()
    left = asked[gone[asked]] if gone is not None else asked[:0]
    if len(left):
        raise InputError(f"node {ids[left[0]].item()!r} is gone: it was not in the graph at the job's last update.")


def _rows_and_ids(embedding: npt.ArrayLike | Result | Job, ids: npt.ArrayLike | None) -> tuple[AnyArray, AnyArray]:
    if isinstance(embedding, Job | Result):
        X = embedding.embedding
        if ids is None:
            ids = embedding.node_ids if isinstance(embedding, Result) else job_ids(embedding, len(X))
    else:
        X = np.asanyarray(embedding)
        if X.ndim != 2 or X.dtype.kind not in "fiu":
            raise InputError(f"an embedding is a numeric matrix, one row per node, not {X.dtype} of shape {X.shape}.")
    known = np.arange(len(X)) if ids is None else np.asarray(ids)
    if known.shape != (len(X),):
        raise InputError(f"ids must have shape ({len(X)},), one per row of the embedding, not {known.shape}.")
    return X, known


def _largest(
    X: AnyArray, target: Float64Array, left_out: Int64Array, k: int, metric: Metric
) -> tuple[Int64Array, Float64Array]:
    """Return the rows with the k largest scores and these scores, in descending order; ties go to the first rows."""
    rows, scores = np.empty(0, dtype=np.int64), np.empty(0)
    for start in range(0, len(X), _ROWS):
        block = np.asarray(X[start : start + _ROWS], dtype=np.float64)
        values = block @ target
        if metric == "cosine":
            lengths = np.linalg.norm(block, axis=1)
            values = values / np.where(lengths > 0, lengths, 1)
        inside = left_out[(left_out >= start) & (left_out < start + len(block))]
        values[inside - start] = -np.inf  # the node itself, and nodes that are gone
        rows = np.concatenate([rows, np.arange(start, start + len(block))])
        scores = np.concatenate([scores, values])
        if len(rows) > k:
            least = np.partition(scores, -k)[-k] if k else np.inf
            candidates = np.flatnonzero(scores >= least)
            order = candidates[np.lexsort((rows[candidates], -scores[candidates]))][:k]
            rows, scores = rows[order], scores[order]
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


def node_row(ids: AnyArray, node: int | str) -> int:
    """Return the row of a node; the error for an unknown node names the most similar ids."""
    if ids.dtype.kind not in "iu":
        at = np.flatnonzero(ids == str(node))
        if not len(at):
            raise InputError(f"node {str(node)!r} does not exist; {nearest_spellings(str(node), ids)}")
        return int(at[0])
    integers = f"the node ids are integers from {ids.min()} to {ids.max()}"
    try:
        number = int(node)
    except ValueError:
        raise InputError(f"node {node!r} does not exist: {integers}.") from None
    at = np.flatnonzero(ids == number)
    if len(at):
        return int(at[0])
    near = ids[np.argsort(np.abs(ids.astype(np.float64) - number), kind="stable")[:3]]
    nearest = ", ".join(map(str, sorted(near.tolist())))
    raise InputError(f"node {number} does not exist: {integers}; the nearest are {nearest}.")


def nearest_spellings(word: str, ids: AnyArray) -> str:
    """Say which ids are spelt most like an unknown word, whatever the case and leading zeros, or what ids look like."""
    first = f"the first ids are {', '.join(repr(i) for i in ids[:3].tolist())}."
    if len(ids) > _COMPARED:  # difflib is slow: compare ids that end, or else begin, like the word
        names, middle = np.char.lower(ids), len(word) // 2
        ends = np.char.endswith(names, word.casefold()[middle:])
        begins = np.char.startswith(names, word.casefold()[:middle]) & ~ends
        ids = np.concatenate([ids[ends], ids[begins]])[:_COMPARED]
    spellings: dict[str, str] = {}
    for name in ids.tolist():
        spellings.setdefault(_plain(name), name)
    alike = [repr(spellings[match]) for match in difflib.get_close_matches(_plain(word), spellings, n=3)]
    return f"did you mean {' or '.join(alike)}?" if alike else first


def _plain(word: str) -> str:
    return re.sub(r"(?<!\d)0+(?=\d)", "", word.strip().casefold())
