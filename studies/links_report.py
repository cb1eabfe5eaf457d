"""The page of the study of links."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from studies.cells import Row, read_cells
from studies.links import CHOSEN_ON, COUNTS, EDGES, FIRST_LOOK, SNAPSHOTS
from studies.npz_graphs import NAMES

__all__ = ["links_page", "write_links"]

_PUBLISHED = {  # AUC and average precision in percent: Euler (NDSS 2022), and the best of the methods that it lists
    ("dyn-enron10", "next"): ("93.2 / 94.1", "93.9 / 94.4"),
    ("dyn-dblp", "next"): ("86.5 / 89.0", "86.5 / 89.0"),
    ("dyn-enron10", "new"): ("–", "88.6 / 88.5"),
    ("dyn-dblp", "new"): ("–", "79.1 / 81.4"),
}
_LEAST = 100  # candidates in a group of probabilities that is compared with the truth
_TITLES = {"dyn-enron10": "Enron", "dyn-dblp": "COLAB"}


def write_links(out: Path) -> list[Row]:
    """Write the tables of all finished cells to ``links.md``, and return the cells."""
    rows = read_cells(out)
    (out / "links.md").write_text(links_page(rows), encoding="utf-8")
    return rows


def links_page(rows: list[Row]) -> str:
    """Return the tables in Markdown."""
    parts = [_snapshot_table(rows), _ranking_table(rows, 1), _calibration_table(rows), _stitched_table(rows)]
    return "\n".join(part for part in parts if part)


def _snapshot_table(rows: list[Row]) -> str:
    found = {row["parameters"]["dataset"]: row["figures"] for row in rows if "figures" in row}
    if not found:
        return ""
    lines = [
        "| AUC / AP, % | Euler | best published | cosine alone | `links` | spread of draws |",
        "|---|---|---|---|---|---|",
    ]
    for name in (name for name in SNAPSHOTS if name in found):
        for question in ("next", "new"):
            cells = []
            for score in ("cosine", "score"):
                values = 100 * np.array(found[name][f"{question}, {score}"]).reshape(3, -1, 2)
                cells.append(" / ".join(f"{value:.1f}" for value in values.mean(axis=(0, 1))))
            spread = " / ".join(f"{value:.1f}" for value in values.mean(axis=0).std(axis=0))
            euler, best = _PUBLISHED[name, question]
            title = f"{_TITLES[name]}, {question} links"
            lines.append(f"| {title} | {euler} | {best} | {cells[0]} | **{cells[1]}** | {spread} |")
    return "\n".join(["## Snapshots", "", *lines, ""])


def _by_set(rows: list[Row]) -> dict[tuple[str, int], list[Row]]:
    """Return the cells of each data set and number of patches, one for each seed."""
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if "rankings" in row:
            found[row["parameters"]["dataset"], row["parameters"]["n_patches"]].append(row)
    return found


def _mean(rows: list[Row], score: str, figure: str) -> float:
    return float(np.mean([row["rankings"][score][figure] for row in rows]))


def _ranking_table(rows: list[Row], n_patches: int) -> str:
    found = _by_set(rows)
    names = [name for name in (*CHOSEN_ON, *FIRST_LOOK) if (name, n_patches) in found]
    if not names:
        return ""
    lines = []
    for figure, title in (("hits", "Hits@50"), ("mrr", "MRR"), ("auc", "AUC")):
        lines += [f"| {title} | {' | '.join(COUNTS)} | `links` | against the best |", "|---" * (len(COUNTS) + 3) + "|"]
        for name in names:
            alone = [_mean(found[name, n_patches], score, figure) for score in COUNTS]
            own = _mean(found[name, n_patches], "score", figure)
            cells = " | ".join(f"{value:.3f}" for value in alone)
            mark = "" if name in CHOSEN_ON else " *"
            lines.append(f"| {NAMES[name]}{mark} | {cells} | **{own:.3f}** | {own - max(alone):+.3f} |")
        lines.append("")
    return "\n".join(["## Held-out links", "", *lines])


def _calibration_table(rows: list[Row]) -> str:
    found = _by_set(rows)
    lines = [
        "| data | candidates | links among them | calibration error | largest gap of a tenth | tenths compared |",
        "|---|---|---|---|---|---|",
    ]
    for name in (*CHOSEN_ON, *FIRST_LOOK):
        cells = found.get((name, 1), [])
        if not cells:
            continue
        counts, means, shares = (np.array([cell[key] for cell in cells]) for key in ("counts", "means", "shares"))
        total = counts.sum(axis=0)
        p, y = ((counts * values).sum(axis=0) / np.maximum(total, 1) for values in (means, shares))
        gaps, used = np.abs(p - y), total >= _LEAST
        error = float((gaps * total).sum() / total.sum())
        bounds = zip(EDGES[:-1][used], EDGES[1:][used], strict=True)
        tenths = ", ".join(f"{100 * low:.0f}–{100 * high:.0f} %" for low, high in bounds)
        lines.append(
            f"| {NAMES[name]} | {total.sum() // len(cells)} | {int(np.mean([cell['found'] for cell in cells]))} | "
            f"{error:.4f} | {gaps[used].max():.3f} | {tenths} |"
        )
    return "\n".join(["## Calibration", "", *lines, ""]) if len(lines) > 2 else ""


def _stitched_table(rows: list[Row]) -> str:
    found = _by_set(rows)
    lines = ["| data | one patch, Hits@50 | ten patches | difference | MRR | MRR of ten |", "|---|---|---|---|---|---|"]
    for name in (*CHOSEN_ON, *FIRST_LOOK):
        if (name, 1) in found and (name, 10) in found:
            one, ten = (_mean(found[name, p], "score", "hits") for p in (1, 10))
            mrr = [_mean(found[name, p], "score", "mrr") for p in (1, 10)]
            lines.append(f"| {NAMES[name]} | {one:.3f} | {ten:.3f} | {ten - one:+.3f} | {mrr[0]:.3f} | {mrr[1]:.3f} |")
    return "\n".join(["## Stitched", "", *lines, ""]) if len(lines) > 2 else ""
