"""Which windows are aligned with each other: those whose numbers differ by one of the lags."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import Int64Array
from graphquilt.errors import InputError

__all__ = ["first_few", "lag_edges"]

_log = logging.getLogger(__name__)


def lag_edges(times: int | npt.ArrayLike, lags: int | Sequence[int]) -> Int64Array:
    """Pair the windows whose numbers differ by one of ``lags`` (the patch graph of the paper's section on anomalies).

    Parameters
    ----------
    times : int or increasing ints (p,)
        Window numbers; an int n means 0..n-1.
    lags : int or sequence of int
        Positive differences. A lag longer than the data joins no windows, and a warning is logged.

    Returns
    -------
    int array (m, 2)
        Positions (i, j) in ``times``, i < j, sorted.

    Examples
    --------
    >>> lag_edges(4, (1, 3)).tolist()
    [[0, 1], [0, 3], [1, 2], [2, 3]]
    >>> lag_edges([10, 11, 14], (1, 3, 4)).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    numbers = np.arange(times) if isinstance(times, int | np.integer) else np.asarray(times)
    steps = np.unique(np.atleast_1d(np.asarray(lags)))
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError("windows are numbered by integers: pass the numbers, not times in seconds.")
    if len(numbers) > 1 and bool(np.any(np.diff(numbers) <= 0)):
        raise InputError("the window numbers must increase; sort the windows and keep each once.")
    if len(steps) == 0 or not np.issubdtype(steps.dtype, np.integer) or int(steps[0]) < 1:
        raise InputError(f"lags are positive whole numbers of windows, not {lags!r}.")
    span = int(numbers[-1] - numbers[0]) if len(numbers) else 0
    shared = [np.intersect1d(numbers + step, numbers, assume_unique=True, return_indices=True) for step in steps]
    edges = np.concatenate([np.column_stack(positions) for _, *positions in shared]).astype(np.int64)
    too_long = steps[steps > span].tolist()
    if len(edges) == 0 and len(numbers) > 1:
        raise InputError(
            f"no two of the {len(numbers)} windows (numbers {numbers[0]} to {numbers[-1]}) are "
            f"{first_few(steps.tolist())} apart: give shorter lags."
        )
    if too_long and len(numbers) > 1:
        _log.warning("the windows span %d, so the lags %s join nothing", span, first_few(too_long))
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]


def first_few(values: Sequence[int], limit: int = 8) -> str:
    """Write the first values with commas between them, and an ellipsis if there are more."""
    return ", ".join(map(str, values[:limit])) + (" …" if len(values) > limit else "")
