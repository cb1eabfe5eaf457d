"""Records: settings as plain values, and how patches, far clusters and surveys are kept in a store."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TypeAlias

import numpy as np

import graphquilt
from graphquilt.arrays import AnyArray
from graphquilt.embedders.contract import Embedder
from graphquilt.embedders.shared_start import Survey, shares_start
from graphquilt.errors import FormatError, JobError
from graphquilt.graph import Graph
from graphquilt.graph.files import folder_version, graph_checksums
from graphquilt.jobs.store import Parameters, Record, Store, fingerprint, record_digest, store_name, stored_record
from graphquilt.patches import CoarseGraph, NodeSets, PatchGraph, coarse_graph, fine_clusters, is_large
from graphquilt.progress import ProgressCallback

MakeUnknown: TypeAlias = Callable[[Mapping[str, object]], object]


def describe(value: object) -> dict[str, object]:
    """Return the name and the settings of an object as plain values, or its ``description``.

    The settings are the fields of a dataclass that take part in its comparison, the layers of a network, the code of a
    lambda, or else the public attributes.
    """
    own = getattr(value, "description", None)
    if isinstance(own, Mapping):
        return dict(own)
    if isinstance(value, functools.partial):
        return describe(value.func) | {"args": plain(value.args), "keywords": plain(value.keywords)}
    kind = value if hasattr(value, "__qualname__") else type(value)
    # The module of our own classes is left out: files may move between versions.
    own_module = kind.__module__ or "__main__"  # code that was run by exec has none
    module = "graphquilt" if own_module.startswith("graphquilt.") else own_module
    name: dict[str, object] = {"name": f"{module}.{kind.__qualname__}"}
    if kind.__qualname__.endswith("<lambda>"):
        code: CodeType = getattr(kind, "__code__")  # noqa: B009  (objects have none)
        content = code.co_code + repr((code.co_consts, code.co_names)).encode()
        return name | {"code": fingerprint(np.frombuffer(content, dtype=np.uint8))}
    parameters = getattr(value, "named_parameters", None)
    if parameters is not None:
        return name | {"layers": repr(value), "parameters": {key: [*array.shape] for key, array in parameters()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.compare]
        return name | {field: plain(getattr(value, field)) for field in fields}
    attributes = getattr(value, "__dict__", {})
    return name | {key: plain(item) for key, item in attributes.items() if not key.startswith("_")}


def plain(value: object) -> object:
    """Return a value as JSON can hold it; arrays become a short summary with a fingerprint, infinity becomes a word."""
    if value is None or isinstance(value, bool | int | float | str):
        return str(value) if value in (math.inf, -math.inf) else value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, np.ndarray | np.generic):
        return value.item() if value.ndim == 0 else f"{value.dtype} {value.shape} {fingerprint(value)}"
    return describe(value)


def differences(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Say in which entries two descriptions differ; nested descriptions are compared entry by entry."""
    changes = []
    for name in dict.fromkeys((*before, *now)):
        then, asked = before.get(name), now.get(name)
        if then == asked:
            continue
        if isinstance(then, list) and isinstance(asked, list) and len(then) == len(asked):
            then, asked = next(pair for pair in zip(then, asked, strict=True) if pair[0] != pair[1])
        if isinstance(then, Mapping) and isinstance(asked, Mapping):
            if then.get("name") == asked.get("name"):
                changes.append(differences(then, asked))
                continue
            then, asked = then.get("name"), asked.get("name")
        changes.append(f"{name.replace('_', ' ')} {_brief(then)} (now {_brief(asked)})")
    return ", ".join(dict.fromkeys(changes))


def _brief(value: object) -> str:
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:16]}…"


def restore(description: object, unknown: MakeUnknown) -> object:
    """Return what is described if its class is public here, else what ``unknown`` returns; nothing is ever imported."""
    fields = _mapping(description)
    package, _, name = str(fields["name"]).rpartition(".")
    kind = getattr(graphquilt, name) if package == "graphquilt" and name in dir(graphquilt) else None
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return unknown(fields)
    names = {field.name for field in dataclasses.fields(kind) if field.init}
    missing: list[object] = []  # parts that are not graphquilt's
    values = {name: _value(value, missing.append) for name, value in fields.items() if name in names}
    return unknown(fields) if missing else kind(**values)


def restore_values(parameters: object, unknown: MakeUnknown) -> dict[str, object]:
    """Return plain values by name with tuples for lists, and with the objects of the descriptions among them."""
    return {name: _value(value, unknown) for name, value in _mapping(parameters).items()}


def _value(value: object, unknown: MakeUnknown) -> object:
    if isinstance(value, list):
        return tuple(_value(item, unknown) for item in value)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return restore(value, unknown)
    return float(value) if value in ("inf", "-inf") else value


def _mapping(value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is not a mapping")
    return dict(value)


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
        raise JobError(f"the patches in {store_name(store)} were cut with {changes}. Use another folder.")


def stored_patch_graph(store: Store) -> PatchGraph:
    """Open the patch graph of a store; its node lists stay on disk until they are needed."""
    try:
        record = store["patch_graph"]
    except KeyError:
        raise JobError(f"{store_name(store)} has no patches yet; check the path, or run graphquilt embed.") from None
    return PatchGraph.from_arrays(record.arrays)


def check_embedder(store: Store, embedders: Sequence[Embedder], seed: int, *, named: bool = False) -> None:
    """Refuse a store whose first two embeddings have another embedder or seed; if ``named``, only where they say so."""
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
        name = store_name(store)
        raise JobError(f"{name} is embedded with {changes[0]}. Mixing them would spoil it: use another folder.")


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
    """Survey the whole graph for all patches, or open the survey of the store; None if there is neither."""
    if graph is None or not shares_start(embedder):
        record = stored_record(store, "survey") if shares_start(embedder) else None
        return None if record is None else stored_survey(record)
    clusters = far_clusters(store, graph, progress) if needs_clusters(graph, patch_graph) else None
    record = stored_record(store, "survey", _survey_parameters(store, graph, embedder, seed, patch_graph))
    survey = None if record is None else stored_survey(record)
    if survey is not None and all(array.shape[:1] == (graph.n_nodes,) for array in survey.nodes.values()):
        return survey
    made = embedder.survey(graph, seed, clusters=clusters, cut=patch_graph.n_patches > 1)
    return keep_survey(store, made, graph, patch_graph, made_by=(embedder, seed))


def needs_clusters(graph: Graph, patch_graph: PatchGraph) -> bool:
    """Return whether a survey has far clusters; if a large graph is not cut, its nodes are walked in their order."""
    return patch_graph.n_patches > 1 or is_large(graph)


def _survey_parameters(
    store: Store, graph: Graph, embedder: Embedder, seed: int, patch_graph: PatchGraph
) -> dict[str, object]:
    made_from = {"embedder": describe(embedder), "seed": seed, "graph": graph_fingerprint(graph)}
    clusters = {"clusters": record_digest(store, "clusters")} if needs_clusters(graph, patch_graph) else {}
    return {**made_from, "patches": patch_graph_fingerprint(patch_graph), **clusters}


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
