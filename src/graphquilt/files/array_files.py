"""Write, map and load arrays.

This is the only module that reads .npy and .npz files. Whatever such a file holds, reading it gives plain arrays or a
FormatError: nothing is unpickled, and every size is compared with the bytes that are there before memory
is allocated for it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import stat
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, JobError
from graphquilt.files.writing import atomic_file

_LOCAL_HEADER = 30  # bytes before the name in a zip member's local header
_ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")  # the first bytes of a zip file, and of an empty one
_DEFLATE = 1032  # the most bytes that one byte of a deflated stream can stand for
_ALIGN = 64  # bytes, to which numpy aligns the data of a .npy file
_ZIP64_EXTRA = 20  # bytes that zipfile adds to it for sizes over 4 GB
_PADDING_ID = 0xD935  # the zip extra field that is known to mean "padding"
_MOST_DIMENSIONS = 32  # of an array in every version of NumPy
_PIECE = 1 << 20  # bytes that are read from a zip member at a time
_LAST_CHARACTER = 0x10FFFF  # the last code point of Unicode
_SURROGATES = (0xD800, 0xDFFF)  # code points that are not characters
_OBJECTS = "holds Python objects, which are never read. Save plain text or numbers: ids.astype(str), for example."


def write_arrays(file: BinaryIO, arrays: Mapping[str, AnyArray]) -> None:
    """Write one array as .npy, several as an uncompressed .npz whose members start at multiples of 64 bytes."""
    if len(arrays) == 1:
        np.lib.format.write_array(file, np.asanyarray(next(iter(arrays.values()))), allow_pickle=False)
        return
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            start = file.tell() + _LOCAL_HEADER + len(info.filename.encode()) + _ZIP64_EXTRA
            padding = (-(start + 4)) % _ALIGN
            info.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def save_arrays(path: Path, arrays: Mapping[str, AnyArray]) -> None:
    """Write arrays as :func:`write_arrays` does to a file that is complete, and on the disk, once it is there."""
    with atomic_file(path) as file:
        write_arrays(file, arrays)


class ArrayWriter:
    """A ``.npy`` file that grows by rows of one shape; NumPy leaves room in its header for their number."""

    def __init__(self, file: BinaryIO, dtype: np.dtype[Any], row: tuple[int, ...]) -> None:
        self._file, self._dtype, self._row, self._digest = file, dtype, row, hashlib.sha256()
        self.length = 0  # rows that are written

    def write_header(self) -> None:
        """Write the header for the rows so far."""
        shape, descr = (self.length, *self._row), np.lib.format.dtype_to_descr(self._dtype)
        self._file.seek(0)
        np.lib.format.write_array_header_1_0(self._file, {"descr": descr, "fortran_order": False, "shape": shape})

    def append(self, rows: AnyArray) -> None:
        """Write contiguous rows after the others."""
        content = rows.reshape(-1).view(np.uint8).data if rows.nbytes else b""
        self._digest.update(content)
        self._file.write(content)
        self.length += len(rows)

    @property
    def entry(self) -> dict[str, Any]:
        """Shape, type and checksum, as the description of a graph has them."""
        return {"shape": [self.length, *self._row], "dtype": self._dtype.str, "sha256": self._digest.hexdigest()}


@contextlib.contextmanager
def array_writer(path: Path, dtype: np.dtype[Any], row: tuple[int, ...] = ()) -> Iterator[ArrayWriter]:
    """Write an array of unknown length to a ``.npy`` file, which appears once the block is left."""
    with atomic_file(path) as file:
        writer = ArrayWriter(file, dtype, row)
        writer.write_header()
        yield writer
        writer.write_header()


def map_arrays(path: Path, names: tuple[str, ...]) -> dict[str, AnyArray]:
    """Open the named arrays of a .npy or .npz file, memory-mapped where the file allows it, without their checksums."""
    with open_regular_file(path) as (file, size):
        if _is_archive(file):
            archive = Archive(file, size)
            return {name: _map_member(archive, name) for name in names}
        if len(names) != 1:
            raise ValueError(f"it is one array, and {len(names)} are expected")
        return {names[0]: _map_at(file, 0, size)}


def map_array(path: Path) -> AnyArray:
    """Open the array of a .npy file, memory-mapped."""
    with open_regular_file(path) as (file, size):
        if _is_archive(file):
            raise ValueError("it holds several arrays, and one is expected")
        return _map_at(file, 0, size)


def temporary_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> AnyArray:
    """Return an array of zeros in a temporary file without a name, which goes away with the array."""
    with tempfile.TemporaryFile() as file:
        array: AnyArray = np.memmap(file, dtype=dtype, mode="w+", shape=shape)
    return array


def load_arrays(path: Path, *, unpickle: Callable[[bytes], Any] | None = None) -> dict[str, Any]:
    """Read all arrays of a .npz file; of Python objects ``unpickle`` makes something, or None to leave them out."""
    with open_archive(path) as archive:
        foreign = [name for name in archive.names if not name.endswith(".npy")]
        if foreign:
            raise ValueError(f"{len(foreign)} of its {len(archive.names)} members are not .npy files")
        arrays = {name.removesuffix(".npy"): _load_member(archive, name, unpickle) for name in archive.names}
        return {name: array for name, array in arrays.items() if array is not None}


def _read_header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, order, type and start of the data of an array in a file or member of ``size`` bytes.

    NumPy reads the header, as a literal of Python of at most 10 kB; it is refused unless its data are there.
    """
    begin, version = file.tell(), np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"it uses version {version} of the .npy format; save its arrays with numpy's default")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(file)
        if dtype.kind not in "biufcSUOmM" or dtype.subdtype is not None or min(shape, default=0) < 0:
            raise ValueError(f"it is {dtype} {shape}")
    except Exception as error:  # of a hostile header NumPy raises almost anything
        raise ValueError("its header is not that of a plain array of numbers or text") from error
    start = file.tell() - begin
    if len(shape) > _MOST_DIMENSIONS:
        raise ValueError(f"it has {len(shape)} dimensions; at most {_MOST_DIMENSIONS} are read")
    if dtype.itemsize == 0 and 0 not in shape:
        raise ValueError(f"its {math.prod(shape)} entries have no bytes")
    declared, present = math.prod(shape) * dtype.itemsize, size - start
    if declared != present and not dtype.hasobject:
        raise ValueError(f"its header declares an array {dtype.str} {shape} of {declared} bytes, and {present} follow")
    return shape, fortran, dtype, start


