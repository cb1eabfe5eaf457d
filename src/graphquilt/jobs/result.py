"""What comes back: embedded patches, which stay in their store until they are needed, and the result of embed()."""

from __future__ import annotations

import functools
import html
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

import graphquilt
from graphquilt.alignment import Alignment
from graphquilt.alignment.fit import FrameFit
from graphquilt.alignment.patch_index import checked_patch, stranded_nodes
from graphquilt.arrays import AnyArray, BoolArray, Float64Array, FloatArray, IntArray
from graphquilt.drawing import main_plane, points_svg, sample_rows
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.graph import Graph
from graphquilt.jobs.records import patch_key, stored_patch_graph
from graphquilt.jobs.rows import RowFile, shared_rows
from graphquilt.jobs.settings import JobSettings
from graphquilt.jobs.store import Record, Store, store_folder, store_name
from graphquilt.patches import LazySequence, Patch, PatchGraph

if TYPE_CHECKING:
    import pandas as pd

    from graphquilt.jobs.job import Job
    from graphquilt.jobs.nearest import Neighbours


class EmbeddedPatches(LazySequence[Patch]):
    """The embedded patches of a store, each opened whenever it is asked for; ``which`` of them, by default all.

    Row r of an embedding belongs to ``node_sets[k][r]``. ``settings``, how they were embedded, and ``graph`` are the
    defaults of :func:`graphquilt.stitch`.
    """

    def __init__(
        self,
        store: Store,
        node_sets: Sequence[IntArray],
        *,
        which: Sequence[int] | None = None,
        settings: JobSettings | None = None,
        graph: Graph | None = None,
    ) -> None:
        self.store, self._node_sets = store, node_sets
        self.settings, self.graph = settings, graph
        self._which = range(len(node_sets)) if which is None else which

    def __reduce__(self) -> tuple[Callable[..., Sequence[Patch]], tuple[object, ...]]:
        if store_folder(self.store) is None:
            return list, (list(self),)
        # The node lists are in the store as well: a worker opens them there, and they do not travel.
        record = self.store["patch_graph"]
        runs = len(self._node_sets) // (len(record.arrays["starts"]) - 1)
        which = None if self._which == range(len(self._node_sets)) else tuple(self._which)
        version = record.parameters["patches"]
        return _reopen, (self.store, version, runs, which)

    def __len__(self) -> int:
        return len(self._which)

    def _item(self, index: int) -> Patch:
        k = self._which[index]
        return checked_patch((self._node_sets[k], self._coordinates(k)), k)

    def nodes_of(self, index: int) -> IntArray:
        """Return the nodes of a patch, ascending, without its coordinates."""
        return self._node_sets[self._which[index]]

    @functools.cached_property
    def row_file(self) -> RowFile | None:
        """The file with the rows of nodes that are in one patch only; None if patches are kept."""
        if not any("rows" in self.store[patch_key(k, "embedding")].parameters for k in self._which):
            return None
        n_nodes = 1 + max(int(nodes[-1]) for nodes in self._node_sets)
        return RowFile.opened(self.store, self._node_sets, n_nodes)

    def between(self, index: int, first: int, last: int) -> tuple[IntArray, AnyArray, slice, int]:
        """Return those nodes of a patch that lie in first..last-1, and their coordinates, without checking the rest.

        Also return which rows of the patch these are, and how many it has.
        """
        k = self._which[index]
        nodes = self._node_sets[k]
        rows = slice(*(int(place) for place in np.searchsorted(nodes, [first, last])))
        return nodes[rows], self._coordinates(k, rows), rows, len(nodes)

    def remove(self) -> None:
        """Remove the embeddings of all patches; their records remain."""
        for k in self._which:
            record = self.store[patch_key(k, "embedding")]
            parameters = {**record.parameters, "rows": record.checksum or record.digest}
            self.store[patch_key(k, "embedding")] = Record({}, parameters)

    @property
    def frame(self) -> FrameFit | None:
        """How well the common frame suits each patch; None if their records do not say."""
        columns: list[list[float]] = []
        for k in self._which:
            facts = self.store[patch_key(k, "embedding")].parameters
            values = [facts.get(name) for name in ("share", "best", "unseen")]
            if not all(isinstance(value, int | float) for value in values):
                return None
            columns.append([float(cast(float, value)) for value in values])
        growth = 0.0
        if "survey" in self.store:
            growth = float(np.asarray(self.store["survey"].arrays.get("shared_feature_growth", 0.0)))
        shares, best, unseen = np.array(columns).reshape(-1, 3).T
        return FrameFit(shares, np.where(best > 0, best, np.nan), unseen, growth) if columns else None

    def check(self, dim: int, runs: int) -> None:
        """Refuse to stitch if patches are missing, have other dimensions, or were embedded differently."""
        missing = [k for k in self._which if patch_key(k, "embedding") not in self.store]
        if missing:
            raise JobError(
                f"{len(missing)} of {len(self)} patches are not embedded yet, the first is {missing[0]}; finish them "
                "first (graphquilt embed-patches)."
            )
        width = stored_rows(self.store, self._which[0])[0].shape[1]
        if width != dim:
            name = store_name(self.store)
            raise InputError(f"patch 0 has {width} dimensions, and the settings of {name} say {dim}; make them equal.")
        several = self.settings is not None and isinstance(self.settings.embedder, tuple)
        for run in np.array_split(self._which, runs):
            made_with: dict[str, int] = {}
            for k in run.tolist():
                facts = self.store[patch_key(k, "embedding")].parameters
                made_with.setdefault(repr((facts.get("start"), None if several else facts.get("embedder"))), k)
            if len(made_with) > 1:
                first, other, *_ = made_with.values()
                raise JobError(
                    f"patches {first} and {other} of {store_name(self.store)} were embedded by different embedders or "
                    "from different shared starts; embed them again (graphquilt embed-patches)."
                )

    def _coordinates(self, k: int, rows: slice = slice(None)) -> AnyArray:
        nodes, (X, is_part) = self._node_sets[k], stored_rows(self.store, k)
        if is_part:
            return self._merged(k, X, rows)
        if X.ndim != 2 or len(X) != len(nodes):
            raise FormatError(f"patch {k} has {len(nodes)} nodes and an embedding of shape {X.shape}.")
        return X[rows]

    def _merged(self, k: int, X: AnyArray, rows: slice) -> AnyArray:
        """Return rows of a patch from its record, which has those that other patches share, and from the row file."""
        mask = shared_rows(self.store, self._node_sets[k])
        before, chosen = int(mask[: rows.start or 0].sum()), mask[rows]
        own = np.empty((0, X.shape[1]), dtype=X.dtype)
        if self.row_file is not None and self.row_file.blocks_left > 0:
            own = self.row_file.of_patch(k).read((rows.start or 0) - before, int((~mask[: rows.stop]).sum()))
        if len(own) != int((~chosen).sum()):
            raise JobError(
                f"the patches of {store_name(self.store)} were averaged into the embedding and not kept; keep them "
                "with --keep-patches (Recipe.keep_patches) when you embed."
            )
        merged = np.empty((len(chosen), X.shape[1]), dtype=X.dtype)
        merged[chosen], merged[~chosen] = X[before : before + int(chosen.sum())], own
        return merged


