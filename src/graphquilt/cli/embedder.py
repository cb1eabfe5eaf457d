"""Embedders by name, or from a user's factory, with settings of the form NAME=VALUE."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, get_type_hints

import graphquilt as gq
from graphquilt.cli.flags import named_class
from graphquilt.errors import InputError

if TYPE_CHECKING:
    from graphquilt.embedders import Embedder
    from graphquilt.jobs import Recipe

EMBEDDERS = {"propagation": "Propagation", "svd": "SVD", "vgae": "VGAE", "gae": "GAE", "dgi": "DGI"}


def named_embedder(word: str, dim: int, settings: Sequence[str], recipe: Recipe) -> Embedder:
    """Return the named embedder, tuned by the recipe, or what ``module:factory`` returns."""
    if ":" in word:
        return _from_factory(word, dim, settings)
    return _with_settings(recipe.apply_to(named_class(word, EMBEDDERS, "an embedder")(dim)), word, settings)


def changed_embedder(current: Embedder | tuple[Embedder, ...], dim: int | None, settings: Sequence[str]) -> Embedder:
    """Return the embedder of a job with another dimension or other settings."""
    from graphquilt.jobs.settings import UnavailableEmbedder

    if isinstance(current, tuple | UnavailableEmbedder):
        name = f"{len(current)} embedders" if isinstance(current, tuple) else current.description["name"]
        raise InputError(f"--dim and --set cannot change {name}; name the embedder with --embedder.")
    return _with_settings(current, type(current).__name__.lower(), settings, **({} if dim is None else {"dim": dim}))


def _from_factory(word: str, dim: int, settings: Sequence[str]) -> Embedder:
    """Import a module, also from the current folder, and call its factory, or take its function as the embedder."""
    module, _, name = word.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise InputError(f"--embedder {word} cannot be imported: {error}.") from error
    options = dict(_setting(text) for text in settings)
    try:
        is_embedder = inspect.isfunction(factory) and not options and not _accepts(factory, dim)
        embedder = gq.embedders.as_embedder(factory if is_embedder else factory(dim, **options), dim)
    except TypeError as error:
        raise InputError(f"{word} cannot be called with dim {dim} and {options or 'no settings'}: {error}.") from error
    except InputError as error:
        raise InputError(f"{word} did not return an embedder: {error}") from error
    if embedder.dim != dim:
        raise InputError(f"{word} returned {embedder!r}, which is not an embedder of {dim} dimensions.")
    return embedder


def _accepts(function: Callable[..., object], value: object) -> bool:
    try:
        inspect.signature(function).bind(value)
    except TypeError:
        return False
    return True


def _with_settings(embedder: Any, word: str, settings: Sequence[str], **changes: object) -> Embedder:
    """Return an embedder, a dataclass, with these changes and settings."""
    hints = get_type_hints(type(embedder))
    fields = [field for field in dataclasses.fields(embedder) if field.compare]  # others are results, not settings
    known = {field.name for field in fields if field.name not in ("dim", "motions")}
    for text in settings:
        name, value = _setting(text)
        name, _, part = name.partition(".")
        if name == "signal" and name in known:
            changes[name] = _signal(changes.get(name, embedder.signal), part, value, text)
            continue
        if name not in known:
            raise InputError(f"'{name}' is not a setting of {word}; it has {', '.join(sorted(known)) or 'none'}.")
        if not _fits(value, hints[name]):
            kind = getattr(hints[name], "__name__", hints[name])
            raise InputError(f"{name} of {word} takes {kind}, as in --set {name}=VALUE, not '{text}'.")
        changes[name] = value
    changed: Embedder = dataclasses.replace(embedder, **changes)
    return changed


def _signal(before: Any, part: str, value: object, text: str) -> object:
    """Return the named signal, or a signal with another weight for one part."""
    if not part:
        return gq.Signal.named(str(value))
    known = [field.name for field in dataclasses.fields(before)]
    if part not in known:
        raise InputError(f"'{part}' is not a part of a signal; it has {', '.join(known)}, not '{text}'.")
    return dataclasses.replace(before, **{part: value})


def _setting(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set takes NAME=VALUE, not '{text}'.")
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = {"true": True, "false": False, "none": None}.get(value.strip().lower(), value.strip())
    return name.strip().replace("-", "_"), parsed


def _fits(value: object, kind: type | UnionType) -> bool:
    """Return whether a value has the type of a field; integers are numbers, booleans are not."""
    kinds = kind.__args__ if isinstance(kind, UnionType) else (kind,)
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) or (isinstance(value, int) and float in kinds)
