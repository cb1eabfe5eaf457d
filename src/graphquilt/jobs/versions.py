"""Versions of a job: what an update has taken over, which nodes are gone, and how a new version takes its place."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from graphquilt.alignment import Alignment
from graphquilt.arrays import AnyArray, BoolArray, Float64Array, FloatArray
from graphquilt.errors import JobError
from graphquilt.files.writing import folder_lock
from graphquilt.jobs.store import Store, store_folder, stored_record

UPDATE, VERSION, FRAME = "update", "version", "frame"  # keys: what was taken over, the history, the rotation
NEXT = "next"  # the folder in which a new version is made
_WAIT = 20.0  # seconds for which a reader waits while another process puts a version in place
_BLOCK = 65_536  # rows turned at a time


def taken_over(store: Store) -> Mapping[str, str]:
    """Return the digests of the records that the last update has taken over from the version before, by key."""
    record = stored_record(store, UPDATE)
    reused = {} if record is None else record.parameters.get("reused")
    return reused if isinstance(reused, dict) else {}


def gone_nodes(store: Store, n_nodes: int) -> BoolArray | None:
    """Return which nodes (n,) updates have found gone; None if none are."""
    record = stored_record(store, UPDATE)
    gone = None if record is None else record.arrays.get("gone")
    return None if gone is None or gone.shape != (n_nodes,) or not gone.any() else np.asarray(gone, dtype=bool)


def history(store: Store) -> list[dict[str, object]]:
    """Return the updates of a job, the first one first."""
    record = stored_record(store, VERSION)
    entries = [] if record is None else record.parameters.get("history")
    return [dict(entry) for entry in entries] if isinstance(entries, list) else []


def frame_rotation(store: Store) -> tuple[Float64Array, str] | None:
    """Return the rotation (d, d) onto the frame of an earlier version, and its digest; None if there is none."""
    record = stored_record(store, FRAME)
    return None if record is None else (np.asarray(record.arrays["rotation"]), record.digest)


def turn(X: AnyArray, rotation: AnyArray) -> AnyArray:
    """Return rows times a rotation, in the type of the rows."""
    return np.asarray(np.asarray(X, dtype=np.float64) @ rotation, dtype=X.dtype)


def settle_rows(store: Store, alignment: Alignment, X: FloatArray, *, free: bool) -> Alignment:
    """Put the rows of gone nodes at the origin and, where patches are ``free`` to turn, turn all onto the frame."""
    found = frame_rotation(store) if free else None
    if found is not None:
        for start in range(0, len(X), _BLOCK):
            X[start : start + _BLOCK] = turn(X[start : start + _BLOCK], found[0])
        rotations = np.tile(found[0], (alignment.n_patches, 1, 1))
        alignment = alignment.compose(replace(Alignment.identity(*rotations.shape[:2]), rotations=rotations))
    gone = gone_nodes(store, len(X))
    if gone is not None:
        X[gone] = 0
    return alignment


def copy_record(source: Store, target: Store, key: str) -> None:
    """Give another store a record, in a folder as further links to the same files."""
    folders = store_folder(source), store_folder(target)
    if folders[0] is None or folders[1] is None:
        target[key] = source[key]
        return
    (folders[1] / key).parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".npy", ".npz", ".json"):  # the marker last
        path, copy = folders[0] / f"{key}{suffix}", folders[1] / f"{key}{suffix}"
        if path.exists() and not copy.exists():
            try:
                os.link(path, copy)
            except OSError:  # a disk without links
                shutil.copyfile(path, copy)


def put_in_place(folder: Path) -> None:
    """Move a version that is whole into the folder of its job: the history comes last, and a kill changes nothing.

    Whoever opens the job next finishes what a killed process has begun.
    """
    source, mark = folder / NEXT, f"{VERSION}.json"
    deadline = time.monotonic() + _WAIT
    while (source / mark).exists():
        try:
            with folder_lock(folder):
                _move(source, folder, mark)
        except (JobError, PermissionError) as error:
            if time.monotonic() > deadline or isinstance(error, PermissionError):
                raise JobError(f"a new version of {folder} is whole but not yet in its place: {error}") from error
            time.sleep(0.1)


def _move(source: Path, folder: Path, mark: str) -> None:
    files = sorted(path for path in source.rglob("*") if path.is_file() and not path.name.startswith("lock"))
    for path in files:
        if path.name not in ("quilt.json", mark) and path.suffix != ".part":
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    if not json.loads((folder / f"{UPDATE}.json").read_text(encoding="utf-8"))["parameters"]["refresh"]:
        for kept in folder.glob("patches/*/kept*"):  # made for a start that was taken over, and needed no more
            kept.unlink(missing_ok=True)
    if (source / mark).exists():
        os.replace(source / mark, folder / mark)
    shutil.rmtree(source, ignore_errors=True)
