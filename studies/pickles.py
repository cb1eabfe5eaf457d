"""Reads pickles of other projects, so that they give arrays and plain containers and nothing in them is ever called.

Python's own unpickler calls the functions that a file names, and sets the attributes that it lists. This reader has a
machine of its own instead: names are inert values, what they would build is recorded, and an array or a sparse matrix
is made from the record only after its type, shape and bytes are found to agree.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, cast

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError
from graphquilt.files.array_files import Archive, check_values, load_arrays, open_archive, read_bytes
from graphquilt.graph.checks import sparse_of

__all__ = ["Placeholder", "load_npz", "load_pickle", "load_torch"]

_PUTS = ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE")
_GETS = ("BINGET", "LONG_BINGET", "GET")
_LITERALS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
# How many values the steps take that make or fill a container; None means all above the last mark.
_TAKEN = {
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_TUPLE", "EMPTY_DICT"), 0),
    **{"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "APPEND": 1, "SETITEM": 2},
    **dict.fromkeys(("LIST", "TUPLE", "DICT", "APPENDS", "SETITEMS")),
}
_NOTHING = ("PROTO", "FRAME")  # steps that say how the pickle was written
# The steps whose argument is the value itself: numbers, text and bytes.
_CONSTANTS = frozenset(
    step.name
    for step in pickletools.opcodes
    if step.arg is not None and not step.stack_before and step.stack_after
    if step.name not in (*_GETS, "GLOBAL", "PERSID", "EXT1", "EXT2", "EXT4")
)
_DTYPE = re.compile(r"b1|[iufcSU]\d{1,9}|O\d?")
_LARGEST_KEY = 1 << 60  # whole numbers below it are their own hash, so that no file can make a dictionary slow
_SPARE = 1 << 24  # bytes that arrays may have together, however short the file is
_GROWTH = 64  # and how many for each byte of the file: one array may be part of several matrices

_ARRAYS = {
    **{f"numpy.{core}.multiarray._reconstruct": "array" for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": "scalar" for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": "buffer" for core in ("core", "_core")},
    "numpy.ndarray": "ndarray",
    "numpy.dtype": "dtype",
    "collections.defaultdict": "defaultdict",
    "collections.OrderedDict": "ordered",
    "__builtin__.list": "list",
    "builtins.list": "list",
    "_codecs.encode": "bytes",
    "__builtin__.bytes": "bytes",
    "builtins.bytes": "bytes",
    **{
        f"scipy.sparse.{prefix}{form}.{form}_{word}": form
        for prefix in ("", "_")
        for form in ("csr", "csc", "coo")
        for word in ("matrix", "array")
    },
}
_FORMS = ("csr", "csc", "coo")


@dataclass(frozen=True, slots=True)
class _Name:
    """A function or class that a pickle names: it stands for what is made there, and cannot be called."""

    kind: str


@dataclass(slots=True, eq=False)
class _Record:
    """An array, type or matrix whose state has not been read yet; ``keys`` are its places in the memo."""

    kind: str
    detail: str = ""
    keys: list[int] = field(default_factory=list)


class Placeholder:
    """Replaces an object of PyG: it stores the saved state and has no other behaviour."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: object = None


