"""Embed the two sides of one window, or report why that is impossible."""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import Float32Array
from graphquilt.errors import ConvergenceError, InputError
from graphquilt.patches import Patch
from graphquilt.temporal.bipartite import bipartite_factors
from graphquilt.temporal.scores import ScoringOptions
from graphquilt.temporal.tokens import WindowTokens, with_token_columns
from graphquilt.temporal.windows import SIDES

__all__ = ["EmbeddedWindow", "embed_or_explain", "embed_window", "warn_left_out"]

_log = logging.getLogger(__name__)


class EmbeddedWindow(NamedTuple):
    """The positions of both sides of one window, and the roots of the singular values, (dim,).

    One plus the inner product of a source and a destination, each position times the roots, is how many times as
    probable their connection is as their degrees alone would make it.
    """

    source: Patch
    destination: Patch
    roots: Float32Array


def embed_window(matrix: sp.csr_array, dim: int, background: float = 1.0) -> tuple[Patch, Patch]:
    """Embed the sources and the destinations of one window, in single precision.

    Parameters
    ----------
    matrix : CSR array (sources, destinations)
    dim : int
        Dimensions of the embedding.
    background : float
        A faint edge joins every source to every destination. All these edges together weigh ``background`` times as
        much as the edges of the window.

    Returns
    -------
    source, destination : Patch
        The result of :func:`graphquilt.temporal.bipartite_svd` times sqrt((1 + background) · sum of the matrix).

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> A = sp.csr_array([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]])
    >>> source, destination = embed_window(A, dim=1, background=0)
    >>> [f"{abs(x):.2f}" for x in source.coordinates[:, 0]]
    ['1.32', '0.00', '1.32']
    """
    source, destination, _ = _embedded(matrix, dim, background)
    return source, destination


def _embedded(matrix: sp.csr_array, dim: int, background: float) -> EmbeddedWindow:
    # Differs from the paper: D^-1/2 U shrinks with the square root of the day's traffic, so that every node seems to
    # move on a weekend. Multiplied by that root, the mean square weighted by traffic is 1 in each dimension of every
    # window. The faint background keeps the vectors away from loosely connected parts of a sparse day, which change
    # from day to day and carry no meaning. ``background=0`` is the paper's embedding.
    *patches, values = bipartite_factors(matrix, dim, background=background)
    factor = float(np.sqrt((1 + background) * matrix.sum()))
    for side, patch in zip(SIDES, patches, strict=True):
        rank = patch.coordinates.shape[1]
        if rank < dim:
            raise InputError(
                f"{dim} dimensions need as many pairs of singular vectors beside the trivial ones, and the window has "
                f"{rank}. Use wider windows or fewer dimensions."
            )
        if len(patch.nodes) < dim + 1:
            raise InputError(f"{len(patch.nodes)} {side}s have a position; {dim} dimensions need at least {dim + 1}.")
    source, destination = (Patch(nodes, (factor * X).astype(np.float32)) for nodes, X in patches)
    return EmbeddedWindow(source, destination, np.sqrt(values).astype(np.float32))


def embed_or_explain(
    matrix: sp.csr_array, options: ScoringOptions, tokens: WindowTokens | None = None
) -> EmbeddedWindow | str:
    """Return the embedding of both sides of a window, or the reason why the window cannot be embedded.

    Tokens are further columns of the matrix if ``options.token_weight`` is positive; they have no position.
    """
    has_tokens = tokens is not None and options.token_weight > 0
    try:
        if tokens is None or not has_tokens:
            return _embedded(matrix, options.dim, options.background)
        wide = with_token_columns(matrix, tokens, options.token_weight)
        source, (nodes, X), roots = _embedded(wide, options.dim, options.background)
        is_host = np.asarray(nodes) < matrix.shape[1]
        return EmbeddedWindow(source, Patch(nodes[is_host], X[is_host]), roots)
    except (InputError, ConvergenceError) as error:
        return str(error)


def warn_left_out(number: int, reason: str) -> None:
    """Log that a window has no positions, and why."""
    _log.warning("window %d is left out of the embedding, and its nodes are scored by counts: %s", number, reason)
