"""The distance of two embeddings of the same nodes up to a rigid motion."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphquilt.errors import InputError
from graphquilt.evaluate.checks import checked_embedding
from graphquilt.linalg import centred, polar

__all__ = ["procrustes_error"]


def procrustes_error(X: npt.ArrayLike, reference: npt.ArrayLike, *, scale: bool = False) -> float:
    r"""Return the relative difference that remains after the best rigid motion of ``X`` onto ``reference``.

    .. math:: \min_{s, R, t} \|s X R + t - Y\|_F / \|Y - \bar Y\|_F, \qquad R^\top R = I

    0 means that they agree up to a motion; an embedding that has nothing to do with the reference is near 1 (with
    ``scale``, never above 1).

    Parameters
    ----------
    X, reference : array (n, d)
        Row r of both is the same node.
    scale : bool
        Fit s as well; otherwise s = 1.

    Examples
    --------
    >>> import numpy as np
    >>> square = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    >>> turned = square @ np.array([[0.0, 1.0], [-1.0, 0.0]]) + 5
    >>> round(procrustes_error(turned, square), 6), round(procrustes_error(2 * square, square), 6)
    (0.0, 1.0)
    >>> round(procrustes_error(2 * square, square, scale=True), 6)
    0.0
    """
    A, B = (np.asarray(checked_embedding(Z), dtype=np.float64) for Z in (X, reference))
    if A.shape != B.shape:
        raise InputError(f"the embedding is {A.shape[0]} × {A.shape[1]}, the reference {B.shape[0]} × {B.shape[1]}.")
    A, B = centred(A)[0], centred(B)[0]
    size = float(np.linalg.norm(B))
    if size == 0:
        raise InputError(f"all {len(B)} points of the reference coincide, so no relative error exists.")
    rotation, sigma = polar(A.T @ B)
    spread = float(np.sum(A * A))
    s = float(sigma.sum()) / spread if scale and spread > 0 else 1.0
    return float(np.linalg.norm(s * (A @ rotation) - B)) / size
