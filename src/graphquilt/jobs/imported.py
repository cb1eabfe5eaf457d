"""Jobs of patches that were embedded elsewhere: vector files, dicts, or pairs of ids and coordinates."""

from __future__ import annotations

from concurrent.futures import Executor

import numpy as np

from graphquilt.alignment import PatchesLike
from graphquilt.alignment.patch_index import check_connected, number_patches
from graphquilt.errors import JobError
from graphquilt.jobs.description import fingerprint
from graphquilt.jobs.job import Job
from graphquilt.jobs.options import Recipe
from graphquilt.jobs.records import keep_patch_graph, patch_graph_fingerprint, patch_key, patch_seed
from graphquilt.jobs.result import Result
from graphquilt.jobs.settings import JobSettings, UnavailableEmbedder
from graphquilt.jobs.store import Record, Store, locked, store_name
from graphquilt.linalg import Motions
from graphquilt.patches.graph import PatchGraph, overlapping_pairs
from graphquilt.progress import ProgressCallback

ALIGN_DEFAULTS = Recipe("align", start=False, motions=Motions(scale=True))  # how they were embedded is unknown


def align_files(
    patches: PatchesLike,
    *,
    recipe: Recipe = ALIGN_DEFAULTS,
    store: Store | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> Result:
    """Align embeddings that exist already, from files or memory, and average them, as ``graphquilt align`` does.

    Parameters
    ----------
    patches : sequence or dict of patches
        Each is the path of a file with ids and vectors (word2vec text, CSV, Parquet, ``.npz``, or ``.npy`` with ids
        beside it), a dict of names to vectors, or a pair of ids (k,) and coordinates (k, d). Two that share at least
        d + 1 ids are compared.
    recipe : Recipe
        How they are aligned; by default scale, rotation and translation of each are free.
    store, executor, progress
        As for :func:`graphquilt.embed`.

    Returns
    -------
    Result
        One row per id; ``node_ids`` holds the ids.

    Examples
    --------
    >>> one = {"ann": [0.0, 0.0], "bob": [1.0, 0.0], "eve": [0.0, 2.0], "joe": [3.0, 3.0]}
    >>> two = {name: [5 - 2 * y, 2 * x] for name, (x, y) in one.items() if name != "joe"} | {"kim": [9.0, 9.0]}
    >>> result = align_files([one, two])
    >>> result.node_ids.tolist(), result.embedding.shape
    (['ann', 'bob', 'eve', 'joe', 'kim'], (5, 2))
    """
    job = import_patches({} if store is None else store, patches, recipe)
    alignment = job.stitch(executor=executor, progress=progress)
    ids = job.store["node_ids"].arrays["node_ids"]
    return Result(job.embedding, job.patch_graph, job.patches, alignment, np.asarray(ids))


def import_patches(store: Store, patches: PatchesLike, recipe: Recipe = ALIGN_DEFAULTS) -> Job:
    """Make a job of embedded patches, or resume the one in the store; a job of other patches is refused."""
    numbered = number_patches(patches)
    dim = numbered.patches[0].dim
    sets = [np.sort(patch.nodes) for patch in numbered.patches]
    pairs = overlapping_pairs(sets, dim + 1)
    check_connected(pairs, numbered.names, node_sets=sets, dim=dim)
    patch_graph = PatchGraph.from_patches(sets, pairs.tolist(), n_nodes=len(numbered.ids))
    described: dict[str, object] = {"name": "files", "patches": numbered.names}
    patches_digest = patch_graph_fingerprint(patch_graph)
    with locked(store):
        keep_patch_graph(store, patch_graph, None)
        store["node_ids"] = Record({"node_ids": numbered.ids}, {})
        for k, patch in enumerate(numbered.patches):
            key, X = patch_key(k, "embedding"), np.asarray(patch.coordinates)[np.argsort(patch.nodes)]
            if key not in store:
                made_with = {"embedder": described, "seed": patch_seed(0, k), "patches": patches_digest}
                store[key] = Record({"embedding": X}, made_with)
            elif fingerprint(store[key].arrays["embedding"]) != fingerprint(X):
                raise JobError(f"{store_name(store)} has other coordinates for patch {k}. Use another folder.")
    return Job.begin(
        store, JobSettings(embedder=UnavailableEmbedder(described, dim, Motions(scale=True)), recipe=recipe)
    )
