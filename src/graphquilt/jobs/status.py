"""The state of a job: what it has, lacks or has damaged; what to do next; and its pace."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graphquilt.alignment import Alignment
from graphquilt.alignment.verdict import FAIR, GOOD, grade
from graphquilt.embedders import Propagation
from graphquilt.errors import FormatError, JobError
from graphquilt.jobs.choosing import signal_in_words
from graphquilt.jobs.cutting import default_overlap
from graphquilt.jobs.description import fingerprint
from graphquilt.jobs.directory import DirectoryStore
from graphquilt.jobs.job import Job
from graphquilt.jobs.job_graph import graph_damage
from graphquilt.jobs.records import patch_key
from graphquilt.jobs.store import Store, short_path, store_folder

_RECORDS = ("choice", "clusters", "labels", "patch_graph", "survey", "alignment", "embedding", "evaluation")


@dataclass(frozen=True)
class Advice:
    """One thing to try: why, and the command or call, where … stands for what the job was made with."""

    why: str
    command: str


@dataclass(frozen=True)
class JobStatus:
    """What a job has and what it lacks.

    Attributes
    ----------
    settings
        See :class:`graphquilt.JobSettings`.
    records
        The parameters of every record; None if the record does not exist.
    patches
        A summary of the patch graph.
    embedded, wanted
        How many patches of all runs are embedded, and how many there will be.
    fit
        How good the alignment is, in sentences.
    signal
        What Propagation embeds, and why; None for other embedders.
    verdict
        The fit in one word, or "unknown"; see :func:`graphquilt.alignment.verdict.grade`.
    advice
        What to do if the fit is bad, or if the graph is not cut yet.
    damaged
        What does not match its checksum; None if not verified.
    unverified
        What has no checksum; None if not verified.
    next
        The next command, ready to copy, or "nothing".
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


@dataclass(frozen=True)
class JobProgress:
    """How many patches of all runs are done, and the pace of the workers since :func:`follow_job` was called."""

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
        measured = evaluation.pop("embedding", None)
        if not _is_current(job, measured):
            records["evaluation"] = {"of": "an earlier embedding", **evaluation}
    alignment, cut = records["alignment"], records["patch_graph"]
    is_cut = cut is not None and "damaged" not in cut
    fit, word, advice = [], "unknown", []
    if alignment is not None and "damaged" not in alignment:
        aligned = Alignment.from_arrays(job.store["alignment"].arrays)
        fit, word = aligned.summary(job.patch_names).splitlines(), grade(aligned)
        with contextlib.suppress(JobError, FormatError):
            advice = fit_advice(job)
    if not is_cut:
        advice = _cut_advice(job)
    damaged, unverified = graph_damage(job.store, job.settings.source) if verify else ([], [])
    folder = store_folder(job.store)
    unread = job.store if folder is None else DirectoryStore(folder)  # one that has verified nothing yet
    return JobStatus(
        job=job.name,
        settings=job.settings.to_parameters(),
        records=records,
        patches=job.patch_graph.summary() if is_cut else None,
        embedded=job.embedded() if is_cut else 0,
        wanted=job.settings.recipe.runs * job.patch_graph.n_patches if is_cut else 0,
        fit=fit,
        signal=signal_in_words(job.store, job.settings.embedder, job.graph),
        verdict=word,
        advice=advice,
        damaged=damaged + [text for key in _keys(job, is_cut) for text in _damage(unread, key)] if verify else None,
        unverified=unverified if verify else None,
        next=_next_command(job, advice, is_cut),
    )