class _Machine:
    """Reads one pickle; ``source`` is the number of bytes that it comes from."""

    def __init__(self, content: bytes, source: int) -> None:
        self._content = content
        self._left = _SPARE + _GROWTH * source
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # the stacks under each mark
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Return the value that the pickle holds."""
        for step, argument, _ in pickletools.genops(self._content):
            name, value = step.name, cast(Any, argument)
            if name in _CONSTANTS:
                self._stack.append(value)
            elif name in _PUTS:
                self._put(len(self._memo) if name == "MEMOIZE" else value)
            elif name in _GETS:
                self._stack.append(self._memo[value])
            elif name in _TAKEN:
                self._collect(name, self._taken(_TAKEN[name]))
            elif name == "STOP":
                return self._stack.pop()
            elif name not in _NOTHING:
                self._step(name, value)
        raise FormatError("the pickle has no end.")

    def _put(self, key: int) -> None:
        value = self._stack[-1]
        if isinstance(value, _Record):
            value.keys.append(key)
        self._memo[key] = value

    def _taken(self, count: int | None) -> list[Any]:
        """Take the last ``count`` values from the stack, or those above the last mark."""
        if count is None:
            values, self._stack = self._stack, self._below.pop()
            return values
        first = len(self._stack) - count
        if first < 0:
            raise FormatError("the pickle takes more values than it has.")
        values = self._stack[first:]
        del self._stack[first:]
        return values

    def _collect(self, name: str, values: list[Any]) -> None:
        """Make a container of the values, or put them into the one that is on the stack."""
        if name in ("APPEND", "APPENDS"):
            _expect(self._stack[-1], list).extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            _expect(self._stack[-1], dict).update(_pairs(values))
        elif "TUPLE" in name:
            self._stack.append(tuple(values))
        else:
            self._stack.append(_pairs(values) if "DICT" in name else values)

    def _step(self, name: str, argument: Any) -> None:
        if name == "MARK":
            self._below.append(self._stack)
            self._stack = []
        elif name in _LITERALS:
            self._stack.append(_LITERALS[name])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            module, attribute = argument.split(" ", 1) if name == "GLOBAL" else self._taken(2)
            self._stack.append(_Name(self.kind(_expect(module, str), _expect(attribute, str))))
        elif name in ("REDUCE", "NEWOBJ"):
            callee, arguments = self._taken(2)
            self._stack.append(self.make(_expect(callee, _Name).kind, _expect(arguments, tuple)))
        elif name == "BUILD":
            self._stack.append(self._build(*self._taken(2)))
        elif name == "BINPERSID":
            self._stack.append(self.stored(self._stack.pop()))
        elif name == "POP":
            self._stack.pop()
        else:
            raise FormatError(f"the pickle uses the step {name}, which does not occur where arrays are written.")

    def kind(self, module: str, name: str) -> str:
        """Return what the function or class of this name makes; refuse all but those of arrays."""
        text = f"{module}.{name}"
        if text not in _ARRAYS:
            raise FormatError(
                f"it is a pickle that asks for {text[:100]!a}; only NumPy and SciPy arrays are read from pickles, "
                "because anything else could run code."
            )
        return _ARRAYS[text]

    def make(self, kind: str, arguments: tuple[Any, ...]) -> object:
        """Return what a function would make of its arguments, or a record of it."""
        if kind == "array" or kind in _FORMS:
            return _Record(kind)
        if kind == "dtype" and arguments and _DTYPE.fullmatch(_expect(arguments[0], str)):
            return _Record(kind, arguments[0])
        if kind == "scalar" and len(arguments) == 2 and not isinstance(arguments[1], list):
            return self._array(arguments[0], (), arguments[1])[()]
        if kind == "buffer" and len(arguments) >= 4 and arguments[3] in ("C", "F") and not any(arguments[4:]):
            content, dtype, shape, order = arguments[:4]
            return self._array(dtype, shape, content, fortran=order == "F")
        if kind == "bytes" and arguments[1:] == (("latin1",) if arguments else ()):
            text: str = _expect((*arguments, "")[0], str)
            self.take(len(text))
            return text.encode("latin1")
        if kind in ("defaultdict", "ordered") and len(arguments) == (kind == "defaultdict"):
            return {}
        raise FormatError(f"the pickle makes a {kind} in a way in which arrays are not written.")

    def stored(self, reference: object) -> object:
        """Return what a reference to another file stands for."""
        raise FormatError(f"the pickle refers, by a {type(reference).__name__}, to another file.")

    def _build(self, record: object, state: Any) -> object:
        """Return what a record and its state make, in every place of the record."""
        if isinstance(record, Placeholder):
            record.state = state
            return record
        value: object
        kind = _expect(record, _Record).kind
        if kind == "dtype":
            value = _dtype(_expect(record, _Record).detail, _expect(state, tuple))
        elif kind == "array":
            version, shape, dtype, fortran, content = _expect(state, tuple)
            if version != 1:
                raise FormatError(f"an array in the pickle has format {version}; only format 1 is read.")
            value = self._array(dtype, shape, content, fortran=bool(fortran))
        else:
            parts = {name.removeprefix("_"): part for name, part in _expect(state, dict).items()}
            value = sparse_of(kind, parts)
            self.take(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
        for key in _expect(record, _Record).keys:
            if self._memo.get(key) is record:
                self._memo[key] = value
        return value

    def _array(self, dtype: object, shape: object, content: object, *, fortran: bool = False) -> Any:
        """Return an array whose bytes are ``content``; objects, which are a list, stay one."""
        kind, sizes = _expect(dtype, np.dtype), _sizes(shape)
        count = math.prod(sizes)
        if kind.hasobject:
            values = _expect(content, list)
            if len(values) != count:
                raise FormatError(f"an array of {count} objects in the pickle lists {len(values)}.")
            return values if sizes else values[0]
        data = content.encode("latin1") if isinstance(content, str) else _expect(content, bytes | bytearray)
        if len(data) != count * kind.itemsize or (kind.itemsize == 0 and count):
            raise FormatError(
                f"an array {kind.str} {sizes} in the pickle needs {count * kind.itemsize} bytes and has {len(data)}."
            )
        self.take(len(data))
        if 0 in sizes:
            return np.empty(sizes, kind)
        array = np.frombuffer(bytes(data), kind).reshape(sizes, order="F" if fortran else "C")
        check_values(array)
        return array

    def take(self, size: int) -> None:
        """Count the bytes of what is made; a file that uses the same bytes again and again is refused."""
        self._left -= size
        if self._left < 0:
            raise FormatError("its arrays together are many times larger than the file.")


def _expect(value: Any, kind: type[Any] | UnionType) -> Any:
    if not isinstance(value, kind):
        wanted = getattr(kind, "__name__", str(kind))
        raise FormatError(f"the pickle has a {type(value).__name__} where a {wanted} belongs.")
    return value


def _pairs(values: list[Any]) -> dict[Any, Any]:
    """Return a dictionary of keys and values in turn; keys are such that looking them up is quick and safe."""
    if len(values) % 2:
        raise FormatError("the pickle has a dictionary with a key that has no value.")
    pairs = dict[Any, Any]()
    for key, value in zip(values[::2], values[1::2], strict=True):
        names = key if isinstance(key, tuple) else (key,)
        for name in names:
            if not isinstance(name, str | int | None) or (isinstance(name, int) and abs(name) >= _LARGEST_KEY):
                raise FormatError("the pickle has a dictionary with keys other than text and small whole numbers.")
        pairs[key] = value
    return pairs


def _sizes(shape: object) -> tuple[int, ...]:
    sizes: tuple[Any, ...] = _expect(shape, tuple)
    if len(sizes) > 32 or not all(type(n) is int and 0 <= n < 1 << 62 for n in sizes):
        raise FormatError("an array in the pickle has a shape that is not of at most 32 whole numbers.")
    return sizes


def _dtype(code: str, state: tuple[Any, ...]) -> np.dtype[Any]:
    """Return the type of a pickled array: numbers, text or objects, without parts."""
    if len(state) != 8 or state[1] not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
        raise FormatError(
            f"an array in the pickle has a type '{code}' with parts; only plain numbers and text are read."
        )
    return np.dtype(code if code.startswith("O") else state[1] + code)


@contextmanager
def _explained(path: Path, content: str, remedy: str = "Get the file again from its source") -> Iterator[None]:
    """Turn every exception, because a damaged file can raise any, into a FormatError that names the file."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).removesuffix(".")
        raise FormatError(f"{path} cannot be read as {content}: {reason}. {remedy}.") from error


