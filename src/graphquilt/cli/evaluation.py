"""The commands that measure a job and predict from it: evaluate, compare and links."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

import graphquilt as gq
from graphquilt.cli import app
from graphquilt.cli.display import printable, show, watching
from graphquilt.cli.flags import POSITIVE, EmbedderFlags, JobFolder, Output, given, parse_columns, read_classes_of

if TYPE_CHECKING:
    from graphquilt.prediction import Links


Labels = Annotated[
    Path | None,
    Parameter(help="Classes: a file with an id and a label in each row (CSV, TSV, Parquet), or an array (.npy)."),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MeasuringFlags:
    """How an embedding is measured."""

    max_edges: int | None = None
    """Look at this many edges at most. [default: all]"""
    splits: int = 50
    """Random splits for the classification."""
    seed: int = 0
    """Seed of all random choices."""


@app.command(help_epilogue="Example: graphquilt evaluate job --labels labels.csv")
def evaluate(
    job: JobFolder,
    *,
    labels: Labels = None,
    diagnose: Annotated[bool, Parameter(help="Measure what each step loses.")] = False,
    full: Annotated[Path | None, Parameter(help="An embedding of the whole graph (.npy) to diagnose against.")] = None,
    measuring: MeasuringFlags = MeasuringFlags(),
    output: Output = Output(),
) -> None:
    """Measure how well an embedding separates edges from non-edges, and classes from each other."""
    from graphquilt.jobs.source import read_array

    opened, whole = gq.Job.open(job), read_array(full, "an embedding")
    classes, options = read_classes_of(opened, labels), gq.evaluate.EvaluationOptions(**vars(measuring))
    evaluation = gq.jobs.evaluate_job(opened, labels=classes, full=whole, diagnosis=diagnose, options=options)
    figures = given(evaluation.quality)
    if evaluation.diagnosis is not None:
        figures["diagnosis"] = str(evaluation.diagnosis).splitlines()
        if output.json:  # the sentences hold these figures too
            figures |= {"losses": evaluation.diagnosis.losses, "unit": evaluation.diagnosis.measure}
    show({"job": str(job), **figures}, as_json=output.json)


@app.command(help_epilogue="Example: graphquilt compare job --labels labels.csv")
def compare(
    job: JobFolder,
    *,
    labels: Labels = None,
    embedder: EmbedderFlags = EmbedderFlags(),
    full: Annotated[
        Path | None, Parameter(help="An embedding of the whole graph (.npy). [default: embed it as the patches were]")
    ] = None,
    whole: Annotated[bool, Parameter(help="Compare with an embedding of the whole graph.")] = True,
    out: Annotated[
        Path | None, Parameter(name=["--out", "-o"], help="The picture, .svg. [default: compare.svg in the job folder]")
    ] = None,
    measuring: MeasuringFlags = MeasuringFlags(),
    output: Output = Output(),
) -> None:
    """Compare the whole graph embedded at once (full), stitched patches (l2g) and patches as they are (no-trans).

    The embedder of the job, your own included, embeds the whole graph once; the job keeps the result.
    """
    from graphquilt.jobs.source import read_array

    opened = gq.Job.open(job)
    named = embedder.embedder is not None or bool(embedder.set)
    own = embedder.apply_to(opened.settings, opened.settings.recipe) if named else None
    with watching() as progress:
        comparison = gq.compare(
            opened,
            embedder=None if isinstance(own, tuple) else own,
            labels=read_classes_of(opened, labels),
            full=read_array(full, "an embedding") if whole else False,
            options=gq.evaluate.EvaluationOptions(**vars(measuring)),
            progress=progress,
        )
    picture = comparison.save_picture(job / "compare.svg" if out is None else out)
    if output.json:
        routes = {route: given(measured) for route, measured in comparison.items()}
        show({"job": str(job), "routes": routes, "picture": str(picture)}, as_json=True)
        return
    print(comparison)
    if "no-trans" in comparison and opened.settings.recipe.start and opened.alignment.moves_nothing:
        print("The patches have a shared start, so no-trans lies in one frame too; --recipe paper embeds them apart.")
    show({"picture": str(picture)}, as_json=False)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LearningFlags:
    """How the score is learnt."""

    after: str | None = None
    """Learn from links since this date, not from random ones; the job needs --half-life."""
    missing: float = 0.1
    """Share of the edges to hold out and learn from."""
    seed: int = 0
    """Random seed."""


@app.command(name="links", help_epilogue="Example: graphquilt links job alice -k 5")
def predict_links(
    job: JobFolder,
    node: Annotated[str | None, Parameter(help="The id of a node, as in the edges.", allow_leading_hyphen=True)] = None,
    *,
    pairs: Annotated[Path | None, Parameter(help="Score the pairs of ids in this table instead.")] = None,
    columns: Annotated[str | None, Parameter(help="The two columns of --pairs, by position or name.")] = None,
    top: Annotated[int | None, Parameter(help="List the likeliest links of all instead.", validator=POSITIVE)] = None,
    k: Annotated[int, Parameter(name=["--k", "-k"], help="Number of partners.", validator=POSITIVE)] = 10,
    learning: LearningFlags = LearningFlags(),
    output: Output = Output(),
) -> None:
    """Predict links: the best new partners of a node, the probabilities of pairs, or the likeliest new links."""
    from graphquilt.graph.reading.recency import read_pairs

    ends = None if pairs is None else list(zip(*map(list, read_pairs(pairs, parse_columns(columns))), strict=True))
    found = gq.links(gq.Job.open(job), node, pairs=ends, top=top, k=k, **vars(learning))
    if output.json:
        show({"job": str(job), "links": _entries(found)}, as_json=True)
    else:
        _print(found, alone=node is not None)


def _entries(found: Links) -> list[dict[str, object]]:
    return [
        {
            "source": source,
            "target": target,
            "probability": round(float(found.probabilities[k]), 6),
            "score": round(float(found.scores[k]), 6),
            "calibrated": bool(found.calibrated[k]),
            "joined": bool(found.joined[k]),
            "reason": found.reasons[k],
            "contributions": dict(zip(gq.prediction.COMPONENTS, found.contributions[k].round(4).tolist(), strict=True)),
        }
        for k, (source, target) in enumerate(found.ids.tolist())
    ]


def _print(found: Links, *, alone: bool) -> None:
    """Print one line per pair; of the partners of a node, only these."""
    names = [[printable(name) for name in (ends[1:] if alone else ends)] for ends in found.ids.tolist()]
    widths = [max(map(len, column)) for column in zip(*names, strict=True)]
    for k, (row, reason) in enumerate(zip(names, found.reasons, strict=True)):
        remark = "an edge already" if found.joined[k] else "" if found.calibrated[k] else "not calibrated"
        cells = "  ".join(f"{name:<{width}}" for name, width in zip(row, widths, strict=True))
        print(f"{cells}  {found.probabilities[k]:7.2%}  {reason:<19}  {remark}".rstrip())
    if not alone and len(names) > 1 and len(set(found.probabilities.tolist())) == 1:
        print("All these pairs have the same probability, so their order says nothing; others may have it too.")
