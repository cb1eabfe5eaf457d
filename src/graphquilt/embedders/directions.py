"""The main directions of rows that are spread over many patches, from sums of whole numbers.

Rows are rounded to a grid of 2^-18 before they are multiplied. Products of such numbers, and the sums of thousands
of them, are whole multiples of 2^-36 that double precision holds exactly, so a sum has the same bits in whatever order
and by whomever it is added.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float32Array, Float64Array, Int64Array
from graphquilt.linalg import fixed_signs

__all__ = ["Basis", "grid_product", "leading", "moment", "orthonormal"]

GRID = 18  # bits behind the binary point of a rounded row
MOST = 1 << 14  # rows that are multiplied at once
NEGLIGIBLE = 1e-6  # a direction with less than this share of the largest eigenvalue is rounding error


def moment(rows: AnyArray) -> Int64Array:
    """Return H' H (w, w) of rows H (n, w) with entries of at most 1, in units of 2^-36.

    Examples
    --------
    >>> moment(np.array([[0.5, 0.0], [0.5, -1.0]])) / 2**36
    array([[ 0.5, -0.5],
           [-0.5,  1. ]])
    """
    return grid_product(rows, rows)


def grid_product(left: AnyArray | sp.csr_array, right: AnyArray) -> Int64Array:
    """Return L' R of two matrices with n rows and entries of at most 1, both rounded to the grid, in units of 2^-36."""
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    for a in range(0, left.shape[0], MOST):
        L = _rounded(left[a : a + MOST])
        R = L if right is left else _rounded(right[a : a + MOST])
        total += np.asarray(L.T @ R).astype(np.int64)
    return total


def _rounded(M: AnyArray | sp.csr_array) -> AnyArray | sp.csr_array:
    """Return M in units of the grid."""
    scaled = M.astype(np.float64) * 2**GRID
    return sp.csr_array(scaled.rint()) if isinstance(scaled, sp.csr_array) else np.rint(scaled)


def leading(M: Float64Array, count: int) -> tuple[Float64Array, Float64Array]:
    """Return the largest eigenvalues of a symmetric matrix (w, w), descending, and their vectors, (w, count).

    Vectors beyond the rank are zero. The entry of largest magnitude of each vector is positive.

    Examples
    --------
    >>> values, V = leading(np.diag([1.0, 4.0, 0.0]), 3)
    >>> values.tolist(), V.tolist()
    ([4.0, 1.0, 0.0], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    """
    from scipy.linalg import eigh

    w, k = len(M), min(count, len(M))
    values, V = np.zeros(count), np.zeros((w, count))
    if k and M.any():
        found, U = eigh(M, subset_by_index=(w - k, w - 1))
        found, U = found[::-1], U[:, ::-1]
        useful = int((found > NEGLIGIBLE * found[0]).sum())
        values[:useful] = found[:useful]
        V[:, :useful] = U[:, :useful] * fixed_signs(U[:, :useful])
    return values, V


def orthonormal(Y: AnyArray, against: AnyArray | None = None) -> Float32Array:
    """Return orthonormal columns that span those of Y, and are orthogonal to ``against`` where that is given.

    At most so many columns are returned as there is room for beside ``against``.
    """
    Q = np.asarray(Y, dtype=np.float32)
    if against is not None:
        Q = Q[:, : max(len(Q) - against.shape[1], 0)]
    for _ in range(2):  # twice is enough (Kahan)
        if against is not None:
            Q = np.asarray(Q - against @ (against.T @ Q), dtype=np.float32)
        Q = np.asarray(np.linalg.qr(Q)[0], dtype=np.float32)
    return Q


class Basis:
    """The leading directions of rows H (n, w) that are known only by H' H V, by block Krylov rounds.

    All blocks V and their products are kept, and the best directions of their span are taken (Musco and Musco 2015).

    Parameters
    ----------
    first : (w, b) array
        The first block, with orthonormal columns.
    """

    def __init__(self, first: AnyArray) -> None:
        self.blocks = np.asarray(first, dtype=np.float32)
        self.products = np.empty((len(first), 0), dtype=np.float32)
        self.kept: list[float] = []  # the sum of squares that the best directions keep, after each round

    @classmethod
    def of(cls, blocks: AnyArray, products: AnyArray, kept: AnyArray) -> Basis:
        """Return a basis that some rounds were made for already."""
        basis = cls(blocks)
        basis.products, basis.kept = np.asarray(products, dtype=np.float32), kept.tolist()
        return basis

    @property
    def block(self) -> Float32Array:
        """The block whose product is asked for."""
        return self.blocks[:, self.products.shape[1] :]

    def take(self, product: AnyArray, count: int) -> None:
        """Take in H' H V for the current block V, and make the next."""
        self.products = np.hstack([self.products, np.asarray(product, dtype=np.float32)])
        values, _ = self._ritz(count)
        self.kept.append(float(values.sum()))
        self.blocks = np.hstack([self.blocks, orthonormal(product, self.blocks)])

    @property
    def growth(self) -> float:
        """The share that the last round added to what the best directions keep."""
        if len(self.kept) < 2:
            return 1.0
        return self.kept[-1] / max(self.kept[-2], 1e-300) - 1

    def settled(self, growth: float) -> bool:
        """Return whether the last round added less than this share, or there is nothing left to add."""
        return self.block.shape[1] == 0 or self.growth <= growth

    def directions(self, count: int) -> Float32Array:
        """Return the best directions so far, (w, count)."""
        _, U = self._ritz(count)
        return np.asarray(self.blocks[:, : self.products.shape[1]] @ U.astype(np.float32))

    def _ritz(self, count: int) -> tuple[Float64Array, Float64Array]:
        T = (self.blocks[:, : self.products.shape[1]].T @ self.products).astype(np.float64)
        return leading((T + T.T) / 2, count)

    @classmethod
    def solve(
        cls, times: Callable[[Float32Array], AnyArray], first: AnyArray, count: int, *, growth: float, rounds: int
    ) -> Basis:
        """Return the basis after so many rounds, or fewer where a round adds less than the share ``growth``."""
        basis = cls(first)
        for _ in range(rounds):
            basis.take(times(basis.block), count)
            if basis.settled(growth):
                break
        return basis
