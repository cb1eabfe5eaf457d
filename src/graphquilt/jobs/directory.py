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
from collections.abc import Iterator, Mapping
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
)
from graphquilt.files.stamps import stamp
from graphquilt.files.writing import folder_lock
from graphquilt.jobs.store import Record, Store, store_folder

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

    Raises
    ------
    JobError
        The folder is not a job, or is one of another format.

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
            marker = self._marker(str(key))
            data = self._data(str(key), marker)
            return data is None or data.stat().st_size == marker["bytes"]
        except (KeyError, FormatError, FileNotFoundError):
            return False

    def __getitem__(self, key: str) -> Record:
        marker = self._marker(key)
        data = self._data(key, marker)
        if data is None:
            return Record({}, marker["parameters"])
        try:
            mark = stamp(data)
            if mark[0] != marker["bytes"]:
                raise FormatError(
                    f"{data} has {mark[0]} bytes and its marker says {marker['bytes']}: it was cut short or is "
                    "another file. It has to be made again."
                )
            if self._verified.get(key) != mark:
                self._verify(data, marker)
                self._verified[key] = mark
            arrays = map_arrays(data, tuple(marker["arrays"]))
        except FileNotFoundError:
            raise FormatError(f"{data} is gone but its marker is there: it has to be made again.") from None
        for name, array in arrays.items():
            noted = marker["arrays"][name]
            if list(array.shape) != noted["shape"] or array.dtype.str != noted["dtype"]:
                raise FormatError(
                    f"{data}: array {name} is {array.dtype.str} {array.shape}, its marker says {noted['dtype']} "
                    f"{tuple(noted['shape'])}. It has to be made again."
                )
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
        with translate_disk_errors(self.folder):
            marker_path.parent.mkdir(parents=True, exist_ok=True)
            self._verified.pop(key, None)
            part = _own_file(record, self.folder)
            if part is not None:
                self._place_data(key, record, content, part)
            elif record.arrays:
                self._write_data(key, record, content)
            write_text(marker_path, sealed_text(content))
            if not record.arrays:
                marker_path.with_suffix(".npy").unlink(missing_ok=True)
            sync_folder(marker_path.parent)

    def digest(self, key: str) -> str:
        """Return the digest of a record from its marker, without reading its data."""
        marker = self._marker(key)
        checksum: str | None = marker.get("sha256") or marker["parameters"].get("rows")
        return Record({}, {}, checksum).digest

    def create(self) -> None:
        """Make the folder a job, if it is not one yet."""
        path = self.folder / JOB
        if not path.exists():
            with translate_disk_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                write_text(path, sealed_text(_HEAD))

    def _write_data(self, key: str, record: Record, content: dict[str, Any]) -> None:
        """Put the arrays in their place and complete ``content``."""
        with temporary_sibling(self._data_path(key, record)) as part:
            with open(part, "wb") as file:
                write_arrays(file, record.arrays)
                file.flush()
                os.fsync(file.fileno())
            self._place_data(key, record, content, part)

    def _data_path(self, key: str, record: Record) -> Path:
        return self._marker_path(key).with_suffix(".npy" if len(record.arrays) == 1 else ".npz")

    def _place_data(self, key: str, record: Record, content: dict[str, Any], part: Path) -> None:
        """Rename a file with the arrays and complete ``content``; a marker of other arrays is gone by then."""
        path = self._data_path(key, record)
        content["sha256"] = file_checksum(part)
        content["file"] = path.name
        content["bytes"] = part.stat().st_size
        content["arrays"] = {
            name: {"shape": list(array.shape), "dtype": array.dtype.str}
            for name, array in ((name, np.asanyarray(array)) for name, array in record.arrays.items())
        }
        # The old marker must not vouch for new data. If the data is the same, the marker stays: shards of a job
        # that write one record at once do not take it from each other.
        if self._recorded_checksum(key) not in (None, content["sha256"]):
            self._marker_path(key).unlink(missing_ok=True)
        os.replace(part, path)

    def _recorded_checksum(self, key: str) -> str | None:
        """Return the checksum in the marker of a record, if there is one."""
        try:
            checksum: str | None = self._marker(key).get("sha256")
            return checksum
        except (KeyError, FormatError):
            return None

    def _marker_path(self, key: str) -> Path:
        parts = key.split("/")
        if any(part in ("", ".", "..") or part.startswith(".") or "\\" in part for part in parts) or key in _NAMES:
            raise InputError(f"'{key}' cannot be a key: keys are words with slashes between them, none of {_NAMES}.")
        return self.folder.joinpath(*parts[:-1], parts[-1] + ".json")

    def _marker(self, key: str) -> dict[str, Any]:
        path = self._marker_path(key)
        try:
            marker, whole = read_sealed(path)
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(key) from None
        except FormatError as error:
            raise FormatError(f"{str(error).removesuffix('.')}; its record has to be made again.") from error
        version = marker.get("format")
        if not is_size(version) or not isinstance(marker.get("parameters"), dict):
            raise FormatError(f"{path} is not a marker of a graphquilt job; its record has to be made again.")
        _refuse_newer(path, version)
        if version < VERSION:
            raise FormatError(
                f"{path} is not a marker of job format {VERSION} but of {version}; its record has to be made again. "
                "docs/job-format.md says what a marker has."
            )
        if marker.get("file") is not None:
            self._check_data_entries(path, marker)
        if not whole:
            raise FormatError(
                f"{path} does not have its own checksum: it was changed. Its record has to be made again."
            )
        return marker

    def _check_data_entries(self, path: Path, marker: Mapping[str, Any]) -> None:
        """Refuse a marker whose data file or arrays cannot be."""
        if not is_size(marker.get("bytes")) or not is_checksum(marker.get("sha256")) or not _are_arrays(marker):
            raise FormatError(
                f"{path} is not a whole marker: bytes, sha256 or arrays is wrong; its record has to be made again."
            )
        if marker["file"] not in (path.stem + ".npy", path.stem + ".npz"):
            raise FormatError(
                f"{path} points to {str(marker['file'])[:80]!r}, which is not its own data file; its record has to be "
                "made again."
            )

    def _data(self, key: str, marker: Mapping[str, Any]) -> Path | None:
        return None if marker.get("file") is None else self._marker_path(key).with_name(marker["file"])

    def _verify(self, data: Path, marker: Mapping[str, Any]) -> None:
        checksum = file_checksum(data)
        if checksum != marker["sha256"]:
            raise FormatError(
                f"{data} does not have the SHA-256 that its marker says (found {checksum[:12]}…, marker "
                f"{str(marker['sha256'])[:12]}…): its bytes have changed. It has to be made again."
            )

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
        if head.get("format") == FORMAT and is_size(version):
            _refuse_newer(path, version)
            if version < VERSION:
                raise JobError(
                    f"{path} was written in job format {version}, whose records do not say what they were made "
                    f"from; graphquilt {graphquilt.__version__} reads format {VERSION}. Make the job again in "
                    "another folder, or use the release that made it; nothing was changed."
                )
        if head.get("format") != FORMAT or version != VERSION or not whole:
            raise JobError(
                f"{path} does not say that this is a graphquilt job, or was changed. If you are sure that it is a job "
                f"of format {VERSION}, write {json.dumps(seal(_HEAD))} into it."
            )


