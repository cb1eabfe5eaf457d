"""embed(): the whole way from a graph to its embedding in one call."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from graphquilt.alignment import Alignment
from graphquilt.arrays import FloatArray
from graphquilt.embedders import Embedder, Propagation
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.jobs.job import Job
from graphquilt.jobs.settings import JobSettings
from graphquilt.patches import Patch, PatchGraph
from graphquilt.pipeline import Cutting, Recipe, Store
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
    """

    embedding: FloatArray
    patch_graph: PatchGraph
    patches: Sequence[Patch]
    alignment: Alignment

    def __repr__(self) -> str:
        nodes, dim = self.embedding.shape
        return f"QuiltResult({nodes} nodes, dim={dim}, {self.patch_graph!r}, {self.alignment!r})"


def embed(
    graph: Graph,
    dim: int,
    *,
    n_patches: int | None = None,
    embedder: Embedder | Sequence[Embedder] | None = None,
    cutting: Cutting | None = None,
    recipe: Recipe = Recipe.shared(),
    seed: int = 0,
    executor: Executor | None = None,
    store: Store | None = None,
    progress: ProgressCallback | None = None,
) -> QuiltResult:
    """Embed a graph from patches: cut it, embed every patch, stitch.

    It runs a :class:`graphquilt.Job`, as ``graphquilt run`` does. To change what lies between the steps, call
    :func:`graphquilt.cut`, :func:`graphquilt.embed_patches` and :func:`graphquilt.stitch` yourself.

    Parameters
    ----------
    graph : Graph
        Connected; see :meth:`graphquilt.Graph.largest_component`.
    dim : int
    n_patches : int, optional
        The short form of ``cutting=Cutting(n_patches)``; 10 by default.
    embedder : Embedder or sequence of Embedder, optional
        By default :class:`graphquilt.Propagation`. Its ``motions`` decide which motions alignment undoes.
    cutting : Cutting, optional
        Partitioner, degree, overlap, edge weight and limits.
    recipe : Recipe
        How often to train, what to trust, how to align; by default every patch is trained once, with the embedder as it
        is. With one patch, runs are an ensemble of embeddings of the whole graph.
    seed : int
        Seed of all random choices.
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
    >>> ring = Graph(sp.csr_array(np.roll(np.eye(90), 1, 0) + np.roll(np.eye(90), -1, 0)))
    >>> embed(ring, dim=2, n_patches=3).embedding.shape
    (90, 2)
    """
    if n_patches is not None and cutting is not None:
        raise InputError(f"give n_patches ({n_patches}) or cutting ({cutting}), not both.")
    model = Propagation(dim) if embedder is None else embedder
    settings = JobSettings(
        embedder=tuple(model) if isinstance(model, Sequence) else model,
        cutting=cutting or Cutting(10 if n_patches is None else n_patches),
        recipe=recipe,
        seed=seed,
    )
    if settings.dim != dim:
        raise InputError(f"dim is {dim}, and {model!r} embeds in {settings.dim} dimensions; make them equal.")
    job = Job.begin({} if store is None else store, settings, graph)
    job.run(executor=executor, progress=progress)
    repeated = job.patch_graph.repeat(job.settings.recipe.runs)
    return QuiltResult(job.embedding, repeated, job.patches, job.alignment)
