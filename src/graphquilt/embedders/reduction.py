"""From a signal to what describes all its rows: some of them, a sketch, or their products with directions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from graphquilt.arrays import AnyArray, Float32Array, Int64Array, IntArray
from graphquilt.embedders.principal import SPARE, leading_rows
from graphquilt.embedders.signals import Signal, inverse_lengths
from graphquilt.errors import InputError
from graphquilt.progress import ProgressCallback, report

__all__ = ["Weighted", "half", "measured_rows", "projected", "sketched_rows", "stored"]

WHOLE = 1 << 28  # bytes: a signal up to this size is stored while its directions are computed,
HALVED = 5 << 28  # one up to this size is stored in half precision, and a larger one is computed twice
SMALLEST_HALF = 2.0**-14  # numbers below this are slow to turn into half precision, and do not count in unit rows
PRODUCT_ROWS = 1 << 14  # rows that are multiplied by the directions at once
PROBES = 64  # random directions that lengths of rows are estimated by
RANDOM_SEED = 20_261_116  # of the probes, the same for all graphs

Weighted: TypeAlias = Sequence[tuple[float, Signal]]


def half(rows: Float32Array) -> AnyArray:
    """Return rows in half precision."""
    return np.where(np.abs(rows) < SMALLEST_HALF, 0, rows).astype(np.float16)


def stored(signal: Signal) -> Signal:
    """Return a signal that computes each block once, if they fit into memory and are needed more than once."""
    size = signal.n_rows * len(signal.columns)
    if 2 * size > HALVED or signal.spread is not None:
        return signal
    halved = 4 * size > WHOLE
    blocks: dict[tuple[int, int], AnyArray] = {}

    def block(first: int, last: int) -> Float32Array:
        if (first, last) not in blocks:
            H = signal.block(first, last)
            blocks[first, last] = half(H) if halved else H.copy()
            return H
        return blocks[first, last].astype(np.float32, copy=False)

    return replace(signal, block=block)


def _blocks(signal: Signal, width: int) -> Iterator[tuple[IntArray, Float32Array]]:
    """Yield the numbers of some columns, and these columns."""
    for first in range(0, len(signal.columns), width):
        last = min(first + width, len(signal.columns))
        yield signal.columns[first:last], signal.block(first, last)


def measured_rows(
    signals: Weighted, rows: Int64Array, block: int, progress: ProgressCallback | None = None
) -> Float32Array:
    """Return some rows of all signals, which stand side by side, (k, w); each has the length of its signal's weight."""
    parts, done = [], 0
    width = sum(len(signal.columns) for _, signal in signals)
    for weight, signal in signals:
        H = np.zeros((len(rows), signal.width), dtype=np.float32)
        for columns, values in _blocks(signal, block):
            H[:, columns] = values[rows]
            done += len(columns)
            report(progress, "propagation", done, width)
        H *= weight * inverse_lengths(np.einsum("ij,ij->i", H, H))[:, None]
        parts.append(H)
    return np.hstack(parts)


def sketched_rows(
    signal: Signal,
    dim: int,
    block: int,
    *,
    weights: AnyArray | None = None,
    powers: int = 0,
    progress: ProgressCallback | None = None,
) -> Float32Array:
    """Return a few rows B with nearly the same ``dim`` main directions as the unit rows H of a linear signal, (k, w).

    B' B is near H' H, so that sketches of several patches can be stacked. Only some ``dim`` columns are spread, and not
    all columns of the signal. The lengths of the rows are estimated.

    Parameters
    ----------
    weights : (n_rows,) array, optional
        How much each row counts.
    powers : int
        See :func:`graphquilt.embedders.principal.leading_rows`.
    """
    assert signal.spread is not None
    assert signal.gather is not None
    k = min(dim + SPARE, signal.width)
    probes = _probes(signal.width, max(k, PROBES))
    counted = _Counted(progress, probes.shape[1] + (1 + 2 * powers) * k, block)
    Y = counted(signal.spread, probes)
    scale = inverse_lengths(np.einsum("ij,ij->i", Y, Y))[:, None]
    if weights is not None:
        scale *= np.sqrt(weights, dtype=np.float32)[:, None]
    gather, spread = signal.gather, signal.spread
    return leading_rows(
        lambda V: scale * counted(spread, V), lambda Q: counted(gather, scale * Q), scale * Y[:, :k], powers
    )