def stored_rows(store: Store, patch: int) -> tuple[AnyArray, bool]:
    """Return the rows in the record of a patch, and whether they are only those that other patches share."""
    try:
        record = store[patch_key(patch, "embedding")]
    except KeyError:
        raise JobError(f"patch {patch} is not embedded yet; run the embedding again to finish the job.") from None
    if "embedding" not in record.arrays and "rows" in record.parameters:
        raise JobError(f"patch {patch} was removed after it was stitched; --keep-patches keeps them.")
    if "embedding" not in record.arrays:
        raise FormatError(f"the embedding of patch {patch} has no array 'embedding', but {', '.join(record.arrays)}.")
    return record.arrays["embedding"], "rows" in record.parameters


class SharedRows(LazySequence[Patch]):
    """The rows of embedded patches that overlaps consist of: those of nodes that are in other patches too."""

    def __init__(self, patches: EmbeddedPatches) -> None:
        self.patches = patches

    def __len__(self) -> int:
        return len(self.patches)

    def _item(self, index: int) -> Patch:
        nodes = self.patches.nodes_of(index)
        X, is_part = stored_rows(self.patches.store, index)
        mask = shared_rows(self.patches.store, nodes)
        return checked_patch((nodes[mask], X if is_part else X[mask]), index)

    def weights(self, weights: Sequence[Float64Array] | None) -> Sequence[Float64Array] | None:
        """Return the weights of these rows."""
        if weights is None:
            return None
        masks = (shared_rows(self.patches.store, self.patches.nodes_of(k)) for k in range(len(self)))
        return [weights[k][mask] for k, mask in enumerate(masks)]