def load_pickle(path: Path) -> Any:
    """Read a pickle (also one of Python 2) that holds only arrays, sparse matrices, numbers, lists and dictionaries.

    Arrays are read-only, sparse matrices come back as CSR, and arrays of objects as lists.
    """
    with _explained(path, "a pickle of arrays"):
        content = read_bytes(path)
        return _Machine(content, len(content)).run()


def load_npz(path: Path) -> dict[str, Any]:
    """Read an ``.npz`` file; entries that are pickled objects are read as by :func:`load_pickle`."""
    with _explained(path, "an .npz file"):
        return load_arrays(path, unpickle=lambda content: _Machine(content, len(content)).run())


_STORAGES = {
    "torch.FloatStorage": "<f4",
    "torch.DoubleStorage": "<f8",
    "torch.HalfStorage": "<f2",
    "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4",
    "torch.ShortStorage": "<i2",
    "torch.ByteStorage": "u1",
    "torch.CharStorage": "i1",
    "torch.BoolStorage": "?",
}


class _TorchMachine(_Machine):
    """Reads tensors of a torch file as arrays, without torch; objects of PyG become placeholders."""

    def __init__(self, archive: Archive, prefix: str, source: int) -> None:
        super().__init__(archive.read(f"{prefix}data.pkl"), source)
        self._archive, self._prefix = archive, prefix
        self._storages: dict[tuple[str, str], AnyArray] = {}

    def kind(self, module: str, name: str) -> str:
        text = f"{module}.{name}"
        if text == "torch._utils._rebuild_tensor_v2":
            return "tensor"
        if text in _STORAGES:
            return text
        return "PyG" if module.split(".")[:2] == ["torch_geometric", "data"] else super().kind(module, name)

    def make(self, kind: str, arguments: tuple[Any, ...]) -> object:
        if kind == "PyG":
            return Placeholder(*arguments)
        if kind == "tensor" and len(arguments) >= 4:
            return self._tensor(*arguments[:4])
        return super().make(kind, arguments)

    def stored(self, reference: object) -> AnyArray:
        kind, storage, key, _, count = _expect(reference, tuple)
        if kind != "storage" or _expect(storage, _Name).kind not in _STORAGES:
            raise FormatError("it refers to something that is not a storage of numbers.")
        dtype = np.dtype(_STORAGES[storage.kind])
        if (_expect(key, str), dtype.str) not in self._storages:
            content = self._archive.read(f"{self._prefix}data/{key}")
            if type(count) is not int or len(content) != count * dtype.itemsize:
                raise FormatError(f"a storage {dtype.str} has {len(content)} bytes, which are not its {count} numbers.")
            array = np.frombuffer(content, dtype)
            check_values(array)
            self._storages[key, dtype.str] = array
        return self._storages[key, dtype.str]

    def _tensor(self, storage: object, offset: object, size: object, stride: object) -> AnyArray:
        numbers: AnyArray = _expect(storage, np.ndarray)
        shape, steps, (first,) = _sizes(size), _sizes(stride), _sizes((offset,))
        if numbers.ndim != 1 or len(shape) != len(steps):
            raise FormatError(f"a tensor of {len(shape)} dimensions has {len(steps)} strides.")
        last = first + sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) if all(shape) else first - 1
        if last >= len(numbers) or math.prod(shape) > len(numbers):
            raise FormatError(
                f"a tensor of shape {shape} reaches to number {last} of a storage of {len(numbers)}, or repeats some."
            )
        self.take(math.prod(shape) * numbers.itemsize)
        if 0 in shape:
            return np.empty(shape, numbers.dtype)
        bytes_apart = tuple(step * numbers.itemsize for step in steps)
        return np.lib.stride_tricks.as_strided(numbers[first:], shape, bytes_apart, writeable=False).copy()


def load_torch(path: Path) -> Any:
    """Read a file of ``torch.save`` without torch: tensors as NumPy arrays, objects of PyG as placeholders."""
    with _explained(path, "a torch file", "Let PyG write it again"), open_archive(path) as archive:
        names = [name for name in archive.names if name.endswith("data.pkl")]
        if len(names) != 1:
            raise FormatError(f"it contains {len(names)} files data.pkl; a torch file has one.")
        return _TorchMachine(archive, names[0].removesuffix("data.pkl"), path.stat().st_size).run()
