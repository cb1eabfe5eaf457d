"""Job: everything about one job, from its settings and its graph to its embedding."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import Alignment
from graphquilt.arrays import Float64Array, FloatArray
from graphquilt.errors import FormatError, JobError
from graphquilt.graph import Graph
from graphquilt.jobs.patch_embedding import embed_patches
from graphquilt.jobs.plan import check_room
from graphquilt.jobs.records import differences, patch_key, shard_name, stored_patch_graph
from graphquilt.jobs.settings import JobSettings, readable_settings, stored_settings
from graphquilt.jobs.source import open_graph, settle_graph
from graphquilt.jobs.steps import cut_graph
from graphquilt.jobs.stitching import stitch_job
from graphquilt.jobs.store import (
    DirectoryStore,
    Record,
    Store,
    combined_digest,
    fingerprint,
    locked,
    short_path,
    store_folder,
    store_name,
    stored_record,
)
from graphquilt.jobs.stored_patches import EmbeddedPatches
from graphquilt.patches import Patch, PatchGraph
from graphquilt.progress import ProgressCallback

_log = logging.getLogger(__name__)


class Job:
    """A job: its settings, its graph, and a store with the results so far.

    Make one with :meth:`begin`, which creates or resumes a job, or :meth:`open`. Then call :meth:`cut`, :meth:`embed`
    and :meth:`stitch`, or :meth:`run` for all three. Each does only what is missing.

    Attributes
    ----------
    store : Store
    settings : JobSettings
    graph : Graph or None
        None if the store has no graph, as in a job made from patches alone.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from graphquilt.embedders import SVD
    >>> from graphquilt.jobs import Cutting
    >>> ring = Graph(sp.csr_array(np.roll(np.eye(90), 1, 0) + np.roll(np.eye(90), -1, 0)))
    >>> job = Job.begin({}, JobSettings(embedder=SVD(2), cutting=Cutting(3)), ring)
    >>> job.run()
    >>> job.embedding.shape
    (90, 2)
    """

    def __init__(self, store: Store, settings: JobSettings, graph: Graph | None) -> None:
        self.store, self.settings, self.graph = store, settings, graph

    def __repr__(self) -> str:
        return f"Job({self.name})"

    @property
    def name(self) -> str:
        """The job's folder, or the name of its store."""
        return store_name(self.store)

    @classmethod
    def begin(cls, store: Store, settings: JobSettings, graph: Graph | None = None) -> Job:
        """Create a job, or resume the one that the store has, with the same or compatible settings.

        Parameters
        ----------
        store : Store
            One in a folder also gets a copy of the graph and the ids of its nodes.
        settings : JobSettings
            Defaults are filled in for the graph. Damaged settings are written again, if these fit the records.
        graph : Graph, optional
            By default the one that the store has, or that of ``settings.source``. A store with patches and neither is a
            job without a graph.

        Raises
        ------
        JobError
            The job has other input, or was cut or embedded in another way.
        """
        return (cls.create if readable_settings(store) == (None, None) else cls.resume)(store, settings, graph)

    @classmethod
    def create(cls, store: Store, settings: JobSettings, graph: Graph | None = None) -> Job:
        """Create a job, as :meth:`begin` does; refuse a store that has one."""
        if readable_settings(store) != (None, None):
            raise JobError(f"{store_name(store)} has a job already; resume it, or use another folder.")
        job = cls(store, *settle_graph(store, settings, graph, None))
        job._revise(None)
        return job

    @classmethod
    def resume(cls, store: Store, settings: JobSettings, graph: Graph | None = None) -> Job:
        """Resume the job of a store, as :meth:`begin` does; refuse a store that has none."""
        stored, damage = readable_settings(store)
        if stored is None and damage is None:
            raise JobError(f"{store_name(store)} has no job to resume; create one.")
        if damage is not None and graph is None and settings.source.path is None and "patch_graph" in store:
            raise damage
        job = cls(store, *settle_graph(store, settings, graph, stored))
        job._revise(stored)
        if damage is not None:
            _log.warning("the settings were written again: %s", damage)
        return job

    @classmethod
    def open(cls, store: Store | str | os.PathLike[str]) -> Job:
        """Open an existing job; refuse a store without one, and a job whose graph has changed."""
        store = DirectoryStore(store) if isinstance(store, str | os.PathLike) else store
        settings = stored_settings(store)
        if settings is None and "patch_graph" in store:
            raise JobError(
                f"{store_name(store)} has patches but no settings, which say how they are embedded and stitched. Give "
                "them once in Python: Job.begin(store, JobSettings(embedder=...))."
            )
        if settings is None:
            folder = store_folder(store)
            state = "does not exist" if folder is not None and not folder.exists() else "has no patches yet"
            raise JobError(f"{store_name(store)} {state}; check the path, or make the job (graphquilt embed).")
        return cls(store, settings, open_graph(store, settings.source))

    def revise(self, settings: JobSettings, *, only: Sequence[int] | None = None) -> Job:
        """Return the job with other settings, which the store then keeps, or refuse those that do not fit its records.

        ``only`` is the shard of the patches that is going to be embedded: other shards may be at work meanwhile.
        """
        job = Job(self.store, settings.resolved(self.graph), self.graph)
        job._revise(self.settings, only)
        return job

    def _revise(self, before: JobSettings | None, only: Sequence[int] | None = None) -> None:
        parameters = self.settings.to_parameters()
        if (before is not None and before.to_parameters() == parameters) or (only is not None and len(only) == 0):
            return  # a shard of no patches writes nothing, and two of them do not stop each other
        with locked(self.store, None if only is None else shard_name(only)):
            self.settings.check_records(self.store)
            self.store["settings"] = Record({}, parameters)

    def choose(self, labels: npt.ArrayLike) -> Job:
        """Return the job with the signal that labels (n,) choose, -1 for none; see :func:`graphquilt.embed`."""
        from graphquilt.jobs.choosing import choose_signal

        graph, seed = self.require_graph(), self.settings.seed
        with locked(self.store):
            embedder = choose_signal(self.store, graph, self.settings.embedder, labels, seed=seed)
        return self.revise(replace(self.settings, embedder=embedder))

    @property
    def n_nodes(self) -> int:
        """Number of nodes of the graph, or of the patches if the job has no graph."""
        return self.patch_graph.n_nodes if self.graph is None else self.graph.n_nodes

    @property
    def n_wanted(self) -> int:
        """Number of patches of all runs."""
        return self.settings.recipe.runs * self.patch_graph.n_patches

    @property
    def patch_graph(self) -> PatchGraph:
        """The patch graph, of one run."""
        return stored_patch_graph(self.store)

    @property
    def patches(self) -> EmbeddedPatches:
        """The embedded patches of all runs, each opened when needed."""
        node_sets = self.patch_graph.repeat(self.settings.recipe.runs).node_sets
        return EmbeddedPatches(self.store, node_sets, settings=self.settings, graph=self.graph)

    @property
    def weights(self) -> Sequence[Float64Array] | None:
        """The weight of each row of each patch, or None if all weights are equal."""
        recipe = self.settings.recipe
        return recipe.row_weights(self.patch_graph.repeat(recipe.runs), self.graph)

    @property
    def alignment(self) -> Alignment:
        """The alignment of the patches; refuse one that was made with other settings or patches."""
        if "alignment" not in self.store:
            raise JobError(f"{self.name} is not aligned yet; {self._next_step('stitch it first')}")
        record, wanted = self.store["alignment"], self._aligned_from()
        for names in (self.settings.stitching, ("embedded_patches",)):
            before, now = ({name: values.get(name) for name in names} for values in (record.parameters, wanted))
            if changes := differences(before, now):
                raise JobError(f"{self.name} was aligned with {changes}; {self._next_step('stitch it again')}")
        return Alignment.from_arrays(record.arrays)

    @property
    def embedding(self) -> FloatArray:
        """The embedding, one row per node; refuse one that does not belong to the alignment that the job has now."""
        if "embedding" not in self.store:
            raise JobError(f"{self.name} has no embedding yet; {self._next_step('stitch it first')}")
        record = self.store["embedding"]
        _ = self.alignment
        if record.parameters.get("alignment") != _alignment_fingerprint(self.store["alignment"]):
            raise JobError(
                f"the embedding in {self.name} does not belong to its alignment: an alignment was stopped before its "
                f"end; {self._next_step('stitch it again')}"
            )
        embedding = record.arrays.get("embedding", np.empty(0))
        n_nodes = len(embedding) if self.graph is None else self.graph.n_nodes
        if embedding.shape != (n_nodes, self.settings.dim) or embedding.dtype.kind != "f":
            raise FormatError(
                f"the record 'embedding' of {self.name} has {', '.join(record.arrays) or 'no array'} with the shape "
                f"{embedding.shape}, not the embedding of {n_nodes} nodes in {self.settings.dim} dimensions; "
                f"{self._next_step('stitch it again')}"
            )
        return embedding

    def run(self, *, executor: Executor | None = None, progress: ProgressCallback | None = None) -> None:
        """Cut, embed and stitch; do only what is missing."""
        self.cut(progress=progress)
        self.embed(executor=executor, progress=progress)
        self.stitch(executor=executor, progress=progress)

    def cut(self, *, progress: ProgressCallback | None = None) -> PatchGraph:
        """Cut the graph into patches, or open the patches that were cut; see :func:`graphquilt.cut`."""
        record = stored_record(self.store, "patch_graph")
        whole = record is not None and bool(record.arrays)
        if not whole:
            check_room(self, "fennel", "clusters", "patches")
        with contextlib.nullcontext() if whole else locked(self.store):
            return cut_graph(self.require_graph(), self.settings, self.store, progress)

    def embed(
        self,
        *,
        executor: Executor | None = None,
        progress: ProgressCallback | None = None,
        retries: int = 1,
        only: Iterable[int] | None = None,
    ) -> Sequence[Patch]:
        """Embed the patches that are not embedded yet; see :func:`graphquilt.embed_patches`."""
        settings, patch_graph = self.settings, self.patch_graph
        if settings.motions.rotate:
            patch_graph.check_dim(settings.dim)
        only = None if only is None else list(only)
        if self.count_embedded() == 0:
            check_room(self, "survey", "embedding", workers=int(getattr(executor, "n_workers", 1)))
        cut, store = patch_graph.with_settings(settings.tuned(self.graph)), self.store
        patches = embed_patches(
            self.graph, cut, executor=executor, store=store, progress=progress, retries=retries, only=only
        )
        stored = None if only is None else stored_settings(self.store)
        if stored is not None:
            stored.check_records(self.store)  # another shard may have begun with other settings
        return patches

    def stitch(self, *, executor: Executor | None = None, progress: ProgressCallback | None = None) -> Alignment:
        """Align the embedded patches and average them into one embedding; see :func:`graphquilt.stitch`.

        If the store already has this embedding, nothing is done.
        """
        with contextlib.suppress(JobError, FormatError):
            _ = self.embedding
            return self.alignment
        check_room(self, "alignment")
        with locked(self.store):
            return stitch_job(self, executor=executor, progress=progress)

    def keep_alignment(self, alignment: Alignment) -> Record:
        """Write the alignment of the patches to the store."""
        self.store["alignment"] = record = Record(alignment.to_arrays(), self._aligned_from())
        return record

    def keep(self, alignment: Alignment, X: FloatArray, cost: Mapping[str, float]) -> None:
        """Write the alignment of the patches to the store, and then the embedding that was made with it."""
        record = self.keep_alignment(alignment)
        parameters = {"n_nodes": X.shape[0], "dim": X.shape[1], "alignment": _alignment_fingerprint(record)}
        self.store["embedding"] = Record({"embedding": X}, {**parameters, **cost})

    def _aligned_from(self) -> dict[str, object]:
        """Return what the alignment is made from; the digest of the embedded patches is None if some are missing."""
        keys, digest = ["patch_graph", *(patch_key(k, "embedding") for k in range(self.n_wanted))], None
        with contextlib.suppress(KeyError, FormatError):
            digest = combined_digest(self.store, keys)
        return {**self.settings.stitching, "embedded_patches": digest}

    def _next_step(self, stitching: str) -> str:
        """Return the command that leads to an embedding: patches come before the alignment."""
        done, wanted = self.count_embedded(), self.n_wanted
        if done < wanted:
            return f"embed its patches first ({done} of {wanted} are), then stitch it: {self.command('embed-patches')}"
        return f"{stitching}: {self.command('stitch')}"

    @property
    def patch_names(self) -> list[str] | None:
        """What the user calls the patches: the names of their files, or None."""
        description = getattr(self.settings.embedders[0], "description", {})
        names = description.get("patches")
        return [str(name) for name in names] if isinstance(names, list | tuple) else None

    def command(self, word: str, *flags: str) -> str:
        """Return a command to copy, with the folder of the job if it has one."""
        folder = "JOB" if store_folder(self.store) is None else short_path(self.name)
        return shlex.join(["graphquilt", word, folder, *flags])

    def count_embedded(self, only: Sequence[int] | None = None) -> int:
        """Return how many patches, of all or ``only`` of some, are embedded."""
        numbers = range(self.n_wanted) if only is None else only
        return sum(patch_key(k, "embedding") in self.store for k in numbers)

    def require_graph(self) -> Graph:
        """Return the graph, or refuse a job that was made from patches alone."""
        if self.graph is None:
            raise JobError(
                f"{self.name} has no graph, because it was made from patches alone. In Python, Job(store, settings, "
                "graph) and gq.compare(job, graph=graph) take one that you have."
            )
        return self.graph


def _alignment_fingerprint(record: Record) -> str:
    """Return a digest of transforms and settings: the transforms alone do not decide the embedding."""
    settings = np.frombuffer(json.dumps(record.parameters, sort_keys=True).encode(), dtype=np.uint8)
    return fingerprint(*(record.arrays[name] for name in ("scales", "rotations", "translations")), settings)
