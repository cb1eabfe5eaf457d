"""embed(): the whole way from a graph to its embedding in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor

import numpy.typing as npt

from graphquilt.embedders.adapters import EmbedderLike
from graphquilt.embedders.contract import embedder_name
from graphquilt.errors import InputError
from graphquilt.graph import read_edges
from graphquilt.graph.files import with_checksums
from graphquilt.graph.reading.edges import GraphLike
from graphquilt.jobs.choosing import choose_signal
from graphquilt.jobs.cutting import Cutting
from graphquilt.jobs.job import Job
from graphquilt.jobs.patch_embedding import embed_patches
from graphquilt.jobs.recipe import Recipe
from graphquilt.jobs.result import Result
from graphquilt.jobs.settings import JobSettings, default_embedders
from graphquilt.jobs.source import Source
from graphquilt.jobs.steps import cut_graph, stitch
from graphquilt.jobs.store import Store
from graphquilt.progress import ProgressCallback


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
    store: Store | None = None,
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
        The short form of ``cutting=Cutting(n_patches)``; by default it follows from the size of the graph.
    embedder : Embedder, function, object with ``fit_transform``, or sequence of these, optional
        By default :class:`graphquilt.Propagation`, which uses features if the graph has any. See
        :func:`graphquilt.embedders.as_embedder`. Its ``motions`` decide which motions alignment undoes.
    cutting : Cutting, optional
        Partitioner, degree, overlap, edge weight and limits.
    recipe : Recipe
        Training runs, row weights and alignment options; by default ``Recipe.shared()``.
        With one patch, runs are an ensemble of embeddings of the whole graph.
    seed : int
        Seed of all random choices.
    choose_by : int array (n,), optional
        The class of each node, -1 for none: cross-validation among these labels chooses the signal of
        :class:`graphquilt.Propagation`. Do not evaluate on the same labels.
    executor : concurrent.futures.Executor, optional
        Works on the embeddings and on the comparison of overlaps.
    store : Store, optional
        Keeps every result, and resumes an earlier run. With a :class:`graphquilt.DirectoryStore` the command line can
        resume the job too. Without a store everything stays in memory.
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
    in_file = isinstance(graph, str | os.PathLike)
    records: Store = {} if store is None else store
    embedders = default_embedders(embedder, dim)
    if choose_by is not None:
        graph, in_file = read_edges(graph), False
        if isinstance(embedders, tuple):
            raise InputError("labels choose the signal of one embedder for all patches; there is one for each.")
        embedders = choose_signal(records, graph, embedders, choose_by, seed=seed)
    settings = JobSettings(
        embedder=embedders,
        cutting=Cutting.given(n_patches, cutting),
        recipe=recipe,
        seed=seed,
        source=Source(path=os.fspath(graph)) if isinstance(graph, str | os.PathLike) else Source(),
    )
    if dim is not None and settings.dim != dim:
        name = embedder_name(settings.embedders[0])
        raise InputError(f"dim is {dim}, and {name} embeds in {settings.dim} dimensions; make them equal.")
    if store is not None:
        job = Job.begin(store, settings, None if in_file else read_edges(graph))
        job.run(executor=executor, progress=progress)
        return Result.of(job)
    whole = with_checksums(settings.source.read() if in_file else read_edges(graph))
    patch_graph = cut_graph(whole, settings.resolved(whole), records, progress)
    patches = embed_patches(whole, patch_graph, executor=executor, store=records, progress=progress)
    alignment, X = stitch(patch_graph, patches, executor=executor, progress=progress)
    return Result(
        X, patch_graph.repeat(alignment.n_patches // patch_graph.n_patches), patches, alignment, whole.node_ids
    )
