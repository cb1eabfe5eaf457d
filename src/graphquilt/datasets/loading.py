"""The data sets of the paper by name: their files, how they are read or fetched, and one that is generated."""

from __future__ import annotations

import hashlib
import os
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import FormatError, InputError, QuiltError
from graphquilt.files import atomic_file, load_arrays, translate_disk_errors
from graphquilt.graph import Graph
from graphquilt.graph.checks import check_size, csr_of
from graphquilt.progress import ProgressCallback, report


@dataclass(frozen=True)
class Dataset:
    """The description of a data set."""

    name: str
    files: tuple[str, ...]  # the names that its file may have, or patterns; the first that exists is used
    source: str  # where the files come from, for messages
    places: tuple[str, ...] = ()  # folders below the data folder, besides the one of its name, that may contain them
    form: str = "npz"
    # What ``graphquilt datasets fetch`` downloads; None where the publisher requires a form, or for hundreds of GB.
    url: str | None = None
    counts: tuple[int, int] | None = None  # nodes and edges of the largest component


_PLANETOID = (
    "github.com/kimiyoung/planetoid, whose pickles 'python -m studies convert' in a clone of graphquilt downloads and "
    "turns into .npz"
)
_SHCHUR = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"


def _citations(name: str, counts: tuple[int, int]) -> Dataset:
    return Dataset(name, (f"{name}.npz",), _PLANETOID, counts=counts)


def _shchur(name: str, file: str, counts: tuple[int, int]) -> Dataset:
    source = "github.com/shchur/gnn-benchmark (folder data/npz)"
    files, url = (f"{name}.npz", f"{file}.npz"), f"{_SHCHUR}/{file}.npz"
    return Dataset(name, files, source, (f"{name}/raw",), url=url, counts=counts)


CATALOGUE: dict[str, Dataset] = {
    entry.name: entry
    for entry in (
        _citations("cora", (2485, 5069)),
        _citations("citeseer", (2120, 3679)),
        _citations("pubmed", (19717, 44324)),
        _shchur("amazon-photo", "amazon_electronics_photo", (7487, 119_043)),
        _shchur("coauthor-cs", "ms_academic_cs", (18333, 81894)),
        Dataset(
            "wordnet",
            ("wordnet.npz",),
            "the synsets and relations of github.com/globalwordnet/english-wordnet (docs/results/quality.md)",
            counts=(96_502, 114_923),
        ),
        Dataset(
            "lanl",
            ("netflow_day-*",),
            "Los Alamos National Laboratory, csr.lanl.gov/data/2017 (netflow; requires a form)",
            ("lanl-2017-netflow",),
            form="flows",
        ),
        Dataset(
            "lanl-2015",
            ("flows.txt*", "auth*.txt*"),
            "Los Alamos National Laboratory, csr.lanl.gov/data/cyber1 (flows.txt or auth.txt)",
            form="flows",
        ),
        Dataset(
            "darpa-1998",
            ("darpa_original.*",),
            "the connections of DARPA's evaluation of 1998 as a table, github.com/Stream-AD/MIDAS (folder data)",
            form="flows",
        ),
        Dataset(
            "optc",
            ("ecar*.json*", "AIA-*.json*"),
            "DARPA's Operationally Transparent Cyber data, github.com/FiveDirections/OpTC-data (eCAR events)",
            ("security-logs/optc",),
            form="flows and events",
        ),
        Dataset(
            "beth",
            ("labelled_*.csv",),
            "the BETH data of Highnam et al. 2021, kaggle.com/datasets/katehighnam/beth-dataset",
            ("security-logs/beth",),
            form="events",
        ),
    )
}


def dataset_names() -> list[str]:
    """Return the names of all data sets, first the one that needs no file."""
    return ["blocks", *sorted(CATALOGUE)]


def dataset(name: str) -> Dataset:
    """Return the description of the data set with this name."""
    if name not in CATALOGUE:
        raise InputError(f"there is no data set named '{name}'; the names are {', '.join(dataset_names())}.")
    return CATALOGUE[name]


