"""The stages of a job on disk: each does what is missing, keeps what it makes, and refuses what would not fit."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from graphquilt.alignment import Alignment, AlignOptions, align, align_hierarchical, centroid, refine
from graphquilt.arrays import Float64Array
from graphquilt.errors import FormatError, JobError
from graphquilt.fanout import embedded_patches
from graphquilt.files import beside, explained
from graphquilt.graph import Graph
from graphquilt.linalg.motions import Motions
from graphquilt.partition import Partitioner, merge_small
from graphquilt.patches import PatchGraph, coverage_weights, patch_graph
from graphquilt.patches.sparsify import EdgeWeight
from graphquilt.pipeline import default_degree, default_overlap
from graphquilt.progress import ProgressCallback, report
from graphquilt.records import (
    alignment_of,
    alignment_record,
    embedded_counts,
    embedded_patch_graph,
    embedding_record,
    fingerprint,
    graph_record,
    job_graph,
    keep_graph,
    keep_node_ids,
    keep_patch_graph,
    kept_embedding,
    kept_patch_graph,
    patch_key,
)
from graphquilt.store import DirectoryStore

__all__ = ["align_job", "cut_patches", "in_words", "job_graph", "job_status", "keep_graph", "make_patches"]


def make_patches(
    store: DirectoryStore,
    graph: Graph,
    partitioner: Partitioner,
    *,
    n_patches: int,
    dim: int,
    degree: float | None = None,
    overlap: tuple[int, int] | None = None,
    edge_weight: EdgeWeight | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> PatchGraph:
    """Make the patches of a job, or open those that it has, if they were made in the same way."""
    overlap = overlap or default_overlap(dim, graph.n_nodes, n_patches)
    degree = default_degree(n_patches) if degree is None else degree
    made_with = {
        "partitioner": repr(partitioner),
        "n_patches": n_patches,
        "dim": dim,
        "degree": degree,
        "overlap": list(overlap),
        "edge_weight": repr(edge_weight),
        "seed": seed,
    }
    if "patch_graph" in store:
        kept = store["patch_graph"].parameters["made_with"]
        for name, value in made_with.items():
            if kept.get(name) != value:
                raise JobError(
                    f"the patches in {store.path} were made with {name} {kept.get(name)}; asked is {value}. Use "
                    "another folder, or ask for the same."
                )
        return kept_patch_graph(store)
    labels = partitioner(graph)
    report(progress, "partition", 1, 1)
    labels = merge_small(graph, labels, -(-overlap[0] // 2))
    quilt = patch_graph(
        graph, labels, degree=degree, overlap=overlap, edge_weight=edge_weight, seed=seed, progress=progress
    )
    quilt.check_dim(dim)
    keep_patch_graph(store, quilt, graph, made_with)
    return quilt


def cut_patches(
    store: DirectoryStore, graph: Graph, quilt: PatchGraph, progress: ProgressCallback | None = None
) -> None:
    """Write the data of every patch, so that each can be embedded where the graph is not."""
    for k, nodes in enumerate(quilt.node_sets):
        if patch_key(k, "graph") not in store:
            store[patch_key(k, "graph")] = graph_record(nodes, graph.subgraph(nodes))
        report(progress, "patch data", k + 1, quilt.n_patches)


def align_job(
    store: DirectoryStore,
    *,
    scale: bool | None = None,
    rotate: bool | None = None,
    translate: bool | None = None,
    robust: bool = False,
    branching: int | None = None,
    coverage: float | None = None,
    sweeps: int | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> Alignment:
    """Align the embedded patches of a job and keep ``alignment.npz``, ``embedding.npy`` and ``node_ids.parquet``.

    The patches are those of all runs, as the last consensus round left them.

    Parameters
    ----------
    scale, rotate, translate : bool, optional
        Which motions to undo; by default those that the embedder leaves free.
    branching : int, optional
        Align level by level, so many patches at a time; see :func:`graphquilt.align_hierarchical`.
    coverage : float, optional
        The power of the coverage that each row counts with, in overlaps (but not with ``branching``) and centroid; by
        default that of the job's recipe.
    sweeps : int, optional
        Of :func:`graphquilt.refine`; by default the job's recipe's.
    """
    quilt, counts = embedded_patch_graph(store), embedded_counts(store)
    if "embed" not in store:
        raise JobError(f"{store.path} is not embedded yet; do that first (graphquilt embed).")
    settings, last = store["embed"].parameters, counts["rounds"]
    missing = [k for k in range(quilt.n_patches) if patch_key(k, "embedding", last) not in store]
    if missing:
        done = in_words(_embedded(store, quilt.n_patches, last), quilt.n_patches)
        raise JobError(
            f"{len(missing)} of {quilt.n_patches} patches are not embedded yet, the first is {missing[0]} ({done}); "
            "finish them first (graphquilt embed)."
        )
    free = dict(settings.get("motions", dataclasses.asdict(Motions())))
    asked = {"scale": scale, "rotate": rotate, "translate": translate}
    free |= {name: value for name, value in asked.items() if value is not None}
    options = AlignOptions(motions=Motions(**free), robust=robust)
    recipe = store["recipe"].parameters if "recipe" in store else {}
    coverage = recipe.get("coverage", 0.0) if coverage is None else coverage
    sweeps = recipe.get("refine", 0) if sweeps is None else sweeps
    weights = _coverage(store, quilt, coverage)
    patches = embedded_patches(store)
    if branching is None:
        alignment = align(patches, quilt.edges, options=options, weights=weights, executor=executor, progress=progress)
    else:
        alignment = align_hierarchical(patches, quilt.edges, options=options, branching=branching, executor=executor)
    alignment = refine(patches, alignment, sweeps=sweeps, weights=weights, motions=options.motions)
    said = {**free, "robust": robust, "refine": sweeps, "branching": branching, "coverage": coverage, **counts}
    record = alignment_record(alignment, said)
    keep_node_ids(store, job_graph(store), quilt.n_nodes)  # first: the embedding is what tells that all is there
    store["alignment"] = record
    with _on_disk(store, (quilt.n_nodes, alignment.dim)) as X:
        centroid(patches, alignment, n_nodes=quilt.n_nodes, weights=weights, out=X)
        store["embedding"] = embedding_record(X, record)
    report(progress, "embedding", 1, 1)
    return alignment


def _coverage(store: DirectoryStore, quilt: PatchGraph, power: float) -> list[Float64Array] | None:
    if power == 0:
        return None
    graph = job_graph(store)
    if graph is None:
        raise JobError(f"{store.path} has no graph to count the coverage of its patches in; align it with coverage 0.")
    return coverage_weights(graph, quilt, power=power)


@contextlib.contextmanager
def _on_disk(store: DirectoryStore, shape: tuple[int, int]) -> Iterator[Float64Array]:
    """Lend an array that lives in a file, because that of a large graph does not fit into memory."""
    with beside(store.path / "centroid.npy") as part:
        with explained(store.path):
            X = np.lib.format.open_memmap(part, mode="w+", dtype=np.float64, shape=shape)
        yield X


def job_status(store: DirectoryStore, *, verify: bool = False) -> dict[str, Any]:
    """Say what a job holds and what it lacks.

    Parameters
    ----------
    verify : bool
        Read every file and compare it with its checksum.

    Returns
    -------
    dict
        ``stages``, the parameters of each; ``embedded``, how many patches are there in round 0 and each consensus round
        after it, of the ``wanted`` in each; ``next``, the command that comes next; and what else there is to say.
    """
    if not (store.path / "quilt.json").exists():
        raise JobError(f"{store.path} is not a job: there is no quilt.json in it.")
    status: dict[str, Any] = {"job": str(store.path), "stages": {}}
    for name in ("source", "patch_graph", "recipe", "embed", "alignment", "embedding", "evaluation"):
        try:
            status["stages"][name] = dict(store[name].parameters)
        except KeyError:
            status["stages"][name] = None
        except FormatError as error:
            status["stages"][name] = {"damaged": str(error)}
    if not status["stages"]["patch_graph"] or "damaged" in status["stages"]["patch_graph"]:
        return status
    quilt = kept_patch_graph(store)
    status["patches"] = quilt.summary()
    counts = embedded_counts(store)
    n_patches, rounds = counts["runs"] * quilt.n_patches, counts["rounds"]
    status["embedded"] = _embedded(store, n_patches, rounds)
    status["wanted"] = n_patches
    if verify:
        every = [patch_key(k, "graph") for k in range(quilt.n_patches)]
        every += [patch_key(k, "embedding") for k in range(n_patches)]
        for t in range(1, rounds + 1):
            every.append(f"rounds/{t}/consensus")
            every += [patch_key(k, what, t) for k in range(n_patches) for what in ("target", "embedding")]
        status["damaged"] = [why for key in every for why in _damage(store, key)]
    if status["stages"]["evaluation"] and not _is_of(status["stages"]["evaluation"].pop("embedding", None), store):
        status["stages"]["evaluation"] = {"of": "an earlier embedding", **status["stages"]["evaluation"]}
    if status["stages"]["alignment"] and "damaged" not in status["stages"]["alignment"]:
        status["fit"] = alignment_of(store["alignment"]).summary().splitlines()
    status["next"] = _next(store, status, n_patches)
    return status


def _embedded(store: DirectoryStore, n_patches: int, rounds: int) -> list[int]:
    """Count the embedded patches of each round, the first embedding being round 0."""
    return [sum(patch_key(k, "embedding", t) in store for k in range(n_patches)) for t in range(rounds + 1)]


def in_words(embedded: Sequence[int], wanted: int) -> str:
    """Say how many patches are embedded, round by round.

    Examples
    --------
    >>> in_words([12], 12), in_words([12, 4], 12)
    ('12 of 12', 'round 0: 12 of 12, round 1: 4 of 12')
    """
    counts = [f"{n} of {wanted}" for n in embedded]
    return counts[0] if len(counts) == 1 else ", ".join(f"round {t}: {said}" for t, said in enumerate(counts))


def _is_of(measured: str | None, store: DirectoryStore) -> bool:
    """Say whether this is the fingerprint of the job's embedding; evaluations of older jobs have none."""
    try:
        return measured is None or measured == fingerprint(store["embedding"].arrays["embedding"])
    except (KeyError, FormatError):
        return False


def _damage(store: DirectoryStore, key: str) -> Iterator[str]:
    try:
        store[key]
    except KeyError:
        return
    except FormatError as error:
        yield str(error)


def _next(store: DirectoryStore, status: dict[str, Any], n_patches: int) -> str:
    if status["embedded"][-1] < n_patches:
        return "graphquilt embed"
    try:
        kept_embedding(store)
    except (JobError, FormatError):
        return "graphquilt align"
    return "nothing"
