"""Advice: what to do about a fit that is bad, as commands to copy."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from graphquilt.alignment.verdict import GOOD, grade
from graphquilt.embedders import Propagation
from graphquilt.jobs.flags import flag_words, kept_flags
from graphquilt.jobs.job import Job, short_path
from graphquilt.jobs.settings import JobSettings, Unknown

__all__ = ["Advice", "cut_advice", "fit_advice"]

_EMBEDDERS = ("Propagation", "SVD", "VGAE", "GAE", "DGI")  # that the command line knows by name
_OF_EMBEDDER = ("set", "recipe", "runs", "start", "scale", "rotate", "translate")  # flags that suit one embedder


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
    some_agree = bool(np.median(alignment.edge_errors) < GOOD)  # else there is nothing to believe instead
    if some_agree and not alignment.robust and not alignment.moves_nothing:
        advice.append(Advice("Doubt the overlaps that contradict the others", job.command("stitch", "--robust")))
    if job.graph is None:
        return advice
    if not alignment.moves_nothing and not isinstance(settings.embedders[0], Propagation):
        why = "Use an embedder that gives all patches one frame"
        advice.append(Advice(why, _again(job, "propagation", {"embedder": "propagation"}, without=_OF_EMBEDDER)))
    if not alignment.moves_nothing and "overlap" in (kept_flags(job.store) or {}):
        why = "Let patches overlap as much as they do by default"
        advice.append(Advice(why, _again(job, "overlap", {}, without=("overlap",))))
    n_patches = job.patch_graph.n_patches
    fewer = 1 if n_patches <= 3 else n_patches // 2
    advice.append(Advice("Cut fewer, larger patches", _again(job, f"{fewer}-patches", {"patches": fewer})))
    if settings.dim > 8:
        dim = max(8, settings.dim // 2)
        advice.append(Advice("Embed in fewer dimensions", _again(job, f"dim-{dim}", {"dim": dim})))
    return advice


def cut_advice(job: Job) -> list[Advice]:
    """Return what goes on with a job whose graph is not cut yet; nothing where it was not made from a file."""
    settings = job.settings
    if settings.source.path is None or job.graph is None:
        return []
    out = short_path(job.name)
    apart = settings.cutting.n_patches == 1 or settings.cutting.components == "each" or not settings.motions.free
    n_components = 1 if apart else int(job.graph.components().max(initial=0)) + 1
    if n_components == 1:
        return [Advice("Run it again", _run(job, {}, out))]
    return [
        Advice(f"Align each of the {n_components} components alone", _run(job, {"each_component": True}, out)),
        Advice("Keep only the largest component", _run(job, {"largest_component": True}, out)),
    ]


def _again(job: Job, ending: str, changes: Mapping[str, object], *, without: Collection[str] = ()) -> str:
    """Return what made the job with some changes, in a folder of its own."""
    if job.settings.source.path is None:
        return _call(job.settings, changes)
    return _run(job, changes, f"{short_path(job.name)}-{ending}", without=without)


def _run(job: Job, changes: Mapping[str, object], out: str, *, without: Collection[str] = ()) -> str:
    """Return the command that made the job from a file, with some changes, for the folder ``out``."""
    settings = job.settings
    assert settings.source.path is not None
    flags = kept_flags(job.store)
    if flags is None:  # the job was made in Python from a file
        flags = {"dim": settings.dim, "patches": settings.cutting.n_patches, **_embedder_flags(settings)}
        flags |= {"seed": settings.seed} if settings.seed else {}
    flags = {name: value for name, value in flags.items() if name not in without} | dict(changes)
    words = ["graphquilt", "embed", short_path(settings.source.path), *_source_flags(settings), *flag_words(flags)]
    return shlex.join([*words, "--out", out])


def _call(settings: JobSettings, changes: Mapping[str, object]) -> str:
    """Return the call in Python with some changes."""
    dim = changes.get("dim", settings.dim)
    values: dict[str, object] = {"dim": dim, "n_patches": changes.get("patches", settings.cutting.n_patches)}
    if "embedder" not in changes:
        values |= _embedder_call(settings, dim)
        if settings.recipe.name in ("paper", "reconstruction"):
            values["recipe"] = f"gq.Recipe.{settings.recipe.name}()"
    values |= {"seed": settings.seed} if settings.seed else {}
    return f"gq.embed(graph, {', '.join(f'{name}={value}' for name, value in values.items())})"


def _embedder_call(settings: JobSettings, dim: object) -> dict[str, object]:
    """Return the embedder as an argument of a call; nothing for the default."""
    embedder = settings.embedders[0]
    if not _embedder_flags(settings):
        return {} if isinstance(embedder, Propagation) else {"embedder": "embedder"}
    tuned = settings.recipe.tuned(type(embedder)(settings.dim))  # type: ignore[call-arg]
    fields = [field.name for field in dataclasses.fields(embedder) if field.name != "dim"]  # type: ignore[arg-type]
    own = {name: getattr(embedder, name) for name in fields if getattr(embedder, name) != getattr(tuned, name)}
    words = [str(dim), *(f"{name}={value!r}" for name, value in own.items())]
    return {"embedder": f"gq.{type(embedder).__name__}({', '.join(words)})"}


def _embedder_flags(settings: JobSettings) -> dict[str, object]:
    """Return what the command line calls the embedder; nothing for the default, and for one that it has no word for."""
    embedder = settings.embedders[0]
    name = type(embedder).__name__
    if isinstance(embedder, Propagation | Unknown) or name not in _EMBEDDERS:
        return {}
    return {"embedder": name.lower()}


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
