"""The nearest neighbours of a node: exact, in one pass over the embedding, block by block."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.errors import InputError
from graphquilt.jobs.export import job_ids
from graphquilt.jobs.job import Job
from graphquilt.jobs.result import Result

__all__ = ["Neighbours", "nearest_spellings", "neighbours", "spelled_alike"]

_ROWS = 65_536  # rows in memory at once
_COMPARED = 100_000  # ids whose spelling is compared with one that is not there
_LIKE = 0.6  # the least likeness of a spelling that is proposed, as difflib measures it

Metric = Literal["cosine", "inner"]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nodes nearest to one node, the nearest first.

    Attributes
    ----------
    node : int or str
        The id of the node that was asked about.
    ids : array (k,)
        The ids of its neighbours.
    rows : int array (k,)
        Their rows in the embedding.
    scores : float array (k,)
        Their cosine, or their inner product, with the node.
    """

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
        The id of a node; a number of the row where there are no ids.
    k : int
        At most this many; there are n - 1 others.
    metric : {"cosine", "inner"}
        What is largest for the nearest: the cosine of the angle, or the inner product.
    ids : array (n,), optional
        The ids of the rows of an array; a result and a job have their own.

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
        raise InputError(f"k is how many neighbours to find, a whole number of at least 1, not {k!r}.")
    row = _row(known, node, len(X))
    target = np.array(X[row], dtype=np.float64)
    if metric == "cosine":
        if not np.any(target):
            raise InputError(f"node {node!r} lies at the origin, where angles mean nothing; use the inner product.")
        target /= np.linalg.norm(target)
    rows, scores = _largest(X, target, row, min(int(k), len(X) - 1), metric)
    found = rows if known is None else np.asarray(known)[rows]
    return Neighbours(node, found, rows, scores)


def _rows_and_ids(
    embedding: npt.ArrayLike | Result | Job, ids: npt.ArrayLike | None
) -> tuple[AnyArray, AnyArray | None]:
    if isinstance(embedding, Job | Result):
        X = embedding.embedding
        own = embedding.node_ids if isinstance(embedding, Result) else job_ids(embedding, len(X))
        return X, own if ids is None else np.asarray(ids)
    X = np.asanyarray(embedding)
    if X.ndim != 2 or X.dtype.kind not in "fiu":
        raise InputError(f"an embedding is a matrix of numbers with one row per node, not {X.dtype} of {X.shape}.")
    known = None if ids is None else np.asarray(ids)
    if known is not None and known.shape != (len(X),):
        raise InputError(f"the embedding has {len(X)} rows, and ids have the shape {known.shape}; give one per row.")
    return X, known


def _largest(X: AnyArray, target: Float64Array, row: int, k: int, metric: Metric) -> tuple[Int64Array, Float64Array]:
    """Return the rows with the k largest scores and the scores, in falling order; of equal ones the first rows."""
    rows, scores = np.empty(0, dtype=np.int64), np.empty(0)
    for start in range(0, len(X), _ROWS):
        block = np.asarray(X[start : start + _ROWS], dtype=np.float64)
        values = block @ target
        if metric == "cosine":
            lengths = np.linalg.norm(block, axis=1)
            values = values / np.where(lengths > 0, lengths, 1)
        if start <= row < start + len(block):
            values[row - start] = -np.inf  # the node itself
        rows = np.concatenate([rows, np.arange(start, start + len(block))])
        scores = np.concatenate([scores, values])
        if len(rows) > k:
            least = np.partition(scores, -k)[-k] if k else np.inf
            candidates = np.flatnonzero(scores >= least)
            order = candidates[np.lexsort((rows[candidates], -scores[candidates]))][:k]
            rows, scores = rows[order], scores[order]
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


