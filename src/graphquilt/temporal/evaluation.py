"""The quality of alerts where the attacks are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphquilt.errors import InputError
from graphquilt.linalg import average_precision, roc_auc

__all__ = ["alert_quality"]


def alert_quality(
    scores: npt.ArrayLike,
    truth: npt.ArrayLike,
    *,
    present: npt.ArrayLike | None = None,
    budgets: Sequence[int] = (10, 50, 100),
) -> dict[str, float]:
    """Compare the scores of (node, window) pairs with the known attacks.

    Parameters
    ----------
    scores : float array (n, windows)
        Higher is more suspicious; NaN means no score and ranks below every score.
    truth : bool array (n, windows)
    present : bool array (n, windows), optional
        The pairs that exist, scored or not; by default those with a score or an attack.
    budgets : sequence of int
        For each k, compute the share of all attacks that are among the k highest scores of their window.

    Returns
    -------
    dict
        ``pairs``, ``attacks``, ``scored_attacks`` (the share of attacks that have a score), ``roc_auc`` (0.5 is
        chance), ``average_precision`` (the share of attacks is chance) and ``recall@k``.

    Examples
    --------
    >>> quality = alert_quality([[3.0, 0.0], [2.0, 1.0]], [[True, False], [False, False]], budgets=[1])
    >>> quality["roc_auc"], quality["average_precision"], quality["recall@1"]
    (1.0, 1.0, 1.0)
    """
    S, attack = np.asarray(scores, dtype=np.float64), np.asarray(truth, dtype=bool)
    if S.shape != attack.shape or S.ndim != 2:
        raise InputError(f"scores are {S.shape} and the truth is {attack.shape}; both are (nodes, windows).")
    here = ~np.isnan(S) | attack if present is None else np.asarray(present, dtype=bool) | attack
    y, scored = attack[here], ~np.isnan(S[here])
    if y.all() or not y.any():
        raise InputError(f"of {len(y)} pairs {int(y.sum())} are attacks; quality needs some of both kinds.")
    # No score ranks below every score.
    s = np.where(scored, S[here], np.min(S[here], where=scored, initial=0.0) - 1.0)
    quality = {
        "pairs": float(len(y)),
        "attacks": float(y.sum()),
        "scored_attacks": float(scored[y].mean()),
        "roc_auc": roc_auc(s[y], s[~y]),
        "average_precision": average_precision(s[y], s[~y]),
    }
    # The rows of each window from the highest score down; those that have no score or are absent come last.
    ranked = np.where(here, S, np.nan)
    order = np.argsort(-ranked, axis=0, kind="stable")
    caught = np.take_along_axis(attack & ~np.isnan(ranked), order, axis=0)
    return quality | {f"recall@{k}": float(caught[:k].sum() / attack.sum()) for k in budgets}
