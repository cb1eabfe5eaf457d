"""The map of a job: its nodes in the plane, with ids, colours and neighbours, small enough for a page."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array
from graphquilt.errors import InputError, MissingExtraError
from graphquilt.graph.reading.node_tables import read_labels
from graphquilt.jobs import Job
from graphquilt.jobs.export import job_ids
from graphquilt.jobs.store import stored_record
from graphquilt.jobs.versions import gone_nodes
from graphquilt.kernels import one_blas_thread
from graphquilt.linalg import nearest_orthogonal
from graphquilt.linalg.procrustes import centred
from graphquilt.progress import ProgressCallback, report

NEIGHBOURS = 5
_BYTES = 6_000_000  # of a map on a page
_GRID = 192  # cells of the density on each side
_SHADED = 2_000_000  # rows counted in the density
_UMAP = 20_000  # nodes on a map by UMAP, which takes minutes for more
_FITTED = 100_000  # rows from which the principal components are computed
_BLOCK = 65_536  # rows in memory at once
_COMPARED = 8_000_000  # similarities in memory at once


@dataclass(frozen=True)
class MapOptions:
    """What a map shows."""

    colour: Path | None = None  # a file with labels; see :func:`read_labels`
    umap: bool = False  # place the nodes by UMAP instead of principal components
    limit: int = 100_000  # draw at most this many nodes, as a random sample
    seed: int = 0  # seed of the sample and of UMAP
    like: Path | None = None  # draw nodes where the map of this job, with the same ids, has them

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise InputError(f"the number of nodes on a map must be at least 1, not {self.limit}.")


@dataclass(frozen=True, eq=False)
class NodeMap:
    """Some or all nodes of a job in the plane."""

    rows: Int64Array  # (k,) the rows of the embedding that are drawn, ascending
    points: Float64Array  # (k, 2)
    ids: AnyArray | None  # (k,) the ids of these nodes; None if they equal the row numbers
    n_nodes: int  # the number of nodes of the job
    colourings: tuple[Colouring, ...]
    copies: Int64Array  # (k,) the number of patches that contain each node
    method: str  # how the plane was computed, in words
    # (g, g): all nodes of a large graph, counted in square cells; the first row is the lowest.
    density: Float64Array | None = None
    plane: Plane | None = None  # of principal components; None for UMAP

    @property
    def is_sample(self) -> bool:
        """Whether only some nodes are drawn."""
        return len(self.rows) < self.n_nodes

    @property
    def about(self) -> str:
        """What is drawn, in words."""
        if not self.is_sample:
            return f"All {self.n_nodes:,} nodes are drawn. {self.method}"
        shades = " The shades behind them show where all nodes lie." if self.density is not None else ""
        return (
            f"A random sample of {len(self.rows):,} of the {self.n_nodes:,} nodes is drawn, and only these can be "
            f"searched; graphquilt neighbours finds those of any node.{shades} {self.method}"
        )

    @functools.cached_property
    def square(self) -> tuple[Float64Array, float]:
        """The lower left corner (2,) and the side of the square around the points."""
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        side = float(max((high - low).max(), 1e-12))
        return (low + high) / 2 - side / 2, side

    def for_page(self, job: Job, progress: ProgressCallback | None = None) -> dict[str, object]:
        """Return the map, with the nearest other nodes of each by cosine, as ``scatter.js`` reads it."""
        n, corner, side = len(self.rows), *self.square
        x, y = np.round((self.points - corner) / side * 65_535).astype(np.uint16).T
        result: dict[str, object] = {"x": x, "y": y, "about": self.about}
        result["copies"] = np.minimum(self.copies, 255).astype("u1")
        result["colours"] = [colouring.for_page() for colouring in self.colourings]
        if self.ids is not None:
            result["ids"] = [str(name) for name in self.ids.tolist()]
        elif self.is_sample:
            result["rows"] = self.rows.astype(np.uint32)
        if n > 1:
            k, X = min(NEIGHBOURS, n - 1), np.asarray(job.embedding[self.rows])
            nearest = nearest_rows(X, k, progress=lambda done: report(progress, "neighbours", done, n))
            kind = np.uint16 if n <= 65_536 else np.uint32
            result |= {"neighbours": nearest.astype(kind).ravel(), "n_neighbours": k}
        if self.density is not None:
            shade = np.log1p(self.density[::-1])  # the first row of a picture is the highest
            result["density"] = np.round(shade / max(float(shade.max()), 1e-12) * 255).astype("u1").ravel()
        return result


def node_map(job: Job, options: MapOptions = MapOptions(), *, progress: ProgressCallback | None = None) -> NodeMap:
    """Place the nodes of a job in the plane, with their classes, patches and alignment errors."""
    X = job.embedding
    n = len(X)
    ids: AnyArray | None = job_ids(job, n)
    if ids is not None and ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(n)):
        ids = None
    labels = None if options.colour is None else read_labels(options.colour, np.arange(n) if ids is None else ids)
    limit = min(options.limit, _page_capacity(ids, n), _UMAP if options.umap else n)
    gone = gone_nodes(job.store, n)
    present = np.arange(n) if gone is None else np.flatnonzero(~gone)
    rows, earlier = present[sample_rows(len(present), limit, seed=options.seed)], None
    if options.like is not None:
        from graphquilt.report.maps import earlier_map

        earlier = earlier_map(job, options)
        rows = earlier.choose_rows(np.arange(n) if ids is None else ids, present, limit, seed=options.seed)
    drawn = np.asarray(X[rows], dtype=np.float64)
    report(progress, "map", 0, 1)
    plane = None
    if options.umap and n > 2:
        begin = None if earlier is None else earlier.begin(drawn, rows if ids is None else ids[rows])
        points = _umap_points(drawn, seed=options.seed, begin=begin)
        method = "Places are by UMAP: what is near is similar, and far distances mean little."
    else:
        plane = principal_plane(X, seed=options.seed) if earlier is None else earlier.plane
        assert plane is not None
        points = plane(drawn if earlier is None else earlier.turn(drawn))
        method = f"Places are the two leading principal components, which hold {plane.share:.0%} of the variance."
    home, copies = _patches_of_nodes(job, rows)
    colourings: list[Colouring] = []
    if labels is not None:
        colourings = [choose_colouring(labels.name, labels.values[rows], absent=f"no {labels.name}")]
    if job.graph is not None and job.graph.labels is not None:
        colourings.append(by_class("class", np.asarray(job.graph.labels)[rows], absent="no class"))
    n_patches = int(home.max(initial=-1)) + 1
    if n_patches > 1:
        names = tuple(f"patch {k}" for k in range(n_patches))
        colourings.append(Colouring("patch", home, names, absent="unknown"))
        errors = _alignment_errors(job, rows, drawn, progress)
        colourings.append(Colouring("alignment error", numbers=errors, absent="in one patch only"))
    if not colourings:
        colourings = [Colouring("node", np.zeros(len(rows), dtype=np.int64), ("all nodes",))]
    named, colours = None if ids is None else ids[rows], tuple(colourings)
    result = NodeMap(rows, points, named, len(present), colours, copies, method, plane=plane)
    if result.is_sample and plane is not None and earlier is None:
        result = replace(result, density=_density(X, plane, result.square))
    report(progress, "map", 1, 1)
    return result


def _page_capacity(ids: AnyArray | None, n: int) -> int:
    """Return how many nodes fit on a page; long ids leave room for fewer."""
    length = 0.0
    if ids is not None and n:
        some = ids[sample_rows(n, 1000)].tolist()
        length = float(np.mean([len(json.dumps(str(name)).replace("<", "\\u003c")) + 1 for name in some]))
    # Four arrays of 16 bits, two of 8 bits and the neighbours, in base 64, and the id.
    return max(1000, int(_BYTES / ((4 * 2 + 2 + NEIGHBOURS * 4) * 4 / 3 + length)))


def _patches_of_nodes(job: Job, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the patch whose cluster contains each node (else its first patch), and the number of its patches."""
    sets = job.patch_graph.node_sets
    home, copies = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    clusters = _clusters(job, len(sets))
    for k, nodes in enumerate(sets):
        places, _ = _common_places(rows, np.asarray(nodes))
        copies[places] += 1
        home[places[home[places] < 0] if clusters is None else places[clusters[rows[places]] == k]] = k
    return home, copies


