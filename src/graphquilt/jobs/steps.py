"""embed(), also as the scikit-learn estimator GraphQuilt; and the first of its steps: cut() a graph into patches."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, FloatArray, Int64Array
from graphquilt.embedders.contract import EmbedderLike, embedder_name
from graphquilt.errors import FormatError, InputError, needs_extra
from graphquilt.graph import Graph, read_edges
from graphquilt.graph.files import with_checksums
from graphquilt.graph.reading.edges import GraphLike
from graphquilt.jobs.options import Cutting, Recipe
from graphquilt.jobs.patch_embedding import embed_patches
from graphquilt.jobs.records import (
    check_patch_graph,
    describe,
    far_clusters,
    graph_fingerprint,
    keep_patch_graph,
    stored_patch_graph,
)
from graphquilt.jobs.settings import JobSettings, default_embedders
from graphquilt.jobs.source import Source
from graphquilt.jobs.stitching import Result, stitch
from graphquilt.jobs.store import DirectoryStore, Record, Store, record_digest, stored_record
from graphquilt.linalg import Motions
from graphquilt.patches import Multilevel, PatchGraph, merge_small, patch_graph, smallest_cluster
from graphquilt.patches.partitioners import check_n_patches
from graphquilt.progress import ProgressCallback, report, resource_usage

if TYPE_CHECKING:
    from sklearn.utils import Tags


_log = logging.getLogger(__name__)


def embed(
    graph: GraphLike,
    dim: int | None = None,
    *,
    n_patches: int | None = None,
    embedder: EmbedderLike | Sequence[EmbedderLike] | None = None,
    cutting: Cutting | None = None,
    recipe: Recipe = Recipe.shared(),
    seed: int = 0,
    choose_by: npt.ArrayLike | None = None,
    executor: Executor | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
) -> Result:
    """Embed a graph from patches: cut it, embed every patch, stitch.

    These are :func:`graphquilt.cut`, :func:`graphquilt.embed_patches` and :func:`graphquilt.stitch`: call them yourself
    to change what lies between. With a store they run as a :class:`graphquilt.Job`, as ``graphquilt embed`` does.

    Parameters
    ----------
    graph : Graph, PyG Data, NetworkX graph, SciPy sparse matrix, array or list of edges, DataFrame, or path
        See :func:`graphquilt.read_edges`.
    dim : int, optional
        By default that of the embedder, or 64.
    n_patches : int, optional
        The short form of ``cutting=Cutting(n_patches)``.
    embedder : Embedder, function, object with ``fit_transform``, or sequence of these, optional
        By default :class:`graphquilt.Propagation`. See :func:`graphquilt.embedders.as_embedder`.
    cutting, recipe : Cutting, Recipe
    seed : int
    choose_by : int array (n,), optional
        The class of each node, -1 for none: cross-validation among these labels chooses the signal of
        :class:`graphquilt.Propagation`. Do not evaluate on the same labels.
    executor : concurrent.futures.Executor, optional
        Works on the embeddings and on the comparison of overlaps.
    store : Store or path, optional
        Keeps every result, and resumes an earlier run, of the command line too if it is a folder.
    progress : callable, optional

    Returns
    -------
    Result

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> ring = sp.csr_array(np.roll(np.eye(90), 1, 0) + np.roll(np.eye(90), -1, 0))
    >>> embed(ring, dim=2, n_patches=3).embedding.shape
    (90, 2)
    """
    store = DirectoryStore(store) if isinstance(store, str | os.PathLike) else store
    records: Store = {} if store is None else store
    embedders, source = default_embedders(embedder, dim), JobSettings.source
    whole: Graph | None = None
    if isinstance(graph, str | os.PathLike):
        source = Source(path=os.fspath(graph))
    else:
        whole = graph if isinstance(graph, Graph) else read_edges(graph)
    if choose_by is not None:
        from graphquilt.jobs.choosing import choose_signal

        whole, source = source.read() if whole is None else whole, JobSettings.source
        embedders = choose_signal(records, whole, embedders, choose_by, seed=seed)
    cutting = Cutting.given(n_patches, cutting)
    settings = JobSettings(embedder=embedders, cutting=cutting, recipe=recipe, seed=seed, source=source)
    if dim is not None and settings.dim != dim:
        name = embedder_name(settings.embedders[0])
        raise InputError(f"dim is {dim}, and {name} embeds in {settings.dim} dimensions; make them equal.")
    if store is not None:
        from graphquilt.jobs.job import Job

        job = Job.begin(store, settings, whole)
        job.run(executor=executor, progress=progress)
        return Result.of(job)
    whole = with_checksums(source.read() if whole is None else whole)
    patch_graph = cut_graph(whole, settings.resolved(whole), records, progress)
    patches = embed_patches(whole, patch_graph, executor=executor, store=records, progress=progress)
    alignment, X = stitch(patch_graph, patches, executor=executor, progress=progress)
    repeated = patch_graph.repeat(alignment.n_patches // patch_graph.n_patches)
    return Result(X, repeated, patches, alignment, whole.node_ids)


def cut(
    graph: Graph,
    n_patches: int | None = None,
    *,
    embedder: EmbedderLike | Sequence[EmbedderLike] | None = None,
    cutting: Cutting | None = None,
    recipe: Recipe = Recipe.shared(),
    seed: int = 0,
    store: Store | None = None,
    progress: ProgressCallback | None = None,
) -> PatchGraph:
    """Cut a graph into overlapping patches: partition, merge small clusters, build the patch graph.

    The patch graph carries the embedder, the recipe and the seed: :func:`graphquilt.embed_patches` uses them unless it
    is given others.

    Parameters
    ----------
    graph : Graph
        Connected, unless the embedder needs no alignment; see :meth:`graphquilt.Graph.largest_component`.
    n_patches, embedder, cutting, recipe, seed
        As in :func:`graphquilt.embed`. The embedder decides how many nodes overlaps need.
    store : Store, optional
        Keeps the cluster labels, and then the patch graph. Nothing in it is made twice.
    progress : callable, optional

    Raises
    ------
    JobError
        The store has patches of another graph, or patches that were cut in another way.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from graphquilt.embedders import SVD
    >>> ring = Graph(sp.csr_array(np.roll(np.eye(90), 1, 0) + np.roll(np.eye(90), -1, 0)))
    >>> cut(ring, 3, embedder=SVD(2)).n_patches
    3
    """
    settings = JobSettings(
        embedder=default_embedders(embedder), cutting=Cutting.given(n_patches, cutting), recipe=recipe, seed=seed
    )
    return cut_graph(graph, settings.resolved(graph), {} if store is None else store, progress)


def cut_graph(graph: Graph, settings: JobSettings, store: Store, progress: ProgressCallback | None) -> PatchGraph:
    """Cut a graph as resolved settings say, or open the patches that the store has."""
    cutting, motions = settings.cutting, settings.motions
    made_with: dict[str, object] = {"cutting": describe(cutting), "seed": settings.seed}
    if "patch_graph" in store:
        try:
            check_patch_graph(store, {**made_with, "graph": graph_fingerprint(graph)})
            if _is_current(store, "patch_graph", "labels") and _is_current(store, "labels", "clusters"):
                return stored_patch_graph(store).with_settings(settings)
            _log.warning("the graph is cut again: its clusters have changed")
        except FormatError as error:
            _log.warning("the graph is cut again: %s", error)
    with resource_usage() as cost:
        _announce_components(graph, cutting, motions)
        if cutting.n_patches == 1:
            check_n_patches(1, graph.n_nodes)
            patches = PatchGraph([np.arange(graph.n_nodes)], np.empty((0, 2), dtype=np.int64), graph.n_nodes, "each")
        else:
            labels = _labels(graph, cutting, made_with, store, progress)
            report(progress, "partition", 1, 1)
            names = ("degree", "overlap", "edge_weight", "limits")
            options: dict[str, Any] = {name: getattr(cutting, name) for name in names}
            options |= {"components": "error" if motions.free and cutting.components is None else "each"}
            patches = patch_graph(graph, labels, seed=settings.seed, progress=progress, **options)
            if motions.rotate:
                patches.check_dim(settings.dim)
            made_with["labels"] = record_digest(store, "labels")
    keep_patch_graph(store, patches, graph, {**made_with, **cost})
    return patches.with_settings(settings)


def _is_current(store: Store, key: str, source: str) -> bool:
    """Return whether a record, if it is there, was made from another as that is now."""
    named = store[key].parameters.get(source) if key in store else None
    return named is None or source not in store or named == record_digest(store, source)


def _announce_components(graph: Graph, cutting: Cutting, motions: Motions) -> None:
    """Say at once, before the long work, what becomes of a graph in several components, and what else can be done."""
    sizes = np.bincount(graph.components()) if graph.n_nodes else np.ones(1, dtype=np.int64)
    if len(sizes) == 1:
        return
    if not motions.free or cutting.n_patches == 1:
        fate = "all are embedded in one frame. To keep only the largest: --largest-component"
    elif cutting.components == "each":
        fate = "each is aligned alone, and where one lies relative to another is arbitrary"
    else:
        fate = "only a patch that has nodes of two relates them. Keep only the largest (--largest-component), align "
        fate += "each alone (--each-component), or embed all in one frame (--embedder propagation)"
    message = "the graph has %d components, and the largest has %d of %d nodes: %s."
    _log.warning(message, len(sizes), sizes.max(), graph.n_nodes, fate)


def _labels(
    graph: Graph, cutting: Cutting, made_with: dict[str, object], store: Store, progress: ProgressCallback | None
) -> Int64Array:
    """Return the cluster of each node: those of the store, or new ones, which the store then keeps."""
    made_with = made_with | {"graph": graph_fingerprint(graph)}
    partitioner, clusters = cast(Any, cutting.partitioner), None
    if isinstance(partitioner, Multilevel):
        clusters = far_clusters(store, graph, progress)
        made_with["clusters"] = record_digest(store, "clusters")
    record = stored_record(store, "labels", made_with)
    if record is not None:
        return np.asarray(record.arrays["labels"])
    if clusters is not None:
        labels = partitioner.merge(clusters)
    else:
        options = {"progress": progress} if getattr(partitioner, "reports", False) else {}
        labels = partitioner(graph, **options)
    labels = merge_small(graph, labels, smallest_cluster(cast(tuple[int, int], cutting.overlap)))
    store["labels"] = Record({"labels": labels}, made_with)
    return labels


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
        self.dim, self.n_patches, self.embedder = dim, n_patches, embedder
        self.cutting, self.recipe, self.seed = cutting, recipe, seed

    def fit(self, graph: GraphLike, y: object = None) -> GraphQuilt:  # noqa: ARG002
        """Embed a graph: anything that :func:`graphquilt.embed` takes, or a square array of edge weights."""
        options: dict[str, Any] = self.get_params()
        options["recipe"] = Recipe.shared() if self.recipe is None else self.recipe
        self.result_ = embed(_adjacency(graph) if isinstance(graph, np.ndarray) else graph, **options)
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