class FileClaims:
    """Claims as locked bytes of one file: the operating system gives them back when their process ends."""

    def __init__(self, folder: Path) -> None:
        with translate_disk_errors(folder):
            self._handle = os.open(folder / "lock.claims", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)

    def __enter__(self) -> FileClaims:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def take(self, number: int) -> bool:
        """Claim a number; return whether no other process has claimed it."""
        import fcntl

        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def release(self, number: int) -> None:
        """Give a number back."""
        import fcntl

        fcntl.lockf(self._handle, fcntl.LOCK_UN, 1, number)


@contextlib.contextmanager
def open_output(
    store: Store, key: str, shape: tuple[int, int], dtype: str, *, continued: bool | None = None
) -> Iterator[FloatArray | None]:
    """Lend an array in a file, which becomes the record of this key without a copy; None for a store in memory.

    Unless ``continued`` is None, the file survives a run that is killed: the next continues it, or makes a new one.
    """
    folder = store_folder(store)
    if folder is None:
        yield None
        return
    if continued is not None:
        with translate_disk_errors(folder):
            mode: Literal["r+", "w+"] = "r+" if continued else "w+"
            part = output_part(store, key)
            yield np.lib.format.open_memmap(part, mode=mode, dtype=np.dtype(dtype), shape=shape)
        return
    check_disk(folder, shape[0] * shape[1] * np.dtype(dtype).itemsize, f"the {key}")
    with temporary_sibling(folder / f"{key}.npy") as part:
        with translate_disk_errors(folder):
            out = np.lib.format.open_memmap(part, mode="w+", dtype=np.dtype(dtype), shape=shape)
        yield out


def output_part(store: Store, key: str) -> Path:
    """Return the file in which a run that was killed has left a part of an array."""
    return (store_folder(store) or Path()) / f"{key}.part"


def _are_arrays(marker: Mapping[str, Any]) -> bool:
    """Return whether the arrays of a marker have names, shapes and plain types."""
    arrays = marker.get("arrays")
    return isinstance(arrays, dict) and len(arrays) > 0 and all(map(is_array_entry, arrays.values()))


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


def _refuse_newer(path: Path, version: int) -> None:
    if version > VERSION:
        raise JobError(
            f"{path} was written in job format {version}, and graphquilt {graphquilt.__version__} knows formats up to "
            f"{VERSION}. Use the newer graphquilt that made it, or another folder; nothing was changed."
        )