def fit_advice(job: Job) -> list[Advice]:
    """Return what may help, most promising first; nothing if the fit is good or fair."""
    alignment, settings, word = job.alignment, job.settings, grade(job.alignment)
    if word not in ("doubtful", "bad"):
        return []
    advice = []
    if word == "bad" and job.graph is not None:
        why = "First check that the right columns were read as nodes, and that features are in the order of the nodes"
        advice.append(Advice(why, job.command("inspect", "--all")))
    errors = alignment.edge_errors  # unless some overlaps agree and others do not, none deserves more trust
    some_agree = bool(np.median(errors) < GOOD and errors.max() > FAIR)
    if some_agree and not alignment.robust and not alignment.moves_nothing:
        why = "Down-weight the overlaps that contradict the others"
        advice.append(Advice(why, job.command("stitch", "--robust")))
    if job.graph is None:
        return advice
    n_patches, dim = job.patch_graph.n_patches, settings.dim
    if not alignment.moves_nothing:
        if not isinstance(settings.embedders[0], Propagation):
            why = "Use an embedder that gives all patches one frame"
            advice.append(Advice(why, _again(job, "propagation", "embedder", "propagation")))
        least, most = default_overlap(dim, job.n_nodes, n_patches)
        if settings.cutting.overlap is not None and settings.cutting.overlap[0] < least:
            why = "Let patches overlap as much as by default"
            advice.append(Advice(why, _again(job, "overlap", "overlap", f"{least}:{most}")))
    else:  # of other advice nothing is known to help
        fewer = 1 if n_patches <= 3 else n_patches // 2
        advice.append(Advice("Cut fewer, larger patches", _again(job, f"{fewer}-patches", "patches", fewer)))
    return advice


def follow_job(job: Job, *, interval: float = 2.0) -> Iterator[JobProgress]:
    """Yield the progress of a job every ``interval`` seconds until all patches are embedded."""
    wanted = job.settings.recipe.runs * job.patch_graph.n_patches
    missing = {k for k in range(wanted) if patch_key(k, "embedding") not in job.store}
    before, start = len(missing), time.monotonic()
    workers: set[str] = set()
    while True:
        finished = {k for k in missing if patch_key(k, "embedding") in job.store}
        for k in finished:
            with contextlib.suppress(KeyError, FormatError):
                workers.add(str(job.store[patch_key(k, "embedding")].parameters.get("worker")))
        missing -= finished
        elapsed, new = time.monotonic() - start, before - len(missing)
        pace = new / elapsed if new and elapsed > 0 else None
        left = None if pace is None else len(missing) / pace
        yield JobProgress(wanted - len(missing), wanted, len(workers), None if pace is None else 60 * pace, left)
        if not missing:
            return
        time.sleep(interval)


def _again(job: Job, ending: str, flag: str, value: object) -> str:
    """Return what made the job, with one change and in another folder."""
    path = job.settings.source.path
    if path is None:
        arguments = {
            "embedder": f"embedder=gq.Propagation({job.settings.dim})",
            "overlap": f"cutting=gq.Cutting(…, overlap=({str(value).replace(':', ', ')}))",
            "patches": f"n_patches={value}",
        }
        return f"gq.embed(graph, …, {arguments.get(flag, f'{flag}={value}')})"
    words = shlex.join([f"--{flag}", str(value), "--out", f"{short_path(job.name)}-{ending}"])
    return f"graphquilt embed {shlex.quote(short_path(path))} … {words}"


def _cut_advice(job: Job) -> list[Advice]:
    """Return how to resume a job whose graph is not cut yet; nothing if the graph was not read from a file."""
    settings = job.settings
    if settings.source.path is None or job.graph is None:
        return []
    command = ["graphquilt", "embed", short_path(settings.source.path)]
    out = ["--out", short_path(job.name)]
    apart = settings.cutting.n_patches == 1 or settings.cutting.components == "each" or not settings.motions.free
    n_components = 1 if apart else int(job.graph.components().max(initial=0)) + 1
    if n_components == 1:
        return [Advice("Run it again", shlex.join([*command, *out]))]
    why = f"Align each of the {n_components} components alone"
    return [
        Advice(why, shlex.join([*command, "--each-component", *out])),
        Advice("Keep only the largest component", shlex.join([*command, "--largest-component", *out])),
    ]


def _next_command(job: Job, advice: list[Advice], is_cut: bool) -> str:
    if not is_cut:
        return advice[0].command if advice else f"in Python: Job.open({job.name!r}).run()"
    if job.embedded() < job.settings.recipe.runs * job.patch_graph.n_patches:
        return job.command("embed-patches")
    try:
        _ = job.embedding
    except (JobError, FormatError):
        return job.command("stitch")
    return "nothing"


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


def _keys(job: Job, is_cut: bool) -> Iterator[str]:
    yield from ("settings", "node_ids", *_RECORDS)
    if not is_cut:
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
    try:
        store[key]
    except KeyError:
        return
    except FormatError as error:
        yield str(error)