def _clusters(job: Job, n_patches: int) -> AnyArray | None:
    """Return the cluster of each node; patch k is cluster k, enlarged."""
    record = stored_record(job.store, "labels")
    labels = np.empty(0, dtype=np.int64) if record is None else record.arrays.get("labels", np.empty(0))
    return labels if len(labels) == job.patch_graph.n_nodes and labels.max(initial=0) < n_patches else None


def _common_places(rows: Int64Array, nodes: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the positions of the nodes that both have, in ascending ``rows`` and in ascending ``nodes``."""
    places = np.minimum(np.searchsorted(rows, nodes), len(rows) - 1)
    inside = np.flatnonzero(rows[places] == nodes)
    return places[inside], inside


def _alignment_errors(job: Job, rows: Int64Array, X: Float64Array, progress: ProgressCallback | None) -> Float64Array:
    """Return the root mean square distance of each node's aligned patches from its position, relative to the spread."""
    patches, alignment = job.patches, job.alignment
    squares, counts = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    for k in range(len(patches)):
        patch = patches[k]
        places, inside = _common_places(rows, np.asarray(patch.nodes))
        gap = alignment.apply(k, patch.coordinates[inside]) - X[places]
        squares[places] += (gap**2).sum(axis=1)
        counts[places] += 1
        report(progress, "alignment errors", k + 1, len(patches))
    spread = float(np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean()))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts > 1, np.sqrt(squares / counts) / max(spread, 1e-300), np.nan)


