"""One patch to be embedded: its seed, its settings, and the call that a worker performs."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from graphquilt.arrays import FloatArray
from graphquilt.embedders.contract import Embedder, Target, checked_fit
from graphquilt.errors import FormatError, InputError, JobError, MissingExtraError
from graphquilt.graph import Graph
from graphquilt.kernels import settle_worker
from graphquilt.pipeline.description import describe
from graphquilt.pipeline.records import graph_of, patch_key, target_fingerprint, target_of
from graphquilt.pipeline.store import Parameters, Record, Store
from graphquilt.progress import ProgressCallback

__all__ = ["Call", "Outcome", "embedder_of_run", "embedding_parameters", "patch_seed", "perform"]


def patch_seed(seed: int, patch: int) -> int:
    """Return the seed of one patch: that of child ``patch`` of ``SeedSequence(seed).spawn(p)``, for any p.

    Examples
    --------
    >>> children = np.random.SeedSequence(7).spawn(4)
    >>> patch_seed(7, 3) == children[3].generate_state(1)[0]
    np.True_
    """
    return int(np.random.SeedSequence(seed, spawn_key=(patch,)).generate_state(1)[0])


def embedder_of_run(embedder: Embedder, run: int) -> Embedder:
    """Return the embedder of one run: an ``init_seed`` is raised by the number of the run, so that runs differ."""
    start = getattr(embedder, "init_seed", None)
    value: object = embedder
    if run == 0 or start is None or not dataclasses.is_dataclass(value) or isinstance(value, type):
        return embedder
    changed: Embedder = dataclasses.replace(value, init_seed=start + run)  # type: ignore[assignment]
    return changed


def embedding_parameters(embedder: Embedder, seed: int, target: Target | None = None) -> dict[str, object]:
    """Return what decides a patch's embedding, as its marker holds it."""
    parameters: dict[str, object] = {"embedder": describe(embedder), "seed": seed}
    if target is not None:
        parameters["target"] = target_fingerprint(target)
    return parameters


@dataclass(frozen=True)
class Call:
    """One patch to be embedded, here or in another process.

    With a ``store`` the worker reads the patch from it and writes the embedding to it; otherwise the patch travels
    with the call and the embedding with the outcome.
    """

    patch: int
    embedder: Embedder
    seed: int
    driver: tuple[str, int]  # host and process id
    parameters: Parameters  # what the marker will hold; a worker may know the embedder's class by another name
    data: int = 0  # the patch whose nodes and edges it has: itself, or the patch that it is another run of
    round: int = 0
    store: Store | None = None
    graph: Graph | None = None
    target: Target | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a call; small where a shared store holds the embedding.

    ``kind`` says how an error is to be taken: the patch "failed" and may be tried again, its "input" record is
    damaged, the error is "final" because it would come again, or it is "fatal" because no patch can succeed.
    """

    facts: Mapping[str, float] = field(default_factory=dict)
    embedding: FloatArray | None = None
    error: str | None = None
    kind: Literal["failed", "input", "final", "fatal"] = "failed"
    trace: str = ""


def perform(call: Call, progress: ProgressCallback | None = None) -> Outcome:
    """Embed one patch. Never raises: an exception that cannot be pickled would take the whole pool with it."""
    if call.driver != (socket.gethostname(), os.getpid()):
        settle_worker()
    graph, target = call.graph, call.target
    try:
        if call.store is not None:
            graph = graph_of(call.store[patch_key(call.data, "graph")])[1]
            if call.round:
                target = target_of(call.store[patch_key(call.patch, "target", call.round)])
        assert graph is not None
    except (FormatError, KeyError) as error:
        return Outcome(error=f"{type(error).__name__}: {error}", kind="input")
    try:
        start = time.perf_counter()
        fit = checked_fit(
            call.embedder, graph, call.seed, where=f"patch {call.patch}", progress=progress, target=target
        )
        facts: dict[str, float] = {"seconds": round(time.perf_counter() - start, 6)}
        if len(fit.losses):
            facts |= {"epochs": len(fit.losses), "loss": float(fit.losses[-1])}
        X = np.asarray(fit.embedding)
        if call.store is None:
            return Outcome(facts, X)
        key = patch_key(call.patch, "embedding", call.round)
        call.store[key] = Record({"embedding": X}, {**call.parameters, **facts})
        return Outcome(facts)
    except (JobError, MissingExtraError) as error:
        return Outcome(error=str(error), kind="fatal")
    except InputError as error:
        return Outcome(error=str(error).removesuffix("."), kind="final")
    except Exception as error:
        return Outcome(error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
