"""Records: how patches, far clusters and surveys are kept in a store, and their fingerprints."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.embedders.contract import Embedder
from graphquilt.embedders.shared_start import Survey, shares_start
from graphquilt.errors import FormatError, JobError
from graphquilt.graph import Graph
from graphquilt.graph.files import folder_version, graph_checksums
from graphquilt.jobs.description import describe, differences, fingerprint
from graphquilt.jobs.store import Parameters, Record, Store, record_digest, store_name, stored_record
from graphquilt.patches import CoarseGraph, NodeSets, PatchGraph, coarse_graph, fine_clusters, is_large
from graphquilt.progress import ProgressCallback


def patch_key(patch: int, content: str) -> str:
    """Return the key of one patch's record."""
    return f"patches/{patch:05d}/{content}"


def patch_seed(seed: int, patch: int) -> int:
    """Return the seed of one patch: that of child ``patch`` of ``SeedSequence(seed).spawn(p)``, for any p."""
    return int(np.random.SeedSequence(seed, spawn_key=(patch,)).generate_state(1)[0])


def shard_name(only: Sequence[int]) -> str:
    """Return the name of the shard with these patches."""
    return fingerprint(np.array(only, dtype=np.int64))


def graph_version(graph: Graph | None) -> object:
    """Return the version of the files of a graph; None if it is in memory, or if they are gone."""
    with contextlib.suppress(FormatError):
        return None if graph is None or graph.folder is None else folder_version(graph.folder)
    return None


def graph_fingerprint(graph: Graph) -> str:
    """Return the fingerprint of the checksums that :meth:`Graph.save` writes; those of a graph folder are known."""
    content = {"directed": graph.directed, "arrays": graph_checksums(graph)}
    return fingerprint(np.frombuffer(json.dumps(content, sort_keys=True).encode(), dtype=np.uint8))


def patch_graph_fingerprint(patch_graph: PatchGraph) -> str:
    """Return the fingerprint of node sets and patch edges, whatever the type of the node ids."""
    sets = patch_graph.node_sets
    if not isinstance(sets, NodeSets):
        sets = NodeSets.gather(sets)
    return fingerprint(sets.starts, sets.nodes, patch_graph.edges, wide=True)


def keep_patch_graph(
    store: Store, patches: PatchGraph, graph: Graph | None, settings: dict[str, object] | None = None
) -> None:
    """Write the patch graph to a store; without ``settings``, refuse if the store has another one."""
    parameters: dict[str, object] = {"patches": patch_graph_fingerprint(patches), **(settings or {})}
    if graph is not None:
        parameters["graph"] = graph_fingerprint(graph)
    if settings is None and "patch_graph" in store:
        check_patch_graph(store, parameters)
    else:
        store["patch_graph"] = Record(patches.to_arrays(), parameters)


def check_patch_graph(store: Store, made_from: Parameters) -> None:
    """Refuse a store whose patches were made from another graph, or with other settings, as far as it says."""
    stored = store["patch_graph"].parameters
    known = {name: value for name, value in made_from.items() if name in stored}
    changes = differences({name: stored[name] for name in known}, known)
    if changes:
        raise JobError(
            f"the patches in {store_name(store)} were cut with {changes}. Use the same graph and settings, or another "
            "folder."
        )


def stored_patch_graph(store: Store) -> PatchGraph:
    """Open the patch graph of a store; its node lists stay on disk until they are needed."""
    try:
        record = store["patch_graph"]
    except KeyError:
        raise JobError(
            f"{store_name(store)} has no patches yet; check the path, or make them (graphquilt embed)."
        ) from None
    return PatchGraph.from_arrays(record.arrays)


def check_embedder(store: Store, embedders: Sequence[Embedder], seed: int, *, named: bool = False) -> None:
    """Refuse a store whose first two embeddings were made by another embedder or seed; one odd patch is made again.

    With ``named``, embeddings that do not say what made them are left alone: they can be stitched.
    """
    changes: list[str] = []
    for patch, embedder in enumerate(embedders):
        record = stored_record(store, patch_key(patch, "embedding"))
        if record is None or (named and "embedder" not in record.parameters):
            continue
        name = f"seed of patch {patch}"
        before = {"embedder": record.parameters.get("embedder"), name: record.parameters.get("seed")}
        changes.append(differences(before, {"embedder": describe(embedder), name: patch_seed(seed, patch)}))
        if not changes[-1]:
            return
        if len(changes) == 2:
            break
    if changes:
        raise JobError(
            f"{store_name(store)} is embedded with {changes[0]}. Mixing them would spoil the job: use the "
            "same settings, or another folder."
        )


