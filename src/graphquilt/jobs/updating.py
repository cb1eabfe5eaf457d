"""update(): bring a job up to date with a graph that has changed, and embed only what has changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import MutableMapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import cast

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, BoolArray, Float64Array, FloatArray, Int64Array, IntArray
from graphquilt.embedders import Propagation
from graphquilt.embedders.shared_start import Survey, shares_start
from graphquilt.errors import InputError
from graphquilt.graph import Graph, read_edges
from graphquilt.graph.files import with_checksums
from graphquilt.graph.reading.node_tables import NodeRows, NodeVectors, open_features
from graphquilt.jobs import records, versions
from graphquilt.jobs.changes import Change, Known, edge_change, whole_change
from graphquilt.jobs.export import job_ids
from graphquilt.jobs.job import Job
from graphquilt.jobs.records import patch_key
from graphquilt.jobs.source import Source, keep_graph
from graphquilt.jobs.stitching import stitch
from graphquilt.jobs.store import (
    HISTORY,
    NEXT,
    UPDATE,
    DirectoryStore,
    Record,
    Store,
    locked,
    put_in_place,
    record_digest,
    store_folder,
    stored_record,
)
from graphquilt.jobs.versions import FRAME, Update
from graphquilt.kernels import one_blas_thread
from graphquilt.linalg import nearest_orthogonal
from graphquilt.patches import CoarseGraph, PatchGraph, coarse_graph, join_neighbours
from graphquilt.progress import ProgressCallback

TOLERANCE = 0.01  # of the weight of a patch's edges: with less, only what is in the home of a change is embedded again
FAR = 0.05  # of the weight of a far cluster's edges: with more, its average is made again; of all edges: everything


def update(
    job: Job | Store | str | os.PathLike[str],
    graph: object = None,
    *,
    add: object = None,
    remove: object = None,
    features: NodeRows | None = None,
    refresh: bool = False,
    anyway: bool = False,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> Update:
    """Bring a job up to date with a graph that has changed. Nodes keep their rows, and the embedding its frame.

    New nodes join the patch that most of their neighbours are in. A patch is embedded again if it gains more than 1 %
    of its nodes, loses a node, or if changes since it was embedded exceed 1 % of the weight of its edges. All others
    stay, bit for bit; the few new nodes that they would gain join the best of the patches that are embedded again. The
    job keeps its old version until the new one is whole.

    Parameters
    ----------
    job : Job, store or path
        A finished job with its graph; of a store in memory, the job that has the graph, such as ``Result.job``.
    graph : Graph, path, or anything that :func:`graphquilt.read_edges` takes, optional
        The new state of the whole graph. Nodes that are not in it are gone: they keep their row, at the origin, and are
        left out of neighbours, links and export. One that comes back gets its row again, and is otherwise new.
    add, remove : the same, optional
        Instead of ``graph``, edges that came or went. A node that loses its last edge is gone.
    features : table with ids, optional
        Features of new nodes, or other features of old ones. New nodes without features have zeros.
    refresh : bool
        Make everything again, with new directions, and turn the result onto the old embedding.
    anyway : bool
        Accept a graph with few ids in common, or with less than half of the edges.

    Examples
    --------
    >>> from graphquilt.datasets import load_dataset
    >>> from graphquilt.jobs import embed
    >>> whole = load_dataset("blocks")
    >>> today = embed(whole.subgraph(np.arange(1100)), 8, store={})
    >>> update(today.job, whole).nodes_added
    100
    """
    old = job if isinstance(job, Job) else Job.open(job)
    before = np.asarray(old.embedding)  # refuses a job that is not finished
    n, p, recipe = len(before), old.patch_graph.n_patches, old.settings.recipe
    gone = versions.gone_nodes(old.store, n)
    known = Known(old.require_graph(), job_ids(old, n), np.zeros(n, dtype=bool) if gone is None else gone)
    if recipe.keep_patches is False or recipe.averages_at_once(old.settings.motions, n, p, old.settings.dim):
        raise InputError(f"{old.name} did not keep its patches, which an update needs. Embed with --keep-patches.")
    with locked(old.store):
        change, source = _read_change(known, old.settings.source, (graph, add, remove), features, anyway=anyway)
        number = len(versions.history(old.store)) + 1
        same = np.array_equal(change.gone, known.gone) and not len(change.new) and not change.weight.any()
        if same and not refresh:
            return Update(version=number, missing=change.missing, n_patches=p)
        new = _Next(old, known, change, source, refresh=refresh)
        new.plan()
        if refresh:
            new.job.cut(progress=progress)
        new.job.embed(executor=executor, progress=progress)
        new.settle(before, executor=executor, progress=progress)
        result = new.describe(before, number + 1)
        date = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"date": date, "refresh": refresh, **asdict(result)}
        new.store[HISTORY] = Record({}, {"version": number + 1, "history": [*versions.history(old.store), entry]})
        new.take_place()
    return result


def _read_change(
    known: Known, source: Source, given: tuple[object, object, object], features: NodeRows | None, *, anyway: bool
) -> tuple[Change, Source]:
    """Read the new state or the edges that changed, as the job read its graph; return the source of the new graph."""
    graph, *edges = given
    if (graph is None) == all(part is None for part in edges):
        raise InputError("update takes the new graph, or edges to add (--add) and to remove (--remove), not both.")
    rows = open_features(features)
    if rows is not None and not isinstance(rows, NodeVectors):
        raise InputError("the features of an update need ids: give a table with an id column (CSV, TSV, Parquet).")
    plain = replace(source, path=None, features=None, labels=None, checksums={}, stamps={})
    if graph is None:
        part = replace(plain, largest_component=False)
        add, remove = (None if one is None else _read(one, part) for one in edges)
        return edge_change(known, add, remove, total=source.duplicates == "sum", features=rows), plain
    read = _read(graph, plain)
    if isinstance(graph, str | os.PathLike):
        plain = replace(plain, path=os.fspath(graph)).identified()
    return whole_change(known, read, anyway=anyway, features=rows), plain


def _read(given: object, source: Source) -> Graph:
    if isinstance(given, str | os.PathLike):
        return replace(source, path=os.fspath(given)).read()
    return given if isinstance(given, Graph) else read_edges(given, directed=source.directed)


class _Next:
    """The next version of a job while it is made, in a folder of its own, or in memory."""

    def __init__(self, old: Job, known: Known, change: Change, source: Source, *, refresh: bool) -> None:
        self.old, self.known, self.change, self.refresh = old, known, change, refresh
        self.graph = with_checksums(change.graph)
        base = {key: record_digest(old.store, key) for key in ("embedding", "patch_graph")}
        self.fingerprint = records.graph_fingerprint(self.graph)
        self.made_from = {**base, "graph": self.fingerprint, "refresh": refresh}
        folder = store_folder(old.store)
        self.store: Store = {} if folder is None else DirectoryStore(folder / NEXT)
        self.source = replace(source, graph=None, fingerprint=self.fingerprint)
        known_rows = np.flatnonzero(~change.gone[: known.graph.n_nodes])
        self.stayed: Int64Array = np.setdiff1d(known_rows, change.new)  # were there before, and still are
        before, now = (graph.undirected().degrees[self.stayed] for graph in (known.graph, self.graph))
        alone = self.stayed[(before == 0) & (now > 0)]
        self.joining: Int64Array = np.union1d(change.new, alone)  # new, or without edges before

    @property
    def job(self) -> Job:
        """The job of the next version."""
        return Job(self.store, replace(self.old.settings, source=self.source), self.graph)

    def plan(self) -> None:
        """Write what the patches of the next version are made from, unless a killed update has; its mark comes last."""
        folder = store_folder(self.store)
        if stored_record(self.store, UPDATE, self.made_from) is not None:
            self.source = self.source if folder is None else Job.open(self.store).settings.source
        else:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
                self.store = DirectoryStore(folder)
                X = self.graph.features  # written with the graph, also if they are mapped from the folder of the job
                whole = self.graph.with_attributes(features=np.asarray(X)) if isinstance(X, np.memmap) else self.graph
                self.source = keep_graph(self.store, self.source, whole)
            self.store["settings"] = Record({}, self.job.settings.to_parameters())
            changes, reused = ({}, {}) if self.refresh else self._follow()
            self.store[UPDATE] = Record({"gone": self.change.gone, **changes}, {**self.made_from, "reused": reused})
        if folder is not None:
            self.graph = with_checksums(Graph.open(folder / "graph"), str(folder / "graph"))

    def _follow(self) -> tuple[dict[str, Float64Array], dict[str, str]]:
        """Bring the records of the job up to date; return the changes so far, and digests of what stays."""
        old, undirected, clusters = self.old, self.graph.undirected(), None
        if "clusters" in old.store:
            labels = self._before(old.store["clusters"].arrays["cluster"])
            clusters = coarse_graph(undirected, self._joined(undirected, labels))
            self.store["clusters"] = Record(clusters.to_arrays(), {"graph": self.fingerprint})
        changes = self._changes_so_far(clusters)
        patches, again = self._follow_patches(undirected, changes["changed"])
        if "survey" in old.store:
            everywhere = changes["far"] > FAR
            renew = (changes["clusters"] > FAR) | everywhere
            self._follow_survey(patches, clusters, renew=renew)
            again = again | everywhere
            changes["clusters"][renew] = changes["far"][everywhere] = 0
        changes["changed"][again] = 0
        return changes, self._take_over(again, patches.node_sets)

    def _follow_patches(self, graph: Graph, changed: Float64Array) -> tuple[PatchGraph, BoolArray]:
        """Let nodes join the patches of their neighbours; return the patches, and which are embedded again."""
        old, store, joining = self.old, self.store, self.joining
        patches, home = old.patch_graph, np.zeros(graph.n_nodes, dtype=np.int64)
        if "labels" in old.store:
            home = self._joined(graph, self._before(old.store["labels"].arrays["labels"]))
        gains = np.bincount(home[joining], minlength=patches.n_patches)
        again = (changed > TOLERANCE) | (gains > TOLERANCE * patches.sizes)
        lost = np.flatnonzero(self.change.gone[: len(self.known.gone)] > self.known.gone)
        again[home[lost]] = True  # their rows become zero
        sets = self._left(patches.node_sets)
        again |= [bool(np.isin(joining, nodes).any()) for nodes in sets]
        if len(joining):
            again[gains.argmax()] = True
            members = sp.csr_array((np.ones(graph.n_nodes), (np.arange(graph.n_nodes), home)))
            elsewhere = joining[~again[home[joining]]]
            ties = (graph.adjacency[elsewhere] @ members).toarray() + 1e-9 * gains
            home[elsewhere] = np.flatnonzero(again)[ties[:, again].argmax(axis=1)]
        made_with = dict(old.store["patch_graph"].parameters)
        del made_with["patches"], made_with["graph"]  # those of the old one
        if "labels" in old.store:
            named = {**old.store["labels"].parameters, "graph": self.fingerprint}
            if "clusters" in named:
                named["clusters"] = record_digest(store, "clusters")
            store["labels"] = Record({"labels": home}, named)
            made_with["labels"] = record_digest(store, "labels")
        sets = [np.union1d(nodes, joining[home[joining] == k]) for k, nodes in enumerate(sets)]
        following = PatchGraph(sets, patches.edges, graph.n_nodes, patches.components, patches.report)
        records.keep_patch_graph(store, following, self.graph, made_with)
        return following, again

    def _left(self, node_sets: Sequence[IntArray]) -> list[IntArray]:
        """Return the node sets without the nodes that join anew: those of one patch only, which keeps others."""
        counts = np.bincount(np.concatenate(list(node_sets)), minlength=self.graph.n_nodes)
        leaving = self.joining[counts[self.joining] == 1]
        sets = [np.setdiff1d(nodes, leaving) for nodes in node_sets]
        return [left if len(left) else nodes for left, nodes in zip(sets, node_sets, strict=True)]

    def _changes_so_far(self, clusters: CoarseGraph | None) -> dict[str, Float64Array]:
        """Return the share of the weight of edges that has changed: of patches, far clusters, and all."""
        past = self.old.store[UPDATE].arrays if UPDATE in self.old.store else {}
        before, now = (
            np.asarray(graph.undirected().adjacency.sum(axis=1), dtype=np.float64).ravel()
            for graph in (self.known.graph, self.graph)
        )
        now[: len(before)] = np.maximum(now[: len(before)], before)
        labels = np.zeros(len(now), dtype=np.int64) if clusters is None else clusters.clusters

        def sums(values: Float64Array) -> dict[str, Float64Array]:
            patches = np.array([values[nodes].sum() for nodes in self.old.patch_graph.node_sets])
            return {"changed": patches, "clusters": np.bincount(labels, values), "far": values.sum(keepdims=True)}

        changed, of = sums(self.change.weight), sums(now)
        return {name: past.get(name, 0.0) + changed[name] / np.maximum(of[name], 1e-300) for name in of}

    def _joined(self, graph: Graph, labels: AnyArray) -> AnyArray:
        """Return labels of all nodes: new ones join their neighbours; what is joined to nothing joins the smallest."""
        joined = join_neighbours(graph, labels)
        joined[joined < 0] = np.bincount(labels[labels >= 0]).argmin()
        return joined

    def _before(self, labels: AnyArray) -> AnyArray:
        """Return labels of old nodes, and -1 for those that join anew, unless none of the others has their label."""
        padded = np.full(self.graph.n_nodes, -1, dtype=labels.dtype)
        padded[: len(labels)] = labels
        joining, others = self.joining, np.delete(padded, self.joining)
        padded[joining[np.isin(padded[joining], others)]] = -1
        return padded

    def _follow_survey(self, patches: PatchGraph, clusters: CoarseGraph | None, *, renew: BoolArray) -> None:
        """Survey the graph in the old frame, with new averages over some far clusters."""
        graph, embedder, seed = self.graph, self.old.settings.embedders[0], self.old.settings.seed
        assert shares_start(embedder)
        if clusters is None and records.needs_clusters(graph, patches):
            clusters = records.far_clusters(self.store, graph)
        if isinstance(embedder, Propagation):
            before = records.stored_survey(self.old.store["survey"])
            columns = {"column": self._before(before.nodes["column"])} if "column" in before.nodes else {}
            survey = embedder.follow(graph, Survey({**before.nodes, **columns}, before.shared), clusters, renew=renew)
        else:
            survey = embedder.survey(graph, seed, clusters=clusters, cut=patches.n_patches > 1)
        records.keep_survey(self.store, survey, graph, patches, made_by=(embedder, seed))

    def _take_over(self, again: BoolArray, node_sets: Sequence[IntArray]) -> dict[str, str]:
        """Take over the embeddings of the other patches, the shared starts and the rotation onto an earlier frame."""
        p, runs, store, before = len(again), self.old.settings.recipe.runs, self.old.store, self.old.patch_graph
        spared = {patch_key(k, "embedding"): k % p for k in range(runs * p) if not again[k % p]}
        keys = [key for key in spared if key in store]
        keys += [key for run in range(runs) for key in versions.start_keys(store, run)]
        frame = FRAME in store and not self.old.settings.motions.free  # free patches are turned anew in every version
        for key in [*keys, FRAME] if frame else keys:
            k = spared.get(key)
            if k is None or len(node_sets[k]) == before.sizes[k]:
                versions.copy_record(store, self.store, key)
            else:  # without the rows of nodes that have joined another patch
                record, rows = store[key], np.isin(before.node_sets[k], node_sets[k])
                self.store[key] = Record({"embedding": record.arrays["embedding"][rows]}, record.parameters)
        return {key: record_digest(self.store, key) for key in keys}

    def settle(
        self, before: FloatArray, *, executor: Executor | None = None, progress: ProgressCallback | None = None
    ) -> None:
        """Stitch, after a rotation of what has a new frame onto the rows before."""
        job, free = self.job, self.job.settings.motions.free
        if (free or self.refresh) and FRAME not in self.store:
            _, X = stitch(job.patch_graph, job.patches, executor=executor)
            after, then = (np.asarray(rows[self.stayed], dtype=np.float64) for rows in (X, before))
            with one_blas_thread():
                rotation = nearest_orthogonal(after.T @ then)
            self.store[FRAME] = Record({"rotation": rotation}, {"embedding": self.made_from["embedding"]})
        if self.refresh and not free:
            rotation, digest = self.store[FRAME].arrays["rotation"], record_digest(self.store, FRAME)
            for k in range(job.settings.recipe.runs * job.patch_graph.n_patches):
                record = self.store[patch_key(k, "embedding")]
                if record.parameters.get(FRAME) != digest:
                    turned = {"embedding": versions.turn(np.asarray(record.arrays["embedding"]), rotation)}
                    self.store[patch_key(k, "embedding")] = Record(turned, {**record.parameters, FRAME: digest})
        job.stitch(executor=executor, progress=progress)

    def describe(self, before: FloatArray, version: int) -> Update:
        """Return what was done, and whether the old directions still serve."""
        change, job, X, n_known = self.change, self.job, np.asarray(self.job.embedding), len(self.known.gone)
        reused, p, stayed = versions.taken_over(self.store), job.patch_graph.n_patches, self.stayed
        unlike: float | None = None
        shares: tuple[float | None, float | None] = (None, None)
        if self.refresh and len(stayed):
            gap = np.asarray(X[stayed], dtype=np.float64) - before[stayed]
            unlike = float(np.square(gap).sum() / max(np.square(before[stayed], dtype=np.float64).sum(), 1e-300))
        if not self.refresh:
            fresh = np.isin(np.arange(self.graph.n_nodes), change.new)
            fresh = fresh if fresh.any() else (change.weight > 0) & ~change.gone
            shares = versions.share_of(self.store, fresh), versions.share_of(self.old.store, ~self.known.gone)
        counts = ("edges_added", "edges_removed", "reweighted", "missing")
        return Update(
            version=version,
            nodes_added=len(change.new),
            nodes_gone=int((change.gone[:n_known] & ~self.known.gone).sum()),
            **{name: getattr(change, name) for name in counts},
            redone=sum(patch_key(k, "embedding") not in reused for k in range(p)),
            n_patches=p,
            share=shares[0],
            share_before=shares[1],
            found=versions.found_again(before, X, stayed),
            unlike=unlike,
        )

    def take_place(self) -> None:
        """Let the new version take the place of the old one."""
        folder = store_folder(self.old.store)
        if folder is not None:
            put_in_place(folder)
            return
        old, made = cast(MutableMapping[str, Record], self.old.store), cast(dict[str, Record], self.store)
        for key in [key for key in getattr(old, "keys", list)() if "/kept" in key and not self.refresh]:
            del old[key]
        old.update(made)
        self.old.graph, self.old.settings = self.graph, self.job.settings
