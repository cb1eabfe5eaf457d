"""BasisEncoder: the directions that a propagated signal was reduced to, which embed other graphs alike."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.arrays import AnyArray, Float32Array
from graphquilt.embedders.contract import checked_fit
from graphquilt.embedders.shared_start import FarField
from graphquilt.errors import FormatError, InputError
from graphquilt.files import map_arrays, save_arrays

if TYPE_CHECKING:
    from graphquilt.embedders.propagation import Propagation
    from graphquilt.graph import Graph

__all__ = ["BasisEncoder"]

FORMAT = "graphquilt-basis"
VERSION = 2
SHARED = ("basis", "feature_share", "gain", "role")  # of a survey


@dataclass(frozen=True, eq=False)
class BasisEncoder:
    """A :class:`~graphquilt.Propagation` with the start that it found on one graph; calling it embeds another graph.

    Attributes
    ----------
    embedder : Propagation
        Its ``start`` has the directions.
    shared : mapping of str to array
        What the survey of that graph has for all patches, without the tables of its far field.
    """

    embedder: Propagation
    shared: Mapping[str, AnyArray] = field(default_factory=dict)

    @classmethod
    def of(cls, embedder: Propagation, far: FarField | None) -> BasisEncoder:
        """Return the encoder of an embedder with a shared start."""
        shared = {} if far is None else far.shared
        return cls(embedder, {name: shared[name] for name in SHARED if name in shared})

    def __repr__(self) -> str:
        start = self.embedder.start or {}
        return f"BasisEncoder({type(self.embedder).__name__}, dim={self.dim}, {len(start['directions'])} columns)"

    @property
    def dim(self) -> int:
        """Number of columns of the embedding."""
        return self.embedder.dim

    def __call__(self, graph: Graph, survey: Mapping[str, AnyArray] | None = None) -> Float32Array:
        """Embed a graph, (n, dim).

        Parameters
        ----------
        graph : Graph
            With the features that the encoder was made with.
        survey : mapping of str to array, optional
            One row per node, as in the ``nodes`` of :meth:`graphquilt.Propagation.survey` for the first graph: the
            ``column`` of a node that was not in that graph is -1. Without it, memberships in clusters are unknown.
        """
        from graphquilt.embedders.signals import role_rows
        from graphquilt.embedders.walks import walk_in

        graph = graph.undirected()
        nodes: dict[str, AnyArray] = {}
        if "gain" in self.shared:
            unknown = np.full(graph.n_nodes, -1, dtype=np.int32)
            nodes["column"] = np.asarray((survey or {}).get("column", unknown))
            if survey is None and graph.features is None:
                raise InputError(
                    f"this encoder knows nodes by {len(self.shared['gain'])} clusters of the graph it was made on, and "
                    f"nothing tells which of them the {graph.n_nodes} nodes are in; pass the survey of that graph."
                )
        if "role" in self.shared:
            nodes["role"], _ = role_rows(graph, walk_in(graph, None, tables=False))
        far = FarField(graph.n_nodes, nodes, self.shared, np.zeros(graph.n_nodes + 1, dtype=np.int64))
        return np.asarray(checked_fit(self.embedder, graph, 0, far=far).embedding)

    def save(self, path: str | Path) -> None:
        """Write the directions, and the settings needed to apply them, to one .npz file."""
        names = [each.name for each in dataclasses.fields(self.embedder) if each.name not in ("signal", "start")]
        settings = {name: getattr(self.embedder, name) for name in names}
        start = {f"start_{name}": values for name, values in (self.embedder.start or {}).items()}
        description = {"format": FORMAT, "version": VERSION, "settings": settings, "signal": vars(self.embedder.signal)}
        text = json.dumps({**description, "arrays": [*start, *self.shared]})
        save_arrays(Path(path), {"description": np.frombuffer(text.encode(), dtype=np.uint8), **start, **self.shared})

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
            return cls(embedder, {name: arrays[name] for name in SHARED if name in arrays})
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path} does not hold the settings of a basis: {error}.") from error
