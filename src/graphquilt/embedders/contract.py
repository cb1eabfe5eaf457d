"""The contract of an embedder, and the result of a training."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from graphquilt.arrays import Float64Array, FloatArray, Int64Array, refuse_masked
from graphquilt.errors import InputError
from graphquilt.linalg.motions import Motions

if TYPE_CHECKING:
    from graphquilt.embedders.encoder import Encoder
    from graphquilt.graph import Graph
    from graphquilt.progress import ProgressCallback

__all__ = ["Embedder", "Fit", "Target", "check_accepts_target", "check_dim", "checked_fit", "free_motions"]


@runtime_checkable
class Embedder(Protocol):
    """Anything callable that gives each node of a graph a position: a frozen value that can be pickled.

    ``dim`` is the number of columns of the embedding. An embedder may also have ``motions``, the
    :class:`graphquilt.Motions` that its embeddings are free in; ``deterministic``, which is True where the seed changes
    nothing; and ``fit(graph, seed, progress=None)``, which returns a :class:`Fit`. Calling the embedder is then the
    short form of ``fit(...).embedding``.

    Run :func:`graphquilt.conformance.check_embedder` on your own embedder.
    """

    @property
    def dim(self) -> int:
        """Number of columns of the embedding."""
        ...

    def __call__(self, graph: Graph, seed: int) -> FloatArray:
        """Return one row per node, (n, dim); the same seed gives the same rows."""
        ...


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a training.

    Attributes
    ----------
    embedding : float array (n, dim)
    losses : float array (epochs,)
        The loss that early stopping watched, one entry per epoch; empty for methods that do not train.
    encoder : Encoder or None
        Embeds other graphs without training, where the method allows that.
    """

    embedding: FloatArray
    losses: Float64Array
    encoder: Encoder | None = None


@dataclass(frozen=True, eq=False)
class Target:
    """Positions that a training pulls some nodes of a graph towards.

    Attributes
    ----------
    rows : int array (k,)
        The nodes that are pulled.
    coordinates : float array (k, dim)
        The positions that they are pulled towards.
    weight : float
        The factor of the squared distances, which are added to the loss of the embedder. They are summed over
        dimensions, averaged over nodes, and divided by the same sum for the targets around their mean: the sum is 1
        where the mean distance is as large as the spread of the targets.
    """

    rows: Int64Array
    coordinates: FloatArray
    weight: float


def free_motions(embedder: Embedder) -> Motions:
    """Return the motions that the embeddings are free in, which alignment has to undo.

    An embedder without ``motions`` is taken to be free in rotation and translation, as in the paper.

    Examples
    --------
    >>> from graphquilt.embedders import SVD
    >>> free_motions(SVD(8))
    Motions(scale=True, rotate=True, translate=True)
    """
    motions = getattr(embedder, "motions", Motions())
    if not isinstance(motions, Motions):
        raise InputError(
            f"motions of {embedder!r} must be a graphquilt.Motions, such as Motions(scale=True), not {motions!r}."
        )
    return motions


def checked_fit(
    embedder: Embedder,
    graph: Graph,
    seed: int,
    *,
    where: str = "the graph",
    progress: ProgressCallback | None = None,
    target: Target | None = None,
) -> Fit:
    """Embed ``graph`` and refuse a result that is not an (n, dim) array of finite numbers.

    Parameters
    ----------
    embedder : Embedder
        Its ``fit`` is used if it has one.
    where : str
        What is being embedded, for the error message: ``"patch 17"``.
    target : Target, optional
        Positions to pull some of its nodes towards; ``fit`` of the embedder must have a parameter of that name.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from graphquilt.embedders import SVD
    >>> from graphquilt.graph import Graph
    >>> ring = Graph(sp.csr_array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]))
    >>> checked_fit(SVD(1), ring, 0).embedding.shape
    (4, 1)
    """
    fit = getattr(embedder, "fit", None)
    options = {} if target is None else {"target": target}
    if target is not None:
        check_accepts_target(embedder)
    if callable(fit):
        result = fit(graph, seed, progress=progress, **options)
        if not isinstance(result, Fit):
            raise InputError(f"fit of {embedder!r} returned {type(result).__name__} for {where}, not a Fit.")
    else:
        result = Fit(np.asanyarray(embedder(graph, seed)), np.empty(0))
    refuse_masked(where=f"{where}: ", coordinates=result.embedding)
    X, shape = np.asarray(result.embedding), (graph.n_nodes, embedder.dim)
    if X.shape != shape:
        raise InputError(
            f"{embedder!r} returned an array of shape {X.shape} for {where}, which has {shape[0]} nodes; "
            f"an embedder of dim {shape[1]} returns {shape}. Return one row for each node of the graph it is given."
        )
    if not np.issubdtype(X.dtype, np.floating):
        raise InputError(f"{embedder!r} returned {X.dtype} for {where}; an embedding is an array of floats.")
    bad = ~np.isfinite(X).all(axis=1)
    if bad.any():
        raise InputError(
            f"{embedder!r} returned values that are not finite for {where}: {int(bad.sum())} of {len(X)} rows, the "
            f"first is row {int(bad.argmax())}. Look at that node's features and edges, or lower the learning rate."
        )
    return result


def check_accepts_target(embedder: Embedder) -> None:
    """Refuse an embedder whose ``fit`` does not accept a target."""
    fit = getattr(embedder, "fit", None)
    if fit is None or "target" not in signature(fit).parameters:
        raise InputError(
            f"{type(embedder).__name__} cannot be pulled towards a target, which consensus rounds need; use rounds=0, "
            "VGAE, GAE or DGI, or an embedder of your own with fit(graph, seed, progress=None, target=None)."
        )


def check_dim(dim: int, name: str) -> None:
    """Refuse a dimension that is not a positive integer."""
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
        raise InputError(f"{name} needs a dim that is an integer of at least 1, not {dim!r}.")
