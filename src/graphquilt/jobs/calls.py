"""One patch to be embedded: its seed, its settings, and the call that a worker performs."""

from __future__ import annotations

import dataclasses
import functools
import os
import socket
import traceback
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, IntArray
from graphquilt.embedders.contract import Embedder, checked_fit
from graphquilt.embedders.shared_start import Arrays, FarField, SharedStart, checked_arrays, shares_start, with_start
from graphquilt.errors import EmbedderError, FormatError, InputError, JobError, MissingExtraError
from graphquilt.graph import Graph
from graphquilt.jobs.description import describe
from graphquilt.jobs.measurement import measured
from graphquilt.jobs.patch_data import Origin, PatchData, opened_data, stored_data
from graphquilt.jobs.records import patch_key
from graphquilt.jobs.store import Parameters, Record, Store
from graphquilt.kernels import settle_worker
from graphquilt.progress import ProgressCallback

__all__ = ["Call", "Outcome", "Start", "embedder_of_run", "embedding_parameters", "patch_seed", "perform", "thinned"]

_CURVE = 33  # points of a loss curve that are kept


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


@dataclass(frozen=True, eq=False)
class Start:
    """The shared start of one run: its arrays, their fingerprint, and the key under which the store has them."""

    arrays: Mapping[str, AnyArray]
    fingerprint: str
    key: str


def embedding_parameters(embedder: Embedder, seed: int, start: Start | None = None) -> dict[str, object]:
    """Return what decides a patch's embedding, as its marker holds it."""
    parameters: dict[str, object] = {"embedder": describe(embedder), "seed": seed}
    if start is not None:
        parameters["start"] = start.fingerprint
    return parameters


