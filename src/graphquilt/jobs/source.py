"""The graph of a job: the input that it is read from, and its copy in the folder of the job."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.files import map_array, translate_disk_errors
from graphquilt.files.checksums import file_checksum, is_checksum, is_settled, large_file, reference, stamp
from graphquilt.files.writing import check_inside
from graphquilt.graph import BadRows, Duplicates, Graph, read_edges, read_recent_edges
from graphquilt.graph.files import attach, with_checksums
from graphquilt.jobs.records import differences, graph_fingerprint
from graphquilt.jobs.store import JOB, DirectoryStore, Store, locked, store_folder, store_name

if TYPE_CHECKING:
    from graphquilt.jobs.settings import JobSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the graph of a job comes from."""

    path: str | None = None  # an edge list, or a graph folder; None for a graph that was made in memory
    # Source, target and perhaps weight, by position or name; by default :func:`graphquilt.read_edges` finds them.
    columns: tuple[int | str, ...] | None = None
    features: str | None = None  # files of node features and classes, as :func:`graphquilt.read_edges` takes them
    labels: str | None = None
    directed: bool = False  # treat edges as directed
    # As for :func:`graphquilt.read_edges`.
    bad_rows: BadRows = "stop"
    duplicates: Duplicates = "max"
    largest_component: bool = False  # keep only the largest connected component
    # Read a column of times, and let weights halve with age; see :func:`graphquilt.graph.read_recent_edges`
    half_life: str | None = None
    # SHA-256 of each file (of large features, of their size and 64 pieces), and the fingerprint of a graph folder: the
    # same bytes are recognised wherever they are.
    checksums: Mapping[str, str] = field(default_factory=dict)
    # Size, times and inode of each file when its checksum was computed: a file that still has them is not read again.
    stamps: Mapping[str, list[int]] = field(default_factory=dict)
    # The folder of the graph: ``graph`` in the job's folder, or an absolute path; None if it is only in memory.
    graph: str | None = None
    fingerprint: str | None = None  # the fingerprint of the graph

    def __post_init__(self) -> None:
        text = ("path", "features", "labels", "half_life", "graph", "fingerprint")
        kinds = {**dict.fromkeys(text, str | None), "checksums": Mapping, "stamps": Mapping, "columns": tuple | None}
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                raise InputError(f"{name} of a source cannot be {str(getattr(self, name))[:40]!r}.")
        if not all(isinstance(column, int | str) for column in self.columns or ()):
            raise InputError(f"columns of a source are positions or names, not {str(self.columns)[:40]!r}.")
        if self.graph is not None and self.graph != "graph" and not Path(self.graph).is_absolute():
            raise InputError(f"the graph of a job is in its folder 'graph' or at an absolute path, not {self.graph!r}.")
        for name, words in (("bad_rows", get_args(BadRows)), ("duplicates", get_args(Duplicates))):
            if getattr(self, name) not in words:
                raise InputError(f"{name} is one of {', '.join(words)}, not {str(getattr(self, name))[:40]!r}.")

    def identified(self, known: Source | None = None) -> Source:
        """Return the source with absolute paths and the checksums of its files.

        A file that is as ``known`` remembers it, by size, times and inode, is not read again.
        """
        if self.path is None:
            return self
        if not Path(self.path).exists():
            raise InputError(f"{self.path} does not exist.")
        paths = {name: getattr(self, name) for name in ("path", "features", "labels")}
        absolute = {name: None if path is None else str(Path(path).absolute()) for name, path in paths.items()}
        checksums, stamps = {}, {}
        for name, path in absolute.items():
            if path is not None and Path(path).is_file():
                key, now = "edges" if name == "path" else name, time.time_ns()
                mark = stamp(Path(path))
                seen = known is not None and known.stamps.get(key) == mark and is_checksum(known.checksums.get(key))
                checksum = _features_checksum if key == "features" else file_checksum
                checksums[key] = known.checksums[key] if seen and known is not None else checksum(Path(path))
                if is_settled(mark, now):
                    stamps[key] = mark
        if Path(self.path).is_dir():
            checksums["graph"] = graph_fingerprint(_graph_in(Path(self.path)))
        return dataclasses.replace(self, **absolute, checksums=checksums, stamps=stamps)  # type: ignore[arg-type]

    def input(self) -> dict[str, object]:
        """Return what the graph depends on, as plain values, without the paths of the files."""
        names = ("directed", "bad_rows", "duplicates", "largest_component")
        reading: dict[str, object] = {name: getattr(self, name) for name in names}
        reading |= {} if self.half_life is None else {"half_life": self.half_life}
        for name, checksum in self.checksums.items():
            reading[f"{name} with {'fingerprint' if name == 'graph' else 'SHA-256'}"] = checksum
        return {"columns": None if self.columns is None else list(self.columns), **reading}

    def read(self) -> Graph:
        """Open the graph folder, or read the edge list."""
        if self.path is None:
            raise InputError("this job has no file to read its graph from; give it the graph.")
        path = Path(self.path)
        if not path.exists():
            raise InputError(f"{path} does not exist.")
        if path.is_dir() and self.half_life is not None:
            raise InputError(f"{path} is a graph folder, whose edges have no times: give --half-life an edge list.")
        common: dict[str, Any] = {"directed": self.directed, "features": self.features, "labels": self.labels}
        if self.half_life is not None:
            graph = read_recent_edges(path, half_life=self.half_life, columns=self.columns, **common)
        else:
            edges, columns = (_graph_in(path), None) if path.is_dir() else (path, self.columns)
            rows: dict[str, Any] = {"bad_rows": self.bad_rows, "duplicates": self.duplicates}
            graph = read_edges(edges, columns=columns, **rows, **common)
        return graph.largest_component()[0] if self.largest_component else graph


