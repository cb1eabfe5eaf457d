"""Follow a job from outside while others work on it: how many patches, who, how fast, how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from graphquilt.errors import FormatError
from graphquilt.jobs.job import Job
from graphquilt.jobs.records import patch_key

__all__ = ["JobProgress", "follow_job"]


@dataclass(frozen=True)
class JobProgress:
    """How far the patches of a job are.

    Attributes
    ----------
    done, wanted : int
        Patches of all runs.
    workers : int
        How many processes have finished patches since somebody follows.
    per_minute : float or None
        Patches finished per minute since then; None before the first.
    seconds_left : float or None
        Until all patches are embedded at that pace.
    """

    done: int
    wanted: int
    workers: int
    per_minute: float | None
    seconds_left: float | None


def follow_job(job: Job, *, interval: float = 2.0) -> Iterator[JobProgress]:
    """Yield how far a job is, every ``interval`` seconds, until all patches are embedded."""
    wanted = job.settings.recipe.runs * job.patch_graph.n_patches
    missing = [k for k in range(wanted) if patch_key(k, "embedding") not in job.store]
    before, begin = len(missing), time.monotonic()
    workers: set[str] = set()
    while True:
        finished = [k for k in missing if patch_key(k, "embedding") in job.store]
        for k in finished:
            try:
                workers.add(str(job.store[patch_key(k, "embedding")].parameters.get("worker")))
            except (KeyError, FormatError):
                continue
        missing = sorted({*missing} - {*finished})
        elapsed, new = time.monotonic() - begin, before - len(missing)
        pace = new / elapsed if new and elapsed > 0 else None
        left = None if pace is None else len(missing) / pace
        yield JobProgress(wanted - len(missing), wanted, len(workers), None if pace is None else 60 * pace, left)
        if not missing:
            return
        time.sleep(interval)
