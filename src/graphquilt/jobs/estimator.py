"""GraphQuilt: embed() as a scikit-learn estimator."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, FloatArray
from graphquilt.embedders.contract import EmbedderLike
from graphquilt.errors import InputError, needs_extra
from graphquilt.graph.reading.edges import GraphLike
from graphquilt.jobs.options import Cutting, Recipe
from graphquilt.jobs.steps import embed

if TYPE_CHECKING:
    from sklearn.utils import Tags


class GraphQuilt:
    """Embed a graph, as an estimator: ``fit``, ``fit_transform``, ``get_params`` and ``set_params``.

    The samples are the nodes of one graph, so it has no ``transform`` for other samples. Everything else is
    :func:`graphquilt.embed`.

    Parameters
    ----------
    dim, n_patches, embedder, cutting, recipe, seed
        As in :func:`graphquilt.embed`.

    Attributes
    ----------
    embedding_ : float array (n, dim)
    result_ : Result
    n_features_in_ : int
        The number of nodes.

    Examples
    --------
    >>> ring = sp.csr_array(np.roll(np.eye(90), 1, 0) + np.roll(np.eye(90), -1, 0))
    >>> GraphQuilt(dim=2, n_patches=3).fit_transform(ring).shape
    (90, 2)
    """

    def __init__(
        self,
        dim: int = 64,
        *,
        n_patches: int | None = None,
        embedder: EmbedderLike | Sequence[EmbedderLike] | None = None,
        cutting: Cutting | None = None,
        recipe: Recipe | None = None,
        seed: int = 0,
    ) -> None:
        self.dim = dim
        self.n_patches = n_patches
        self.embedder = embedder
        self.cutting = cutting
        self.recipe = recipe
        self.seed = seed

    def fit(self, graph: GraphLike, y: object = None) -> GraphQuilt:  # noqa: ARG002
        """Embed a graph: anything that :func:`graphquilt.embed` takes, or a square array of edge weights."""
        self.result_ = embed(
            _adjacency(graph) if isinstance(graph, np.ndarray) else graph,
            dim=self.dim,
            n_patches=self.n_patches,
            embedder=self.embedder,
            cutting=self.cutting,
            recipe=Recipe.shared() if self.recipe is None else self.recipe,
            seed=self.seed,
        )
        self.embedding_ = self.result_.embedding
        self.n_features_in_ = len(self.embedding_)
        return self

    def fit_transform(self, graph: GraphLike, y: object = None) -> FloatArray:
        """Embed a graph, and return its embedding."""
        return self.fit(graph, y).embedding_

    def get_params(self, deep: bool = True) -> dict[str, object]:  # noqa: ARG002
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in inspect.signature(GraphQuilt).parameters}

    def set_params(self, **parameters: object) -> GraphQuilt:
        """Set parameters by name."""
        known = self.get_params()
        for name, value in parameters.items():
            if name not in known:
                raise InputError(f"GraphQuilt has no parameter {name!r}; it has {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(GraphQuilt).parameters
        given = {name: value for name, value in self.get_params().items() if value is not defaults[name].default}
        return f"GraphQuilt({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def __sklearn_tags__(self) -> Tags:
        """Tell scikit-learn what the input is: a square matrix of non-negative weights, dense or sparse."""
        with needs_extra("scikit-learn's tags", "eval"):
            from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags
        inputs = InputTags(sparse=True, pairwise=True, positive_only=True)
        return Tags(None, TargetTags(required=False), TransformerTags(), input_tags=inputs)


def _adjacency(given: AnyArray) -> GraphLike:
    """Return a square array as a sparse adjacency matrix, and any other array as it is."""
    if given.dtype.kind == "c":
        raise InputError("Complex data not supported: edge weights are real numbers.")
    if given.ndim != 2 or 0 in given.shape:
        raise InputError(f"found an array with 0 feature(s) (shape={given.shape}) while a minimum of 1 is required.")
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise InputError("the matrix of edge weights contains NaN or infinity.")
    if given.shape[0] != given.shape[1]:
        return given
    weights = given.astype(np.float64) if given.dtype.hasobject else given
    if weights.min() < 0:
        raise InputError(f"Negative values in data: edge weights are at least 0, and the least is {weights.min():.3g}.")
    return sp.csr_array(weights)
