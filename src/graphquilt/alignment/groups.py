"""Group synchronisation: measurements on edges in, one group element for each vertex out.

The groups are scales (R+) and translations (R^d); rotations are in rotations.py. Nothing here knows of nodes or
patches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import BoolArray, Float64Array
from graphquilt.linalg.laplacian import solve_laplacian

__all__ = ["far_outside", "reweighted", "synchronise_scales", "synchronise_translations"]

REWEIGHTINGS = 15
FAR = 6.0  # spreads above the median: of clean errors hardly one in a million is as large
CHANCE = 5.0  # and as many standard deviations of what chance alone does to an error that few numbers determine
NEGLIGIBLE = 1e-3  # an error below this is no reason for doubt

Solution = TypeVar("Solution")


def synchronise_scales(edges: npt.ArrayLike, ratios: npt.ArrayLike, *, weights: npt.ArrayLike, n: int) -> Float64Array:
    r"""Return scales ``(n,)`` of mean 1 with ``ratios[e]`` as close as possible to ``scales[i] / scales[j]``.

    The answer is that of weighted least squares on the logarithms,
    :math:`\min \sum_e w_e (\log r_e - \log s_i + \log s_j)^2`.

    # Differs from the paper: it takes the Perron vector of D^-1 (w r), which agrees without noise and to first order
    # with it, but lets one large ratio outweigh all others and treats r and 1/r differently.

    Examples
    --------
    >>> synchronise_scales([[0, 1], [1, 2]], [2.0, 1.0], weights=[1.0, 1.0], n=3).round(12).tolist()
    [1.5, 0.75, 0.75]
    """
    logs = np.log(np.asarray(ratios, dtype=np.float64))[:, None]
    scales = np.exp(-synchronise_translations(edges, logs, weights=weights, n=n)[:, 0])
    return np.asarray(scales / scales.mean())


def synchronise_translations(
    edges: npt.ArrayLike, offsets: npt.ArrayLike, *, weights: npt.ArrayLike, n: int
) -> Float64Array:
    r"""Return translations ``(n, d)`` of mean 0 with ``t[j] - t[i]`` as close as possible to ``offsets[e]``.

    This is the least squares problem of the paper's translation step, :math:`\min_T \|W^{1/2} (B T - C)\|_F`. It is
    solved through its normal equations :math:`B^T W B\, T = B^T W C`, whose matrix is the Laplacian of the graph.

    Examples
    --------
    >>> synchronise_translations([[0, 1]], [[2.0]], weights=[1.0], n=2).tolist()
    [[-1.0], [1.0]]
    """
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    w = np.asarray(weights, dtype=np.float64)
    pull = w[:, None] * np.asarray(offsets, dtype=np.float64)
    rhs = np.zeros((n, pull.shape[1]))
    np.add.at(rhs, pairs[:, 1], pull)
    np.add.at(rhs, pairs[:, 0], -pull)
    return solve_laplacian(pairs, w, rhs, n=n) if len(pairs) else rhs


def reweighted(
    solve: Callable[[Float64Array, Solution | None], Solution],
    misfits: Callable[[Solution], Float64Array],
    weights: Float64Array,
    *,
    robust: bool = True,
    floor: float = 1e-6,
) -> tuple[Solution, Float64Array]:
    """Solve with iteratively reweighted edges, so that a few wrong measurements do not spoil the solution.

    ``solve(weights, previous)`` returns a solution and ``misfits`` its misfit on each edge ``(m,)``. Each round divides
    the weight of an edge by its misfit (least absolute deviations). A misfit below the median or below ``floor`` is
    replaced by that bound, so that good edges keep their weights. Where more than half of the edges of a vertex are
    wrong, no method can tell which ones. Unless ``robust``, the first solution is final.

    Returns the solution of the last round and the factor between 0 and 1 by which each weight was reduced, (m,).
    """
    trust = np.ones_like(weights)
    solution = solve(weights, None)
    for _ in range(REWEIGHTINGS if robust else 0):
        misfit = misfits(solution)
        usual = max(float(np.median(misfit)), floor)
        revised = usual / np.maximum(misfit, usual)
        settled = bool(np.max(np.abs(revised - trust)) < 1e-3)
        trust = revised
        solution = solve(weights * trust, solution)
        if settled:
            break
    return solution, trust


def far_outside(errors: Float64Array, freedom: Float64Array) -> BoolArray:
    """Return which of the relative ``errors (m,)`` are far larger than the spread of all of them explains, (m,).

    An error is far outside if it exceeds the median by several spreads. The spread is that of the errors below the
    median, which wrong measurements do not enlarge: their median distance from it, scaled to the standard deviation
    of a normal variable. Few errors may lie close together by chance, so that a second bound must be exceeded too. The
    logarithm of an error that comes from ``freedom (m,)`` independent numbers has a standard deviation of about
    1 / sqrt(freedom). Where there are few, points that fit may seem to have nothing in common, which is an error of 1;
    where there are many, half of the way to 1 is enough for doubt.

    Examples
    --------
    >>> import numpy as np
    >>> far_outside(np.array([0.096, 0.1, 0.098, 0.099, 0.7]), np.full(5, 40.0)).tolist()
    [False, False, False, False, True]
    """
    if len(errors) == 0:
        return np.zeros(0, dtype=np.bool_)
    middle = float(np.median(errors))
    spread = 1.4826 * float(np.median(middle - errors[errors <= middle]))
    chance = CHANCE / np.sqrt(np.maximum(freedom, 1))
    by_chance = np.minimum(middle * np.expm1(chance), (1 - middle) * np.maximum(chance, 0.5))
    return np.asarray(errors > middle + np.maximum(np.maximum(FAR * spread, by_chance), NEGLIGIBLE))
