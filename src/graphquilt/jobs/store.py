"""Stores keep the records of a job. A plain dict is one; a folder on disk is another."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

import graphquilt
from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.files import (
    array_checksum,
    map_arrays,
    sync_folder,
    temporary_sibling,
    translate_disk_errors,
    write_arrays,
    write_text,
)
from graphquilt.files.checksums import (
    file_checksum,
    is_array_entry,
    is_checksum,
    is_size,
    read_sealed,
    seal,
    sealed_text,
    stamp,
)
from graphquilt.files.writing import check_inside, folder_lock

Parameters = Mapping[str, object]


def fingerprint(*arrays: object, wide: bool = False) -> str:
    """Return a short digest of types, shapes and all values; ``wide``: integers count as if they had 64 bits."""
    digest = hashlib.sha256()
    for array in arrays:
        if isinstance(array, sp.csr_array):
            digest.update(fingerprint(array.indptr, array.indices, array.data).encode())
            continue
        if array is None:
            digest.update(b"-")
            continue
        values = np.asanyarray(array)
        kind = np.dtype(np.int64) if wide and values.dtype.kind in "iu" else values.dtype
        digest.update(f"{kind.str}{values.shape}".encode())
        if values.dtype.hasobject:
            digest.update(repr(values.tolist()).encode())
        else:
            digest.update(array_checksum(values, dtype=kind).encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Record:
    """Arrays, and the parameters that made them."""

    arrays: Mapping[str, AnyArray]  # numbers, booleans or fixed-width text; never Python objects
    parameters: Parameters = field(default_factory=dict)  # anything that JSON can hold, compared by value
    checksum: str | None = None  # that of the arrays, if the store knows it

    @functools.cached_property
    def digest(self) -> str:
        """What records made from this one name: equal exactly for equal arrays."""
        if self.checksum is not None:
            return self.checksum[:16]
        return fingerprint(*(np.atleast_1d(array) for _, array in sorted(self.arrays.items())))


class Store(Protocol):
    """Where records are kept: anything with these three methods, a plain dict included.

    A store may also have ``folder``, the path that holds its records; workers in other processes then open a pickled
    copy of the store and read and write it themselves. And it may have ``lock(shard=None)``, a context manager that
    keeps other runs away.
    """

    def __contains__(self, key: object, /) -> bool:
        """Return whether a finished record is there."""
        ...

    def __getitem__(self, key: str, /) -> Record:
        """Return a record; raise KeyError if it is missing, FormatError if it is damaged."""
        ...

    def __setitem__(self, key: str, record: Record, /) -> None:
        """Store a record, replacing an older one."""
        ...


def stored_record(store: Store, key: str, made_from: Parameters | None = None) -> Record | None:
    """Return a record if it is whole and was made from these things, as its parameters say; None otherwise."""
    try:
        record = store[key]
    except (KeyError, FormatError):
        return None
    wanted = {} if made_from is None else made_from
    return record if all(record.parameters.get(name) == value for name, value in wanted.items()) else None


def store_folder(store: Store) -> Path | None:
    """Return the folder of a store, or None if its records are in memory."""
    return getattr(store, "folder", None)


def store_name(store: Store) -> str:
    """Return what errors call a store: the path of a folder, but never the whole content of a dict."""
    return "this store" if isinstance(store, dict) else str(store)


def short_path(path: str) -> str:
    """Return a path as one would type it here: relative to the current folder where it lies inside."""
    short = os.path.relpath(path)
    return path if short.startswith("..") else short


def locked(store: Store, shard: str | None = None) -> contextlib.AbstractContextManager[None]:
    """Lock a store for this run, or one shard of it; stores without a lock are left as they are."""
    lock = getattr(store, "lock", None)
    return contextlib.nullcontext() if lock is None else lock(shard=shard)


def record_digest(store: Store, key: str) -> str:
    """Return the digest of a record; a store in a folder knows it without reading the arrays."""
    known = getattr(store, "digest", None)
    return store[key].digest if known is None else known(key)


def combined_digest(store: Store, keys: Iterable[str]) -> str:
    """Return the digest of several records together."""
    return hashlib.sha256("".join(record_digest(store, key) for key in keys).encode()).hexdigest()[:16]


FORMAT = "graphquilt job"
VERSION = 3
_NAMES = ("quilt",)  # of files that are not records
UPDATE, HISTORY = "update", "version"  # keys: what the last update took over, and all updates
NEXT = "next"  # the folder in which a new version is made
_WAIT = 20.0  # seconds for which a reader waits while another process puts a version in place
JOB = "quilt.json"  # the file that makes a folder a job
_HEAD = {"format": FORMAT, "version": VERSION, "made_by": f"graphquilt {graphquilt.__version__}"}


class DirectoryStore:
    """Records in a folder, in job format 3.

    Parameters
    ----------
    folder : path
        The job's folder; it is made when the first record is kept. A folder that holds other things is refused.

    Notes
    -----
    A record that is read is checked against the SHA-256 in its marker once, and again when its file has changed;
    arrays come back memory-mapped and read-only. Nothing in a job is ever unpickled.

    Examples
    --------
    >>> import tempfile
    >>> store = DirectoryStore(tempfile.mkdtemp())
    >>> store["patches/00017/embedding"] = Record({"coordinates": np.eye(2)}, {"seed": 5})
    >>> "patches/00017/embedding" in store, "patches/00018/embedding" in store
    (True, False)
    >>> store["patches/00017/embedding"].arrays["coordinates"].sum()
    np.float64(2.0)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()
        self._verified: dict[str, list[int]] = {}
        self._check_job()
        put_in_place(self.folder)

    def __reduce__(self) -> tuple[type[DirectoryStore], tuple[Path]]:
        return type(self), (self.folder,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DirectoryStore) and self.folder == other.folder

    def __hash__(self) -> int:
        return hash(self.folder)

    def lock(self, *, shard: str | None = None) -> contextlib.AbstractContextManager[None]:
        """Lock the job, or a shard of it, for this thread; see :func:`graphquilt.files.writing.folder_lock`."""
        return folder_lock(self.folder, shard=shard)

    def __repr__(self) -> str:
        return f"DirectoryStore({str(self.folder)!r})"

    def __str__(self) -> str:
        return str(self.folder)

    def __contains__(self, key: object) -> bool:
        try:
            data, marker = self._open_marker(str(key))
            return data is None or data.stat().st_size == marker["bytes"]
        except (KeyError, FormatError, FileNotFoundError):
            return False

    def __getitem__(self, key: str) -> Record:
        data, marker = self._open_marker(key)
        if data is None:
            return Record({}, marker["parameters"])
        try:
            mark = stamp(data)
            seen = self._verified.get(key) == mark
            if mark[0] != marker["bytes"] or not (seen or file_checksum(data) == marker["sha256"]):
                problem = f"does not have the SHA-256, or the {marker['bytes']} bytes, that its marker says"
                raise FormatError(f"{data} {problem}: it was cut short or changed, and has to be made again.")
            self._verified[key] = mark
            arrays = map_arrays(data, tuple(marker["arrays"]))
        except FileNotFoundError:
            raise FormatError(f"{data} is gone but its marker is there: it has to be made again.") from None
        return Record(arrays, marker["parameters"], marker["sha256"])

    def __setitem__(self, key: str, record: Record) -> None:
        """Write a record; one array that is mapped from a ``.part`` file of this folder is not copied but renamed."""
        marker_path = self._marker_path(key)
        for name, array in record.arrays.items():
            if np.asanyarray(array).dtype.hasobject:
                raise InputError(f"array {name} of {key} holds Python objects; a job holds only plain arrays.")
        self.create()
        check_inside(marker_path.parent, self.folder)
        content: dict[str, Any] = {"format": VERSION, "file": None, "parameters": dict(record.parameters)}
        with translate_disk_errors(self.folder), contextlib.ExitStack() as files:
            marker_path.parent.mkdir(parents=True, exist_ok=True)
            self._verified.pop(key, None)
            if record.arrays:
                path = marker_path.with_suffix(".npy" if len(record.arrays) == 1 else ".npz")
                part = _own_file(record, self.folder)
                if part is None:
                    part = files.enter_context(temporary_sibling(path))
                    with open(part, "wb") as file:
                        write_arrays(file, record.arrays)
                        file.flush()
                        os.fsync(file.fileno())
                content |= {"sha256": file_checksum(part), "file": path.name, "bytes": part.stat().st_size}
                arrays = {name: np.asanyarray(array) for name, array in record.arrays.items()}
                content["arrays"] = {name: {"shape": list(x.shape), "dtype": x.dtype.str} for name, x in arrays.items()}
                # The old marker must not vouch for new data. If the data is the same, the marker stays: shards of a
                # job that write one record at once do not take it from each other.
                with contextlib.suppress(KeyError, FormatError):
                    if self._open_marker(key)[1].get("sha256") not in (None, content["sha256"]):
                        marker_path.unlink(missing_ok=True)
                os.replace(part, path)
            write_text(marker_path, sealed_text(content))
            if not record.arrays:
                marker_path.with_suffix(".npy").unlink(missing_ok=True)
            sync_folder(marker_path.parent)

    def keys(self) -> list[str]:
        """Return the keys of all records, damaged ones included."""
        paths = (path.relative_to(self.folder) for path in self.folder.rglob("*.json"))
        others = (JOB, "graph", NEXT)  # not records of this version
        return sorted(path.with_suffix("").as_posix() for path in paths if path.parts[0] not in others)

    def digest(self, key: str) -> str:
        """Return the digest of a record from its marker, without reading its data."""
        marker = self._open_marker(key)[1]
        checksum: str | None = marker.get("sha256") or marker["parameters"].get("rows")
        return Record({}, {}, checksum).digest

    def create(self) -> None:
        """Make the folder a job, if it is not one yet."""
        path = self.folder / JOB
        if not path.exists():
            with translate_disk_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                write_text(path, sealed_text(_HEAD))

    def _marker_path(self, key: str) -> Path:
        parts = key.split("/")
        if any(part in ("", ".", "..") or part.startswith(".") or "\\" in part for part in parts) or key in _NAMES:
            raise InputError(f"'{key}' cannot be a key: keys are words with slashes between them, none of {_NAMES}.")
        return self.folder.joinpath(*parts[:-1], parts[-1] + ".json")

    def _open_marker(self, key: str) -> tuple[Path | None, dict[str, Any]]:
        """Return the data file of a record, None if it has no arrays, and its marker, or refuse one that cannot be."""
        path = self._marker_path(key)
        again = "its record has to be made again."
        try:
            marker, whole = read_sealed(path)
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(key) from None
        except FormatError as error:
            raise FormatError(f"{str(error).removesuffix('.')}; {again}") from error
        version, file, arrays = marker.get("format"), marker.get("file"), marker.get("arrays")
        if is_size(version) and version > VERSION:
            raise _newer(path, version)
        sound = is_size(version) and version == VERSION and isinstance(marker.get("parameters"), dict)
        if file is not None:
            named = isinstance(arrays, dict) and len(arrays) > 0 and all(map(is_array_entry, arrays.values()))
            sound = sound and is_size(marker.get("bytes")) and is_checksum(marker.get("sha256")) and named
            sound = sound and file in (path.stem + ".npy", path.stem + ".npz")
        if not sound:
            raise FormatError(f"{path} is not a marker of job format {VERSION} (docs/job-format.md); {again}")
        if not whole:
            raise FormatError(f"{path} does not have its own checksum: it was changed; {again}")
        return None if file is None else path.with_name(str(file)), marker

    def _check_job(self) -> None:
        path = self.folder / JOB
        if self.folder.exists() and not self.folder.is_dir():
            raise JobError(f"{self.folder} is a file; a job is a folder. Choose another place.")
        # Looked at before quilt.json, which another run may write at this moment and other things after it.
        others = sorted(entry.name for entry in self.folder.iterdir()) if self.folder.is_dir() else []
        others = [name for name in others if not name.startswith("lock") and not name.endswith(".part")]
        try:
            head, whole = read_sealed(path)
        except (FileNotFoundError, NotADirectoryError):
            if others:
                raise JobError(
                    f"{self.folder} has no quilt.json but holds {len(others)} other things ({others[0]}, …): it is not "
                    "a job. Choose a new or an empty folder."
                ) from None
            return
        except FormatError:
            head, whole = {}, False
        version = head.get("version")
        if head.get("format") == FORMAT and is_size(version) and version > VERSION:
            raise _newer(path, version)
        if head.get("format") != FORMAT or version != VERSION or not whole:
            raise JobError(
                f"{path} does not say that this is a graphquilt job, or was changed. If you are sure that it is a job "
                f"of format {VERSION}, write {json.dumps(seal(_HEAD))} into it."
            )


def _own_file(record: Record, folder: Path) -> Path | None:
    """Return the file in this folder that the one array of a record is mapped from, if it is."""
    arrays = list(record.arrays.values())
    if len(arrays) != 1 or not isinstance(arrays[0], np.memmap):
        return None
    part = Path(str(arrays[0].filename))
    if part.suffix != ".part" or part.parent != folder:
        return None
    arrays[0].flush()
    return part


def _newer(path: Path, version: int) -> JobError:
    return JobError(
        f"{path} was written in job format {version}, and graphquilt {graphquilt.__version__} knows formats up to "
        f"{VERSION}. Use the newer graphquilt that made it, or another folder; nothing was changed."
    )


def put_in_place(folder: Path) -> None:
    """Move a whole version into its job, the history last; after a kill, whoever opens the job next goes on."""
    source, mark = folder / NEXT, f"{HISTORY}.json"
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
