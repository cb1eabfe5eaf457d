"""The contract of an embedder, and the result of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, refuse_masked
from graphquilt.errors import EmbedderError, InputError
from graphquilt.linalg.motions import Motions

if TYPE_CHECKING:
    from graphquilt.embedders.basis import BasisEncoder
    from graphquilt.embedders.encoder import Encoder
    from graphquilt.graph import Graph
    from graphquilt.progress import ProgressCallback

__all__ = [
    "Context",
    "Embedder",
    "Fit",
    "Surroundings",
    "can_start",
    "check_dim",
    "checked_fit",
    "checked_offer",
    "embedder_name",
    "free_motions",
    "needs_start",
    "started",
    "with_start",
]

Offer = Mapping[str, AnyArray]
_NONE = Motions(rotate=False, translate=False)


@runtime_checkable
class Embedder(Protocol):
    """Anything callable that gives each node of a graph a position: a frozen value that can be pickled.

    ``dim`` is the number of columns of the embedding. An embedder may also have ``motions``, the
    :class:`graphquilt.Motions` that its embeddings are free in; ``deterministic``, which is True where the seed changes
    nothing; and ``fit(graph, seed, progress=None)``, which returns a :class:`Fit`. Calling the embedder is then the
    short form of ``fit(...).embedding``.

    An embedder with a *shared start* gives all patches one frame before they are embedded. It is a dataclass with:

    - ``start``, a mapping of str to array, or None as long as there is no shared start;
    - ``offer(graph, seed, surroundings=None)``, which returns a few small arrays of a patch by name;
    - ``started(offers, seed)``, which takes the offers of all patches and returns the embedder with its ``start``, with
      which every patch is then embedded. If the start takes another step, ``unfinished`` of that embedder is True;
    - ``fit`` with a parameter ``surroundings``, which is None or a :class:`Surroundings`;
    - optionally ``context``, a :class:`Context`; ``survey(graph, seed)``, which returns arrays with one row per node of
      the whole graph, each patch then gets its rows; and ``motions_started``, the motions that stay free after the
      start (by default none); and ``starts_on(graph)``, which says whether there can be a shared start on a graph.

    Run :func:`graphquilt.testing.check_embedder` on your own embedder.
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
    encoder : Encoder, BasisEncoder or None
        Embeds other graphs without training, where the method allows that.
    """

    embedding: FloatArray
    losses: Float64Array
    encoder: Encoder | BasisEncoder | None = None


@dataclass(frozen=True)
class Context:
    """How much of the graph around a patch travels with it, where the graph is at hand.

    Attributes
    ----------
    hops : int
        How many steps from the patch the outermost nodes are.
    neighbours : int
        At most so many neighbours of each node are followed, so that a hub does not bring in the whole graph.
    growth : float
        At most so many times the nodes of the patch travel with it; those with most links towards it are kept.
    """

    hops: int = 2
    neighbours: int = 8
    growth: float = 4.0

    def __post_init__(self) -> None:
        for name in ("hops", "neighbours"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name} of a Context is a whole number of at least 1, not {value!r}.")
        if not self.growth >= 0:
            raise InputError(f"growth of a Context is a number of at least 0, not {self.growth!r}.")


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What a patch knows of the graph around it.

    Attributes
    ----------
    n_inner : int
        The first ``n_inner`` nodes of the graph are embedded; the others only pass messages on.
    n_nodes : int
        The number of nodes of the whole graph.
    survey : mapping of str to array
        The rows of the embedder's survey of the whole graph, for all nodes of this one; empty where there is none. In
        a job it also has ``patches``, the number of patches that each node is in.
    offered : mapping of str to array, optional
        What the patch offered last, from the second step of a shared start on.
    """

    n_inner: int
    n_nodes: int
    survey: Mapping[str, AnyArray]
    offered: Offer | None = None


