"""The main directions of rows that are spread over many patches, from sums of whole numbers.

Rows are rounded to a grid of 2^-18 before they are multiplied. Products of such numbers, and sums of thousands of them,
are whole multiples of 2^-36 that double precision holds exactly, so a sum has the same bits in any order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float32Array, Float64Array, Int64Array
from graphquilt.embedders.contract import checked_fit
from graphquilt.embedders.shared_start import FarField
from graphquilt.errors import FormatError, InputError
from graphquilt.files import map_arrays, save_arrays
from graphquilt.graph import Graph
from graphquilt.graph.reading.ids import find_ids
from graphquilt.linalg import fixed_signs
from graphquilt.patches import join_neighbours

if TYPE_CHECKING:
    from graphquilt.embedders.propagation import Propagation

GRID = 18  # bits behind the binary point of a rounded row
MOST = 1 << 14  # rows that are multiplied at once
NEGLIGIBLE = 1e-6  # a direction with less than this share of the largest eigenvalue is rounding error
FORMAT = "graphquilt-basis"
VERSION = 3
SHARED = {"basis": 2, "feature_share": 0, "gain": 1, "role": 2}  # what encoders keep of a survey, and its dimensions


def grid_product(left: AnyArray | sp.csr_array, right: AnyArray) -> Int64Array:
    """Return L' R of two matrices with n rows and entries of at most 1, both rounded to the grid, in units of 2^-36."""
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    for a in range(0, left.shape[0], MOST):
        L = left[a : a + MOST].astype(np.float64) * 2**GRID
        L = sp.csr_array(L.rint()) if isinstance(L, sp.csr_array) else np.rint(L)
        R = L if right is left else np.rint(right[a : a + MOST].astype(np.float64) * 2**GRID)
        total += np.asarray(L.T @ R).astype(np.int64)
    return total


def leading(M: Float64Array, count: int) -> tuple[Float64Array, Float64Array]:
    """Return the largest eigenvalues of a symmetric matrix (w, w), descending, and their vectors; 0 beyond the rank."""
    from scipy.linalg import eigh

    w, k = len(M), min(count, len(M))
    values, V = np.zeros(count), np.zeros((w, count))
    if k and M.any():
        largest, U = eigh(M, subset_by_index=(w - k, w - 1))
        largest, U = largest[::-1], U[:, ::-1]
        useful = int((largest > NEGLIGIBLE * largest[0]).sum())
        values[:useful] = largest[:useful]
        V[:, :useful] = U[:, :useful] * fixed_signs(U[:, :useful])
    return values, V


def orthonormal(Y: AnyArray, against: AnyArray | None = None) -> Float32Array:
    """Return orthonormal columns that span those of Y, orthogonal to ``against``, while there is room beside it."""
    Q = np.asarray(Y, dtype=np.float32)
    if against is not None:
        Q = Q[:, : max(len(Q) - against.shape[1], 0)]
    for _ in range(2):  # twice is enough (Kahan)
        if against is not None:
            Q = np.asarray(Q - against @ (against.T @ Q), dtype=np.float32)
        Q = np.asarray(np.linalg.qr(Q)[0], dtype=np.float32)
    return Q


class Basis:
    """The leading directions of rows H (n, w) that are known only by H' H V, by block Krylov rounds.

    The best directions of the span of all ``blocks`` V (w, b) are taken (Musco and Musco 2015). The first has
    orthonormal columns; ``products`` and ``kept`` are those of earlier rounds.
    """

    def __init__(self, blocks: AnyArray, products: AnyArray | None = None, kept: AnyArray | None = None) -> None:
        self.blocks = np.asarray(blocks, dtype=np.float32)
        self.products = np.asarray(np.empty((len(blocks), 0)) if products is None else products, dtype=np.float32)
        # the sum of squares that the best directions keep, after each round
        self.kept: list[float] = [] if kept is None else kept.tolist()

    @property
    def block(self) -> Float32Array:
        """The block whose product is asked for."""
        return self.blocks[:, self.products.shape[1] :]

    def take(self, product: AnyArray, count: int) -> None:
        """Take in H' H V for the current block V, and make the next."""
        self.products = np.hstack([self.products, np.asarray(product, dtype=np.float32)])
        self.kept.append(float(self._ritz(count)[0].sum()))
        self.blocks = np.hstack([self.blocks, orthonormal(product, self.blocks)])

    @property
    def growth(self) -> float:
        """The share that the last round added to what the best directions keep."""
        return 1.0 if len(self.kept) < 2 else self.kept[-1] / max(self.kept[-2], 1e-300) - 1

    def is_settled(self, growth: float) -> bool:
        """Return whether the last round added less than this share, or there is nothing left to add."""
        return self.block.shape[1] == 0 or self.growth <= growth

    def directions(self, count: int) -> Float32Array:
        """Return the best directions so far, (w, count)."""
        return np.asarray(self.blocks[:, : self.products.shape[1]] @ self._ritz(count)[1].astype(np.float32))

    def _ritz(self, count: int) -> tuple[Float64Array, Float64Array]:
        T = (self.blocks[:, : self.products.shape[1]].T @ self.products).astype(np.float64)
        return leading((T + T.T) / 2, count)

    @classmethod
    def solve(
        cls, times: Callable[[Float32Array], AnyArray], first: AnyArray, count: int, *, growth: float, rounds: int
    ) -> Basis:
        """Return the basis after so many rounds, or fewer where a round adds less than the share ``growth``."""
        basis = cls(first)
        for _ in range(rounds):
            basis.take(times(basis.block), count)
            if basis.is_settled(growth):
                break
        return basis


