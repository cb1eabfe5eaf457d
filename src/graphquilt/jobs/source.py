"""Source: the input that the graph of a job is read from."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.ingest import read_edges

__all__ = ["Source", "read_array", "read_features"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the graph of a job comes from.

    Attributes
    ----------
    path : str, optional
        A file of edges, or a graph folder. None for a graph that was made in memory.
    columns : tuple
        Which columns of a file of edges hold source, target and perhaps weight, by position or name.
    features, labels : str, optional
        Files of node features and node classes.
    directed : bool
        Keep edges one-way.
    largest_component : bool
        Keep only the largest connected component.
    checksums : mapping of str to str
        SHA-256 of each file, so that the same bytes are recognised wherever they lie.
    graph : str, optional
        The folder that holds the graph, relative to the job's folder or absolute; None where it is only in memory.
    fingerprint : str, optional
        The fingerprint of the graph.
    """

    path: str | None = None
    columns: tuple[int | str, ...] = (0, 1)
    features: str | None = None
    labels: str | None = None
    directed: bool = False
    largest_component: bool = False
    checksums: Mapping[str, str] = field(default_factory=dict)
    graph: str | None = None
    fingerprint: str | None = None

    def identified(self) -> Source:
        """Return the source with absolute paths and the checksums of its files."""
        if self.path is None:
            return self
        if not Path(self.path).exists():
            raise InputError(f"{self.path} does not exist.")
        paths = {name: getattr(self, name) for name in ("path", "features", "labels")}
        absolute = {name: None if path is None else str(Path(path).absolute()) for name, path in paths.items()}
        checksums = {
            "edges" if name == "path" else name: _sha256(Path(path))
            for name, path in absolute.items()
            if path is not None and Path(path).is_file()
        }
        return dataclasses.replace(self, **absolute, checksums=checksums)  # type: ignore[arg-type]

    def input(self) -> dict[str, object]:
        """Return what the graph depends on, as plain values; where the files lie does not count."""
        reading = {
            "columns": list(self.columns),
            "directed": self.directed,
            "largest_component": self.largest_component,
        }
        return {**reading, **{f"{name} with SHA-256": checksum for name, checksum in self.checksums.items()}}

    def read(self) -> Graph:
        """Open the graph folder, or read the file of edges."""
        if self.path is None:
            raise InputError("this job has no file to read its graph from; give it the graph.")
        path = Path(self.path)
        if not path.exists():
            raise InputError(f"{path} does not exist.")
        features, labels = read_features(self.features), read_array(self.labels, "labels")
        if path.is_dir():
            graph = Graph.open(path).with_attributes(features=features, labels=labels)
        else:
            graph = read_edges(path, columns=self.columns, directed=self.directed, features=features, labels=labels)
        return graph.largest_component()[0] if self.largest_component else graph

    @property
    def is_graph_folder(self) -> bool:
        """Whether the path is a graph folder that the job can use as it is."""
        unchanged = self.features is None and self.labels is None and not self.largest_component
        return self.path is not None and unchanged and Path(self.path).is_dir()


def read_features(path: str | Path | None) -> AnyArray | sp.csr_array | None:
    """Read node features: an array (.npy), or a sparse matrix (.npz of scipy.sparse.save_npz)."""
    if path is None or Path(path).suffix != ".npz":
        return read_array(path, "features")
    try:
        return sp.csr_array(sp.load_npz(path))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} cannot be read as features: {error}.") from error


def read_array(path: str | Path | None, content: str) -> AnyArray | None:
    """Read an array (.npy), without unpickling anything; ``content`` says what it is to hold."""
    if path is None:
        return None
    try:
        array: AnyArray = np.load(path, allow_pickle=False, mmap_mode="r")
        if isinstance(array, np.ndarray):
            return array
        raise ValueError("it holds several arrays")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as {content}: {error}.") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
