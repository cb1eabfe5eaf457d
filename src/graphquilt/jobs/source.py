"""Source: the input that the graph of a job is read from."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.files import map_array
from graphquilt.files.checksums import file_checksum, is_checksum
from graphquilt.files.stamps import is_settled, large_file, reference, stamp
from graphquilt.graph import BadRows, Duplicates, Graph, read_edges
from graphquilt.jobs.directory import JOB
from graphquilt.jobs.records import graph_fingerprint


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the graph of a job comes from.

    Attributes
    ----------
    path : str, optional
        An edge list, or a graph folder. None for a graph that was made in memory.
    columns : tuple, optional
        Which columns of an edge list hold source, target and perhaps weight, by position or name; by default
        :func:`graphquilt.read_edges` finds them.
    features, labels : str, optional
        Files of node features and node classes, as :func:`graphquilt.read_edges` takes them.
    directed : bool
        Treat edges as directed.
    bad_rows, duplicates : str
        What happens to rows that cannot be used, and the weight of an edge that is there more than once, as for
        :func:`graphquilt.read_edges`.
    largest_component : bool
        Keep only the largest connected component.
    checksums : mapping of str to str
        SHA-256 of each file (of large features, of their size and 64 pieces), and the fingerprint of a graph folder, so
        that the same bytes are recognised wherever they lie.
    stamps : mapping of str to list of int
        Size, times and inode of each file when its checksum was computed: a file that still has them is not read again.
    graph : str, optional
        The folder that holds the graph: ``graph`` in the job's folder, or an absolute path; None if it is only in
        memory.
    fingerprint : str, optional
        The fingerprint of the graph.
    """

    path: str | None = None
    columns: tuple[int | str, ...] | None = None
    features: str | None = None
    labels: str | None = None
    directed: bool = False
    bad_rows: BadRows = "stop"
    duplicates: Duplicates = "max"
    largest_component: bool = False
    checksums: Mapping[str, str] = field(default_factory=dict)
    stamps: Mapping[str, list[int]] = field(default_factory=dict)
    graph: str | None = None
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        for name in ("path", "features", "labels", "graph", "fingerprint"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise InputError(f"{name} of a source is text, not {str(value)[:40]!r}.")
        if self.graph is not None and self.graph != "graph" and not Path(self.graph).is_absolute():
            raise InputError(
                f"the graph of a job is in its folder 'graph' or at an absolute path, not at {self.graph!r}."
            )
        if not isinstance(self.checksums, Mapping) or not isinstance(self.stamps, Mapping):
            raise InputError("checksums and stamps of a source are mappings.")
        for name, words in (("bad_rows", get_args(BadRows)), ("duplicates", get_args(Duplicates))):
            if getattr(self, name) not in words:
                raise InputError(f"{name} is one of {', '.join(words)}, not {str(getattr(self, name))[:40]!r}.")
        columns = () if self.columns is None else self.columns
        if not isinstance(columns, tuple) or not all(isinstance(column, int | str) for column in columns):
            raise InputError(f"columns of a source are positions or names, not {str(self.columns)[:40]!r}.")

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
        reading = {
            "columns": None if self.columns is None else list(self.columns),
            "directed": self.directed,
            "bad_rows": self.bad_rows,
            "duplicates": self.duplicates,
            "largest_component": self.largest_component,
        }
        kinds = {name: "fingerprint" if name == "graph" else "SHA-256" for name in self.checksums}
        return {**reading, **{f"{name} with {kinds[name]}": checksum for name, checksum in self.checksums.items()}}

    def read(self) -> Graph:
        """Open the graph folder, or read the edge list."""
        if self.path is None:
            raise InputError("this job has no file to read its graph from; give it the graph.")
        path = Path(self.path)
        if not path.exists():
            raise InputError(f"{path} does not exist.")
        edges = _graph_in(path) if path.is_dir() else path
        columns = None if path.is_dir() else self.columns
        graph = read_edges(
            edges,
            columns=columns,
            directed=self.directed,
            bad_rows=self.bad_rows,
            duplicates=self.duplicates,
            features=self.features,
            labels=self.labels,
        )
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
    if path is None:
        return None
    try:
        return map_array(Path(path))
    except FileNotFoundError as error:
        raise FormatError(f"{path} cannot be read as {content}: it does not exist.") from error
    except (OSError, FormatError) as error:
        raise FormatError(f"{path} cannot be read as {content}: {error} Expected an array (.npy).") from error