@dataclass(frozen=True, eq=False)
class BasisEncoder:
    """A :class:`~graphquilt.Propagation` with the start that it found on one graph; calling it embeds another graph.

    ``shared`` is what the survey of that graph has for all patches, without tables. ``known`` has the ``ids`` of its
    nodes and the ``column`` of each: other nodes join the column of most of their neighbours.
    """

    embedder: Propagation
    shared: Mapping[str, AnyArray] = field(default_factory=dict)
    known: Mapping[str, AnyArray] = field(default_factory=dict)

    @classmethod
    def of(cls, embedder: Propagation, graph: Graph, far: FarField | None) -> BasisEncoder:
        """Return the encoder of an embedder with a shared start, made on a graph."""
        shared, nodes = ({}, {}) if far is None else (far.shared, far.nodes)
        known = {"ids": graph.ids, "column": np.asarray(nodes["column"])} if "column" in nodes else {}
        return cls(embedder, {name: shared[name] for name in SHARED if name in shared}, known)

    def __repr__(self) -> str:
        start = self.embedder.start or {}
        return f"BasisEncoder({type(self.embedder).__name__}, dim={self.dim}, {len(start['directions'])} columns)"

    @property
    def dim(self) -> int:
        """Number of columns of the embedding."""
        return self.embedder.dim

    def __call__(self, graph: Graph) -> Float32Array:
        """Embed a graph with the features that the encoder was made with, or without features, (n, dim)."""
        from graphquilt.embedders.signals import role_rows

        graph = graph.undirected()
        nodes: dict[str, AnyArray] = {}
        if "gain" in self.shared:
            rows = find_ids(self.known["ids"], graph.ids)
            columns = np.where(rows >= 0, self.known["column"][rows], -1).astype(np.int32)
            if graph.features is None and (columns < 0).all():
                raise InputError(
                    f"none of the {graph.n_nodes} nodes has an id of the graph that this encoder was made on, such as "
                    f"{self.known['ids'][0].item()!r}, and without features nothing else tells where they lie."
                )
            nodes["column"] = join_neighbours(graph, columns)
        if "role" in self.shared:
            nodes["role"], _ = role_rows(graph)
        far = FarField(graph.n_nodes, nodes, self.shared, np.zeros(graph.n_nodes + 1, dtype=np.int64))
        return np.asarray(checked_fit(self.embedder, graph, 0, far=far).embedding)

    def save(self, path: str | Path) -> None:
        """Write the directions, and the settings needed to apply them, to one .npz file."""
        settings = {name: value for name, value in vars(self.embedder).items() if name not in ("signal", "start")}
        description = {"format": FORMAT, "version": VERSION, "settings": settings, "signal": vars(self.embedder.signal)}
        start = {f"start_{name}": values for name, values in (self.embedder.start or {}).items()}
        arrays = {**start, **self.shared, **{f"known_{name}": values for name, values in self.known.items()}}
        text = json.dumps({**description, "arrays": [*arrays]})
        save_arrays(Path(path), {"description": np.frombuffer(text.encode(), dtype=np.uint8), **arrays})

    @classmethod
    def load(cls, path: str | Path) -> BasisEncoder:
        """Read a file that :meth:`save` wrote."""
        from graphquilt.embedders.propagation import Propagation
        from graphquilt.embedders.signals import Signal

        try:
            description = json.loads(map_arrays(Path(path), ("description",))["description"].tobytes())
            version = description["version"] if description["format"] == FORMAT else None
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise FormatError(f"{path} was not written by BasisEncoder.save: {error}.") from error
        if version != VERSION:
            raise FormatError(f"{path} has basis format {version}; this graphquilt reads format {VERSION}.")
        try:
            names = tuple(map(str, description["arrays"]))
            arrays = {name: np.array(value) for name, value in map_arrays(Path(path), names).items()}
            start = {name.removeprefix("start_"): arrays[name] for name in arrays if name.startswith("start_")}
            embedder = Propagation(**description["settings"], signal=Signal(**description["signal"]), start=start)
            if not embedder.complete:
                raise ValueError("it has no directions")
            shared = {name: arrays[name] for name in SHARED if name in arrays}
            for name, values in shared.items():
                if values.ndim != SHARED[name] or values.dtype.kind not in "iuf":
                    raise ValueError(f"its {name} is {values.dtype} of shape {values.shape}")
            known = {name.removeprefix("known_"): arrays[name] for name in arrays if name.startswith("known_")}
            if "gain" in arrays and (known["column"].dtype.kind != "i" or known["column"].shape != known["ids"].shape):
                raise ValueError("the columns of its nodes are not one whole number for each id")
            return cls(embedder, shared, known)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path} does not hold the settings of a basis: {error}.") from error