def _density(X: FloatArray, plane: Plane, square: tuple[Float64Array, float]) -> Float64Array:
    """Count all nodes, or about two million of them, in square cells, (g, g); the first row is the lowest."""
    corner, side = square
    counts = np.zeros((_GRID, _GRID))
    for start in range(0, len(X), _BLOCK)[:: max(1, -(-len(X) // _SHADED))]:
        places = (plane(X[start : start + _BLOCK]) - corner) / side * _GRID
        inside = ((places >= 0) & (places < _GRID)).all(axis=1)
        x, y = places[inside].astype(np.int64).T
        counts += np.bincount(y * _GRID + x, minlength=_GRID**2).reshape(_GRID, _GRID)
    return counts


@dataclass(frozen=True, eq=False)
class Plane:
    """The plane of two principal components: its centre (d,), orthonormal axes (d, 2) and share of the variance."""

    centre: Float64Array
    axes: Float64Array
    share: float

    def __call__(self, X: npt.ArrayLike) -> Float64Array:
        """Project ``X (r, d)`` onto the plane, (r, 2)."""
        with one_blas_thread():
            return np.asarray((np.asarray(X, dtype=np.float64) - self.centre) @ self.axes)


def sample_rows(n: int, limit: int, *, seed: int = 0) -> Int64Array:
    """Return all n row numbers, or a random sample of ``limit``, ascending."""
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, limit, replace=False, shuffle=False)).astype(np.int64)


def principal_plane(X: FloatArray, *, seed: int = 0) -> Plane:
    """Return the plane of the two leading principal components of ``X (n, d)``, or of a sample of its rows."""
    rows = np.asarray(X[sample_rows(len(X), _FITTED, seed=seed)], dtype=np.float64)
    centre = rows.mean(axis=0)
    with one_blas_thread():
        variances, directions = np.linalg.eigh((rows - centre).T @ (rows - centre))
    axes = np.zeros((X.shape[1], 2))
    leading = directions[:, ::-1][:, :2]
    signs = np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(leading.shape[1])])
    axes[:, : leading.shape[1]] = leading * signs
    total = float(variances.sum())
    return Plane(centre, axes, float(variances[-2:].sum() / total) if total > 0 else 1.0)


def _umap_points(X: FloatArray, *, seed: int, begin: tuple[Float64Array, Int64Array] | None = None) -> Float64Array:
    """Place ``X (r, d)`` in the plane by UMAP, (r, 2); where rows ``begin`` is also what they are turned onto."""
    try:
        import umap
    except ImportError:
        raise MissingExtraError("a map by UMAP", "viz") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap warns that a seed prevents the use of threads
        first = "spectral" if begin is None else begin[0].astype(np.float32)
        model = umap.UMAP(n_neighbors=min(15, len(X) - 1), random_state=seed, init=first)
        points = np.asarray(model.fit_transform(np.asarray(X)), dtype=np.float64)
    if begin is None:
        return points
    (a, mean), (b, target) = centred(points[begin[1]]), centred(begin[0][begin[1]])
    rotation = nearest_orthogonal(a.T @ b)
    scale = float(np.sum((a @ rotation) * b) / max(np.sum(a * a), 1e-300))
    return np.asarray(scale * (points - mean) @ rotation + target)


