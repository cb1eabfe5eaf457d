"""What the small-scale study is expected to show, line by line, compared with its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import le

from studies.cells import Row
from studies.figures import markdown_table

__all__ = ["Check", "check_study", "checks_table"]

SETS = ("cora", "amazon-photo", "pubmed")

# AUC and accuracy of the authors' published code on Cora, one training, the same protocol: model, dim, route.
PUBLISHED = {
    ("vgae", 2): {"full": (0.908, 0.573), "l2g": (0.848, 0.497), "no-trans": (0.793, 0.252)},
    ("vgae", 8): {"full": (0.964, 0.731), "l2g": (0.953, 0.682), "no-trans": (0.910, 0.500)},
    ("vgae", 32): {"full": (0.993, 0.787), "l2g": (0.985, 0.732), "no-trans": (0.968, 0.624)},
    ("vgae", 128): {"full": (0.998, 0.779), "l2g": (0.993, 0.728), "no-trans": (0.988, 0.658)},
    ("dgi", 8): {"full": (0.705, 0.251), "l2g": (0.701, 0.323), "no-trans": (0.731, 0.503)},
    ("dgi", 32): {"full": (0.759, 0.676), "l2g": (0.763, 0.683), "no-trans": (0.861, 0.668)},
    ("dgi", 128): {"full": (0.833, 0.806), "l2g": (0.849, 0.781), "no-trans": (0.906, 0.725)},
}


@dataclass(frozen=True)
class Check:
    """One expectation.

    Attributes
    ----------
    claim : str
    holds : bool or None
        None where the study has no cell that could tell.
    evidence : str
        The numbers.
    """

    claim: str
    holds: bool | None
    evidence: str


def check_study(rows: Sequence[Row]) -> list[Check]:
    """Compare every expectation with the best runs of :func:`summarise`."""
    table = {(r["dataset"], r["model"], r["dim"], r["route"]): r for r in rows}
    return list(_checks(table))


def _checks(table: dict[tuple[str, str, int, str], Row]) -> Iterator[Check]:
    for measure, dim, least in (("auc", 32, 0.99), ("auc", 128, 0.995), ("accuracy", 32, 0.76)):
        row = table.get(("cora", "vgae", dim, "full"))
        yield _one(f"VGAE, full, Cora, d = {dim}: {measure} ≥ {least}", row, measure, partial(le, least))
    for dataset in SETS:
        for measure in ("auc", "accuracy"):
            yield _wins(table, dataset, measure)
    for dataset in SETS:
        pair = [table.get((dataset, "vgae", 128, route)) for route in ("l2g", "full")]
        yield _gap(f"VGAE, {dataset}, d = 128: AUC of l2g within .01 of full", pair, "auc", lambda gap: gap >= -0.01)
    for dataset in SETS:
        pair = [table.get((dataset, "dgi", 128, route)) for route in ("l2g", "no-trans")]
        yield _gap(f"DGI, {dataset}, d = 128: accuracy of l2g above no-trans", pair, "accuracy", lambda gap: gap > 0)
    row = table.get(("cora", "dgi", 128, "full"))
    yield _one("DGI, full, Cora, d = 128: accuracy within .02 of .80", row, "accuracy", lambda v: abs(v - 0.8) <= 0.02)
    yield from _against_published(table)


def _one(claim: str, row: Row | None, measure: str, holds: Callable[[float], bool]) -> Check:
    if row is None:
        return Check(claim, None, "not computed")
    return Check(claim, holds(row[measure]), f"{row[measure]:.4f}")


def _gap(claim: str, pair: Sequence[Row | None], measure: str, holds: Callable[[float], bool]) -> Check:
    first, second = pair
    if first is None or second is None:
        return Check(claim, None, "not computed")
    values = first[measure], second[measure]
    return Check(claim, holds(values[0] - values[1]), f"{values[0]:.4f} against {values[1]:.4f}")


def _wins(table: dict[tuple[str, str, int, str], Row], dataset: str, measure: str) -> Check:
    """Check that l2g is not below no-trans at any dimension from 8 on."""
    claim = f"VGAE, {dataset}, every d ≥ 8: {measure} of l2g ≥ no-trans"
    dims = sorted(dim for name, model, dim, route in table if (name, model, route) == (dataset, "vgae", "l2g"))
    gaps = {
        dim: table[dataset, "vgae", dim, "l2g"][measure] - table[dataset, "vgae", dim, "no-trans"][measure]
        for dim in dims
        if dim >= 8
    }
    if not gaps:
        return Check(claim, None, "not computed")
    evidence = ", ".join(f"d = {dim}: {gap:+.4f}" for dim, gap in gaps.items())
    return Check(claim, min(gaps.values()) >= 0, evidence)


def _against_published(table: dict[tuple[str, str, int, str], Row]) -> Iterator[Check]:
    """Check each cell of Cora that has a published figure: not below it by more than the spread."""
    for (model, dim), routes in PUBLISHED.items():
        for place, measure in enumerate(("auc", "accuracy")):
            ours = {route: table.get(("cora", model, dim, route)) for route in routes}
            claim = f"{model.upper()}, Cora, d = {dim}: {measure} not below the authors' code"
            if any(row is None for row in ours.values()):
                yield Check(claim, None, "not computed")
                continue
            below = []
            figures = []
            for route, row in ours.items():
                assert row is not None
                theirs = routes[route][place]
                # AUC has no spread over splits: one of a hundredth stands for that of a training.
                spread = 0.01 if measure == "auc" else row["accuracy_std"]
                if row[measure] < theirs - spread:
                    below.append(route)
                figures.append(f"{route} {row[measure]:.3f} ({theirs:.3f})")
            yield Check(claim, not below, ", ".join(figures) + (f"; below: {', '.join(below)}" if below else ""))


def checks_table(checks: Sequence[Check]) -> str:
    """Return the checks as a Markdown table."""
    words = {True: "yes", False: "**no**", None: "–"}
    lines = [(check.claim, words[check.holds], check.evidence) for check in checks]
    return markdown_table(("expected", "holds", "measured"), lines)
