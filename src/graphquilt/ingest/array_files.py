"""Edges in NumPy and Parquet files."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError
from graphquilt.graph.files import open_array, sparse_features
from graphquilt.graph.structure import Features
from graphquilt.ingest.assembly import Columns
from graphquilt.ingest.sources import edge_ends, read_parquet

__all__ = ["EdgeFile", "read_npy", "read_npz", "read_parquet_columns"]


@dataclass(frozen=True, eq=False)
class EdgeFile:
    """The edges of a file, and what else it says about the nodes."""

    columns: Columns
    n_nodes: int | None = None
    features: Features | None = None
    labels: AnyArray | None = None
    node_ids: AnyArray | None = None


def read_npy(path: Path) -> EdgeFile:
    """Read a (2, m) or (m, 2) array of integer ids."""
    return EdgeFile(_ends(path, open_array(path)))


def _ends(path: Path, edges: AnyArray, weights: AnyArray | None = None) -> Columns:
    if edges.ndim != 2 or 2 not in edges.shape or not np.issubdtype(edges.dtype, np.integer):
        raise FormatError(
            f"{path}: edges are integers of shape (2, m) or (m, 2); these are {edges.dtype} of shape {edges.shape}."
        )
    u, v = edge_ends(edges)
    values = None if weights is None else np.asarray(weights, dtype=np.float64).reshape(-1)
    if values is not None and len(values) != len(u):
        raise FormatError(f"{path}: {len(u)} edges and {len(values)} weights.")
    return Columns(np.asarray(u), np.asarray(v), values)


def read_npz(path: Path) -> EdgeFile:
    """Read ``edge_index`` or ``edges`` with ``edge_weight``, ``x`` (or its CSR parts), ``y`` and ``node_id`` if there.

    A matrix written by ``scipy.sparse.save_npz`` is taken as an adjacency.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist.") from error
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, TypeError) as error:
        raise FormatError(f"{path} is not a complete .npz file of plain arrays: {error}. Write it again.") from error
    if {"format", "shape", "data"} <= set(arrays):
        with path.open("rb") as file:
            A = sp.coo_array(sp.load_npz(file))
        unweighted = bool(np.all(A.data == 1))
        columns = Columns(A.row.astype(np.int64), A.col.astype(np.int64), None if unweighted else A.data.astype(float))
        return EdgeFile(columns, A.shape[0])
    name = next((name for name in ("edge_index", "edges") if name in arrays), None)
    if name is None:
        raise FormatError(f"{path} holds {', '.join(arrays)}; an array edge_index or edges is wanted.")
    features = arrays.get("x", sparse_features(arrays, "x"))
    labels, ids = arrays.get("y"), arrays.get("node_id")
    n_nodes = next((values.shape[0] for values in (features, labels, ids) if values is not None), None)
    return EdgeFile(_ends(path, arrays[name], arrays.get("edge_weight")), n_nodes, features, labels, ids)


def read_parquet_columns(path: Path, columns: tuple[int | str, ...]) -> EdgeFile:
    """Read two or three columns in memory."""
    parts = list(read_parquet(path, columns, 1 << 20))
    if not parts:
        raise FormatError(f"{path} is empty: it holds no edges.")
    values = [np.concatenate([part[c] for part in parts]) for c in range(len(columns))]
    for c in range(2):
        if values[c].dtype == object:
            values[c] = values[c].astype(str)
        elif not np.issubdtype(values[c].dtype, np.integer):
            raise FormatError(f"{path}: ids must be integers or text, not {values[c].dtype}.")
    if len(values) > 2 and not np.issubdtype(values[2].dtype, np.number):
        raise FormatError(f"{path}: weights must be numbers, not {values[2].dtype}.")
    return EdgeFile(Columns(values[0], values[1], values[2].astype(np.float64) if len(values) > 2 else None))
