"""The shared start of each run: patches prepare, their contributions are added, and all agree on one frame."""

from __future__ import annotations

import contextlib
import itertools
import logging

from graphquilt.embedders.shared_start import Arrays, SharedStart, checked_arrays, with_start
from graphquilt.errors import FormatError, InputError, JobError, QuiltError
from graphquilt.jobs.description import describe, differences
from graphquilt.jobs.records import patch_key
from graphquilt.jobs.store import Record, combined_digest, locked, store_name
from graphquilt.jobs.sweeps import EmbeddingRun
from graphquilt.jobs.tasks import Start

_log = logging.getLogger(__name__)


def make_starts(run: EmbeddingRun) -> list[Start | None]:
    """Return the shared start of each repetition, from the store as far as it has them; None without a start."""
    runs = range(run.settings.recipe.runs)
    starts: list[Start | None] = [None] * len(runs)
    if not (run.has_start and run.wanted):
        return starts
    for step in itertools.count():
        stored = [_stored_start(run, r, step, starts[r]) for r in runs]
        if not all(stored):
            with _lock(run, step):
                stored = [_make_start(run, r, step, starts[r]) for r in runs]
        starts = [*stored]
        if all(_embedder(run, r, starts[r]).complete for r in runs):
            break
    return starts


def _lock(run: EmbeddingRun, step: int) -> contextlib.AbstractContextManager[None]:
    """Lock what a round writes. The first round is cheap: one shard prepares all patches while the others wait."""
    if run.is_shard and step == 0:
        return locked(run.store, "start", wait=True)
    run.take_lock()
    return contextlib.nullcontext()


def _embedder(run: EmbeddingRun, r: int, start: Start | None) -> SharedStart:
    embedder = run.embedders[r * run.patch_graph.n_patches]
    assert isinstance(embedder, SharedStart)
    return embedder if start is None else with_start(embedder, start.arrays)


def _patches(run: EmbeddingRun, r: int) -> range:
    p = run.patch_graph.n_patches
    return range(r * p, (r + 1) * p)


def _parameters(run: EmbeddingRun, r: int, step: int, before: Start | None) -> dict[str, object]:
    """Return what a start is made from: where any of this has changed, it is made again."""
    survey = run.inputs.survey
    try:
        kept = combined_digest(run.store, (patch_key(patch, f"kept{step}") for patch in _patches(run, r)))
    except (KeyError, FormatError):
        kept = None
    return {
        "embedder": describe(_embedder(run, r, None)),
        "seed": run.settings.seed,
        "patches": run.patches,
        "survey": None if survey is None else survey.digest,
        "before": None if before is None else before.digest,
        "kept": kept,
    }


def _stored_start(run: EmbeddingRun, r: int, step: int, before: Start | None) -> Start | None:
    key = f"starts/{r}/{step}"
    try:
        record = run.store[key]
    except KeyError:
        return None
    except FormatError as error:
        _log.warning("the shared start is made again: %s", error)
        return None
    wanted = _parameters(run, r, step, before)
    changes = differences({name: record.parameters.get(name) for name in wanted}, wanted)
    if changes:
        _log.warning("the shared start is made again: it was made with %s", changes)
        return None
    start = Start(record.arrays, record.digest, key)
    try:
        _ = _embedder(run, r, start).complete
    except Exception as error:  # the embedder may say anything of a start that it did not make
        _log.warning("the shared start is made again: %s", error)
        return None
    return start


def _make_start(run: EmbeddingRun, r: int, step: int, before: Start | None) -> Start:
    """Let all patches of a run prepare, and combine their contributions, unless another shard has done so by now."""
    start = _stored_start(run, r, step, before)
    if start is not None:
        return start
    patches, content, store = _patches(run, r), f"kept{step}", run.store
    own = patches if step == 0 else [patch for patch in patches if patch in run.wanted]
    run.sweep(content, own, [before] * run.settings.recipe.runs)
    missing = sum(patch_key(patch, content) not in store for patch in patches)
    if missing:
        raise JobError(
            f"the shared start of {store_name(store)} needs what all {len(patches)} patches contribute in round "
            f"{step + 1}, and {missing} of them are not done yet. This shard is: run the others, and then every "
            "shard again."
        )
    embedder = _embedder(run, r, before)
    try:
        total: Arrays | None = None
        for patch in patches:
            total = embedder.add(total, embedder.contribute(store[patch_key(patch, content)].arrays))
        assert total is not None
        combined = embedder.combine(total, run.settings.seed).start
    except QuiltError:
        raise
    except MemoryError as error:
        dim = run.settings.dim
        raise InputError(f"{dim} dimensions do not fit in memory ({error}). Use fewer (--dim).") from error
    except Exception as error:
        raise JobError(
            f"the shared start of {store_name(store)} cannot be made from what its {len(patches)} patches contribute "
            f"({type(error).__name__}: {error}). Remove the records '{content}' of the patches and run again."
        ) from error
    arrays = dict(sorted(checked_arrays(combined, f"start of {type(embedder).__name__}").items()))
    key = f"starts/{r}/{step}"
    store[key] = Record(arrays, _parameters(run, r, step, before))
    return Start(arrays, store[key].digest, key)
