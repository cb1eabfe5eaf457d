"""Read data sets that other projects publish as pickles or torch files, and convert them to plain .npz files.

The package itself reads only plain arrays. Nothing in a pickle is ever called: see ``studies/pickles.py``.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import Int64Array
from graphquilt.datasets import dataset_folder
from graphquilt.datasets.loading import (
    class_numbers,
    download,
    feature_matrix,
    npz_graph,
    number_array,
    undirected_adjacency,
)
from graphquilt.errors import FormatError, InputError, QuiltError
from graphquilt.files.array_files import read_bytes, save_arrays
from graphquilt.graph import Graph
from graphquilt.graph.checks import check_size
from graphquilt.progress import ProgressCallback, report
from studies.pickles import Placeholder, load_npz, load_pickle, load_torch

__all__ = ["convert_dataset", "load_raw_dataset"]

PLANETOID = ("cora", "citeseer", "pubmed")
_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_ADDRESS = "https://github.com/kimiyoung/planetoid/raw/master/data/"
_CACHES = {"amazon-photo": ("Photo", "Amazon"), "coauthor-cs": ("CS", "Coauthor")}  # name and family in PyG
# Of the raw planetoid files, to detect an incomplete or changed download.
SHA256 = {
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
}


def convert_dataset(
    name: str,
    *,
    data: str | os.PathLike[str] | None = None,
    address: str = _ADDRESS,
    progress: ProgressCallback | None = None,
) -> Path:
    """Write ``DATA/NAME/NAME.npz`` from the pickles or the cache of PyG in the folder, or from a download of planetoid.

    ``address`` is where the files of planetoid are downloaded from.
    """
    folder = dataset_folder(data) / name
    try:
        graph = load_raw_dataset(name, data=data, largest_component=False)
    except InputError as error:
        if isinstance(error, FormatError) or name not in PLANETOID:
            raise
        folder.mkdir(exist_ok=True)
        for number, part in enumerate(_PARTS):
            report(progress, f"fetching {name}", number, len(_PARTS))
            file = f"ind.{name}.{part}"
            download(address + file, folder, SHA256[file])
        graph = load_raw_dataset(name, data=data, largest_component=False)
    rows = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    X: sp.csr_array = sp.csr_array(cast(sp.csr_array, graph.features))
    parts = {f"x_{part}": np.asarray(getattr(X, part)) for part in ("data", "indices", "indptr", "shape")}
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.npz"
    save_arrays(path, {"edge_index": np.stack([rows, graph.indices]), **parts, "y": np.asarray(graph.labels)})
    return path


def load_raw_dataset(name: str, *, data: str | os.PathLike[str] | None = None, largest_component: bool = True) -> Graph:
    """Read a data set from the pickles of planetoid, an .npz file with pickled matrices, or the cache of PyG."""
    root = dataset_folder(data)
    form, files = _raw_files(name, root)
    try:
        if form == "npz":
            arrays = load_npz(files[0])
            graph = (_pickled if "adj_matrix" in arrays else npz_graph)(files[0], arrays)
        else:
            graph = _planetoid(files) if form == "planetoid" else _pyg(files)
        return graph.largest_component()[0] if largest_component else graph
    except (QuiltError, OSError):
        raise
    except Exception as error:  # numbers that are damaged, but of the right kind, can raise anything further on
        reason = str(error) or type(error).__name__
        raise FormatError(f"{files[0]} does not hold the data set '{name}': {reason}. Get it again.") from error


def _raw_files(name: str, root: Path) -> tuple[str, list[Path]]:
    cached, family = _CACHES.get(name, (name.title(), "Planetoid"))
    tops = (cached, f"{family}/{cached}", f"{cached.lower()}/{cached}")
    caches = [Path(top) / leaf for top in tops for leaf in ("raw", "processed", f"{family}/processed")]
    forms = [
        ("planetoid", [f"ind.{name}.{part}" for part in _PARTS]),
        *(("npz", [file]) for file in (f"{name}.npz", f"{name.replace('-', '_')}.graphdata.npz")),
        ("pyg", ["data.pt"]),
    ]
    for form, names in forms:
        for folder in (Path(name), Path(name) / "raw", Path(), *caches):
            files = [root / folder / file for file in names]
            if all(file.is_file() for file in files):
                return form, files
    raise InputError(
        f"{root} has no raw files of the data set '{name}': neither ind.{name}.* of github.com/kimiyoung/planetoid, "
        "nor data.pt of PyG, nor an .npz file with pickled matrices."
    )


def _pickled(path: Path, arrays: Mapping[str, Any]) -> Graph:
    """Return the graph of an .npz file with pickled matrices."""
    A, X = arrays["adj_matrix"], feature_matrix(arrays["node_attr"], path)
    rows, columns = (A if isinstance(A, sp.csr_array) else number_array(A, "biuf", 2, path)).nonzero()
    return Graph(undirected_adjacency((rows, columns), A.shape[0]), X, labels=class_numbers(arrays["node_label"], path))


def _planetoid(files: list[Path]) -> Graph:
    parts = {path.name.split(".", 2)[2]: path for path in files}
    allx, tx = (feature_matrix(load_pickle(parts[part]), parts[part]) for part in ("allx", "tx"))
    ally, ty = (number_array(load_pickle(parts[part]), "biuf", 2, parts[part]) for part in ("ally", "ty"))
    n, edges = _neighbours(parts["graph"])
    test = np.array([int(word) for word in read_bytes(parts["test.index"]).split()], dtype=np.int64)
    if len(test) != tx.shape[0] or len(ally) != allx.shape[0] or len(ty) != len(test):
        raise FormatError(
            f"{parts['test.index']} lists {len(test)} nodes, tx has {tx.shape[0]} rows, ty {len(ty)}, allx "
            f"{allx.shape[0]} and ally {len(ally)}; the first three must agree, and the last two."
        )
    # Row r of tx is node test[r]; nodes that are in neither file have no features and no label.
    place = np.concatenate([np.arange(len(ally)), test])
    if len(np.unique(place)) != len(place) or place.min() < 0 or place.max() >= n:
        raise FormatError(
            f"{parts['test.index']} names a node twice, or a node that the graph of {n} nodes does not have."
        )
    stacked = sp.vstack([allx, tx]).tocoo()
    X = sp.csr_array((stacked.data, (place[stacked.row], stacked.col)), shape=(n, stacked.shape[1]))
    y = np.full(n, -1, dtype=np.int64)
    one_hot = np.concatenate([ally, ty])
    y[place] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    return Graph(undirected_adjacency(edges, n), X, labels=y)


def _neighbours(path: Path) -> tuple[int, tuple[Int64Array, Int64Array]]:
    """Return the number of nodes, and both ends of the edges, of a pickled dictionary of lists of neighbours."""
    neighbours = load_pickle(path)
    if not isinstance(neighbours, dict) or not all(isinstance(nodes, list) for nodes in neighbours.values()):
        raise FormatError(f"{path} does not hold a dictionary of lists of neighbours. Get it again.")
    lengths = [len(nodes) for nodes in neighbours.values()]
    if sum(lengths) > path.stat().st_size:  # a list that is used again and again
        raise FormatError(f"{path} has {path.stat().st_size} bytes and lists {sum(lengths)} neighbours. Get it again.")
    ends = list(chain.from_iterable(neighbours.values()))
    if not {type(node) for node in (*neighbours, *ends)} <= {int}:
        raise FormatError(f"{path} lists neighbours that are not whole numbers. Get it again.")
    return len(neighbours), (np.repeat(np.array(list(neighbours), dtype=np.int64), lengths), np.array(ends, np.int64))


def _pyg(files: list[Path]) -> Graph:
    path = files[0]
    arrays = _find_mapping(load_torch(path))
    if arrays is None:
        raise FormatError(f"{path} contains no edge_index; it is not a graph of PyG.")
    edges, y = number_array(arrays["edge_index"], "iu", 2, path), arrays.get("y")
    features = None if arrays.get("x") is None else feature_matrix(arrays["x"], path)
    n = int(edges.max()) + 1 if features is None else features.shape[0]
    check_size(n, edges.size if features is None else n, "nodes")
    return Graph(undirected_adjacency(edges, n), features, labels=None if y is None else class_numbers(y, path))


def _find_mapping(value: object) -> dict[str, Any] | None:
    """Return the mapping with ``edge_index`` inside tuples, dictionaries and placeholders of PyG objects."""
    waiting, seen = deque([value]), set[int]()  # objects of PyG may contain each other
    while waiting:
        part = waiting.popleft()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            if isinstance(part.get("edge_index"), np.ndarray):
                return part
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)
        elif isinstance(part, Placeholder):
            waiting.extend((part.state, *part.arguments))
    return None
