"""Status: what a job has, what it lacks, and what is damaged."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from graphquilt.alignment import Alignment
from graphquilt.alignment.verdict import grade
from graphquilt.errors import FormatError, JobError
from graphquilt.jobs.advice import Advice, cut_advice, fit_advice
from graphquilt.jobs.choosing import signal_in_words
from graphquilt.jobs.description import fingerprint
from graphquilt.jobs.graphs import graph_damage
from graphquilt.jobs.job import Job
from graphquilt.jobs.records import patch_key
from graphquilt.jobs.store import Store

__all__ = ["JobStatus", "job_status"]

_RECORDS = ("choice", "clusters", "labels", "patch_graph", "survey", "alignment", "embedding", "evaluation")


@dataclass(frozen=True)
class JobStatus:
    """What a job has and what it lacks.

    Attributes
    ----------
    job : str
    settings : dict
        See :class:`graphquilt.JobSettings`.
    records : dict
        The parameters of every record, None where there is none.
    patches : dict or None
        A summary of the patch graph.
    embedded : int
        How many patches of all runs are embedded.
    wanted : int
        How many patches there are to be.
    fit : list of str
        How good the alignment is, in sentences.
    signal : str or None
        What Propagation embeds, and why; None for other embedders.
    verdict : str
        The same in one word; "unknown" as long as there is none. See :func:`graphquilt.alignment.verdict.grade`.
    advice : list of Advice
        What to do where the fit is bad, or where the graph is not cut yet.
    damaged : list of str or None
        What does not match its checksum; None where nobody looked.
    unverified : list of str or None
        What has no checksum to compare it with; None where nobody looked.
    next : str
        The command to copy that comes next, or "nothing".
    """

    job: str
    settings: dict[str, object]
    records: dict[str, dict[str, object] | None]
    patches: dict[str, object] | None
    embedded: int
    wanted: int
    fit: list[str]
    signal: str | None
    verdict: str
    advice: list[Advice]
    damaged: list[str] | None
    unverified: list[str] | None
    next: str


def job_status(job: Job, *, verify: bool = False) -> JobStatus:
    """Return what a job has and what it lacks.

    Parameters
    ----------
    verify : bool
        Read every file and compare it with its checksum.
    """
    records = {name: _parameters(job.store, name) for name in _RECORDS}
    evaluation = records["evaluation"]
    if evaluation is not None and "damaged" not in evaluation:
        measured = evaluation.pop("embedding", None)
        if not _is_current(job, measured):
            records["evaluation"] = {"of": "an earlier embedding", **evaluation}
    alignment, cut = records["alignment"], records["patch_graph"]
    whole = cut is not None and "damaged" not in cut
    fit, word, advice = [], "unknown", []
    if alignment is not None and "damaged" not in alignment:
        aligned = Alignment.from_arrays(job.store["alignment"].arrays)
        fit, word = aligned.summary().splitlines(), grade(aligned)
        with contextlib.suppress(JobError, FormatError):
            advice = fit_advice(job)
    if not whole:
        advice = cut_advice(job)
    damaged, unverified = graph_damage(job.store, job.settings.source) if verify else ([], [])
    return JobStatus(
        job=job.name,
        settings=job.settings.to_parameters(),
        records=records,
        patches=job.patch_graph.summary() if whole else None,
        embedded=job.embedded() if whole else 0,
        wanted=job.settings.recipe.runs * job.patch_graph.n_patches if whole else 0,
        fit=fit,
        signal=signal_in_words(job.store, job.settings.embedder, job.graph),
        verdict=word,
        advice=advice,
        damaged=damaged + [text for key in _keys(job, whole) for text in _damage(job.store, key)] if verify else None,
        unverified=unverified if verify else None,
        next=_next(job) if whole else _cut(job, advice),
    )


def _parameters(store: Store, key: str) -> dict[str, object] | None:
    try:
        return dict(store[key].parameters)
    except KeyError:
        return None
    except FormatError as error:
        return {"damaged": str(error)}


def _is_current(job: Job, measured: object) -> bool:
    """Return whether this is the fingerprint of the job's embedding."""
    try:
        return measured == fingerprint(job.store["embedding"].arrays["embedding"])
    except (KeyError, FormatError):
        return False


def _keys(job: Job, cut: bool) -> Iterator[str]:
    yield from ("settings", "node_ids", *_RECORDS)
    if not cut:
        return
    n_data, recipe = job.patch_graph.n_patches, job.settings.recipe
    yield from (patch_key(k, "graph") for k in range(n_data))
    yield from (patch_key(k, "embedding") for k in range(recipe.runs * n_data))
    for step in itertools.count():
        starts = [f"starts/{run}/{step}" for run in range(recipe.runs)]
        if not any(key in job.store for key in starts):
            return
        yield from starts
        yield from (patch_key(k, f"kept{step}") for k in range(recipe.runs * n_data))


def _damage(store: Store, key: str) -> Iterator[str]:
    forget = getattr(store, "forget", None)
    if forget is not None:
        forget(key)
    try:
        store[key]
    except KeyError:
        return
    except FormatError as error:
        yield str(error)


def _cut(job: Job, advice: list[Advice]) -> str:
    return advice[0].command if advice else f"in Python: Job.open({job.name!r}).run()"


def _next(job: Job) -> str:
    if job.embedded() < job.settings.recipe.runs * job.patch_graph.n_patches:
        return job.command("embed-patches")
    try:
        _ = job.embedding
    except (JobError, FormatError):
        return job.command("stitch")
    return "nothing"
