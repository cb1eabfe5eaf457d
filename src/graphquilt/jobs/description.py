"""Descriptions: settings as plain values that can be written down, compared and explained."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from types import CodeType
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

import graphquilt
from graphquilt.files import array_checksum

MakeUnknown: TypeAlias = Callable[[Mapping[str, object]], object]


def fingerprint(*arrays: object, wide: bool = False) -> str:
    """Return a short digest that differs for arrays that differ in type, shape or any value; all of them are read.

    With ``wide``, the same integers in fewer than 64 bits have the same digest.
    """
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


def describe(value: object) -> dict[str, object]:
    """Return the name and the settings of an object as plain values, or its ``description``.

    The settings are the fields of a dataclass that take part in its comparison, the layers of a network, the code of a
    lambda, or else the public attributes.
    """
    own = getattr(value, "description", None)
    if isinstance(own, Mapping):
        return dict(own)
    if isinstance(value, functools.partial):
        return describe(value.func) | {"args": plain(value.args), "keywords": plain(value.keywords)}
    kind = value if hasattr(value, "__qualname__") else type(value)
    # The module of our own classes is left out: files may move between versions.
    own_module = kind.__module__ or "__main__"  # code that was run by exec has none
    module = "graphquilt" if own_module.startswith("graphquilt.") else own_module
    name: dict[str, object] = {"name": f"{module}.{kind.__qualname__}"}
    if kind.__qualname__.endswith("<lambda>"):
        code: CodeType = getattr(kind, "__code__")  # noqa: B009  (objects have none)
        content = code.co_code + repr((code.co_consts, code.co_names)).encode()
        return name | {"code": fingerprint(np.frombuffer(content, dtype=np.uint8))}
    parameters = getattr(value, "named_parameters", None)
    if parameters is not None:
        return name | {"layers": repr(value), "parameters": {key: [*array.shape] for key, array in parameters()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.compare]
        return name | {field: plain(getattr(value, field)) for field in fields}
    attributes = getattr(value, "__dict__", {})
    return name | {key: plain(item) for key, item in attributes.items() if not key.startswith("_")}


def plain(value: object) -> object:
    """Return a value as JSON can hold it; arrays become a short summary with a fingerprint, infinity becomes a word."""
    if value is None or isinstance(value, bool | int | float | str):
        return str(value) if value in (math.inf, -math.inf) else value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, np.ndarray | np.generic):
        return value.item() if value.ndim == 0 else f"{value.dtype} {value.shape} {fingerprint(value)}"
    return describe(value)


def differences(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Say in which entries two descriptions differ; nested descriptions are compared entry by entry."""
    changes = []
    for name in dict.fromkeys((*before, *now)):
        then, asked = before.get(name), now.get(name)
        if then == asked:
            continue
        if isinstance(then, list) and isinstance(asked, list) and len(then) == len(asked):
            then, asked = next(pair for pair in zip(then, asked, strict=True) if pair[0] != pair[1])
        if isinstance(then, Mapping) and isinstance(asked, Mapping):
            if then.get("name") == asked.get("name"):
                changes.append(differences(then, asked))
                continue
            then, asked = then.get("name"), asked.get("name")
        changes.append(f"{name.replace('_', ' ')} {_brief(then)} (now {_brief(asked)})")
    return ", ".join(dict.fromkeys(changes))


def _brief(value: object) -> str:
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:16]}…"


def restore(description: object, unknown: MakeUnknown) -> object:
    """Return the object of a description, if its class is a public one of graphquilt; nothing else is ever imported.

    ``unknown`` gets the description of anything else, and returns what takes its place.
    """
    fields = _mapping(description)
    package, _, name = str(fields["name"]).rpartition(".")
    kind = getattr(graphquilt, name) if package == "graphquilt" and name in dir(graphquilt) else None
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return unknown(fields)
    names = {field.name for field in dataclasses.fields(kind) if field.init}
    missing: list[object] = []  # parts that are not graphquilt's
    values = {name: _value(value, missing.append) for name, value in fields.items() if name in names}
    return unknown(fields) if missing else kind(**values)


def restore_values(parameters: object, unknown: MakeUnknown) -> dict[str, object]:
    """Return plain values by name with tuples for lists, and with the objects of the descriptions among them."""
    return {name: _value(value, unknown) for name, value in _mapping(parameters).items()}


def _value(value: object, unknown: MakeUnknown) -> object:
    if isinstance(value, list):
        return tuple(_value(item, unknown) for item in value)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return restore(value, unknown)
    return float(value) if value in ("inf", "-inf") else value


def _mapping(value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is not a mapping")
    return dict(value)
