"""The command that predicts links."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from graphquilt.cli import app
from graphquilt.cli.display import printable, show
from graphquilt.cli.flags import POSITIVE, JobFolder, Output, parse_columns

if TYPE_CHECKING:
    from graphquilt.prediction import Links


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
    node: Annotated[
        str | None, Parameter(help="The id of a node, as in your edges.", allow_leading_hyphen=True)
    ] = None,
    *,
    pairs: Annotated[Path | None, Parameter(help="Score the pairs of ids in this table instead.")] = None,
    columns: Annotated[str | None, Parameter(help="The two columns of --pairs, by position or name.")] = None,
    top: Annotated[
        int | None, Parameter(help="List the likeliest links of the graph instead.", validator=POSITIVE)
    ] = None,
    k: Annotated[int, Parameter(name=["--k", "-k"], help="Number of partners.", validator=POSITIVE)] = 10,
    learning: LearningFlags = LearningFlags(),
    output: Output = Output(),
) -> None:
    """Predict links: the best new partners of a node, the probabilities of pairs, or the likeliest new links."""
    from graphquilt.graph.reading.recency import read_pairs
    from graphquilt.jobs import Job
    from graphquilt.prediction import links

    ends = None if pairs is None else list(zip(*map(list, read_pairs(pairs, parse_columns(columns))), strict=True))
    found = links(
        Job.open(job),
        node,
        pairs=ends,
        top=top,
        k=k,
        after=learning.after,
        missing=learning.missing,
        seed=learning.seed,
    )
    if output.json:
        show({"job": str(job), "links": _entries(found)}, as_json=True)
    else:
        _print(found, alone=node is not None)


def _entries(found: Links) -> list[dict[str, object]]:
    from graphquilt.prediction import COMPONENTS

    return [
        {
            "source": source,
            "target": target,
            "probability": round(float(found.probabilities[k]), 6),
            "score": round(float(found.scores[k]), 6),
            "calibrated": bool(found.calibrated[k]),
            "joined": bool(found.joined[k]),
            "reason": found.reasons[k],
            "contributions": dict(zip(COMPONENTS, found.contributions[k].round(4).tolist(), strict=True)),
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