def nearest_rows(X: FloatArray, k: int, *, progress: Callable[[int], None] | None = None) -> Int64Array:
    """Return the k other rows with the largest cosine to each row of ``X (n, d)``, most similar first, (n, k).

    The maximum of every group of rows comes first; the k largest cosines lie in the k groups with the largest maxima.
    """
    n = len(X)
    lengths = np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    unit = (np.asarray(X) / lengths).astype(np.float32)
    n_groups = max(k, -(-n // 64))
    size = -(-n // n_groups)
    padded = np.zeros((n_groups * size, unit.shape[1]), dtype=np.float32)
    padded[:n] = unit
    result = np.empty((n, k), dtype=np.int64)
    step = max(1, _COMPARED // len(padded))
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        similar = unit[rows] @ padded.T
        similar[:, n:] = -np.inf
        similar[np.arange(len(rows)), rows] = -np.inf
        # Group g has the rows g, g + n_groups, g + 2 n_groups, …
        best = similar.reshape(len(rows), size, n_groups).max(axis=1)
        groups = np.argpartition(-best, min(k, n_groups) - 1, axis=1)[:, :k]
        candidates = (groups[:, :, None] + n_groups * np.arange(size)).reshape(len(rows), -1)
        values = np.take_along_axis(similar, candidates, axis=1)
        order = np.lexsort((candidates, -values), axis=1)[:, :k]
        result[rows] = np.take_along_axis(candidates, order, axis=1)
        if progress is not None:
            progress(int(rows[-1]) + 1)
    return result


_FEW = 30  # more different numbers than this are a scale and not classes
_MOST = 65_534  # classes that a page can tell apart


@dataclass(frozen=True, eq=False)
class Colouring:
    """One class or one number for each node that is drawn."""

    name: str
    classes: Int64Array | None = None  # (k,) a position in ``names``, -1 for nodes without a class
    names: tuple[str, ...] = ()
    numbers: Float64Array | None = None  # (k,) NaN for nodes without a number
    absent: str = ""  # what it means that a node has neither

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the scale: the largest hundredth of the numbers does not stretch it."""
        assert self.numbers is not None
        finite = self.numbers[np.isfinite(self.numbers)]
        if len(finite) == 0:
            return 0.0, 1.0
        low, high = float(finite.min()), float(np.quantile(finite, 0.99))
        return low, max(high, low + 1e-12 + 1e-9 * abs(low))

    def for_page(self) -> dict[str, object]:
        """Return the colouring for the page: integers, the largest of which means none."""
        result: dict[str, object] = {"name": self.name}
        if self.classes is not None:
            kind = np.uint8 if len(self.names) < 255 else np.uint16
            none = int(np.iinfo(kind).max)
            values = np.where(self.classes < 0, none, self.classes).astype(kind)
            absent = self.absent if bool((self.classes < 0).any()) else ""
            return result | {"kind": "class", "names": self.names, "values": values, "none": none, "absent": absent}
        assert self.numbers is not None
        low, high = self.limits
        known = np.isfinite(self.numbers)
        scaled = np.clip((np.where(known, self.numbers, low) - low) / (high - low), 0, 1)
        values = np.where(known, np.round(scaled * 65_534), 65_535).astype(np.uint16)
        scale = {"low": low, "high": high, "clipped": bool((self.numbers[known] > high).any())}
        absent = "" if known.all() else self.absent
        return result | {"kind": "number", "values": values, "none": 65_535, "absent": absent} | scale


def by_class(name: str, labels: AnyArray, *, absent: str) -> Colouring:
    """Return a colouring by classes (k,), "" or negative for none; the most frequent first, or few numbers in order."""
    values, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    numeric = values.dtype.kind in "iu"
    known = np.flatnonzero(values >= 0 if numeric else values != "")
    few_numbers = len(known) <= _FEW and (numeric or all(is_number(str(values[k])) for k in known))
    if few_numbers:
        order = known[np.argsort([float(values[k]) for k in known], kind="stable")]
    else:
        order = known[np.argsort(-counts[known], kind="stable")][:_MOST]
    position = np.full(len(values), -1, dtype=np.int64)
    position[order] = np.arange(len(order))
    return Colouring(name, position[places.ravel()], tuple(str(values[k]) for k in order), absent=absent)


def choose_colouring(name: str, labels: AnyArray, *, absent: str) -> Colouring:
    """Return the colouring that suits ``labels (k,)``: a scale for many different numbers, classes for all else."""
    if labels.dtype.kind == "f":
        return Colouring(name, numbers=labels.astype(np.float64), absent=absent)
    texts = [str(value) for value in np.unique(labels) if str(value) != ""]
    if all(map(is_number, texts)) and (len(texts) > _FEW or not all(float(text).is_integer() for text in texts)):
        numbers = np.array([float(text) if str(text) else np.nan for text in labels])
        return Colouring(name, numbers=numbers, absent=absent)
    return by_class(name, labels, absent=absent)


def is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
