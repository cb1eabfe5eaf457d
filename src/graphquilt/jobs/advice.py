"""Advice: what to do about a fit that is bad, as commands to copy."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from graphquilt.alignment.verdict import grade
from graphquilt.embedders import Propagation
from graphquilt.jobs.job import Job, short_path
from graphquilt.jobs.settings import JobSettings, Unknown

__all__ = ["Advice", "fit_advice"]

_EMBEDDERS = ("Propagation", "SVD", "VGAE", "GAE", "DGI")  # that the command line knows by name


@dataclass(frozen=True)
class Advice:
    """One thing to do: why, and the command, or the call in Python where the graph was never a file."""

    why: str
    command: str


def fit_advice(job: Job) -> list[Advice]:
    """Return what may help, the most promising first; nothing where the fit is good or fair."""
    alignment, settings = job.alignment, job.settings
    word = grade(alignment)
    if word not in ("doubtful", "bad"):
        return []
    advice = []
    if word == "doubtful" and not alignment.robust and not alignment.moves_nothing:
        advice.append(Advice("Doubt the overlaps that contradict the others", job.command("align", "--robust")))
    if job.graph is None:
        return advice
    if not alignment.moves_nothing and not isinstance(settings.embedders[0], Propagation):
        advice.append(
            _again(job, "Use an embedder that gives all patches one frame", "propagation", embedder="propagation")
        )
    n_patches = job.patch_graph.n_patches
    fewer = 1 if n_patches <= 3 else n_patches // 2
    advice.append(_again(job, "Cut fewer, larger patches", f"{fewer}-patches", n_patches=fewer))
    if settings.dim > 8:
        dim = max(8, settings.dim // 2)
        advice.append(_again(job, "Embed in fewer dimensions", f"dim-{dim}", dim=dim))
    return advice


def _again(job: Job, why: str, ending: str, **changes: int | str) -> Advice:
    """Return the same job with some changes, in a folder of its own."""
    settings = job.settings
    values: dict[str, object] = {"dim": settings.dim, "n_patches": settings.cutting.n_patches, **changes}
    if settings.source.path is None:
        values = {name: value for name, value in values.items() if name != "embedder"}
        named = ", ".join(f"{name}={value}" for name, value in values.items())
        return Advice(why, f"gq.embed(graph, {named})")
    words = ["graphquilt", "run", short_path(settings.source.path), *_source_flags(settings)]
    words += ["--dim", str(values["dim"]), "--patches", str(values["n_patches"])]
    embedder = values.get("embedder") or _embedder_word(settings)
    words += [] if embedder is None else ["--embedder", str(embedder)]
    words += ["--seed", str(settings.seed)] if settings.seed else []
    return Advice(why, shlex.join([*words, "--out", f"{short_path(job.name)}-{ending}"]))


def _embedder_word(settings: JobSettings) -> str | None:
    """Return what the command line calls the embedder; None for the default, and for one that it has no word for."""
    embedder = settings.embedders[0]
    name = type(embedder).__name__
    return None if isinstance(embedder, Propagation | Unknown) or name not in _EMBEDDERS else name.lower()


def _source_flags(settings: JobSettings) -> list[str]:
    source = settings.source
    flags: list[str] = []
    if source.columns is not None:
        flags += ["--columns", ",".join(map(str, source.columns))]
    for name in ("features", "labels"):
        path = getattr(source, name)
        flags += [] if path is None else [f"--{name}", short_path(path)]
    flags += ["--directed"] if source.directed else []
    flags += ["--largest-component"] if source.largest_component else []
    return flags
