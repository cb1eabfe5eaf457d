"""Reads pickles from the internet so that only arrays are returned and no foreign code can run."""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError
from graphquilt.files import load_arrays

__all__ = ["Placeholder", "load_npz", "load_pickle", "load_torch"]

# The functions that rebuild arrays are asked from NumPy itself, because their names differ between its versions.
_RECONSTRUCT = np.zeros(0).__reduce__()[0]
_FROM_BUFFER = np.zeros(1).__reduce_ex__(5)[0]
_SCALAR = np.float64(0).__reduce__()[0]
_CORES = ("numpy.core", "numpy._core")


def _bytes(text: str, coding: str) -> bytes:
    """Encode bytes as Python 3 does in pickles of protocol 2; refuse every other coding."""
    if coding != "latin1":
        raise FormatError(f"a pickle asks for the coding '{coding}'; only latin1 occurs in arrays.")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], object] = {
    **{(f"{core}.multiarray", "_reconstruct"): _RECONSTRUCT for core in _CORES},
    **{(f"{core}.multiarray", "scalar"): _SCALAR for core in _CORES},
    **{(f"{core}.numeric", "_frombuffer"): _FROM_BUFFER for core in _CORES},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("_codecs", "encode"): _bytes,
    **{
        (f"scipy.sparse.{prefix}{kind}", f"{kind}_{word}"): getattr(sp, f"{kind}_{word}")
        for prefix in ("", "_")
        for kind in ("csr", "csc", "coo")
        for word in ("matrix", "array")
    },
}


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that loads NumPy and SciPy arrays and plain containers, and refuses every other name."""

    def __init__(self, file: BinaryIO, path: Path, *, encoding: str) -> None:
        super().__init__(file, encoding=encoding)
        self._path = path

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _ALLOWED:
            raise FormatError(
                f"{self._path} is a pickle that asks for {module}.{name}; only NumPy and SciPy arrays are read from "
                "pickles, because anything else could run code. Get the file again from its source."
            )
        return _ALLOWED[module, name]


@contextmanager
def _explained(path: Path, content: str, remedy: str = "Get the file again") -> Iterator[None]:
    """Turn every exception, because a damaged file can raise any, into a FormatError that names the file."""
    try:
        yield
    except FormatError:
        raise
    except Exception as error:
        raise FormatError(f"{path} cannot be read as {content}: {error}. {remedy}.") from error


def load_pickle(path: Path) -> Any:
    """Read a pickle (also one of Python 2) that holds only arrays, sparse matrices, numbers, lists and dictionaries."""
    return _unpickle(io.BytesIO(path.read_bytes()), path)


def _unpickle(file: BinaryIO, path: Path) -> Any:
    with _explained(path, "a pickle of arrays"):
        return _ArraysOnly(file, path, encoding="latin1").load()


def load_npz(path: Path) -> dict[str, Any]:
    """Read an ``.npz`` file; entries that are pickled objects are read as by :func:`load_pickle`."""

    def unpickle(content: bytes) -> Any:
        value = _unpickle(io.BytesIO(content), path)
        return value.item() if isinstance(value, np.ndarray) and value.shape == () else value

    return load_arrays(path, unpickle=unpickle)


_STORAGES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "ByteStorage": "u1",
    "CharStorage": "i1",
    "BoolStorage": "?",
}


class Placeholder:
    """Replaces an object of PyG: it stores the saved state and has no other behaviour."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _TorchFile(_ArraysOnly):
    """Reads tensors of a torch file as arrays, without torch; objects of PyG become placeholders."""

    def __init__(self, archive: zipfile.ZipFile, prefix: str, path: Path) -> None:
        super().__init__(io.BytesIO(archive.read(f"{prefix}data.pkl")), path, encoding="utf-8")
        self._archive, self._prefix = archive, prefix

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _STORAGES:
            return np.dtype(_STORAGES[name])
        if module.split(".")[:2] == ["torch_geometric", "data"]:
            return Placeholder
        return super().find_class(module, name)

    def persistent_load(self, pid: tuple[str, np.dtype[Any], str]) -> AnyArray:
        kind, dtype, key, *_ = pid
        if kind != "storage":
            raise FormatError(f"{self._path} contains a reference of unknown kind '{kind}'.")
        return np.frombuffer(self._archive.read(f"{self._prefix}data/{key}"), dtype=dtype)


def _tensor(storage: AnyArray, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object) -> AnyArray:
    if any(s < 0 for s in (*size, *stride)) or offset < 0:
        raise FormatError("a tensor has a negative size, stride or offset.")
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else offset - 1
    if last >= len(storage):
        raise FormatError(f"a tensor reaches to number {last} of a storage of {len(storage)}.")
    bytes_apart = tuple(s * storage.itemsize for s in stride)
    return np.lib.stride_tricks.as_strided(storage[offset:], size, bytes_apart, writeable=False).copy()


def load_torch(path: Path) -> Any:
    """Read a file of ``torch.save`` without torch: tensors as NumPy arrays, objects of PyG as placeholders."""
    with _explained(path, "a torch file", "Let PyG write it again"), zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("data.pkl")]
        if len(names) != 1:
            raise FormatError(f"{path} contains {len(names)} files data.pkl; a torch file has one.")
        return _TorchFile(archive, names[0].removesuffix("data.pkl"), path).load()