class _Counted:
    """Applies a function to a block of columns at a time, and reports how many columns it was applied to."""

    def __init__(self, progress: ProgressCallback | None, total: int, block: int) -> None:
        self.progress, self.total, self.block, self.done = progress, total, block, 0

    def __call__(self, function: Callable[[Float32Array], Float32Array], V: AnyArray) -> Float32Array:
        parts = []
        for first in range(0, V.shape[1], self.block):
            part = np.ascontiguousarray(V[:, first : first + self.block], dtype=np.float32)
            parts.append(function(part))
            self.done += part.shape[1]
            report(self.progress, "propagation", min(self.done, self.total), self.total)
        return np.hstack(parts)


@functools.lru_cache(maxsize=2)
def _probes(width: int, count: int) -> Float32Array:
    """Return directions R (width, k), the same for all graphs, with |R'h|² = |h|²: all, or random ones on average."""
    if width <= count:
        return np.eye(width, dtype=np.float32)
    rng = np.random.default_rng(RANDOM_SEED)
    return rng.standard_normal((width, count), dtype=np.float32) / np.float32(np.sqrt(count))


def projected(signals: Weighted, V: AnyArray, block: int, progress: ProgressCallback | None) -> Float32Array:
    """Return H V for signals H whose rows get unit length, side by side."""
    V = np.asarray(V, dtype=np.float32)
    width = sum(signal.width for _, signal in signals)
    if width != len(V):
        raise InputError(
            f"the shared start is for signals of {len(V)} columns, and this graph has one of {width}; the features "
            "must be those that the start was made with."
        )
    Z = np.zeros((signals[0][1].n_rows, V.shape[1]), dtype=np.float32)
    done = 0
    for weight, signal in signals:
        product = _product if signal.spread is None else _spread
        part, squares = product(signal, V[done : done + signal.width], block, progress)
        part *= weight * inverse_lengths(squares)[:, None]
        Z += part
        done += signal.width
    return Z


def _product(
    signal: Signal, V: Float32Array, block: int, progress: ProgressCallback | None
) -> tuple[Float32Array, Float32Array]:
    """Return H V and the squared lengths of the rows of H."""
    part = np.zeros((signal.n_rows, V.shape[1]), dtype=np.float32)
    squares, done = np.zeros(signal.n_rows, dtype=np.float32), 0
    for columns, H in _blocks(signal, block):
        squares += np.einsum("ij,ij->i", H, H)
        onto = V[columns]
        for a in range(0, signal.n_rows, PRODUCT_ROWS):
            rows = slice(a, min(a + PRODUCT_ROWS, signal.n_rows))
            part[rows] += H[rows] @ onto
        done += len(columns)
        report(progress, "propagation", done, len(signal.columns))
    return part, squares


def _spread(
    signal: Signal, V: Float32Array, block: int, progress: ProgressCallback | None
) -> tuple[Float32Array, Float32Array]:
    """Return H V and the squared lengths of the rows h of H, of which only the columns of V and some probes are spread.

    A length is exact along V, whose columns are orthonormal; the rest of h is measured by probes R, since
    E |R'(h - V V'h)|² = |h - V V'h|².
    """
    assert signal.spread is not None
    probes = _probes(signal.width, PROBES)
    onto = np.hstack([V, probes])
    product = _Counted(progress, onto.shape[1], block)(signal.spread, onto)
    part, rest = product[:, : V.shape[1]], product[:, V.shape[1] :]
    rest = rest - part @ (V.T @ probes)
    return part, np.einsum("ij,ij->i", part, part) + np.einsum("ij,ij->i", rest, rest)