@dataclass(frozen=True, eq=False)
class StoredSurvey(Survey):
    """A survey, and the digest of its record."""

    digest: str = ""


def far_clusters(store: Store, graph: Graph, progress: ProgressCallback | None = None) -> CoarseGraph:
    """Return the fine clusters of a graph: those of the store, or new ones, which it then keeps."""
    made_from = {"graph": graph_fingerprint(graph)}
    record = stored_record(store, "clusters", made_from)
    if record is not None:
        with contextlib.suppress(FormatError):
            return CoarseGraph.from_arrays(record.arrays, graph.n_nodes)
    coarse = coarse_graph(graph.undirected(), fine_clusters(graph.undirected(), progress=progress))
    store["clusters"] = Record(coarse.to_arrays(), made_from)
    return coarse


def survey_graph(
    store: Store,
    graph: Graph | None,
    embedder: Embedder,
    seed: int,
    patch_graph: PatchGraph,
    *,
    progress: ProgressCallback | None = None,
) -> StoredSurvey | None:
    """Survey the whole graph once for all patches, or open the survey that the store has.

    The survey also has ``patches``, the number of patches that each node is in. Return None if the embedder makes no
    survey, or if there is neither a graph nor a survey of it.
    """
    if not shares_start(embedder):
        return None
    clusters = None
    if graph is not None and needs_clusters(graph, patch_graph):
        clusters = far_clusters(store, graph, progress)
    record = stored_record(store, "survey", _survey_parameters(store, graph, embedder, seed, patch_graph))
    if record is not None:
        survey = stored_survey(record)
        if graph is None or all(array.shape[:1] == (graph.n_nodes,) for array in survey.nodes.values()):
            return survey
    if graph is None:
        return None
    made = embedder.survey(graph, seed, clusters=clusters, cut=patch_graph.n_patches > 1)
    return keep_survey(store, made, graph, patch_graph, made_by=(embedder, seed))


def needs_clusters(graph: Graph, patch_graph: PatchGraph) -> bool:
    """Return whether a survey has far clusters; if a large graph is not cut, its nodes are walked in their order."""
    return patch_graph.n_patches > 1 or is_large(graph)


def _survey_parameters(
    store: Store, graph: Graph | None, embedder: Embedder, seed: int, patch_graph: PatchGraph
) -> dict[str, object]:
    parameters: dict[str, object] = {"embedder": describe(embedder), "seed": seed}
    parameters["patches"] = patch_graph_fingerprint(patch_graph)
    if graph is not None:
        parameters["graph"] = graph_fingerprint(graph)
        if needs_clusters(graph, patch_graph):
            parameters["clusters"] = record_digest(store, "clusters")
    return parameters


def keep_survey(
    store: Store, survey: Survey, graph: Graph, patch_graph: PatchGraph, *, made_by: tuple[Embedder, int]
) -> StoredSurvey:
    """Write a survey to a store, with the number of patches that each node is in."""
    counts = np.zeros(graph.n_nodes, dtype=np.uint16)  # they stop at 65 535
    for members in patch_graph.node_sets:
        counts[members] += counts[members] < np.iinfo(counts.dtype).max
    arrays = {f"node_{name}": array for name, array in sorted({**survey.nodes, "patches": counts}.items())}
    arrays |= {f"shared_{name}": array for name, array in sorted(survey.shared.items())}
    store["survey"] = Record(arrays, _survey_parameters(store, graph, *made_by, patch_graph))
    return stored_survey(store["survey"])


def stored_survey(record: Record) -> StoredSurvey:
    """Return the survey that a record has."""
    parts: dict[str, dict[str, AnyArray]] = {"node": {}, "shared": {}}
    for name, array in record.arrays.items():
        kind, _, rest = name.partition("_")
        parts.setdefault(kind, {})[rest] = array
    return StoredSurvey(parts["node"], parts["shared"], record.digest)
