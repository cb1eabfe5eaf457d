"""Arrays in .npy and uncompressed .npz files, written so that every one can be memory-mapped. Nothing is unpickled."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from graphquilt.errors import FormatError

_ALIGN = 64  # bytes; what numpy itself aligns the data of a .npy file to
_LOCAL_HEADER = 30  # bytes before the name in a zip member's local header
_ZIP64_EXTRA = 20  # bytes that zipfile adds to it for sizes over 4 GB
_PADDING_ID = 0xD935  # the zip extra field that is known to mean "padding"


def write_arrays(file: BinaryIO, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
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


def map_arrays(path: Path, names: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    """Open the named arrays of a .npy or .npz file, memory-mapped where the file allows it.

    Raises
    ------
    FormatError
        An array is missing, holds Python objects, or the file is not what its name says.
    """
    try:
        with open(path, "rb") as file:
            if path.suffix == ".npy":
                if len(names) != 1:
                    raise FormatError(f"{path} is one array; its marker lists {len(names)}.")
                return {names[0]: _map_at(path, file, 0)}
            with zipfile.ZipFile(file) as archive:
                return {name: _map_member(path, file, archive, name) for name in names}
    except FormatError:
        raise
    except (ValueError, KeyError, EOFError, struct.error, zipfile.BadZipFile) as error:
        raise FormatError(f"{path} cannot be read as arrays ({error}); it has to be made again.") from error


def _map_member(path: Path, file: BinaryIO, archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED:
        with archive.open(info) as member:
            return np.asarray(np.lib.format.read_array(member, allow_pickle=False))
    file.seek(info.header_offset + _LOCAL_HEADER - 4)
    name_length, extra_length = struct.unpack("<HH", file.read(4))
    return _map_at(path, file, info.header_offset + _LOCAL_HEADER + name_length + extra_length)


def _map_at(path: Path, file: BinaryIO, offset: int) -> npt.NDArray[Any]:
    file.seek(offset)
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise FormatError(f"{path} uses version {version} of the .npy format; save its arrays with numpy's default.")
    if dtype.hasobject:
        raise FormatError(f"{path} holds Python objects, which a job never does; it was made by something else.")
    if 0 in shape:
        return np.empty(shape, dtype)
    start = file.tell()
    mapped: npt.NDArray[Any] = np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")
    return mapped.copy(order="K") if start % dtype.alignment else mapped
