"""The map of a job: where its nodes lie in the plane, their ids, colours and neighbours, small enough for a page."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.graph.reading.node_tables import read_labels
from graphquilt.jobs import Job
from graphquilt.jobs.export import job_ids
from graphquilt.progress import ProgressCallback, report
from graphquilt.report.colouring import Colouring, by_class, by_number, coloured
from graphquilt.report.projection import Plane, blocks, nearest, principal_plane, sample_rows, umap_points

__all__ = ["MapOptions", "NodeMap", "node_map"]

NEIGHBOURS = 5
_BYTES = 6_000_000  # of a map in a page
_GRID = 192  # cells of the density on each side
_SHADED = 2_000_000  # rows that the density is counted from
_UMAP = 20_000  # nodes on a map by UMAP, which takes minutes for more


@dataclass(frozen=True)
class MapOptions:
    """What a map shows.

    Attributes
    ----------
    color : path, optional
        A file of labels; see :func:`read_labels`.
    umap : bool
        Place the nodes by UMAP instead of principal components.
    limit : int
        The most nodes that are drawn; of more, a random sample is.
    seed : int
        Seed of the sample, and of UMAP.
    """

    color: Path | None = None
    umap: bool = False
    limit: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise InputError(f"the number of nodes on a map is at least 1, not {self.limit}.")


@dataclass(frozen=True, eq=False)
class NodeMap:
    """Some or all nodes of a job in the plane.

    Attributes
    ----------
    rows : int array (k,)
        The rows of the embedding that are drawn, ascending.
    points : float array (k, 2)
    ids : array (k,) or None
        The ids of these nodes; None where they are the numbers of their rows.
    n_nodes : int
        All nodes of the job.
    colourings : tuple of Colouring
    copies : int array (k,)
        The number of patches that each node is in.
    method : str
        How the plane was found, in words.
    density : float array (g, g) or None
        All nodes of a large graph, counted in squares over the points; the first row is the lowest.
    """

    rows: Int64Array
    points: Float64Array
    ids: AnyArray | None
    n_nodes: int
    colourings: tuple[Colouring, ...]
    copies: Int64Array
    method: str
    density: Float64Array | None = None

    @property
    def is_sample(self) -> bool:
        """Whether some nodes are not drawn."""
        return len(self.rows) < self.n_nodes

    @property
    def about(self) -> str:
        """Say what is drawn."""
        if not self.is_sample:
            return f"All {self.n_nodes:,} nodes are drawn. {self.method}"
        shades = " The shades behind them show where all nodes lie." if self.density is not None else ""
        return (
            f"A random sample of {len(self.rows):,} of the {self.n_nodes:,} nodes is drawn, and only these can be "
            f"searched; graphquilt neighbours finds those of any node.{shades} {self.method}"
        )

    @functools.cached_property
    def square(self) -> tuple[Float64Array, float]:
        """The lower left corner (2,) and the side of the square that holds the points."""
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        side = float(max((high - low).max(), 1e-12))
        return (low + high) / 2 - side / 2, side

    def for_page(self, neighbours: Int64Array | None = None) -> dict[str, object]:
        """Return the map as ``scatter.js`` takes it; ``neighbours (k, r)`` are positions in ``rows``."""
        corner, side = self.square
        x, y = np.round((self.points - corner) / side * 65_535).astype(np.uint16).T
        result: dict[str, object] = {"x": x, "y": y, "about": self.about}
        result["copies"] = np.minimum(self.copies, 255).astype("u1")
        result["colours"] = [colouring.for_page() for colouring in self.colourings]
        if self.ids is not None:
            result["ids"] = [str(name) for name in self.ids.tolist()]
        elif self.is_sample:
            result["rows"] = self.rows.astype(np.uint32)
        if neighbours is not None and neighbours.size:
            kind = np.uint16 if len(self.rows) <= 65_536 else np.uint32
            result |= {"neighbours": neighbours.astype(kind).ravel(), "n_neighbours": neighbours.shape[1]}
        if self.density is not None:
            shade = np.log1p(self.density[::-1])  # the first row of a picture is the highest
            result["density"] = np.round(shade / max(float(shade.max()), 1e-12) * 255).astype("u1").ravel()
        return result

    def nearest(self, X: FloatArray, progress: ProgressCallback | None = None) -> Int64Array:
        """Return the nodes of the map that are nearest to each by cosine, (k, 5), as positions in ``rows``."""
        n = len(self.rows)
        k = min(NEIGHBOURS, n - 1)
        if k < 1:
            return np.empty((n, 0), dtype=np.int64)
        return nearest(X, k, progress=lambda done: report(progress, "neighbours", done, n))


def node_map(job: Job, options: MapOptions = MapOptions(), *, progress: ProgressCallback | None = None) -> NodeMap:
    """Place the nodes of a job in the plane, with their classes, patches and alignment errors.

    Raises
    ------
    JobError
        The job has no embedding; the message names the command that makes one.
    """
    X = job.embedding
    n = len(X)
    ids = _ids(job, n)
    labels = None if options.color is None else read_labels(options.color, np.arange(n) if ids is None else ids)
    limit = min(options.limit, _fitting(ids, n), _UMAP if options.umap else n)
    rows = sample_rows(n, limit, seed=options.seed)
    drawn = np.asarray(X[rows], dtype=np.float64)
    report(progress, "map", 0, 1)
    density = None
    if options.umap and n > 2:
        points = umap_points(drawn, seed=options.seed)
        method = "Places are by UMAP: what is near is similar, and far distances mean little."
    else:
        plane = principal_plane(X, seed=options.seed)
        points = plane(drawn)
        method = f"Places are the two leading principal components, which hold {plane.share:.0%} of the variance."
    home, copies = _patches(job, rows)
    colourings = [] if labels is None else [coloured(labels.name, labels.values[rows], absent=f"no {labels.name}")]
    colourings += _classes(job, rows)
    n_patches = int(home.max(initial=-1)) + 1
    if n_patches > 1:
        names = tuple(f"patch {k}" for k in range(n_patches))
        colourings.append(Colouring("patch", home, names, absent="unknown"))
        errors = _errors(job, rows, drawn, progress)
        colourings.append(by_number("alignment error", errors, absent="in one patch only"))
    if not colourings:
        colourings = [Colouring("node", np.zeros(len(rows), dtype=np.int64), ("all nodes",))]
    result = NodeMap(rows, points, None if ids is None else ids[rows], n, tuple(colourings), copies, method)
    if result.is_sample and not options.umap:
        density = _density(X, plane, result.square)
    report(progress, "map", 1, 1)
    return NodeMap(rows, points, result.ids, n, tuple(colourings), copies, method, density)


def _ids(job: Job, n_nodes: int) -> AnyArray | None:
    """Return the ids of all nodes, or None where they are the numbers of the rows."""
    ids = job_ids(job, n_nodes)
    if ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(n_nodes)):
        return None
    return ids


def _fitting(ids: AnyArray | None, n: int) -> int:
    """Return how many nodes a page can have: long ids leave room for fewer."""
    length = 0.0
    if ids is not None and n:
        some = ids[sample_rows(n, 1000)].tolist()
        length = float(np.mean([len(json.dumps(str(name)).replace("<", "\\u003c")) + 1 for name in some]))
    # Four arrays of 16 bits, two of 8 bits and the neighbours, in base 64, and the id.
    return max(1000, int(_BYTES / ((4 * 2 + 2 + NEIGHBOURS * 4) * 4 / 3 + length)))


def _classes(job: Job, rows: Int64Array) -> list[Colouring]:
    labels = None if job.graph is None else job.graph.labels
    if labels is None:
        return []
    return [by_class("class", np.asarray(labels)[rows], absent="no class")]


def _patches(job: Job, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the patch that each node was cut into first, and the number of patches that it is in."""
    sets = job.patch_graph.node_sets
    home, copies = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    clusters = _clusters(job, len(sets))
    for k, nodes in enumerate(sets):
        at, _ = _shared(rows, np.asarray(nodes))
        copies[at] += 1
        mine = at[home[at] < 0] if clusters is None else at[clusters[rows[at]] == k]
        home[mine] = k
    return home, copies


