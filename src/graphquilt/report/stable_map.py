"""Maps that stay put: nodes that an earlier map has are drawn where it has them, as far as their rows allow it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array
from graphquilt.errors import FormatError, InputError, QuiltError
from graphquilt.graph.reading.ids import find_ids
from graphquilt.jobs import Job, Record
from graphquilt.jobs.export import job_ids
from graphquilt.linalg import nearest_orthogonal
from graphquilt.report.node_map import MapOptions, NodeMap, Plane, nearest_rows, node_map, sample_rows

_KEY = "map"
_NEAR = 5  # nodes of the earlier map between which a new one begins


@dataclass(frozen=True, eq=False)
class EarlierMap:
    """Places (k, 2) on an earlier map, ids, its plane unless by UMAP, and a ``rotation`` (d, d) onto its rows."""

    ids: AnyArray
    points: Float64Array
    plane: Plane | None
    rotation: Float64Array | None

    def choose_rows(self, ids: AnyArray, present: Int64Array, limit: int, *, seed: int) -> Int64Array:
        """Return the rows to draw: nodes of the earlier map that are still there, then a sample of new ones."""
        known = find_ids(ids, self.ids)
        stayed = np.intersect1d(known, present)
        new = np.setdiff1d(present, stayed)
        sample = sample_rows(len(new), max(limit - len(stayed), 0), seed=seed)
        return np.sort(np.concatenate([stayed[:limit], new[sample]]))

    def turn(self, X: FloatArray) -> FloatArray:
        """Return rows in the frame of the earlier map."""
        return X if self.rotation is None else np.asarray(X @ self.rotation)

    def begin(self, X: Float64Array, ids: AnyArray) -> tuple[Float64Array, Int64Array]:
        """Return where each row begins: where it was, or between the nearest that were there; and which were there."""
        place = find_ids(self.ids, ids)
        there = np.flatnonzero(place >= 0)
        points = np.zeros((len(X), 2))
        points[there] = self.points[place[there]]
        for row in np.flatnonzero(place < 0).tolist():
            near = nearest_rows(np.vstack([X[row], X[there]]), min(_NEAR, len(there)))[0] - 1
            points[row] = points[there[near]].mean(axis=0)
        return points, there


def earlier_map(job: Job, options: MapOptions) -> EarlierMap:
    """Return the map that another job has drawn, or that this one had drawn before its update."""
    assert options.like is not None
    like = Job.open(options.like)
    same = like.name == job.name
    found = _stored(like, umap=options.umap)
    if found is None:
        if same:
            raise InputError(f"{job.name} has no such map yet: draw one before the update, or name a copy of the job.")
        drawn = node_map(like, replace(options, like=None, colour=None))
        found = _ids_of(drawn), drawn.points, drawn.plane
    if same:
        return EarlierMap(*found, None)
    X, Y = job.embedding, like.embedding
    if X.shape[1] != Y.shape[1]:
        raise InputError(f"{like.name} has {Y.shape[1]} dimensions and {job.name} has {X.shape[1]}; they must agree.")
    rows = find_ids(job_ids(job, len(X)), job_ids(like, len(Y)))
    both = np.flatnonzero(rows >= 0)
    if len(both) <= 2:
        raise InputError(f"{like.name} and {job.name} have {len(both)} ids in common; a map like another needs more.")
    product = np.asarray(X[rows[both]], dtype=np.float64).T @ np.asarray(Y[both], dtype=np.float64)
    return EarlierMap(*found, nearest_orthogonal(product))


def keep_map(job: Job, drawn: NodeMap, *, umap: bool) -> None:
    """Keep the places of a map in its job, for a later one; a job that cannot be written to is left as it is."""
    arrays: dict[str, AnyArray] = {"ids": _ids_of(drawn), "points": drawn.points}
    if drawn.plane is not None:
        arrays |= {"centre": drawn.plane.centre, "axes": drawn.plane.axes, "share": np.array(drawn.plane.share)}
    with contextlib.suppress(QuiltError, OSError):
        job.store[_KEY] = Record(arrays, {"umap": umap})


def _stored(job: Job, *, umap: bool) -> tuple[AnyArray, Float64Array, Plane | None] | None:
    try:
        record = job.store[_KEY]
        arrays = record.arrays
        if record.parameters["umap"] != umap:
            return None
        plane = None if umap else Plane(arrays["centre"], arrays["axes"], float(arrays["share"]))
        return arrays["ids"], np.asarray(arrays["points"]), plane
    except (KeyError, FormatError):
        return None


def _ids_of(drawn: NodeMap) -> AnyArray:
    return drawn.rows if drawn.ids is None else np.asarray(drawn.ids)
