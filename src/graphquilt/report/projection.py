"""From an embedding to the plane: two principal components, or UMAP, of a few rows or of all."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import Float64Array, FloatArray, Int64Array
from graphquilt.errors import MissingExtraError
from graphquilt.kernels import one_blas_thread

__all__ = ["Plane", "blocks", "nearest", "principal_plane", "sample_rows", "umap_points"]

_LEARNT = 100_000  # rows from which the principal components are computed
_BLOCK = 65_536  # rows in memory at once
_COMPARED = 8_000_000  # similarities in memory at once


@dataclass(frozen=True, eq=False)
class Plane:
    """The plane of two principal components.

    Attributes
    ----------
    centre : float array (d,)
    axes : float array (d, 2)
        Orthonormal; the second is 0 in one dimension.
    share : float
        The share of the variance that the plane shows.
    """

    centre: Float64Array
    axes: Float64Array
    share: float

    def __call__(self, X: npt.ArrayLike) -> Float64Array:
        """Return the places of ``X (r, d)`` in the plane, (r, 2)."""
        with one_blas_thread():
            return np.asarray((np.asarray(X, dtype=np.float64) - self.centre) @ self.axes)


def sample_rows(n: int, limit: int, *, seed: int = 0) -> Int64Array:
    """Return all n row numbers, or a random sample of ``limit`` of them, ascending.

    Examples
    --------
    >>> sample_rows(3, 5).tolist(), len(sample_rows(1000, 5))
    ([0, 1, 2], 5)
    """
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, limit, replace=False, shuffle=False)).astype(np.int64)


def principal_plane(X: FloatArray, *, seed: int = 0) -> Plane:
    """Return the plane of the two leading principal components of ``X (n, d)``, of a sample of its rows if it is long.

    Each axis points to where its largest coordinate is positive, so that the same embedding gives the same picture.

    Examples
    --------
    >>> plane = principal_plane(np.array([[0.0, 0.0, 1.0], [4.0, 0.0, 1.0], [2.0, 1.0, 1.0]]))
    >>> round(plane.share, 6)
    1.0
    """
    rows = np.asarray(X[sample_rows(len(X), _LEARNT, seed=seed)], dtype=np.float64)
    centre = rows.mean(axis=0)
    with one_blas_thread():
        variances, directions = np.linalg.eigh((rows - centre).T @ (rows - centre))
    axes = np.zeros((X.shape[1], 2))
    leading = directions[:, ::-1][:, :2]
    signs = np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(leading.shape[1])])
    axes[:, : leading.shape[1]] = leading * signs
    total = float(variances.sum())
    return Plane(centre, axes, float(variances[-2:].sum() / total) if total > 0 else 1.0)


def blocks(X: FloatArray, limit: int) -> Iterator[FloatArray]:
    """Yield ``X (n, d)`` in blocks, or every so manieth block, so that about ``limit`` rows are read."""
    starts = range(0, len(X), _BLOCK)
    for start in starts[:: max(1, -(-len(X) // limit))]:
        yield X[start : start + _BLOCK]


def umap_points(X: FloatArray, *, seed: int = 0) -> Float64Array:
    """Return places of ``X (r, d)`` in the plane by UMAP, (r, 2)."""
    try:
        import umap
    except ImportError:
        raise MissingExtraError("a map by UMAP", "viz") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap warns that a seed prevents the use of threads
        model = umap.UMAP(n_neighbors=min(15, len(X) - 1), random_state=seed)
        return np.asarray(model.fit_transform(np.asarray(X)), dtype=np.float64)


def nearest(X: FloatArray, k: int, *, progress: Callable[[int], None] | None = None) -> Int64Array:
    """Return the k other rows with the largest cosine to each row of ``X (n, d)``, most similar first, (n, k).

    The largest of every group of rows are found first; the k largest of all are in the k groups with the largest.

    Examples
    --------
    >>> nearest(np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), 1).ravel().tolist()
    [1, 0, 1]
    """
    n = len(X)
    lengths = np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    unit = (np.asarray(X) / lengths).astype(np.float32)
    n_groups = max(k, -(-n // 64))
    size = -(-n // n_groups)
    padded = np.zeros((n_groups * size, unit.shape[1]), dtype=np.float32)
    padded[:n] = unit
    result = np.empty((n, k), dtype=np.int64)
    step = max(1, _COMPARED // len(padded))
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        similar = unit[rows] @ padded.T
        similar[:, n:] = -np.inf
        similar[np.arange(len(rows)), rows] = -np.inf
        # Group g has the rows g, g + n_groups, g + 2 n_groups, …
        best = similar.reshape(len(rows), size, n_groups).max(axis=1)
        groups = np.argpartition(-best, min(k, n_groups) - 1, axis=1)[:, :k]
        candidates = (groups[:, :, None] + n_groups * np.arange(size)).reshape(len(rows), -1)
        values = np.take_along_axis(similar, candidates, axis=1)
        order = np.lexsort((candidates, -values), axis=1)[:, :k]
        result[rows] = np.take_along_axis(candidates, order, axis=1)
        if progress is not None:
            progress(int(rows[-1]) + 1)
    return result