def _clusters(job: Job, n_patches: int) -> AnyArray | None:
    """Return the cluster of each node, which has the number of the patch that it was enlarged to."""
    try:
        labels = job.store["labels"].arrays["labels"]
    except (KeyError, FormatError):
        return None
    return labels if len(labels) == job.patch_graph.n_nodes and labels.max(initial=0) < n_patches else None


def _shared(rows: Int64Array, nodes: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return where ascending ``nodes`` lie in ascending ``rows``: positions in the one and in the other."""
    at = np.minimum(np.searchsorted(rows, nodes), len(rows) - 1)
    inside = np.flatnonzero(rows[at] == nodes)
    return at[inside], inside


def _errors(job: Job, rows: Int64Array, X: Float64Array, progress: ProgressCallback | None) -> Float64Array:
    """Return how far the aligned patches of each node lie from its place, in units of the spread of the embedding.

    That is the root mean square over the patches; NaN for nodes in one patch only.
    """
    patches, alignment = job.patches, job.alignment
    squares, counts = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    for k in range(len(patches)):
        patch = patches[k]
        at, inside = _shared(rows, np.asarray(patch.nodes))
        gap = alignment.apply(k, patch.coordinates[inside]) - X[at]
        squares[at] += (gap**2).sum(axis=1)
        counts[at] += 1
        report(progress, "alignment errors", k + 1, len(patches))
    spread = float(np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean()))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts > 1, np.sqrt(squares / counts) / max(spread, 1e-300), np.nan)


def _density(X: FloatArray, plane: Plane, square: tuple[Float64Array, float]) -> Float64Array:
    """Count all nodes, or many of them, in squares, (g, g); the first row is the lowest."""
    corner, side = square
    counts = np.zeros((_GRID, _GRID))
    for block in blocks(X, _SHADED):
        places = (plane(block) - corner) / side * _GRID
        inside = ((places >= 0) & (places < _GRID)).all(axis=1)
        x, y = places[inside].astype(np.int64).T
        counts += np.bincount(y * _GRID + x, minlength=_GRID**2).reshape(_GRID, _GRID)
    return counts
