"""The state of a job: what it has, lacks or has damaged; what to do next; and its pace."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass

from graphquilt.alignment import Alignment, grade
from graphquilt.embedders.shared_start import shares_start
from graphquilt.errors import FormatError, JobError
from graphquilt.files.writing import lock_holders
from graphquilt.graph.files import open_graph
from graphquilt.jobs.choosing import signal_in_words
from graphquilt.jobs.evaluation import current_evaluation
from graphquilt.jobs.job import Job
from graphquilt.jobs.records import patch_key
from graphquilt.jobs.store import DirectoryStore, Store, short_path, store_folder
from graphquilt.jobs.versions import history

_RECORDS = ("choice", "clusters", "labels", "patch_graph", "survey", "alignment", "embedding", "full", "evaluation")


@dataclass(frozen=True)
class JobStatus:
    """What a job has and what it lacks."""

    job: str
    settings: dict[str, object]  # see :class:`graphquilt.JobSettings`
    records: dict[str, dict[str, object] | None]  # the parameters of every record; None if the record does not exist
    patches: dict[str, object] | None  # a summary of the patch graph
    embedded: int  # how many patches of all runs are embedded, and how many there will be
    wanted: int
    fit: list[str]  # how good the alignment is, in sentences
    signal: str | None  # what Propagation embeds, and why; None for other embedders
    verdict: str  # the fit in one word, or "unknown"; see :func:`graphquilt.alignment.verdict.grade`
    damaged: list[str] | None  # what does not match its checksum; None if not verified
    next: str  # the next command, ready to copy, or "nothing"
    history: list[dict[str, object]]  # the updates, the first one first; see :class:`graphquilt.jobs.Update`


@dataclass(frozen=True)
class JobProgress:
    """The stage of a job, how many patches of all runs are done in it, who is at work, and their pace.

    ``stage`` is "cut", "start" (patches prepare for the shared start), "patches" (they are embedded) or "stitch".
    ``workers`` are those that have finished something in this stage or, before that, the runs that work on the job.
    """

    stage: str
    done: int
    wanted: int
    workers: int
    per_minute: float | None
    seconds_left: float | None


def job_status(job: Job, *, verify: bool = False) -> JobStatus:
    """Return what a job has and what it lacks; with ``verify``, compare every file with its checksum."""
    records = {name: _parameters(job.store, name) for name in _RECORDS}
    evaluation = records["evaluation"]
    if evaluation is not None and "damaged" not in evaluation:
        records["evaluation"] = current_evaluation(job) or {"of": "an earlier embedding", **evaluation}
    alignment, cut = records["alignment"], records["patch_graph"]
    is_cut = cut is not None and "damaged" not in cut
    fit, word = [], "unknown"
    if alignment is not None and "damaged" not in alignment:
        aligned = Alignment.from_arrays(job.store["alignment"].arrays)
        fit, word = aligned.summary(job.patch_names).splitlines(), grade(aligned)
    return JobStatus(
        job=job.name,
        settings=job.settings.to_parameters(),
        records=records,
        patches=job.patch_graph.summary() if is_cut else None,
        embedded=job.count_embedded() if is_cut else 0,
        wanted=job.n_wanted if is_cut else 0,
        fit=fit,
        signal=signal_in_words(job.store, job.settings.embedder, job.graph),
        verdict=word,
        damaged=_damage(job) if verify else None,
        next=_next_command(job, is_cut),
        history=history(job.store),
    )


def follow_job(job: Job, *, interval: float = 2.0) -> Iterator[JobProgress]:
    """Yield the progress of a job every ``interval`` seconds, until all patches are embedded and nobody is at work."""
    stage, begun, before, workers, done = "", time.monotonic(), 0, set[str](), set[str]()
    while True:
        now, keys = _stage(job)
        at_work = lock_holders(store_folder(job.store))
        finished = {key for key in keys if key in done or key in job.store}
        if now != stage:
            stage, begun, before, workers, done = now, time.monotonic(), len(finished), set(), finished
        for key in finished - done:
            with contextlib.suppress(KeyError, FormatError):
                workers.add(str(job.store[key].parameters.get("worker")))
        done = finished
        pace = (len(done) - before) / max(time.monotonic() - begun, 1e-9)
        rates = (60 * pace, (len(keys) - len(done)) / pace) if pace else (None, None)
        yield JobProgress(stage, len(done), len(keys), len(workers or at_work), *rates)
        if stage == "stitch" and not at_work:
            return
        time.sleep(interval)


def _stage(job: Job) -> tuple[str, list[str]]:
    """Return the stage that a job has come to, and the keys of what all patches make in it."""
    if "patch_graph" not in job.store:
        return "cut", []
    patches = range(job.n_wanted)
    embeddings = [patch_key(k, "embedding") for k in patches]
    if all(key in job.store for key in embeddings):
        return "stitch", embeddings
    if job.settings.recipe.start and shares_start(job.settings.embedders[0], job.graph):
        step = next(step for step in itertools.count() if f"starts/0/{step}" not in job.store)
        kept = [patch_key(k, f"kept{step}") for k in patches]
        if step == 0 or any(key in job.store for key in kept):
            return "start", kept
    return "patches", embeddings


def _next_command(job: Job, is_cut: bool) -> str:
    path = job.settings.source.path
    if not is_cut:
        again = None if path is None else ["graphquilt", "embed", short_path(path), "--out", short_path(job.name)]
        return f"in Python: Job.open({job.name!r}).run()" if again is None else shlex.join(again)
    if job.count_embedded() < job.n_wanted:
        return job.command("embed-patches")
    with contextlib.suppress(JobError, FormatError):
        _ = job.embedding
        return "nothing"
    return job.command("stitch")


def _parameters(store: Store, key: str) -> dict[str, object] | None:
    try:
        return dict(store[key].parameters)
    except KeyError:
        return None
    except FormatError as error:
        return {"damaged": str(error)}


def _damage(job: Job) -> list[str]:
    """Read everything that a job has; return what is damaged."""
    folder, graph = store_folder(job.store), job.settings.source.graph
    store = job.store if folder is None else DirectoryStore(folder)  # one that has verified nothing yet
    damaged = []
    try:
        if folder is not None and graph is not None:
            open_graph(folder / graph, verify=True)
    except FormatError as error:
        damaged.append(str(error))
    for key in getattr(store, "keys", tuple)():
        try:
            store[key]
        except FormatError as error:
            damaged.append(str(error))
    return damaged
