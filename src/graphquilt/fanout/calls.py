"""One patch to be embedded: its seed, its settings, and the call that a worker performs."""

from __future__ import annotations

import dataclasses
import functools
import os
import socket
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.embedders.contract import Target, checked_fit
from graphquilt.errors import FormatError, InputError, JobError, MissingExtraError
from graphquilt.graph import Graph
from graphquilt.progress import ProgressCallback
from graphquilt.records import differences, fingerprint, graph_of, patch_key, target_of
from graphquilt.store import Record
from graphquilt.workers import settle_worker


def patch_seed(seed: int, patch: int) -> int:
    """Return the seed of one patch: that of child ``patch`` of ``SeedSequence(seed).spawn(p)``, for any p.

    Examples
    --------
    >>> children = np.random.SeedSequence(7).spawn(4)
    >>> patch_seed(7, 3) == children[3].generate_state(1)[0]
    np.True_
    """
    return int(np.random.SeedSequence(seed, spawn_key=(patch,)).generate_state(1)[0])


def of_run(embedder: Any, run: int) -> Any:
    """Return the embedder of one run: the same, but that a fixed start of the weights is another in every run."""
    start = getattr(embedder, "init_seed", None)
    if run == 0 or start is None or not dataclasses.is_dataclass(embedder) or isinstance(embedder, type):
        return embedder
    return dataclasses.replace(embedder, init_seed=start + run)


def describe(embedder: Any) -> dict[str, Any]:
    """Return an embedder's name and settings as plain values, to be written down and compared.

    The settings are the fields of a dataclass that take part in its comparison, the layers of a network, the code of a
    lambda, or else the public attributes.

    Examples
    --------
    >>> describe(functools.partial(max, 3))
    {'name': 'builtins.max', 'args': [3], 'keywords': {}}
    """
    if isinstance(embedder, functools.partial):
        inner = describe(embedder.func)
        return inner | {"args": _plain(embedder.args), "keywords": _plain(embedder.keywords)}
    kind = embedder if hasattr(embedder, "__qualname__") else type(embedder)
    name = {"name": f"{kind.__module__}.{kind.__qualname__}"}
    if kind.__qualname__.endswith("<lambda>"):
        code = kind.__code__
        said = code.co_code + repr((code.co_consts, code.co_names)).encode()
        return name | {"code": fingerprint(np.frombuffer(said, dtype=np.uint8))}
    if hasattr(embedder, "named_parameters"):
        shapes = {key: [*value.shape] for key, value in embedder.named_parameters()}
        return name | {"layers": repr(embedder), "parameters": shapes}
    if dataclasses.is_dataclass(embedder) and not isinstance(embedder, type):
        fields = dataclasses.fields(embedder)
        return name | {field.name: _plain(getattr(embedder, field.name)) for field in fields if field.compare}
    attributes = getattr(embedder, "__dict__", {})
    return name | {key: _plain(value) for key, value in attributes.items() if not key.startswith("_")}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(_plain(item) for item in value)
    if isinstance(value, np.ndarray | np.generic):
        return value.item() if value.ndim == 0 else f"{value.dtype} {value.shape} {fingerprint(value)}"
    return value if value is None or isinstance(value, bool | int | float | str) else describe(value)


@dataclass(frozen=True)
class Call:
    """One patch to be embedded, wherever that will be."""

    patch: int
    embedder: Any
    seed: int
    attempt: int
    driver: tuple[str, int]  # host and process id
    parameters: Mapping[str, Any]  # what the marker will say; a worker may know the embedder's class by another name
    data: int = 0  # the patch whose nodes and edges it has: itself, or the patch that it is another run of
    store: Any = None
    graph: Graph | None = None
    round: int = 0
    target: Target | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a call; small, unless there is no store to hold the embedding."""

    facts: Mapping[str, float]
    embedding: AnyArray | None = None
    error: str | None = None
    kind: str = ""  # "": it failed; "input": its record is damaged; "final": it fails again; "fatal": no patch succeeds
    trace: str = ""


def perform(call: Call, progress: ProgressCallback | None = None) -> Outcome:
    """Embed one patch. Never raises: an exception that cannot be pickled would take the whole pool with it."""
    if call.driver != (socket.gethostname(), os.getpid()):
        settle_worker()
    try:
        graph = call.graph if call.graph is not None else graph_of(call.store[patch_key(call.data, "graph")])[1]
        target = call.target
        if target is None and call.round and call.store is not None:
            target = target_of(call.store[patch_key(call.patch, "target", call.round)])
    except (FormatError, KeyError) as error:
        return Outcome({}, error=f"{type(error).__name__}: {error}", kind="input")
    try:
        start = time.perf_counter()
        fit = checked_fit(
            call.embedder, graph, call.seed, where=f"patch {call.patch}", progress=progress, target=target
        )
        facts = {"seconds": round(time.perf_counter() - start, 6)}
        if len(fit.losses):
            facts |= {"epochs": len(fit.losses), "loss": float(fit.losses[-1])}
        X = np.asarray(fit.embedding)
        if call.store is None:
            return Outcome(facts, X)
        parameters = {**call.parameters, **facts}
        call.store[patch_key(call.patch, "embedding", call.round)] = Record({"embedding": X}, parameters)
        return Outcome(facts)
    except (JobError, MissingExtraError) as error:
        return Outcome({}, error=str(error), kind="fatal")
    except InputError as error:
        return Outcome({}, error=str(error).removesuffix("."), kind="final")
    except Exception as error:
        return Outcome({}, error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())


def made_with(embedder: Any, seed: int, target: Target | None = None) -> dict[str, Any]:
    """Return what decides a patch's embedding, as its marker holds it."""
    said: dict[str, Any] = {"embedder": describe(embedder), "seed": seed}
    if target is not None:
        said["target"] = f"{fingerprint(target.rows, target.coordinates)} weight {target.weight:g}"
    return said


def other_settings(kept: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Say in which of the settings that are asked for two ways of embedding differ.

    Examples
    --------
    >>> kept = {"embedder": {"name": "VGAE", "dim": 8, "negatives": 2}, "seed": 0, "seconds": 3.5}
    >>> other_settings(kept, {"embedder": {"name": "VGAE", "dim": 8, "negatives": 1}, "seed": 0})
    'negatives 2 (now 1)'
    """
    then, now = kept.get("embedder"), asked["embedder"]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):  # one a patch
        then, now = next((pair for pair in zip(then, now, strict=True) if pair[0] != pair[1]), (then[0], now[0]))
    if isinstance(then, dict) and isinstance(now, dict) and then.get("name") != now.get("name"):
        then, now = then.get("name"), now.get("name")
    rest = [name for name in asked if name != "embedder"]
    before, after = (
        {**(said if isinstance(said, dict) else {"embedder": said}), **{name: whole.get(name) for name in rest}}
        for said, whole in ((then, kept), (now, asked))
    )
    return differences(before, after)