def free_motions(embedder: Embedder, *, start: bool = False) -> Motions:
    """Return the motions that the embeddings are free in, which alignment has to undo.

    An embedder without ``motions`` is taken to be free in rotation and translation, as in the paper. ``start`` says
    that patches get a shared start where the embedder has one.

    Examples
    --------
    >>> from graphquilt.embedders import SVD
    >>> free_motions(SVD(8))
    Motions(scale=False, rotate=True, translate=True)
    """
    motions = getattr(embedder, "motions", Motions())
    if start and can_start(embedder):
        motions = getattr(embedder, "motions_started", _NONE)
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
    surroundings: Surroundings | None = None,
) -> Fit:
    """Embed ``graph`` and refuse a result that is not an (n, dim) array of finite numbers.

    Parameters
    ----------
    embedder : Embedder
        Its ``fit`` is used if it has one.
    where : str
        What is being embedded, for the error message: ``"patch 17"``.
    surroundings : Surroundings, optional
        What a patch knows of the graph around it; for embedders with a shared start only.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from graphquilt.embedders import SVD
    >>> from graphquilt.graph import Graph
    >>> ring = Graph(sp.csr_array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]))
    >>> checked_fit(SVD(1), ring, 0).embedding.shape
    (4, 1)
    """
    fit, name = getattr(embedder, "fit", None), embedder_name(embedder)
    options = {} if surroundings is None else {"surroundings": surroundings}
    n_nodes = graph.n_nodes if surroundings is None else surroundings.n_inner
    if callable(fit):
        result = fit(graph, seed, progress=progress, **options)
        if not isinstance(result, Fit):
            raise InputError(f"fit of {name} returned {type(result).__name__} for {where}, not a Fit.")
    else:
        result = Fit(np.asanyarray(embedder(graph, seed)), np.empty(0))
    refuse_masked(where=f"{where}: ", coordinates=result.embedding)
    X, shape = np.asarray(result.embedding), (n_nodes, embedder.dim)
    if X.ndim == 2 and len(X) == n_nodes and X.shape[1] != embedder.dim:
        raise EmbedderError(
            f"{name} returned {X.shape[1]} columns for {where} and its dim is {embedder.dim}: give "
            f"dim={X.shape[1]}, or let it return {embedder.dim} columns."
        )
    if X.shape != shape:
        raise InputError(
            f"{name} returned an array of shape {X.shape} for {where}, which has {shape[0]} nodes; "
            f"an embedder of dim {shape[1]} returns {shape}. Return one row for each node of the graph it is given."
        )
    if not np.issubdtype(X.dtype, np.floating):
        raise EmbedderError(f"{name} returned {X.dtype} for {where}; an embedding is an array of floats.")
    bad = ~np.isfinite(X).all(axis=1)
    if bad.any():
        raise InputError(
            f"{name} returned values that are not finite for {where}: {int(bad.sum())} of {len(X)} rows, the "
            f"first is row {int(bad.argmax())}. Look at that node's features and edges, and at its settings."
        )
    return result


def embedder_name(embedder: Embedder) -> str:
    """Return what a user calls an embedder: a function by its name, and not by all that it holds."""
    inner = getattr(embedder, "function", getattr(embedder, "transformer", embedder))
    return str(getattr(inner, "__name__", type(inner).__name__))


def can_start(embedder: Embedder, graph: Graph | None = None) -> bool:
    """Return whether an embedder has a shared start, and if a graph is given, whether it has one on that graph.

    Examples
    --------
    >>> from graphquilt.embedders import SVD
    >>> can_start(SVD(8))
    False
    """
    if not (callable(getattr(embedder, "offer", None)) and callable(getattr(embedder, "started", None))):
        return False
    starts_on = getattr(embedder, "starts_on", None)
    return graph is None or starts_on is None or bool(starts_on(graph))


def needs_start(embedder: Embedder) -> bool:
    """Return whether patches have to make offers before they can be embedded."""
    return getattr(embedder, "start", None) is None or bool(getattr(embedder, "unfinished", False))


def with_start(embedder: Embedder, start: Mapping[str, AnyArray]) -> Embedder:
    """Return the embedder with a shared start that was made before."""
    changed: Embedder = replace(embedder, start=start)  # type: ignore[type-var]
    return changed


def checked_offer(
    embedder: Embedder, graph: Graph, seed: int, *, where: str, surroundings: Surroundings | None = None
) -> Offer:
    """Return what one patch offers to the shared start, and refuse what is not named arrays of finite numbers."""
    offer = embedder.offer(graph, seed, surroundings=surroundings)  # type: ignore[attr-defined]
    return _checked_arrays(offer, f"offer of {type(embedder).__name__} for {where}")


def started(embedder: Embedder, offers: Sequence[Offer], seed: int) -> Embedder:
    """Return the embedder with the shared start of all offers, and refuse a start that cannot be kept."""
    result: Embedder = embedder.started(offers, seed)  # type: ignore[attr-defined]
    name = type(embedder).__name__
    if not isinstance(result, Embedder) or result.dim != embedder.dim:
        raise InputError(f"started of {name} returned {result!r}; it returns a {name} with the same dim and a start.")
    _checked_arrays(getattr(result, "start", None), f"start of {name}")
    return result


def _checked_arrays(arrays: object, what: str) -> Offer:
    if not isinstance(arrays, Mapping) or not arrays:
        raise InputError(f"the {what} is {arrays!r}; it is a mapping of names to arrays, with at least one of them.")
    for name, array in arrays.items():
        values = np.asarray(array)
        if values.dtype.hasobject or (np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all()):
            raise InputError(f"the {what} has values in '{name}' that are not finite numbers.")
    return arrays


def check_dim(dim: int, name: str) -> None:
    """Refuse a dimension that is not a positive integer."""
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
        raise InputError(f"{name} needs a dim that is an integer of at least 1, not {dim!r}.")
