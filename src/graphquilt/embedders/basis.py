"""BasisEncoder: the directions that a propagated signal was reduced to, which embed other graphs alike."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.arrays import AnyArray, Float32Array
from graphquilt.embedders.contract import Surroundings, checked_fit
from graphquilt.errors import FormatError
from graphquilt.files import map_arrays, save_arrays

if TYPE_CHECKING:
    from graphquilt.embedders.propagation import Propagation
    from graphquilt.graph import Graph

__all__ = ["BasisEncoder"]

FORMAT = "graphquilt-basis"
VERSION = 1


@dataclass(frozen=True, eq=False)
class BasisEncoder:
    """A :class:`~graphquilt.Propagation` with the start that it found on one graph; calling it embeds another graph.

    Attributes
    ----------
    embedder : Propagation
        Its ``start`` has the directions.
    """

    embedder: Propagation

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
            One row per node, as :meth:`graphquilt.Propagation.survey` returned it for the first graph. Only signals of
            cluster memberships need it; the ``cluster`` of a node that was not in that graph is -1.
        """
        surroundings = None if survey is None else Surroundings(graph.n_nodes, graph.n_nodes, survey)
        return np.asarray(checked_fit(self.embedder, graph, 0, surroundings=surroundings).embedding)

    def save(self, path: str | Path) -> None:
        """Write the directions, and the settings needed to apply them, to one .npz file."""
        fields = [field.name for field in dataclasses.fields(self.embedder) if field.name not in ("context", "start")]
        settings = {name: getattr(self.embedder, name) for name in fields}
        text = json.dumps({"format": FORMAT, "version": VERSION, "settings": settings})
        arrays = {"description": np.frombuffer(text.encode(), dtype=np.uint8), **(self.embedder.start or {})}
        save_arrays(Path(path), arrays)

    @classmethod
    def load(cls, path: str | Path) -> BasisEncoder:
        """Read a file that :meth:`save` wrote."""
        from graphquilt.embedders.propagation import Propagation

        arrays = {
            name: np.array(value) for name, value in map_arrays(Path(path), ("description", "directions")).items()
        }
        try:
            description = json.loads(arrays.pop("description").tobytes())
            version = description["version"] if description["format"] == FORMAT else None
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise FormatError(f"{path} was not written by BasisEncoder.save: {error}.") from error
        if version != VERSION:
            raise FormatError(f"{path} has basis format {version}; this graphquilt reads format {VERSION}.")
        try:
            return cls(Propagation(**description["settings"], start={"directions": np.array(arrays["directions"])}))
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path} does not hold the settings of a basis: {error}.") from error
