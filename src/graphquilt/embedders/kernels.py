"""The compiled loops of embedders (numba): one thread, a fixed order, the same bits for the same input."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from graphquilt.arrays import AnyArray
from graphquilt.kernels import kernel

# Sums may be regrouped into vector registers; NaN and infinity keep their meaning.
FAST = frozenset({"contract", "nsz", "reassoc"})
AHEAD = 16  # entries: the rows of neighbours are asked for so long before they are added
LINE = 16  # float32 numbers of a cache line


@intrinsic  # type: ignore[untyped-decorator]
def _prefetch(_context: object, array: object, _row: object, _column: object) -> object:
    """Ask for the cache line of one entry of a matrix, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> object:
        kind = signature.args[0]
        place = [
            context.cast(builder, value, given, types.intp)
            for value, given in zip(arguments[1:], signature.args[1:], strict=True)
        ]
        matrix = context.make_array(kind)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, kind, matrix, place, wraparound=False)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        builder.call(prefetch, [builder.bitcast(pointer, byte), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, _row, _column), generate


@kernel("propagation", writes=("out",), fastmath=FAST)
def walk_step(
    inside: tuple[AnyArray, AnyArray, AnyArray],
    outside: tuple[AnyArray, AnyArray, AnyArray],
    scale: tuple[AnyArray, AnyArray],
    restart: tuple[float, AnyArray, AnyArray, int],
    table: AnyArray,
    H: AnyArray,
    out: AnyArray,
) -> None:
    """Out ← a X + (1 - a) D^-1 ((A + loops) H + B T), with a walk that leaves the patch by B into the table T (k, b).

    A (n, n) and B (n, k) are ``inside`` and ``outside``, in CSR form; weights are empty if every entry is 1. ``scale``
    is 1 / D and the loops. ``restart`` is the probability a, and X: an array (n, b) or one without rows; the column of
    the single 1 in each row of X, or an array of length 0; and the number of the first column of this block.
    """
    indptr, indices, weights = inside
    ends, clusters, strengths = outside
    inverse, loops = scale
    a, start, columns, first = restart
    n, width = H.shape
    last, one = len(indices) - 1, H.dtype.type(1)
    for i in range(n):
        row, own = out[i], loops[i]
        for j in range(width):
            row[j] = own * H[i, j]
        for e in range(indptr[i], indptr[i + 1]):
            ahead = indices[min(e + AHEAD, last)]
            for j in range(0, width, LINE):
                _prefetch(H, ahead, j)
            neighbour = H[indices[e]]
            w = weights[e] if len(weights) > 0 else one
            for j in range(width):
                row[j] += w * neighbour[j]
        for e in range(ends[i], ends[i + 1]):
            far = table[clusters[e]]
            w = strengths[e] if len(strengths) > 0 else one
            for j in range(width):
                row[j] += w * far[j]
        c = (one - H.dtype.type(a)) * inverse[i]
        for j in range(width):
            row[j] *= c
        if len(start) > 0:
            for j in range(width):
                row[j] += H.dtype.type(a) * start[i, j]
        if len(columns) > 0:
            column = columns[i] - first
            if 0 <= column < width:
                row[column] += H.dtype.type(a)


@kernel("training", writes=None, fastmath=FAST)
def pair_gradient(Z: AnyArray, pairs: AnyArray, sign: float, G: AnyArray) -> float:
    """Return the mean of log(1 + exp(sign z_u·z_v)) over pairs, and add its gradient to G."""
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
