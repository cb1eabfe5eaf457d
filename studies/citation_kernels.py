"""Where papers of a synthetic citation graph lie, whom they cite, and what they are about, compiled.

Papers have a *position*, from 0: fields one after the other, in a field its communities, in a community its papers by
age. Ids are positions scattered by a permutation that is computed where it is needed, in both directions.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import Float32Array, Float64Array, Int64Array
from graphquilt.kernels import jit, kernel
from graphquilt.patches.kernels import random_bits

__all__ = ["cite", "describe_papers", "reference_counts", "total_references"]

UInt64Array: TypeAlias = npt.NDArray[np.uint64]
_UNIT = 2.0**-53
_ROUNDS = 4
_FOUNDERS = 16  # papers at the beginning of a community, which cite others


@jit
def _stream(key: np.uint64, number: int, state: UInt64Array) -> None:
    """Start the random stream of one paper or community."""
    state[0] = key ^ (np.uint64(number) * np.uint64(0xD6E8FEB86659FD93))
    state[0] = random_bits(state)


@jit
def _uniform(state: UInt64Array) -> float:
    return float(random_bits(state) >> np.uint64(11)) * _UNIT


@jit
def _normal(state: UInt64Array) -> float:
    """Return a sum of four uniform numbers with mean 0 and variance 1, close enough to a normal one."""
    bits = random_bits(state)
    total = 0.0
    for _ in range(4):
        total += np.float64(bits & np.uint64(0xFFFF))
        bits >>= np.uint64(16)
    return (total * 2.0**-16 - 2.0) * 1.7320508075688772


@jit
def _scattered(place: int, n: int, key: np.uint64, back: bool) -> int:
    """Permute 0..n-1 with a Feistel network on as many bits as n has; ``back`` is the inverse."""
    bits = 1
    while (np.int64(1) << bits) < n:
        bits += 1
    low = bits // 2
    low_mask = (np.uint64(1) << np.uint64(low)) - np.uint64(1)
    high_mask = (np.uint64(1) << np.uint64(bits - low)) - np.uint64(1)
    x = np.uint64(place)
    while True:
        for step in range(_ROUNDS):
            turn = _ROUNDS - 1 - step if back else step
            left, right = x >> np.uint64(low), x & low_mask
            word = ((right if turn % 2 == 0 else left) + key + np.uint64(turn)) * np.uint64(0x9E3779B97F4A7C15)
            word ^= word >> np.uint64(29)
            word = (word * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(20)
            if turn % 2 == 0:
                left ^= word & high_mask
            else:
                right ^= word & low_mask
            x = (left << np.uint64(low)) | right
        if x < np.uint64(n):  # walking on from what lies beyond keeps this a permutation
            return int(x)


@jit
def _at(starts: Int64Array, position: int) -> int:
    """Return which run, of those that begin at ``starts``, a position lies in."""
    return int(np.searchsorted(starts, position, side="right") - 1)


@kernel("reference counts")
def total_references(first: int, last: int, key: np.uint64, spread: float) -> float:
    """Sum the weights by which the papers at positions first..last-1 share all references."""
    state = np.empty(1, np.uint64)
    total = 0.0
    for u in range(first, last):
        _stream(key, u, state)
        total += np.exp(spread * _normal(state))
    return total


@kernel("reference counts")
def reference_counts(
    first: int, last: int, key: np.uint64, spread: float, before: float, scale: float
) -> tuple[Int64Array, float]:
    """Return how many papers each of first..last-1 cites; the weights before ``first`` add up to ``before``.

    The counts are differences of rounded running sums, and add up to the requested number.
    """
    state = np.empty(1, np.uint64)
    counts = np.empty(last - first, np.int64)
    done = np.int64(before * scale)
    for u in range(first, last):
        _stream(key, u, state)
        before += np.exp(spread * _normal(state))
        now = np.int64(before * scale)
        counts[u - first] = now - done
        done = now
    return counts, before


@kernel("citations")
def cite(
    first: int,
    counts: Int64Array,
    starts: Int64Array,
    fields: Int64Array,
    key: np.uint64,
    shares: tuple[float, float],
) -> tuple[Int64Array, Int64Array]:
    """Return source and target ids of the citations of the papers from position ``first`` on.

    ``starts`` (c + 1,) and ``fields`` (k + 1,) are the first positions of communities and fields, and ``shares`` those
    of citations within the community and within the field. A paper cites papers of its own age or older: at rank r of
    s in its community, those below r there, and below r / s of any other community. Of these, old ones are cited more
    often, by a power law.
    """
    n = starts[-1]
    state = np.empty(1, np.uint64)
    total = counts.sum()
    sources = np.empty(total, np.int64)
    targets = np.empty(total, np.int64)
    community = _at(starts, first)
    field = _at(fields, first)
    filled = 0
    for k in range(len(counts)):
        u = first + k
        while starts[community + 1] <= u:
            community += 1
        while fields[field + 1] <= u:
            field += 1
        begin, size = starts[community], starts[community + 1] - starts[community]
        rank = u - begin
        age = rank / size
        source = _scattered(u, n, key, False)
        _stream(key + np.uint64(1), u, state)
        for _ in range(counts[k]):
            where = _uniform(state)
            r = _uniform(state)
            r *= r  # rank^(-1/2) citations: a tail of exponent 3
            if where < shares[0] and rank >= _FOUNDERS:
                v = begin + int(rank * r)
            else:
                low, high = 0, int(n)
                if where < shares[0] + shares[1]:
                    low, high = int(fields[field]), int(fields[field + 1])
                c = _at(starts, low + int(_uniform(state) * (high - low)))
                v = starts[c] + int((starts[c + 1] - starts[c]) * age * r)
            sources[filled] = source
            targets[filled] = _scattered(v, n, key, False)
            filled += 1
    return sources, targets


@kernel("papers", writes=("latent",))
def describe_papers(
    first: int,
    starts: Int64Array,
    fields: Int64Array,
    key: np.uint64,
    centres: Float32Array,
    latent: Float32Array,
) -> tuple[Float64Array, Int64Array, Float64Array]:
    """Fill ``latent`` (k, r) with what the papers with ids ``first``... are about; return age, field and a number each.

    A latent vector is the sum of that of the field, in ``centres`` (fields, r), that of the community and one of its
    own. Ages are shares of the community that are older; the last result is uniform in 0..1.
    """
    n = starts[-1]
    ages = np.empty(len(latent), np.float64)
    of_field = np.empty(len(latent), np.int64)
    lots = np.empty(len(latent), np.float64)
    state = np.empty(1, np.uint64)
    for k in range(len(latent)):
        u = _scattered(first + k, n, key, True)
        community, field = _at(starts, u), _at(fields, u)
        begin = starts[community]
        ages[k] = (u - begin) / (starts[community + 1] - begin)
        of_field[k] = field
        _stream(key + np.uint64(2), community, state)
        for t in range(latent.shape[1]):
            latent[k, t] = 0.5 * centres[field, t] + 0.5 * _normal(state)
        _stream(key + np.uint64(3), u, state)
        for t in range(latent.shape[1]):
            latent[k, t] += 0.7 * _normal(state)
        lots[k] = _uniform(state)
    return ages, of_field, lots