def _reopen(store: Store, version: str, runs: int, which: tuple[int, ...] | None) -> EmbeddedPatches:
    opened, node_sets = _opened(cast(Hashable, store), version, runs)
    return EmbeddedPatches(opened, node_sets, which=which)


@functools.lru_cache(maxsize=2)
def _opened(store: Hashable, version: str, runs: int) -> tuple[Store, Sequence[IntArray]]:  # noqa: ARG001
    """Open the node lists once per worker, not once per call; ``version`` is the fingerprint of the patches."""
    opened = cast(Store, store)
    return opened, stored_patch_graph(opened).repeat(runs).node_sets


@dataclass(frozen=True, eq=False)
class Result:
    """What :func:`embed` returns.

    Attributes
    ----------
    embedding : float array (n, dim)
        Row u is the position of node u.
    patch_graph, patches, alignment : PatchGraph, sequence of Patch, Alignment
        Of all runs; the patches are those before alignment.
    node_ids : array (n,) or None
        The ids that the nodes came with, in the order of the rows; None if they are 0..n-1.
    job : Job, optional
        The job that made it, if it has a store.
    """

    embedding: FloatArray
    patch_graph: PatchGraph
    patches: Sequence[Patch]
    alignment: Alignment
    node_ids: AnyArray | None = None
    job: Job | None = field(default=None, repr=False)

    @classmethod
    def of(cls, job: Job) -> Result:
        """Return the result of a finished job."""
        from graphquilt.jobs.export import job_ids

        repeated = job.patch_graph.repeat(job.settings.recipe.runs)
        X = job.embedding
        ids = job_ids(job, len(X)) if job.graph is None else job.graph.node_ids
        return cls(X, repeated, job.patches, job.alignment, ids, job)

    @property
    def stranded(self) -> BoolArray:
        """Which nodes (n,) are only in patches that do not fit the others: do not rely on their positions."""
        left_out, node_sets = self.alignment.left_out, self.patch_graph.node_sets
        mask = np.zeros(len(self.embedding), dtype=np.bool_)
        mask[stranded_nodes(node_sets, left_out)] = True
        return mask

    def __repr__(self) -> str:
        nodes, dim = self.embedding.shape
        return f"Result({nodes} nodes, dim={dim}, {self.patch_graph!r}, {self.alignment!r})"

    def to_frame(self) -> pd.DataFrame:
        """Return the embedding as a pandas DataFrame: one row per node, indexed by its id, with columns x0, x1, …."""
        try:
            import pandas as pd
        except ImportError as error:
            raise InputError(
                "a DataFrame needs pandas: pip install pandas, or use .embedding and .node_ids."
            ) from error
        columns = [f"x{k}" for k in range(self.embedding.shape[1])]
        index = pd.RangeIndex(len(self.embedding)) if self.node_ids is None else pd.Index(self.node_ids)
        return pd.DataFrame(np.asarray(self.embedding), index=index.rename("node_id"), columns=columns)

    def neighbours(self, node: int | str, k: int = 10, *, metric: Literal["cosine", "inner"] = "cosine") -> Neighbours:
        """Find the k nodes nearest to a node; see :func:`graphquilt.neighbours`."""
        from graphquilt.jobs.nearest import neighbours

        return neighbours(self, node, k=k, metric=metric)

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Write a page with the map, the patches and the quality of the fit; return its path."""
        return Path(graphquilt.report.write_job_report(self.as_job(), Path(path)))

    def as_job(self) -> Job:
        """Return the job that made this, or one in memory that has the same records."""
        from graphquilt.jobs.job import Job

        if self.job is not None:
            return self.job
        if not isinstance(self.patches, EmbeddedPatches) or self.patches.settings is None:
            raise InputError("only the result of gq.embed or gq.align_files knows how it was made.")
        job = Job(self.patches.store, self.patches.settings, self.patches.graph)
        job.keep(self.alignment, self.embedding, {})
        return job

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a few facts, the verdict, and the two main directions of the embedding."""
        nodes, dim = self.embedding.shape
        patches = self.alignment.n_patches
        facts = f"{nodes:,} nodes in {dim} dimensions, {patches} {'patch' if patches == 1 else 'patches'}"
        verdict = "<br>".join(html.escape(line) for line in self.alignment.summary().splitlines()[:3])
        rows = sample_rows(nodes)
        graph = getattr(self.patches, "graph", None)
        classes = None if graph is None or graph.labels is None else np.asarray(graph.labels)[rows]
        picture = points_svg({"": main_plane(self.embedding[rows])}, classes)
        return f"<div><b>{facts}</b><br>{verdict}<br>{picture}</div>"