def _map_member(archive: Archive, name: str) -> AnyArray:
    start = archive.start(f"{name}.npy")
    if start is None:
        array: AnyArray = _load_member(archive, f"{name}.npy", None)
        return array
    return _map_at(archive.file, start, archive.size(f"{name}.npy"))


def _map_at(file: BinaryIO, offset: int, size: int) -> AnyArray:
    """Map the array whose ``size`` bytes, with its header, begin at ``offset``."""
    file.seek(offset)
    shape, fortran, dtype, start = _read_header(file, size)
    if dtype.hasobject:
        raise FormatError(f"{file.name} {_OBJECTS}")
    if 0 in shape:
        return np.empty(shape, dtype)
    array: AnyArray = np.memmap(file, dtype, "r", offset + start, shape, "F" if fortran else "C")
    array = array.copy(order="K") if (offset + start) % dtype.alignment else array
    check_values(array)
    return array


def _load_member(archive: Archive, name: str, unpickle: Callable[[bytes], Any] | None) -> Any:
    with archive.open(name) as member:
        shape, fortran, dtype, start = _read_header(member, archive.size(name))
        if dtype.hasobject:
            if unpickle is None:
                raise FormatError(f"{archive.file.name}: {name.removesuffix('.npy')} {_OBJECTS}")
            return unpickle(member.read(archive.size(name) - start))
        if 0 in shape:
            return np.empty(shape, dtype)
        content = np.empty(archive.size(name) - start, dtype=np.uint8)
        done = 0
        while done < len(content):
            piece = member.read(min(_PIECE, len(content) - done))
            if not piece:
                raise ValueError(f"'{name}' ends after {done} of {len(content)} bytes")
            content[done : done + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
            done += len(piece)
    array = content.view(dtype).reshape(shape, order="F" if fortran else "C")
    check_values(array)
    return array


def check_values(array: AnyArray) -> None:
    """Raise for bytes that are not truth values or text; Python and compiled code take for granted that they are."""
    if array.dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
        raise ValueError("it holds truth values other than 0 and 1")
    if array.dtype.kind == "U":
        flat = np.ravel(array, order="K")
        codes = flat.view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        for start in range(0, len(codes), _PIECE):
            part = codes[start : start + _PIECE]
            surrogate = (part >= _SURROGATES[0]) & (part <= _SURROGATES[1])
            if part.max() > _LAST_CHARACTER or surrogate.any():
                raise ValueError("it holds text with numbers that are not characters")


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file."""
    with open_regular_file(path) as (file, _):
        return file.read()


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open a zip file that may be damaged or hostile; every error inside the block becomes a FormatError."""
    with open_regular_file(path) as (file, size):
        if not _is_archive(file):
            raise ValueError("it does not begin as a zip file does")
        yield Archive(file, size)


class Archive:
    """The members of a zip file of ``size`` bytes, each read only after its sizes are found possible."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file = file
        self._zip = zipfile.ZipFile(file)
        infos = self._zip.infolist()
        self._infos = {info.filename: info for info in infos}
        self.names = tuple(self._infos)
        if len(self.names) != len(infos):
            raise ValueError(f"{len(infos)} members have only {len(self.names)} names")
        declared = sum(info.compress_size for info in infos)
        if declared > size:
            raise ValueError(f"its members declare {declared} bytes")
        for info in infos:
            _check_member(info, size)

    def read(self, name: str) -> bytes:
        """Return the content of a member, after comparing its checksum."""
        with self.open(name) as member:
            content = member.read(self.size(name))
        if len(content) != self.size(name):
            raise ValueError(f"'{name}' has {len(content)} bytes and declares {self.size(name)}")
        return content

    def open(self, name: str) -> IO[bytes]:
        """Open a member to read from it; its checksum is compared at its end."""
        return self._zip.open(self._info(name))

    def size(self, name: str) -> int:
        """Return how many bytes the content of a member has."""
        return self._info(name).file_size

    def start(self, name: str) -> int | None:
        """Return where in the file the content of a member begins; None where it is compressed."""
        info = self._info(name)
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        with self._zip.open(info):  # which compares the two headers of the member
            pass
        self.file.seek(info.header_offset + _LOCAL_HEADER - 4)
        name_length, extra_length = struct.unpack("<HH", self.file.read(4))
        return int(info.header_offset + _LOCAL_HEADER + name_length + extra_length)

    def _info(self, name: str) -> zipfile.ZipInfo:
        if name not in self._infos:
            raise ValueError(f"it lacks '{name}'; it holds {', '.join(self.names[:10]) or 'nothing'}")
        return self._infos[name]


def _check_member(info: zipfile.ZipInfo, size: int) -> None:
    """Raise unless a member is stored or deflated, and can have the size that it declares."""
    name, packed, unpacked = info.filename[:100], info.compress_size, info.file_size
    if info.flag_bits & 1:
        raise ValueError(f"its member '{name}' is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"its member '{name}' is compressed in a way (number {info.compress_type}) that is not read")
    if info.header_offset + _LOCAL_HEADER + packed > size:
        raise ValueError(f"its member '{name}' reaches beyond its end")
    most = packed if info.compress_type == zipfile.ZIP_STORED else _DEFLATE * packed
    if unpacked > most:
        raise ValueError(f"its member '{name}' declares {unpacked} bytes in {packed} bytes, which cannot be")


@contextlib.contextmanager
def open_regular_file(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file and give its size; turn whatever its content raises, which can be anything, into a FormatError."""
    nonblocking = getattr(os, "O_NONBLOCK", 0)  # a named pipe is opened without waiting for a writer
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | nonblocking)) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is not a regular file")
            yield file, size
        except FormatError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                raise JobError(f"{path} cannot be opened: too many files are open. Allow more (ulimit -n).") from error
            raise FormatError(
                f"{path} ({size} bytes) cannot be read as arrays: {str(error) or type(error).__name__}. "
                "It may have been cut short or damaged; write it again, or get it again from its source."
            ) from error


def _is_archive(file: BinaryIO) -> bool:
    """Return whether a file begins as a zip file does."""
    start = file.read(4)
    file.seek(0)
    return start.startswith(_ZIP_STARTS)
