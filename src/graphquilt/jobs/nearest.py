"""The nearest neighbours of a node: exact, in one pass over the embedding, block by block."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, BoolArray, Float64Array, Int64Array
from graphquilt.errors import InputError
from graphquilt.jobs.export import job_ids
from graphquilt.jobs.job import Job
from graphquilt.jobs.result import Result
from graphquilt.jobs.versions import gone_nodes

_ROWS = 65_536  # rows in memory at once
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
    row, gone = node_row(known, node), nodes_gone_from(embedding, len(X))
    refuse_gone(gone, row, known)
    target = np.array(X[row], dtype=np.float64)
    if metric == "cosine":
        if not np.any(target):
            raise InputError(f"node {node!r} lies at the origin, where angles mean nothing; use the inner product.")
        target /= np.linalg.norm(target)
    left_out = np.array([row]) if gone is None else np.union1d(np.flatnonzero(gone), row)
    rows, scores = _largest(X, target, left_out, min(int(k), len(X) - len(left_out)), metric)
    return Neighbours(node, known[rows], rows, scores)


def nodes_gone_from(embedding: object, n_nodes: int) -> BoolArray | None:
    """Return which nodes (n,) are gone from a job or result; None if none are."""
    job = embedding.job if isinstance(embedding, Result) else embedding
    return gone_nodes(job.store, n_nodes) if isinstance(job, Job) else None


def refuse_gone(gone: BoolArray | None, rows: int | Int64Array, ids: AnyArray) -> None:
    """Refuse nodes that are gone."""
    asked = np.atleast_1d(rows).ravel()
    left = asked[gone[asked]] if gone is not None else asked[:0]
    if len(left):
        raise InputError(
            f"node {ids[left[0]].item()!r} is gone: it was not in the graph at the last update of the job."
        )


def _rows_and_ids(embedding: npt.ArrayLike | Result | Job, ids: npt.ArrayLike | None) -> tuple[AnyArray, AnyArray]:
    if isinstance(embedding, Job | Result):
        X = embedding.embedding
        if ids is None:
            ids = embedding.node_ids if isinstance(embedding, Result) else job_ids(embedding, len(X))
    else:
        X = np.asanyarray(embedding)
        if X.ndim != 2 or X.dtype.kind not in "fiu":
            raise InputError(
                f"an embedding is a numeric matrix with one row per node, not {X.dtype} of shape {X.shape}."
            )
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
    """Say which ids are spelt most like a word that is not among them, or what the ids look like.

    Case and leading zeros of numbers do not count, as in 7 and 007.
    """
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
