"""One step of a random walk in a patch, for a block of columns (numba, one thread, in a fixed order)."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from graphquilt.arrays import AnyArray
from graphquilt.embedders._kernels import FAST
from graphquilt.kernels import kernel

__all__ = ["walk_step"]

AHEAD = 16  # entries: the rows of neighbours are asked for so long before they are added
LINE = 16  # float32 numbers of a cache line


@intrinsic  # type: ignore[untyped-decorator]
def _prefetch(_context: Any, array: Any, _row: Any, _column: Any) -> Any:
    """Ask for the cache line of one entry of a matrix, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
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
def walk_step(  # noqa: PLR0912
    inside: tuple[AnyArray, AnyArray, AnyArray],
    outside: tuple[AnyArray, AnyArray, AnyArray],
    scale: tuple[AnyArray, AnyArray],
    restart: tuple[float, AnyArray, AnyArray, int],
    table: AnyArray,
    H: AnyArray,
    out: AnyArray,
) -> None:
    """Out ← a X + (1 - a) D^-1 ((A + loops) H + B T), with a walk that leaves the patch by B into the table T.

    Parameters
    ----------
    inside, outside : tuples of indptr, indices and weights
        A (n, n) and B (n, k) in CSR form; weights are empty where every entry is 1.
    scale : tuple of arrays (n,)
        1 / D and the loops.
    restart : tuple
        The probability a, and X: an array (n, b) or one without rows; the column of the single 1 in each row of X, or
        an array of length 0; and the number of the first column of this block.
    table, H, out : (k, b), (n, b) and (n, b) arrays
    """
    indptr, indices, weights = inside
    ends, clusters, strengths = outside
    inverse, loops = scale
    a, start, columns, first = restart
    n, width = H.shape
    last = len(indices) - 1
    for i in range(n):
        row, own = out[i], loops[i]
        for j in range(width):
            row[j] = own * H[i, j]
        for e in range(indptr[i], indptr[i + 1]):
            ahead = indices[min(e + AHEAD, last)]
            for j in range(0, width, LINE):
                _prefetch(H, ahead, j)
            neighbour = H[indices[e]]
            if len(weights) > 0:
                w = weights[e]
                for j in range(width):
                    row[j] += w * neighbour[j]
            else:
                for j in range(width):
                    row[j] += neighbour[j]
        for e in range(ends[i], ends[i + 1]):
            far = table[clusters[e]]
            if len(strengths) > 0:
                w = strengths[e]
                for j in range(width):
                    row[j] += w * far[j]
            else:
                for j in range(width):
                    row[j] += far[j]
        c = (H.dtype.type(1) - H.dtype.type(a)) * inverse[i]
        for j in range(width):
            row[j] *= c
        if len(start) > 0:
            for j in range(width):
                row[j] += H.dtype.type(a) * start[i, j]
        if len(columns) > 0:
            column = columns[i] - first
            if 0 <= column < width:
                row[column] += H.dtype.type(a)