def _graph_in(folder: Path) -> Graph:
    if (folder / JOB).exists():
        raise InputError(f'{folder} is a job. Open it with gq.Job.open("{folder}"), or give an edge list.')
    return Graph.open(folder)


def _features_checksum(path: Path) -> str:
    """Return the checksum of a file; a large ``.npy`` matrix is known by its size and 64 pieces, and not read whole."""
    with contextlib.suppress(FormatError):
        if path.suffix == ".npy" and large_file(map_array(path)) is not None:
            return str(reference(path)["sha256"])
    return file_checksum(path)


def read_array(path: str | Path | None, content: str) -> AnyArray | None:
    """Open an array (.npy), memory-mapped; ``content`` says what it is to hold."""
    try:
        return None if path is None else map_array(Path(path))
    except FileNotFoundError as error:
        raise FormatError(f"{path} cannot be read as {content}: it does not exist.") from error
    except (OSError, FormatError) as error:
        raise FormatError(f"{path} cannot be read as {content}: {error} Expected an array (.npy).") from error


def settle_graph(
    store: Store, settings: JobSettings, graph: Graph | None, stored: JobSettings | None
) -> tuple[JobSettings, Graph | None]:
    """Find the graph of a job, and write it to the folder of the store where that does not have it.

    ``stored`` are the settings of a job that is resumed, if they can be read. Return the settings with every default
    filled in for the graph, and the graph.
    """
    given = graph is not None or settings.source.path is not None
    source, keep = settings.source, stored is None
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
    graph = None if graph is None else with_checksums(graph)
    source = replace(source, fingerprint=None if graph is None else graph_fingerprint(graph))
    if stored is not None and stored.source.fingerprint != source.fingerprint:
        if "patch_graph" in store:
            changes = differences(stored.source.input(), source.input()) or (
                f"graph with fingerprint {stored.source.fingerprint} (now {source.fingerprint})"
            )
            raise JobError(f"{store_name(store)} was made from other input: {changes}. Use another folder.")
        keep = True
    elif stored is not None:
        source = stored.source
    settings = replace(settings, source=source).resolved(graph)
    if stored is None:
        settings.check_records(store)  # before anything is written
    folder = store_folder(store)
    if graph is not None and folder is not None:
        if keep or (given and graph.folder is None and not _is_kept(store, source)):
            with locked(store):
                settings = replace(settings, source=keep_graph(store, source, graph))
        graph = with_checksums(graph, str(folder / str(settings.source.graph)))
    return settings, graph


def keep_graph(store: Store, source: Source, graph: Graph) -> Source:
    """Keep a graph, unless it is in a graph folder of its own; return the source that says where."""
    job = store_folder(store)
    assert job is not None
    DirectoryStore(job).create()  # first: a folder with a graph and nothing else in it is not known as a job
    folder = "graph"
    with translate_disk_errors(job):
        if graph.folder is not None and Path(graph.folder) != job / "graph":
            folder = graph.folder
        else:
            check_inside(job / "graph", job)
            features = large_file(graph.features)  # stay in their file
            csr = graph.indptr, graph.indices, graph.weights
            others: dict[str, Any] = {"labels": graph.labels, "node_ids": graph.node_ids, "directed": graph.directed}
            (graph if features is None else Graph.from_arrays(*csr, **others)).save(job / "graph")
            if features is not None:
                attach(job / "graph", features=features)
    return replace(source, graph=folder)


def _is_kept(store: Store, source: Source) -> bool:
    """Return whether a store has the graph, and log why if not."""
    try:
        open_graph(store, source)
    except (JobError, FormatError) as error:
        _log.warning("the graph is written again: %s", error)
        return False
    return True


def open_graph(store: Store, source: Source) -> Graph | None:
    """Open the graph that a job was begun with, None if the store does not have it; refuse another in its place."""
    folder = store_folder(store)
    if source.graph is None or folder is None:
        return None
    path = folder / source.graph
    graph = Graph.open(path)
    if graph_fingerprint(graph) != source.fingerprint:
        raise JobError(
            f"{store_name(store)} was begun with another graph than the one that is now in {path} (fingerprint "
            f"{source.fingerprint}, now {graph_fingerprint(graph)}). Put the first one back, or use another folder for "
            "the job."
        )
    return graph
