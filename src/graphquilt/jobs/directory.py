"""A job on disk: records of arrays under keys, each with a marker that is written last (job format 3).

The whole format is described in ``docs/job-format.md``. In short, the record under the key ``patches/00017/graph`` is
the data file ``patches/00017/graph.npz`` (``.npy`` if the record is one array) and the marker
``patches/00017/graph.json``, which holds the size and SHA-256 of the data file, the parameters that made it, and a
checksum of all that. A record exists once its marker does, so a run that is killed at any moment never leaves something
that looks finished.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

import graphquilt
from graphquilt.arrays import FloatArray
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.files import (
    check_disk,
    check_inside,
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
from graphquilt.files.writing import folder_lock
from graphquilt.jobs.store import Record, Store, store_folder
from graphquilt.jobs.versions import NEXT, put_in_place

FORMAT = "graphquilt job"
VERSION = 3
_NAMES = ("quilt",)  # of files that are not records
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

    def claims(self) -> FileClaims:
        """Return what shards of this job claim."""
        return FileClaims(self.folder)

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
                raise FormatError(
                    f"{data} does not have the SHA-256 that its marker says, or its {marker['bytes']} bytes: it was "
                    "cut short or changed. It has to be made again."
                )
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


class FileClaims:
    """Numbers that shards of a job claim, as locked bytes of one file; a claim ends with its process."""

    def __init__(self, folder: Path) -> None:
        import fcntl  # not on Windows

        self._lockf, self._alone, self._free = fcntl.lockf, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
        with translate_disk_errors(folder):
            self._handle = os.open(folder / "lock.claims", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)

    def close(self) -> None:
        """Give all numbers back."""
        os.close(self._handle)

    def take(self, number: int) -> bool:
        """Claim a number; return whether no other process has claimed it."""
        try:
            self._lockf(self._handle, self._alone, 1, number)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def release(self, number: int) -> None:
        """Give a number back."""
        self._lockf(self._handle, self._free, 1, number)


@contextlib.contextmanager
def open_output(
    store: Store, key: str, shape: tuple[int, int], dtype: str, *, continued: bool | None = None
) -> Iterator[FloatArray | None]:
    """Lend an array in a file, which becomes the record of this key without a copy; None for a store in memory.

    Unless ``continued`` is None, the file survives a run that is killed: the next continues it, or makes a new one.
    """
    folder, part = store_folder(store), output_part(store, key)
    if folder is None:
        yield None
        return
    if continued is None:
        check_disk(folder, shape[0] * shape[1] * np.dtype(dtype).itemsize, f"the {key}")
    try:
        with translate_disk_errors(folder):
            mode: Literal["r+", "w+"] = "r+" if continued else "w+"
            yield np.lib.format.open_memmap(part, mode=mode, dtype=np.dtype(dtype), shape=shape)
    except BaseException:
        if continued is None:
            part.unlink(missing_ok=True)
        raise


def output_part(store: Store, key: str) -> Path:
    """Return the file in which a run that was killed has left a part of an array."""
    return (store_folder(store) or Path()) / f"{key}.part"


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
