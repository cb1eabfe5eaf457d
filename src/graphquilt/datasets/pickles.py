"""Pickles of other people, read so that nothing but arrays can come out and no code of theirs can run."""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphquilt.errors import FormatError

__all__ = ["load_arrays", "load_npz", "load_torch"]

# NumPy says itself which functions rebuild its arrays; their names have moved between its versions.
_RECONSTRUCT = np.zeros(0).__reduce__()[0]
_FROM_BUFFER = np.zeros(1).__reduce_ex__(5)[0]
_SCALAR = np.float64(0).__reduce__()[0]
_CORES = ("numpy.core", "numpy._core")


def _bytes(text: str, coding: str) -> bytes:
    """Do what Python 3 pickles of bytes in protocol 2 ask for, and no other coding."""
    if coding != "latin1":
        raise FormatError(f"a pickle asks for the coding '{coding}'; only latin1 occurs in arrays.")
    return text.encode("latin1")


def _sparse_kinds() -> dict[tuple[str, str], Any]:
    kinds = ("csr", "csc", "coo")
    return {
        (module, f"{kind}_{word}"): getattr(sp, f"{kind}_{word}")
        for kind in kinds
        for word in ("matrix", "array")
        for module in (f"scipy.sparse.{kind}", f"scipy.sparse._{kind}")
    }


_ALLOWED: dict[tuple[str, str], Any] = {
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
    **_sparse_kinds(),
}


class _ArraysOnly(pickle.Unpickler):
    """Knows NumPy and SciPy arrays and plain containers by name, and refuses every other name."""

    def __init__(self, file: Any, path: Path, **options: Any) -> None:
        super().__init__(file, **options)
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise FormatError(
                f"{self._path} is a pickle that asks for {module}.{name}; only NumPy and SciPy arrays are read from "
                "pickles, because anything else could run code. Get the file again from its source."
            )
        return _ALLOWED[module, name]


def load_arrays(path: Path) -> Any:
    """Read a pickle (also one of Python 2) that holds only arrays, sparse matrices, numbers, lists and dictionaries.

    Raises
    ------
    FormatError
        Where it names anything else, or is no whole pickle.
    """
    return _unpickle(io.BytesIO(path.read_bytes()), path)


def _unpickle(file: Any, path: Path) -> Any:
    try:
        return _ArraysOnly(file, path, encoding="latin1").load()
    except FormatError:
        raise
    except Exception as error:  # a spoilt pickle raises whatever its bytes happen to spell
        raise FormatError(f"{path} cannot be read as a pickle of arrays: {error}. Get the file again.") from error


def load_npz(path: Path) -> dict[str, Any]:
    """Read an ``.npz`` file; entries that are pickled objects are read under the same rule as :func:`load_arrays`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                name.removesuffix(".npy"): _npy(io.BytesIO(archive.read(name)), path) for name in archive.namelist()
            }
    except FormatError:
        raise
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be read as an .npz file: {error}. Get the file again.") from error


def _npy(file: io.BytesIO, path: Path) -> Any:
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    _, _, dtype = header(file)
    if not dtype.hasobject:
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)
    held = _unpickle(file, path)
    return held.item() if isinstance(held, np.ndarray) and held.shape == () else held


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


class _Inert:
    """Stands for an object of PyG: keeps the state it was saved with and can do nothing."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _TorchFile(_ArraysOnly):
    """Reads tensors of a torch file as arrays, without torch; objects of PyG become inert."""

    def __init__(self, archive: zipfile.ZipFile, prefix: str, path: Path) -> None:
        super().__init__(io.BytesIO(archive.read(f"{prefix}data.pkl")), path, encoding="utf-8")
        self._archive, self._prefix = archive, prefix

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _STORAGES:
            return np.dtype(_STORAGES[name])
        if module.split(".")[:2] == ["torch_geometric", "data"]:
            return _Inert
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        kind, dtype, key, *_ = pid
        if kind != "storage":
            raise FormatError(f"{self._path} holds a reference of unknown kind '{kind}'.")
        return np.frombuffer(self._archive.read(f"{self._prefix}data/{key}"), dtype=dtype)


def _tensor(storage: Any, offset: int, size: Any, stride: Any, *_: Any) -> Any:
    if any(s < 0 for s in (*size, *stride)) or offset < 0:
        raise FormatError("a tensor has a negative size, stride or offset.")
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else offset - 1
    if last >= len(storage):
        raise FormatError(f"a tensor reaches to number {last} of a storage of {len(storage)}.")
    bytes_apart = tuple(s * storage.itemsize for s in stride)
    return np.lib.stride_tricks.as_strided(storage[offset:], size, bytes_apart, writeable=False).copy()


def load_torch(path: Path) -> Any:
    """Read what ``torch.save`` wrote, tensors as NumPy arrays and objects of PyG as inert ones; torch is not needed."""
    try:
        with zipfile.ZipFile(path) as archive:
            inside = [name for name in archive.namelist() if name.endswith("data.pkl")]
            if len(inside) != 1:
                raise FormatError(f"{path} holds {len(inside)} files data.pkl; a torch file has one.")
            return _TorchFile(archive, inside[0].removesuffix("data.pkl"), path).load()
    except FormatError:
        raise
    except Exception as error:  # as above: the bytes decide what is raised
        raise FormatError(f"{path} cannot be read as a torch file: {error}. Let PyG write it again.") from error
