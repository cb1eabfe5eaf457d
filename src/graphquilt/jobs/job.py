"""Job: one class that owns a job, from its settings and its graph to its embedding."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import Alignment
from graphquilt.arrays import Float64Array, FloatArray
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.files import check_disk, temporary_sibling, translate_disk_errors
from graphquilt.graph import Graph
from graphquilt.graph.files import with_checksums
from graphquilt.jobs.cutting import stored_patch_graph
from graphquilt.jobs.description import differences, fingerprint
from graphquilt.jobs.directory import DirectoryStore
from graphquilt.jobs.embedded import EmbeddedPatches
from graphquilt.jobs.graphs import is_kept, keep_graph, open_graph
from graphquilt.jobs.measurement import resource_usage
from graphquilt.jobs.patch_embedding import embed_patches
from graphquilt.jobs.patch_inputs import PatchInputs, survey_graph
from graphquilt.jobs.records import graph_fingerprint, patch_key
from graphquilt.jobs.settings import (
    JobSettings,
    check_compatible,
    check_matches_records,
    keep_settings,
    readable_settings,
    stored_settings,
)
from graphquilt.jobs.source import Source
from graphquilt.jobs.steps import cut_graph, row_weights, stitch
from graphquilt.jobs.store import Record, Store, combined_digest, locked, store_folder, store_name
from graphquilt.jobs.sweeps import shard_name
from graphquilt.patches import Patch, PatchGraph
from graphquilt.progress import ProgressCallback, report

__all__ = ["Job", "short_path"]

_log = logging.getLogger(__name__)


class Job:
    """A job: its settings, the graph it is about, and a store with everything that has been made so far.

    Make one with :meth:`begin`, which also goes on with a job that is there, or :meth:`open`. Then :meth:`cut`,
    :meth:`embed` and :meth:`stitch`, or :meth:`run` for all three. Each does only what is missing.

    Attributes
    ----------
    store : Store
    settings : JobSettings
    graph : Graph or None
        None where the store has no graph, as in a job that was made from patches alone.

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
        """The job's folder, or what else it is kept in."""
        return store_name(self.store)

    @classmethod
    def begin(cls, store: Store, settings: JobSettings, graph: Graph | None = None) -> Job:
        """Create a job, or resume the one that the store has; see :meth:`create` and :meth:`resume`."""
        stored, damage = readable_settings(store)
        start = cls.create if stored is None and damage is None else cls.resume
        return start(store, settings, graph)

    @classmethod
    def create(cls, store: Store, settings: JobSettings, graph: Graph | None = None) -> Job:
        """Create a job.

        Parameters
        ----------
        store : Store
            One in a folder also gets a copy of the graph and the ids of its nodes.
        settings : JobSettings
            Defaults are filled in for the graph.
        graph : Graph, optional
            Without it, the graph is read from ``settings.source``. A store with patches and neither is a job without a
            graph: its patches can be embedded and stitched.
        """
        source = settings.source
        if graph is None:
            source = source.identified()
            if source.path is not None or "patch_graph" not in store:
                graph = source.read()
        return cls._with_graph(store, settings, source, graph, keep=True)

    @classmethod
    def resume(cls, store: Store, settings: JobSettings, graph: Graph | None = None) -> Job:
        """Resume the job of a store, perhaps with settings that keep what has been made.

        Parameters
        ----------
        store : Store
        settings : JobSettings
        graph : Graph, optional
            Without it, the graph is opened where the store has it, or read from ``settings.source`` if that has
            changed.

        Raises
        ------
        JobError
            The store has a job with other input, or one that was cut or embedded in another way.
        """
        stored, damage = readable_settings(store)
        source, given = settings.source, graph is not None or settings.source.path is not None
        if damage is not None and not given and "patch_graph" in store:
            raise damage
        keep = stored is None
        if graph is None:
            source = source.identified(None if stored is None else stored.source)
            same = source.path is None or (source.checksums and stored and stored.source.input() == source.input())
            if stored is not None and same:
                try:
                    graph = open_graph(store, stored.source)
                except FormatError as error:
                    if source.path is None or stored.source.graph != "graph":
                        raise
                    _log.warning("the graph is read from its source again: %s", error)
                    keep = True
            if graph is None and (source.path is not None or "patch_graph" not in store):
                graph = source.read()
        return cls._with_graph(store, settings, source, graph, keep=keep, stored=stored, damage=damage, given=given)

    @classmethod
    def _with_graph(
        cls,
        store: Store,
        settings: JobSettings,
        source: Source,
        graph: Graph | None,
        *,
        keep: bool,
        stored: JobSettings | None = None,
        damage: FormatError | None = None,
        given: bool = False,
    ) -> Job:
        """Return the job of a graph; ``keep`` writes the graph to the folder of the store, if it has one."""
        graph = None if graph is None else with_checksums(graph)
        source = replace(source, fingerprint=None if graph is None else graph_fingerprint(graph))
        settings = replace(settings, source=source).resolved(graph)
        if stored is not None and stored.source.fingerprint != source.fingerprint:
            if "patch_graph" in store:
                changes = differences(stored.source.input(), source.input()) or (
                    f"graph with fingerprint {stored.source.fingerprint} (now {source.fingerprint})"
                )
                raise JobError(
                    f"{store_name(store)} was made from other input: {changes}. Use another folder, or remove this one "
                    "first."
                )
            stored, keep = None, True
        if stored is not None:
            settings = replace(settings, source=stored.source)
        if damage is not None:
            check_matches_records(store, settings)
            _log.warning("the settings are written again: %s", damage)
        folder = store_folder(store)
        if graph is not None and folder is not None:
            if keep or (given and not is_kept(store, settings.source, graph)):
                with locked(store):
                    settings = replace(settings, source=keep_graph(store, settings.source, graph))
            graph = with_checksums(graph, str(folder / str(settings.source.graph)))
        job = cls(store, settings, graph)
        job._revise(stored, settings, None)
        return job

    @classmethod
    def open(cls, store: Store | str | os.PathLike[str]) -> Job:
        """Open a job that has been begun.

        Raises
        ------
        JobError
            There is no job, or its graph is no longer the one that it was begun with.
        """
        store = DirectoryStore(store) if isinstance(store, str | os.PathLike) else store
        settings = stored_settings(store)
        if settings is None and "patch_graph" in store:
            raise JobError(
                f"{store_name(store)} has patches but no settings, which say how they are embedded and stitched. Give "
                "them once in Python: Job.begin(store, JobSettings(embedder=...))."
            )
        folder = store_folder(store)
        if folder is not None and not folder.exists():
            raise JobError(f"{store_name(store)} does not exist; check the path, or make a job (graphquilt embed).")
        if settings is None:
            raise JobError(f"{store_name(store)} has no patches yet; check the path, or make them (graphquilt embed).")
        return cls(store, settings, open_graph(store, settings.source))

    def revise(self, settings: JobSettings, *, only: Sequence[int] | None = None) -> Job:
        """Return the job with other settings, which the store then keeps.

        Parameters
        ----------
        settings : JobSettings
        only : sequence of int, optional
            The share of the patches that is going to be embedded: other shares may be at work meanwhile.

        Raises
        ------
        JobError
            Something has been made already that does not go with these settings.
        """
        job = Job(self.store, settings.resolved(self.graph), self.graph)
        job._revise(self.settings, job.settings, only)
        return job

    def _revise(self, before: JobSettings | None, settings: JobSettings, only: Sequence[int] | None) -> None:
        if before is not None and before.to_parameters() == settings.to_parameters():
            return
        if only is not None and len(only) == 0:
            return  # a share of no patches writes nothing, and two of them do not stop each other
        with locked(self.store, shard_name(only)):
            stored, _ = readable_settings(self.store)  # again: another run may have written them
            if stored is not None:
                check_compatible(self.store, stored, settings)
            keep_settings(self.store, settings)

    def choose(self, labels: npt.ArrayLike) -> Job:
        """Return the job with the signal that the labels choose; see :func:`graphquilt.embed`.

        Parameters
        ----------
        labels : int array (n,)
            The class of each node, -1 for none.
        """
        from graphquilt.jobs.choosing import choose_signal

        if isinstance(self.settings.embedder, tuple):
            raise InputError("labels choose the signal of one embedder for all patches; this job has one for each.")
        graph, seed = self._need_graph(), self.settings.seed
        with locked(self.store):
            embedder = choose_signal(self.store, graph, self.settings.embedder, labels, seed=seed)
        return self.revise(replace(self.settings, embedder=embedder))

    @property
    def n_nodes(self) -> int:
        """Nodes of the graph, or of the patches where there is no graph."""
        return self.patch_graph.n_nodes if self.graph is None else self.graph.n_nodes

    @property
    def patch_graph(self) -> PatchGraph:
        """The patch graph, of one run."""
        return stored_patch_graph(self.store)

    @property
    def patches(self) -> EmbeddedPatches:
        """The embedded patches of all runs, each opened when needed."""
        recipe = self.settings.recipe
        node_sets = self.patch_graph.repeat(recipe.runs).node_sets
        return EmbeddedPatches(self.store, node_sets, settings=self.settings, graph=self.graph)

    @property
    def weights(self) -> Sequence[Float64Array] | None:
        """What each row of each patch counts with, or None where all rows count alike."""
        recipe = self.settings.recipe
        return row_weights(self.patch_graph.repeat(recipe.runs), recipe, self.graph)

    @property
    def alignment(self) -> Alignment:
        """The alignment of the patches.

        Raises
        ------
        JobError
            There is none, or it was made with other settings than the job has now.
        """
        if "alignment" not in self.store:
            raise JobError(f"{self.name} is not aligned yet; {self._next_step('stitch it first')}")
        record = self.store["alignment"]
        wanted = self.settings.stitching
        changes = differences({name: record.parameters.get(name) for name in wanted}, wanted)
        if changes:
            raise JobError(f"{self.name} was aligned with {changes}; {self._next_step('stitch it again')}")
        if record.parameters.get("embeddings") != self._embeddings_digest():
            raise JobError(
                f"patches of {self.name} were embedded again after it was aligned; {self._next_step('stitch it again')}"
            )
        return Alignment.from_arrays(record.arrays)

    @property
    def embedding(self) -> FloatArray:
        """The embedding, one row per node.

        Raises
        ------
        JobError
            There is none, or it does not belong to the alignment that the job has now.
        """
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
        """Cut, embed and stitch, as far as that has not been done."""
        self.cut(progress=progress)
        self.embed(executor=executor, progress=progress)
        self.stitch(executor=executor, progress=progress)

    def cut(self, *, progress: ProgressCallback | None = None) -> PatchGraph:
        """Cut the graph into patches, or open the patches that were cut; see :func:`graphquilt.cut`."""
        try:
            whole = "patch_graph" in self.store and bool(self.store["patch_graph"].arrays)
        except FormatError:
            whole = False
        lock = contextlib.nullcontext() if whole else locked(self.store)
        with lock:
            return cut_graph(self._need_graph(), self.settings, self.store, progress)

    def write_patches(self, *, progress: ProgressCallback | None = None) -> None:
        """Write the data of every patch, so that each can be embedded on a machine that does not have the graph.

        A job does not need this: its patches are cut from the graph when they are embedded.
        """
        settings, node_sets, graph = self.settings, self.patch_graph.node_sets, self._need_graph()
        embedder, start = settings.embedders[0], settings.recipe.start
        with locked(self.store):
            survey = None
            if start:
                patches = self.patch_graph
                survey = survey_graph(self.store, graph, embedder, settings.seed, patches, progress=progress)
            data = PatchInputs(graph, node_sets, survey)
            for k in range(len(node_sets)):
                key = patch_key(k, "graph")
                if key not in self.store or not data.suits(self.store[key].parameters):
                    self.store[key] = data.record(k)
                report(progress, "patch data", k + 1, len(node_sets))

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
        patches = embed_patches(
            self.graph,
            patch_graph,
            settings.embedder,
            seed=settings.seed,
            recipe=settings.recipe,
            executor=executor,
            store=self.store,
            progress=progress,
            retries=retries,
            only=only,
        )
        stored = None if only is None else stored_settings(self.store)
        if stored is not None:
            check_compatible(self.store, stored, settings)  # another share may have begun with other settings meanwhile
        return patches

    def stitch(self, *, executor: Executor | None = None, progress: ProgressCallback | None = None) -> Alignment:
        """Align the embedded patches and average them into one embedding; see :func:`graphquilt.stitch`.

        Where the store has the embedding of these settings already, that is all.
        """
        settings, patch_graph = self.settings, self.patch_graph
        with contextlib.suppress(JobError, FormatError):
            _ = self.embedding
            return self.alignment
        self._check_embedded()
        with locked(self.store), self._open_output((patch_graph.n_nodes, settings.dim)) as out:
            with resource_usage() as cost:
                alignment, X = stitch(patch_graph, self.patches, executor=executor, progress=progress, out=out)
            self.keep(alignment, X, cost)
        report(progress, "embedding", 1, 1)
        return alignment

    def keep(self, alignment: Alignment, X: FloatArray, cost: Mapping[str, float]) -> None:
        """Write the alignment of the patches to the store, and then the embedding that was made with it."""
        record = Record(alignment.to_arrays(), {**self.settings.stitching, "embeddings": self._embeddings_digest()})
        self.store["alignment"] = record
        parameters = {"n_nodes": X.shape[0], "dim": X.shape[1], "alignment": _alignment_fingerprint(record)}
        self.store["embedding"] = Record({"embedding": X}, {**parameters, **cost})

    def _embeddings_digest(self) -> str | None:
        """Return the digest of all embedded patches with their nodes, or None if some are missing or damaged."""
        n_patches = self.settings.recipe.runs * self.patch_graph.n_patches
        keys = ["patch_graph", *(patch_key(k, "embedding") for k in range(n_patches))]
        try:
            return combined_digest(self.store, keys)
        except (KeyError, FormatError):
            return None

    def _next_step(self, stitching: str) -> str:
        """Return the command that leads to an embedding: patches come before the alignment."""
        done, wanted = self.embedded(), self.settings.recipe.runs * self.patch_graph.n_patches
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
        """Return a command to copy, with the folder of the job where it has one."""
        if store_folder(self.store) is None:
            return shlex.join(["graphquilt", word, "JOB", *flags])
        return shlex.join(["graphquilt", word, short_path(self.name), *flags])

    def embedded(self, only: Sequence[int] | None = None) -> int:
        """Return how many patches, of all or ``only`` of some, are embedded."""
        numbers = range(self.settings.recipe.runs * self.patch_graph.n_patches) if only is None else only
        return sum(patch_key(k, "embedding") in self.store for k in numbers)

    def _check_embedded(self) -> None:
        patches = self.patches
        n_patches, done = len(patches), self.embedded()
        if done < n_patches:
            key = next(k for k in range(n_patches) if patch_key(k, "embedding") not in self.store)
            raise JobError(
                f"{n_patches - done} of {n_patches} patches are not embedded yet, the first is {key}; finish them "
                "first (graphquilt embed-patches)."
            )
        if patches[0].dim != self.settings.dim:
            raise InputError(
                f"patch 0 has {patches[0].dim} dimensions, and the settings of {self.name} say {self.settings.dim}; "
                "make them equal."
            )
        self._check_starts()

    def _check_starts(self) -> None:
        """Refuse patches of one run that were embedded from different shared starts, or some from none."""
        n_data = self.patch_graph.n_patches
        for run in range(self.settings.recipe.runs):
            starts: dict[str, int] = {}
            for k in range(run * n_data, (run + 1) * n_data):
                starts.setdefault(repr(self.store[patch_key(k, "embedding")].parameters.get("start")), k)
            if len(starts) > 1:
                first, other, *_ = starts.values()
                raise JobError(
                    f"patches {first} and {other} of {self.name} were embedded from different shared starts; embed "
                    "them again (graphquilt embed-patches)."
                )

    def _need_graph(self) -> Graph:
        if self.graph is None:
            raise JobError(
                f"{self.name} has no graph, because it was made from patches alone: in Python, Job(store, settings, "
                "graph) is the job with a graph that you have."
            )
        return self.graph

    @contextlib.contextmanager
    def _open_output(self, shape: tuple[int, int]) -> Iterator[FloatArray | None]:
        """Lend an array in a file, because the embedding of a large graph does not fit into memory."""
        folder, kind = store_folder(self.store), np.dtype(self.settings.recipe.precision)
        if folder is None:
            yield None
            return
        check_disk(folder, shape[0] * shape[1] * kind.itemsize, "the embedding")
        with temporary_sibling(folder / "embedding.npy") as part:
            with translate_disk_errors(folder):
                out = np.lib.format.open_memmap(part, mode="w+", dtype=kind, shape=shape)
            yield out


def short_path(path: str) -> str:
    """Return a path as one would type it here: relative to the current folder where it lies inside."""
    short = os.path.relpath(path)
    return path if short.startswith("..") else short


def _alignment_fingerprint(record: Record) -> str:
    """Return a digest of transforms and settings: the transforms alone do not decide the embedding."""
    settings = np.frombuffer(json.dumps(record.parameters, sort_keys=True).encode(), dtype=np.uint8)
    return fingerprint(*(record.arrays[name] for name in ("scales", "rotations", "translations")), settings)