@dataclass(frozen=True)
class Call:
    """One patch to be embedded, or to prepare for the shared start, here or in another process.

    The data of the patch is cut here from ``source``, in another process from its ``origin``, or travels with the call
    as ``given``, or the ``store`` has it.
    With a ``store`` the worker writes the embedding to it; otherwise it travels with the outcome.
    """

    patch: int
    content: str  # "embedding", or "kept0" for the first round of the shared start
    embedder: Embedder
    seed: int
    driver: tuple[str, int]  # host and process id
    parameters: Parameters  # what the marker will hold; a worker may know the embedder's class by another name
    data: int = 0  # the patch whose nodes and edges it has: itself, or the patch that it is another run of
    surveyed: bool = False  # whether the embedder uses the survey of the whole graph
    start: tuple[str, str] | None = None  # key and fingerprint of the shared start in the store
    before: str | None = None  # the content of what this patch keeps from the last round
    store: Store | None = None
    source: PatchData | None = None
    origin: Origin | None = None
    given: tuple[IntArray, Graph, FarField | None] | None = None
    kept: Arrays | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a call; small where a shared store holds the arrays.

    ``facts`` are a few numbers for those who watch, and ``losses`` are pairs of an epoch and its loss.

    ``kind`` says how an error is to be taken: the patch "failed" and may be tried again, its "input" record is
    damaged, the error is "final" because it would come again, it is "fatal" because no patch can succeed, or the
    "embedder" breaks its promise, which it would for every patch.
    """

    facts: Mapping[str, float] = field(default_factory=dict)
    losses: Sequence[tuple[int, float]] = ()
    arrays: Mapping[str, AnyArray] | None = None
    error: str | None = None
    kind: Literal["failed", "input", "final", "fatal", "embedder"] = "failed"
    trace: str = ""

    def record(self, parameters: Parameters) -> Record:
        """Return what the store keeps: the arrays, with what made them, the facts and the losses."""
        curve = {"losses": [list(pair) for pair in self.losses]} if self.losses else {}
        return Record(self.arrays or {}, {**parameters, **self.facts, **curve})


def thinned(losses: Sequence[float] | Float64Array) -> list[tuple[int, float]]:
    """Return a loss curve of at most 33 points, the first and the last among them, as pairs of an epoch and its loss.

    Examples
    --------
    >>> thinned([0.5, 0.25])
    [(1, 0.5), (2, 0.25)]
    """
    epochs = np.unique(np.linspace(1, len(losses), min(len(losses), _CURVE)).astype(np.int64))
    return [(k, float(f"{losses[k - 1]:.6g}")) for k in epochs.tolist() if np.isfinite(losses[k - 1])]


def perform(call: Call, progress: ProgressCallback | None = None) -> Outcome:
    """Embed one patch. Never raises: an exception that cannot be pickled would take the whole pool with it."""
    if call.driver != (socket.gethostname(), os.getpid()):
        settle_worker()
    try:
        embedder, kept = _with_start(call)
        finished = None
        if call.content == "embedding" and kept is not None and shares_start(embedder):
            finished = embedder.finish(kept)
        nodes, graph, far = _data(call, whole=finished is None)
    except (FormatError, KeyError, JobError) as error:
        fatal = isinstance(error, JobError)
        text = str(error) if fatal else f"{type(error).__name__}: {error}"
        return Outcome(error=text, kind="fatal" if fatal else "input")
    where = f"patch {call.patch}"
    try:
        facts: dict[str, float] = {}
        losses: Sequence[tuple[int, float]] = ()
        with measured() as cost:
            if call.content == "embedding":
                fit = finished
                if fit is None:
                    assert graph is not None
                    options = {"far": far, "kept": kept} if shares_start(embedder) else {}
                    fit = checked_fit(embedder, graph, call.seed, where=where, progress=progress, **options)
                facts |= fit.facts
                if len(fit.losses):
                    facts |= {"epochs": len(fit.losses), "loss": float(fit.losses[-1])}
                    losses = thinned(fit.losses)
                X = np.asarray(fit.embedding)
                arrays: Mapping[str, AnyArray] = {"embedding": X[np.argsort(nodes)] if call.surveyed else X}
            else:
                assert isinstance(embedder, SharedStart)
                assert graph is not None
                made = embedder.prepare(graph, call.seed, far=far)
                arrays = checked_arrays(made, f"preparation of {type(embedder).__name__} for {where}")
        outcome = Outcome(facts | cost, losses, arrays)
        if call.store is None:
            return outcome
        marked = {**call.parameters, "worker": f"{socket.gethostname()}:{os.getpid()}"}
        call.store[patch_key(call.patch, call.content)] = outcome.record(marked)
        return Outcome(outcome.facts)
    except (JobError, MissingExtraError) as error:
        return Outcome(error=str(error), kind="fatal")
    except InputError as error:
        kind: Literal["embedder", "final"] = "embedder" if isinstance(error, EmbedderError) else "final"
        return Outcome(error=str(error).removesuffix("."), kind=kind)
    except Exception as error:
        return Outcome(error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())


def _with_start(call: Call) -> tuple[Embedder, Arrays | None]:
    """Return the embedder of a call with the shared start, and what the patch keeps from the last round."""
    embedder, store, kept = call.embedder, call.store, call.kept
    if store is not None and call.before is not None:
        kept = store[patch_key(call.patch, call.before)].arrays
    if store is not None and call.start is not None:
        assert isinstance(embedder, SharedStart)
        embedder = with_start(embedder, _stored_start(cast(Hashable, store), *call.start))
    return embedder, kept


def _data(call: Call, *, whole: bool) -> tuple[IntArray, Graph | None, FarField | None]:
    """Return the nodes of a call, their graph, and what is known of the rest; or only the nodes."""
    source = call.source
    if call.origin is not None and call.store is not None:
        source = opened_data(call.store, call.origin)
    if source is not None:
        return source.cut(call.data) if whole else (source.ordered_nodes(call.data), None, None)
    if call.given is not None:
        return call.given
    assert call.store is not None
    return stored_data(call.store, patch_key(call.data, "graph"), surveyed=call.surveyed)


@functools.lru_cache(maxsize=2)
def _stored_start(store: Hashable, key: str, version: str) -> Mapping[str, AnyArray]:  # noqa: ARG001
    """Open the shared start once per worker, not once per call; ``version`` is its fingerprint."""
    return cast(Store, store)[key].arrays