def _row(ids: AnyArray | None, node: int | str, n_nodes: int) -> int:
    """Return the row of a node; one that is not there is an error that names the ids that are most like it."""
    if ids is None or ids.dtype.kind in "iu":
        try:
            number = int(node)
        except ValueError:
            raise InputError(f"node {node!r} is not there: the ids of these nodes are numbers{_range(ids)}.") from None
        if ids is None:
            if 0 <= number < n_nodes:
                return number
            raise InputError(f"node {number} is not there: the nodes are 0 to {n_nodes - 1}.")
        at = np.flatnonzero(ids == number)
        if len(at):
            return int(at[0])
        near = np.asarray(ids)[np.argsort(np.abs(np.asarray(ids, dtype=np.float64) - number), kind="stable")[:3]]
        raise InputError(
            f"node {number} is not there; the nearest ids are {', '.join(map(str, sorted(near.tolist())))}."
        )
    at = np.flatnonzero(ids == str(node))
    if len(at):
        return int(at[0])
    raise InputError(f"node {str(node)!r} is not there; {nearest_spellings(str(node), ids)}")


def _range(ids: AnyArray | None) -> str:
    return "" if ids is None or not len(ids) else f" from {ids.min()} to {ids.max()}"


def nearest_spellings(word: str, ids: AnyArray) -> str:
    """Say which ids of text are spelt most like a word that is not among them, or what the ids look like.

    Examples
    --------
    >>> nearest_spellings("ana", np.array(["anna", "bob"]))
    "did you mean 'anna'?"
    """
    alike = spelled_alike(word, ids)
    if alike:
        return f"did you mean {' or '.join(map(repr, alike))}?"
    return f"the first ids are {', '.join(repr(i) for i in ids[:3].tolist())}."


def spelled_alike(word: str, ids: AnyArray) -> list[str]:
    """Return up to three ids with the nearest spellings; of very many ids, those one letter away come first."""
    plain = word.strip().casefold()
    lengths = np.char.str_len(ids)
    near = np.flatnonzero(np.abs(lengths - len(plain)) <= max(2, len(plain) // 2))
    if len(near) > _COMPARED:
        close = _one_letter_away(plain, ids[near])
        if close:
            return close
        first = np.char.lower(ids[near].astype("U1"))
        near = near[first == plain[:1]][:_COMPARED]
    spellings: dict[str, str] = {}
    for name in ids[near].tolist():
        spellings.setdefault(name.strip().casefold(), name)
    return [spellings[match] for match in _nearest_three(plain, spellings)]


def _nearest_three(word: str, names: Iterable[str]) -> list[str]:
    """Return up to three names that are like a word: first those whose numbers have other zeros in front, as 7 and 007.

    Of names that are equally like it, those come first that begin as it does.
    """
    matcher, found = difflib.SequenceMatcher(b=word), []
    for name in names:
        plain = name.strip().casefold()
        matcher.set_seq1(plain)
        if min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= _LIKE and matcher.ratio() >= _LIKE:
            different = (k for k, (a, b) in enumerate(zip(plain, word, strict=False)) if a != b)
            begin = next(different, min(len(plain), len(word)))
            found.append((_unpadded(plain) != _unpadded(word), -matcher.ratio(), -begin, name))
    return [name for *_, name in sorted(found)[:3]]


def _unpadded(word: str) -> str:
    return re.sub(r"(?<!\d)0+(?=\d)", "", word)


def _one_letter_away(word: str, ids: AnyArray) -> list[str]:
    """Return up to three ids that a word becomes by one letter more, less or other, or by two that change places."""
    letters = {chr(code).casefold() for code in np.unique(np.ascontiguousarray(ids).view(np.uint32)).tolist() if code}
    halves = [(word[:k], word[k:]) for k in range(len(word) + 1)]
    close = {head + tail[1:] for head, tail in halves if tail}
    close |= {head + tail[1] + tail[0] + tail[2:] for head, tail in halves if len(tail) > 1}
    close |= {head + letter + rest for head, tail in halves for letter in letters for rest in (tail, tail[1:])}
    names = (name for start in range(0, len(ids), _ROWS) for name in ids[start : start + _ROWS].tolist())
    return _nearest_three(word, (name for name in names if name.strip().casefold() in close))
