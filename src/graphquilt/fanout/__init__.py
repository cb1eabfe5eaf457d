"""Embed every patch on its own, on any executor, and lose nothing that is done."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from graphquilt.consensus import Round
from graphquilt.embedders.contract import Embedder, free_motions
from graphquilt.errors import InputError, JobError, PatchesFailedError
from graphquilt.fanout.calls import describe, of_run, other_settings, patch_seed
from graphquilt.fanout.patches import StoredPatches, embedded_patches
from graphquilt.fanout.run import Run, begin, drive, held
from graphquilt.graph import Graph
from graphquilt.patches import Patch, PatchGraph
from graphquilt.progress import ProgressCallback, report
from graphquilt.records import patch_graph_record, patch_key
from graphquilt.store import Record, Store
from graphquilt.workers import one_thread

__all__ = [
    "StoredPatches",
    "begin",
    "describe",
    "embed_patches",
    "embedded_patches",
    "held",
    "lacking_records",
    "patch_seed",
]


def embed_patches(
    graph: Graph | None,
    patch_graph: PatchGraph,
    embedder: Embedder | Sequence[Embedder],
    *,
    seed: int,
    runs: int = 1,
    executor: Executor | None = None,
    store: Store | None = None,
    progress: ProgressCallback | None = None,
    retries: int = 1,
    only: Iterable[int] | None = None,
    consensus: Round | None = None,
) -> Sequence[Patch]:
    """Embed the induced subgraph of every patch, each with a seed of its own.

    The answer does not depend on the executor, the order, the number of workers, or on whether the work was
    interrupted and resumed.

    Parameters
    ----------
    graph : Graph or None
        None where the store has the data of every patch already.
    patch_graph : PatchGraph
    embedder : Embedder or sequence of Embedder
        One for all patches, or one for each.
    seed : int
        Patch k is embedded with ``patch_seed(seed, k)``.
    runs : int
        Embed every patch so often, with other seeds. The answer has the patches of ``patch_graph.repeat(runs)``, whose
        edges align them. A store that has some of the runs already gets the others. An embedder with an ``init_seed``
        starts run r from ``init_seed + r``: the patches of one run alike, and the runs not.
    executor : concurrent.futures.Executor, optional
        Threads, :class:`graphquilt.workers.Processes`, ``Client(...).get_executor(pure=False)`` of Dask,
        ``MPIPoolExecutor`` of mpi4py; None is a plain loop here.
    store : Store, optional
        Where patches and embeddings are kept. Workers read and write it themselves, what travels through the executor
        is a few numbers a patch. What it holds already, made with the same embedder and seed, is not done again.
    progress : callable, optional
        Called with a :class:`graphquilt.Progress` after each patch (stage ``"patches"``).
    retries : int
        How often a patch that fails is tried again, unless its input is wrong (:class:`graphquilt.errors.InputError`).
    only : iterable of int, optional
        Embed only these patches of the job, for instance the share of one machine; of ``runs * n_patches``.
    consensus : Round, optional
        Which consensus round this is and what each patch of each run is drawn to. With a store, the embeddings of each
        round are kept apart. :func:`graphquilt.embed_in_rounds` does all of them.

    Returns
    -------
    sequence of Patch
        With a store, opened from it when asked for.

    Raises
    ------
    PatchesFailedError
        Some patches failed in every attempt; all others are done, and kept in the store.
    JobError
        The job in the store was made with another graph, embedder or seed; another run is at work on it; or no patch
        can succeed (a full disk, a scheduler that went away).

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from graphquilt.embedders import SVD
    >>> ring = Graph(sp.csr_array(np.roll(np.eye(8), 1, 0) + np.roll(np.eye(8), -1, 0)))
    >>> quilt = PatchGraph([np.arange(5), np.array([0, 1, 4, 5, 6, 7])], np.array([[0, 1]]), 8)
    >>> [patch.coordinates.shape for patch in embed_patches(ring, quilt, SVD(1), seed=0)]
    [(5, 1), (6, 1)]
    """
    given = embedder if isinstance(embedder, Sequence) else [embedder] * patch_graph.n_patches
    if len(given) != patch_graph.n_patches:
        raise InputError(
            f"there are {patch_graph.n_patches} patches and {len(given)} embedders; give one, or one for each."
        )
    repeated = patch_graph.repeat(runs)
    n_patches, embedders = repeated.n_patches, [of_run(one, r) for r in range(runs) for one in given]
    consensus = Round() if consensus is None else consensus
    if consensus.targets is not None and len(consensus.targets) != n_patches:
        raise InputError(f"there are {n_patches} patches and {len(consensus.targets)} targets; give one for each.")
    if len({one.dim for one in embedders}) > 1:
        raise InputError(
            f"the embedders have dims {sorted({one.dim for one in embedders})}; patches need one in common."
        )
    wanted = range(n_patches) if only is None else sorted(set(only))
    if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < n_patches:
        raise InputError(f"only patches 0 to {n_patches - 1} exist; asked are {wanted[0]} to {wanted[-1]}.")
    share = None if only is None else wanted
    run = Run(graph, repeated, embedders, seed, store, n_data=patch_graph.n_patches, consensus=consensus, only=share)
    lacking = partial(
        lacking_records,
        graph=graph,
        patch_graph=patch_graph,
        embedder=embedder,
        seed=seed,
        runs=runs,
        rounds=consensus.of,
    )
    with one_thread(), run.hold:
        begin(store, lacking, run.hold, share)
        for done, facts in enumerate(drive(run, wanted, executor, retries, progress), 1):
            report(progress, "patches", done, len(wanted), values=facts)
        if store is not None and share:
            lacking(store)  # refuses where another share has begun with other settings at the same moment
    if run.failures:
        raise PatchesFailedError(run.failures, n_done=len(wanted) - len(run.failures), kept=store is not None)
    if store is not None:
        return StoredPatches(store, repeated.node_sets, round_number=consensus.number)
    return [run.found[k] for k in wanted]


def lacking_records(
    store: Store,
    *,
    graph: Graph | None,
    patch_graph: PatchGraph,
    embedder: Embedder | Sequence[Embedder],
    seed: int,
    runs: int = 1,
    rounds: int = 0,
) -> dict[str, Record]:
    """Return the records that say what is embedded and how, as far as the store does not have them so.

    Raises
    ------
    JobError
        The store holds another graph, other patches, or embeddings made in another way.
    """
    asked = {
        "patch_graph": patch_graph_record(store, patch_graph, graph),
        "embed": _settings_record(
            store, embedder, n_patches=patch_graph.n_patches, seed=seed, runs=runs, rounds=rounds
        ),
    }
    return {key: record for key, record in asked.items() if record is not None}


def _settings_record(
    store: Store, embedder: Any, *, n_patches: int, seed: int, runs: int, rounds: int
) -> Record | None:
    """Return how the job is embedded; refuse one that has embeddings made otherwise, but for the number of runs."""
    counts = {"runs": runs, "rounds": rounds}
    each = embedder if isinstance(embedder, Sequence) else [embedder]
    said = {"embedder": [describe(one) for one in each] if each is embedder else describe(embedder), "seed": seed}
    kept = store["embed"].parameters if "embed" in store else {}
    if any(kept.get(name) != value for name, value in said.items()):
        begun = range(n_patches * kept.get("runs", 1))
        if kept and any(patch_key(k, "embedding") in store for k in begun):
            raise JobError(
                f"{store} is embedded with {other_settings(kept, said)}. Mixing them would spoil the job: use the "
                "same, or another folder."
            )
        motions = dataclasses.asdict(functools.reduce(operator.or_, (free_motions(one) for one in each)))
        return Record({}, said | {"dim": each[0].dim, "motions": motions} | counts)
    if any(kept.get(name, least) != counts[name] for name, least in (("runs", 1), ("rounds", 0))):
        return Record({}, {**kept, **counts})
    return None
