"""The contract of an embedder, the result of a training, and embedders made from functions and other objects."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, FloatArray, refuse_masked
from graphquilt.errors import EmbedderError, InputError
from graphquilt.graph import Graph
from graphquilt.linalg import Motions
from graphquilt.progress import ProgressCallback

if TYPE_CHECKING:
    from graphquilt.embedders.directions import BasisEncoder
    from graphquilt.embedders.network import Encoder


Hook: TypeAlias = ProgressCallback | None  # what progress is reported to
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

    def __call__(self, graph: Graph, seed: int) -> FloatArray:
        """Return one row per node, (n, dim); the same seed gives the same rows."""


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a training."""

    embedding: FloatArray  # (n, dim)
    losses: Float64Array  # (epochs,) one entry per epoch; empty for methods that do not train
    encoder: Encoder | BasisEncoder | None = None  # embeds other graphs without training
    facts: Mapping[str, float] = field(default_factory=dict)  # a few numbers, which a job keeps beside the embedding


def checked_fit(
    embedder: Embedder, graph: Graph, seed: int, *, where: str = "the graph", progress: Hook = None, **options: object
) -> Fit:
    """Embed ``graph``, and refuse a result that is not an (n, dim) array of finite numbers; errors name ``where``.

    An embedder's ``fit`` is used if it has one, with the ``options`` ``far`` and ``kept`` for a shared start.
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
            f"{name} returned {X.shape[1]} columns for {where} and its dim is {embedder.dim}: give dim={X.shape[1]}, "
            f"or let it return {embedder.dim} columns."
        )
    if X.shape != shape:
        raise InputError(
            f"{name} returned an array of shape {X.shape} for {where}, which has {shape[0]} nodes; an embedder of dim "
            f"{shape[1]} returns {shape}. Return one row for each node of the graph."
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


EmbedderLike: TypeAlias = Any  # what as_embedder takes


def as_embedder(value: object, dim: int | None = None) -> Embedder:
    """Return an embedder for an embedder, its class, a function, or an object with ``fit_transform``.

    ``dim`` is needed if the value does not state its dimension.
    """
    if callable(value) and hasattr(value, "dim") and not isinstance(value, type):
        return cast("Embedder", value)
    name = getattr(value, "__name__", type(value).__name__)
    if not isinstance(value, type) and callable(getattr(value, "fit_transform", None)):
        return TransformerEmbedder(value, dim if getattr(value, "n_components", None) is None and dim else 0)
    is_module = hasattr(value, "named_parameters")  # of torch: how to train it is up to the user
    if not callable(value) or is_module or (isinstance(value, type) and not hasattr(value, "__dataclass_fields__")):
        given = f"the class {name}; make an object of it" if isinstance(value, type) else f"{value!r}"
        raise InputError(
            "an embedder is one of graphquilt's, such as VGAE(32), a function of a graph and a seed, or an object with "
            f"fit_transform, not {given}."
        )
    if dim is None:
        raise InputError(f"{name} does not say in how many dimensions it embeds; give dim.")
    if isinstance(value, type):
        return cast("Embedder", value(dim))
    return FunctionEmbedder(cast("Callable[..., npt.ArrayLike]", value), dim)


@dataclass(frozen=True)
class FunctionEmbedder:
    """A plain function ``(graph, seed) -> X``, or ``(graph) -> X``, as an embedder; X is (n, dim).

    For other processes define it at the top of a module: it is pickled. Embeddings are free in ``motions``.

    Examples
    --------
    >>> def degrees(graph, seed):
    ...     return graph.degrees[:, None] / 10
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> FunctionEmbedder(degrees, 1)(path, 0).tolist()
    [[0.1], [0.2], [0.1]]
    """

    function: Callable[..., npt.ArrayLike]
    dim: int
    motions: Motions = Motions()

    def __post_init__(self) -> None:
        check_dim(self.dim, "FunctionEmbedder")

    def __call__(self, graph: Graph, seed: int) -> FloatArray:
        """Call the function and return its result, (n, dim)."""
        return _floats(self.function(graph, seed) if _takes_seed(self.function) else self.function(graph))


def _takes_seed(function: Callable[..., object]) -> bool:
    """Return whether a function takes a second argument that nothing else is meant for."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions of other languages have no signature
        return True
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    several = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    return several or (len(places) > 1 and (places[1].default is places[1].empty or places[1].name == "seed"))


def _floats(values: object) -> FloatArray:
    """Return an array of floats; tensors of torch and whole numbers are converted."""
    detach = getattr(values, "detach", None)
    X: FloatArray = np.asanyarray(values if detach is None else detach().cpu().numpy())
    return X.astype(np.float64) if X.dtype.kind in "biu" else X


@dataclass(frozen=True)
class TransformerEmbedder:
    """An object with ``fit_transform``, as in scikit-learn or scikit-network, as an embedder.

    Each call works on a copy of the object; its ``random_state``, if any, is set to the seed. Its
    ``fit_transform(adjacency)`` returns (n, dim) for a SciPy CSR matrix; for anything else, wrap a function
    in :class:`FunctionEmbedder`. ``dim`` is by default the object's ``n_components``.

    Examples
    --------
    >>> class Sums:
    ...     n_components = 1
    ...     def fit_transform(self, A):
    ...         return np.asarray(A.sum(axis=1))
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> TransformerEmbedder(Sums())(path, 0).ravel().tolist()
    [1.0, 2.0, 1.0]
    """

    transformer: Any
    dim: int = 0
    motions: Motions = Motions()

    def __post_init__(self) -> None:
        name = type(self.transformer).__name__
        if not callable(getattr(self.transformer, "fit_transform", None)):
            raise InputError(f"{name} has no fit_transform; wrap a function in FunctionEmbedder instead.")
        if self.dim == 0:
            object.__setattr__(self, "dim", getattr(self.transformer, "n_components", 0))
        check_dim(self.dim, f"TransformerEmbedder of {name}, which has no n_components,")

    def __call__(self, graph: Graph, seed: int) -> FloatArray:
        """Fit a copy of the object to the graph and return its embedding, (n, dim)."""
        transformer = copy.deepcopy(self.transformer)
        if hasattr(transformer, "random_state"):
            transformer.random_state = int(np.random.SeedSequence(seed).generate_state(1)[0])
        try:
            return _floats(transformer.fit_transform(sp.csr_matrix(graph.adjacency)))
        except ValueError as error:
            name = type(transformer).__name__
            raise InputError(f"{name} cannot embed a graph of {graph.n_nodes} nodes: {error}") from error
