"""The contract of an embedder, and the result of a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from graphquilt.arrays import Float64Array, FloatArray, refuse_masked
from graphquilt.errors import EmbedderError, InputError

if TYPE_CHECKING:
    from graphquilt.embedders.directions import BasisEncoder
    from graphquilt.embedders.network import Encoder
    from graphquilt.graph import Graph
    from graphquilt.progress import ProgressCallback


COLLAPSED = 1e-6  # positions that differ by less than this share of their size differ by rounding errors


@runtime_checkable
class Embedder(Protocol):
    """Anything callable that gives each node of a graph a position: a frozen value that can be pickled.

    An embedder may also have ``motions``, the :class:`graphquilt.Motions` that its embeddings are free in;
    ``deterministic``, True if the seed changes nothing; and ``fit(graph, seed, progress=None)``, which returns a
    :class:`Fit`. Calling the embedder is then short for ``fit(...).embedding``. One that gives all patches the same
    frame is a :class:`graphquilt.embedders.SharedStart`. Run :func:`graphquilt.testing.check_embedder` on your own.
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
    """The result of a training."""

    embedding: FloatArray  # (n, dim)
    losses: Float64Array  # (epochs,) one entry per epoch; empty for methods that do not train
    encoder: Encoder | BasisEncoder | None = None  # embeds other graphs without training
    facts: Mapping[str, float] = field(default_factory=dict)  # a few numbers, which a job keeps beside the embedding


def checked_fit(
    embedder: Embedder,
    graph: Graph,
    seed: int,
    *,
    where: str = "the graph",
    progress: ProgressCallback | None = None,
    **options: object,
) -> Fit:
    """Embed ``graph`` and refuse a result that is not an (n, dim) array of finite numbers.

    Its ``fit`` is used if it has one, with the ``options`` ``far`` and ``kept`` for embedders with a shared start.
    Errors name ``where``, such as "patch 17".
    """
    fit, name = getattr(embedder, "fit", None), embedder_name(embedder)
    if callable(fit):
        result = fit(graph, seed, progress=progress, **options)
        if not isinstance(result, Fit):
            raise InputError(f"fit of {name} returned {type(result).__name__} for {where}, not a Fit.")
    else:
        result = Fit(np.asanyarray(embedder(graph, seed)), np.empty(0))
    refuse_masked(where=f"{where}: ", coordinates=result.embedding)
    X, shape = np.asarray(result.embedding), (graph.n_nodes, embedder.dim)
    if X.ndim == 2 and len(X) == graph.n_nodes and X.shape[1] != embedder.dim:
        raise EmbedderError(
            f"{name} returned {X.shape[1]} columns for {where} and its dim is {embedder.dim}: give "
            f"dim={X.shape[1]}, or let it return {embedder.dim} columns."
        )
    if X.shape != shape:
        raise InputError(
            f"{name} returned an array of shape {X.shape} for {where}, which has {shape[0]} nodes; "
            f"an embedder of dim {shape[1]} returns {shape}. Return one row for each node of the graph."
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


def check_spread(X: FloatArray, embedder: Embedder, where: str) -> None:
    """Refuse positions ``X (n, dim)`` that are all one point but for rounding: a patch that could not be aligned."""
    if len(X) > 1 and np.ptp(X, axis=0).max() <= COLLAPSED * np.abs(X).max():
        raise EmbedderError(
            f"{embedder_name(embedder)} gave all {len(X)} nodes of {where} the same position, which cannot "
            "be aligned. The embedder has collapsed: check its features and its training."
        )


def embedder_name(embedder: Embedder) -> str:
    """Return the name by which a user knows an embedder: for an adapter, that of what it wraps."""
    inner = getattr(embedder, "function", getattr(embedder, "transformer", embedder))
    return str(getattr(inner, "__name__", type(inner).__name__))


def check_dim(dim: int, name: str) -> None:
    """Refuse a dimension that is not a positive integer."""
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
        raise InputError(f"{name} needs a dim that is an integer of at least 1, not {dim!r}.")