def dataset_folder(data: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder with data sets: ``data``, or that of the variable ``GRAPHQUILT_DATA``."""
    path = data if data is not None else os.environ.get("GRAPHQUILT_DATA")
    if not path:
        raise InputError("pass --data FOLDER (data=) or set GRAPHQUILT_DATA; the data set 'blocks' needs none.")
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise InputError(f"the folder with data sets, {folder}, does not exist.")
    return folder


def dataset_files(name: str, data: str | os.PathLike[str] | None = None) -> tuple[str, list[Path]]:
    """Return the file format of a data set in a folder, and its files."""
    entry = dataset(name)
    root, folders = dataset_folder(data), (name, *entry.places, ".")
    for pattern in entry.files:
        for folder in folders:
            if matches := sorted((root / folder).glob(pattern)):
                return entry.form, matches
    hint = f"graphquilt datasets fetch {name}" if entry.url else "graphquilt does not download it"
    raise InputError(
        f"the data set '{name}' is not in {root}. Looked for {' or '.join(entry.files)} in "
        f"{', '.join(folders)}. It comes from {entry.source}; {hint}."
    )


def load_dataset(name: str, *, data: str | os.PathLike[str] | None = None, largest_component: bool = True) -> Graph:
    """Return a data set by name: undirected, without loops, with features and labels.

    Nothing is downloaded. ``"blocks"`` is generated; the others are read from the folder ``data``, by default that of
    the variable ``GRAPHQUILT_DATA``. By default only the largest connected component is returned, as in the paper.

    Examples
    --------
    >>> graph = load_dataset("blocks")
    >>> graph.n_nodes, graph.n_edges, len(set(graph.labels.tolist()))
    (1200, 5933, 6)
    """
    if name == "blocks":
        return block_graph()
    form, files = dataset_files(name, data)
    if form != "npz":
        raise InputError(
            f"'{name}' is a record of {form} and not one graph; read its {len(files)} files with "
            f"{' or '.join(f'read_{word}' for word in form.split(' and '))} and cut them into windows."
        )
    try:
        graph = npz_graph(files[0], load_arrays(files[0], unpickle=lambda _: None))
        return graph.largest_component()[0] if largest_component else graph
    except (QuiltError, OSError):
        raise
    except Exception as error:  # numbers that are damaged, but of the right kind, can raise anything further on
        reason = str(error) or type(error).__name__
        raise FormatError(f"{files[0]} does not hold the data set '{name}': {reason}. Get it again.") from error


def undirected_adjacency(edge_index: AnyArray | tuple[AnyArray, AnyArray], n: int) -> sp.csr_array:
    """Return the 0/1 adjacency of pairs (2, m): both directions, no loops, no duplicates."""
    rows, columns = (np.asarray(nodes, dtype=np.int64) for nodes in edge_index)
    if len(rows) and (min(rows.min(), columns.min()) < 0 or max(rows.max(), columns.max()) >= n):
        raise FormatError(f"an edge of the data set leads to a node that is not among its {n} nodes. Get it again.")
    keep = rows != columns
    rows, columns = rows[keep], columns[keep]
    A = sp.coo_array((np.ones(2 * len(rows)), (np.r_[rows, columns], np.r_[columns, rows])), shape=(n, n)).tocsr()
    A.data[:] = 1
    return A


def number_array(value: object, kinds: str, ndim: int, path: Path) -> AnyArray:
    """Return ``value`` if it is an array of numbers of these kinds."""
    if not isinstance(value, np.ndarray) or value.ndim != ndim or value.dtype.kind not in kinds:
        description = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise FormatError(f"{path} holds {description} where numbers in {ndim} dimensions belong. Get it again.")
    return value


def feature_matrix(value: object, path: Path) -> sp.csr_array:
    """Return features, which may be a sparse matrix or an array, as a sparse matrix of single precision."""
    X: Any = value if isinstance(value, sp.csr_array) else number_array(value, "biuf", 2, path)
    features: sp.csr_array = sp.csr_array(X, dtype=np.float32, copy=True)
    check_size(features.shape[1], features.nnz, "features")
    return features


def class_numbers(value: object, path: Path) -> Int64Array:
    """Return classes as 64-bit integers."""
    return number_array(value, "iu", 1, path).astype(np.int64)


def npz_graph(path: Path, arrays: Mapping[str, Any]) -> Graph:
    """Return the graph in the arrays of an .npz file, in one of two layouts."""
    names = set(arrays)
    if {"edge_index", "x_data", "y"} <= names:
        X = feature_matrix(_csr(arrays, "x"), path)
        edges = number_array(arrays["edge_index"], "iu", 2, path)
        return Graph(undirected_adjacency(edges, X.shape[0]), X, labels=class_numbers(arrays["y"], path))
    if {"adj_data", "labels"} <= names:
        A, labels = _csr(arrays, "adj"), class_numbers(arrays["labels"], path)
        X = feature_matrix(_csr(arrays, "attr") if "attr_data" in names else arrays.get("attr_matrix"), path)
        return Graph(undirected_adjacency(A.nonzero(), A.shape[0]), X, labels=labels)
    raise FormatError(
        f"{path} contains {', '.join(sorted(arrays)) or 'no plain arrays'}; expected edge_index, x_data, x_indices, "
        "x_indptr, x_shape and y, or adj_data …, attr_data … and labels."
    )


def _csr(arrays: Mapping[str, Any], prefix: str) -> sp.csr_array:
    return csr_of(*(arrays.get(f"{prefix}_{part}") for part in ("data", "indices", "indptr", "shape")))


def block_graph(n_nodes: int = 1200, n_classes: int = 6, *, seed: int = 0) -> Graph:
    """Generate a connected graph in which most edges join nodes of one class, and each class prefers some words."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_nodes) % n_classes
    own = (rng.integers(0, n_nodes // n_classes, size=(n_nodes, 2)) * n_classes + y[:, None]).ravel()
    ring = (np.arange(n_nodes) + n_classes) % n_nodes
    other = rng.integers(0, n_nodes, size=2 * n_nodes)
    nodes = np.arange(n_nodes)
    A = undirected_adjacency((np.r_[np.repeat(nodes, 2), nodes, nodes, nodes], np.r_[own, ring, other]), n_nodes)
    words = 20 * n_classes
    own_words = rng.integers(0, 20, size=(n_nodes, 6)) + 20 * y[:, None]
    columns = np.hstack([own_words, rng.integers(0, words, size=(n_nodes, 18))]).ravel()
    X = sp.csr_array((np.ones(24 * n_nodes, dtype=np.float32), (np.repeat(nodes, 24), columns)), (n_nodes, words))
    X.data[:] = 1
    return Graph(A, X, labels=y).largest_component()[0]


def fetch_dataset(
    name: str, *, data: str | os.PathLike[str] | None = None, progress: ProgressCallback | None = None
) -> list[Path]:
    """Download the file of a data set into ``DATA/NAME``, check it, and return where the files are.

    A file that is not that of the data set is removed, and raises a FormatError.
    """
    entry, root = dataset(name), dataset_folder(data)
    try:
        return dataset_files(name, root)[1]
    except InputError:
        if entry.url is None:
            raise
    (root / name).mkdir(exist_ok=True)
    report(progress, f"fetching {name}", 0, 1)
    path = download(entry.url, root / name)
    report(progress, f"fetching {name}", 1, 1)
    graph = load_dataset(name, data=root)
    if (graph.n_nodes, graph.n_edges) != entry.counts:
        path.unlink()
        raise FormatError(
            f"the graph from {entry.url} has {graph.n_nodes} nodes and {graph.n_edges} edges in its largest component; "
            f"'{name}' has {entry.counts}. The file was removed."
        )
    return [path]


def download(address: str, folder: Path, sha256: str | None = None) -> Path:
    """Download one file, completely and with this checksum, or not at all."""
    path = folder / address.rsplit("/", 1)[-1]
    digest = hashlib.sha256()
    with translate_disk_errors(folder), atomic_file(path) as file:
        for block in _blocks(address, folder):
            digest.update(block)
            file.write(block)
        if sha256 is not None and digest.hexdigest() != sha256:
            raise FormatError(f"{address} has SHA-256 {digest.hexdigest()[:12]}…, not {sha256[:12]}…; try again later.")
    return path


def _blocks(address: str, folder: Path) -> Iterator[bytes]:
    """Yield the bytes at an address, 1 MB at a time."""
    try:
        with urllib.request.urlopen(address, timeout=60) as source:
            while block := source.read(1 << 20):
                yield block
    except OSError as error:  # the errors of urllib are among these
        raise InputError(f"{address} cannot be downloaded: {error}. Put the file into {folder} by hand.") from error
