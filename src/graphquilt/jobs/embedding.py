"""embed(): the whole way from a graph to its embedding in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy.typing as npt

from graphquilt.alignment import Alignment
from graphquilt.arrays import AnyArray, FloatArray
from graphquilt.embedders import Propagation
from graphquilt.embedders.adapters import EmbedderLike, as_embedder
from graphquilt.embedders.contract import embedder_name
from graphquilt.errors import InputError
from graphquilt.graph import read_edges
from graphquilt.graph.reading.edges import GraphLike
from graphquilt.jobs.choosing import choose_signal
from graphquilt.jobs.cutting import Cutting
from graphquilt.jobs.job import Job
from graphquilt.jobs.recipe import Recipe
from graphquilt.jobs.settings import JobSettings
from graphquilt.jobs.source import Source
from graphquilt.jobs.store import Store
from graphquilt.patches import Patch, PatchGraph
from graphquilt.progress import ProgressCallback

__all__ = ["QuiltResult", "embed"]


@dataclass(frozen=True, eq=False)
class QuiltResult:
    """What :func:`embed` returns.

    Attributes
    ----------
    embedding : float array (n, dim)
        Row u is the place of node u.
    patch_graph : PatchGraph
        The patches of all runs; its edges are those that were aligned.
    patches : sequence of Patch
        The patches of all runs as they were embedded last, before alignment.
    alignment : Alignment
    node_ids : array (n,) or None
        The ids that the nodes came with, in the order of the rows; None where they are 0..n-1.
    """

    embedding: FloatArray
    patch_graph: PatchGraph
    patches: Sequence[Patch]
    alignment: Alignment
    node_ids: AnyArray | None = None

    def __repr__(self) -> str:
        nodes, dim = self.embedding.shape
        return f"QuiltResult({nodes} nodes, dim={dim}, {self.patch_graph!r}, {self.alignment!r})"


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
) -> QuiltResult:
    """Embed a graph from patches: cut it, embed every patch, stitch.

    It runs a :class:`graphquilt.Job`, as ``graphquilt run`` does. To change what lies between the steps, call
    :func:`graphquilt.cut`, :func:`graphquilt.embed_patches` and :func:`graphquilt.stitch` yourself.

    Parameters
    ----------
    graph : Graph, PyG Data, NetworkX graph, SciPy sparse matrix, array or list of edges, DataFrame, or path
        See :func:`graphquilt.read_edges`.
    dim : int, optional
        By default that of the embedder, or 64.
    n_patches : int, optional
        The short form of ``cutting=Cutting(n_patches)``; by default it follows from the size of the graph.
    embedder : Embedder, function, object with ``fit_transform``, or sequence of these, optional
        By default :class:`graphquilt.Propagation`, which uses features where the graph has any. See
        :func:`graphquilt.embedders.as_embedder`. Its ``motions`` decide which motions alignment undoes.
    cutting : Cutting, optional
        Partitioner, degree, overlap, edge weight and limits.
    recipe : Recipe
        How often to train, what to trust, how to align; by default every patch is trained once, with the embedder as it
        is. With one patch, runs are an ensemble of embeddings of the whole graph.
    seed : int
        Seed of all random choices.
    choose_by : int array (n,), optional
        The class of each node, -1 for none: cross-validation among these labels chooses the signal of
        :class:`graphquilt.Propagation`. Do not evaluate on the same labels.
    executor : concurrent.futures.Executor, optional
        Works on the embeddings and on the comparison of overlaps.
    store : Store, optional
        Keeps everything, and resumes what it has. With a :class:`graphquilt.DirectoryStore` the command line can go on
        with the job. Without a store everything stays in memory.
    progress : callable, optional

    Returns
    -------
    QuiltResult

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> ring = sp.csr_array(np.roll(np.eye(90), 1, 0) + np.roll(np.eye(90), -1, 0))
    >>> embed(ring, dim=2, n_patches=3).embedding.shape
    (90, 2)
    """
    if n_patches is not None and cutting is not None:
        raise InputError(f"give n_patches ({n_patches}) or cutting ({cutting}), not both.")
    given = [embedder] if not isinstance(embedder, Sequence) or isinstance(embedder, str) else embedder
    models = tuple(Propagation(64 if dim is None else dim) if one is None else as_embedder(one, dim) for one in given)
    in_file = isinstance(graph, str | os.PathLike)
    store = {} if store is None else store
    if choose_by is not None:
        graph, in_file = read_edges(graph), False
        models = (choose_signal(store, graph, models[0], choose_by, seed=seed),)
    settings = JobSettings(
        embedder=models if isinstance(embedder, Sequence) else models[0],
        cutting=cutting or Cutting(n_patches),
        recipe=recipe,
        seed=seed,
        source=Source(path=os.fspath(graph)) if isinstance(graph, str | os.PathLike) else Source(),
    )
    if dim is not None and settings.dim != dim:
        name = embedder_name(models[0])
        raise InputError(f"dim is {dim}, and {name} embeds in {settings.dim} dimensions; make them equal.")
    job = Job.begin(store, settings, None if in_file else read_edges(graph))
    job.run(executor=executor, progress=progress)
    repeated = job.patch_graph.repeat(job.settings.recipe.runs)
    ids = None if job.graph is None else job.graph.node_ids
    return QuiltResult(job.embedding, repeated, job.patches, job.alignment, ids)
