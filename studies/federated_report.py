"""The study of sums over parties as tables, from whatever cells are finished."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graphquilt.errors import JobError
from studies.cells import Row, read_cells
from studies.federated import PRIVATE
from studies.figures import markdown_table
from studies.npz_graphs import NAMES

__all__ = ["federated_tables", "write_federated"]


def _pick(rows: Sequence[Row], **wanted: object) -> list[Row]:
    return [row for row in rows if all(row["parameters"][name] == value for name, value in wanted.items())]


def _cases(rows: Sequence[Row], way: str) -> list[tuple[str, str, int]]:
    """Return data set, signal and number of parties of all cells of one way."""
    found = {
        tuple(row["parameters"][name] for name in ("signal", "dataset", "n_parties")) for row in _pick(rows, way=way)
    }
    order = list(NAMES)
    key = sorted(
        found, key=lambda case: (case[0] != "features", order.index(case[1]) if case[1] in order else 99, case[2])
    )
    return [(dataset, signal, n_parties) for signal, dataset, n_parties in key]


def _dims(rows: Sequence[Row]) -> list[int]:
    return sorted({dim for row in rows for dim in row["parameters"]["dims"]})


def _spread(values: Sequence[float]) -> str:
    mean = f"{np.mean(values):.3f}"
    return mean if len(values) < 2 else f"{mean} ± {np.ptp(values) / 2:.3f}"


def _pair(rows: Sequence[Row], dim: int, prefix: str = "") -> str:
    """Return accuracy / AUC, each the mean over cuts with half of its range."""
    figures = [row[f"d{dim}"] for row in rows if f"d{dim}" in row]
    if not figures:
        return "–"
    return " / ".join(_spread([one[f"{prefix}{name}"] for one in figures]) for name in ("accuracy", "auc"))


def headline(rows: Sequence[Row]) -> str:
    """Return full, sums and alone; in how many networks a party alone is better on its own nodes."""
    lines = []
    for dataset, signal, n_parties in _cases(rows, "sums"):
        for dim in _dims(rows):
            case = {"dataset": dataset, "signal": signal}
            full = _pick(rows, **case, way="full")
            sums, alone = (_pick(rows, **case, n_parties=n_parties, way=way) for way in ("sums", "alone"))
            better, count = 0, 0
            for row in alone:
                together = [one for one in sums if one["parameters"]["cut"] == row["parameters"]["cut"]]
                for one in together:
                    pairs = zip(one[f"d{dim}"]["each"], row[f"d{dim}"]["each"], strict=True)
                    better += sum(a < b for a, b in pairs)
                    count += len(row[f"d{dim}"]["each"])
            own = _spread([row[f"d{dim}"]["accuracy"] for row in alone]) if alone else "–"
            gap = "–"
            if full and sums:
                points = np.mean([row[f"d{dim}"]["accuracy"] for row in sums]) - full[0][f"d{dim}"]["accuracy"]
                gap = f"{100 * points:+.1f}"
            names = [NAMES.get(dataset, dataset), signal, str(n_parties), str(dim), str(len(sums))]
            figures = [_pair(full, dim), _pair(full, dim, "same_"), _pair(sums, dim), gap, own]
            lines.append([*names, *figures, f"{better} of {count}" if count else "–"])
    head = [
        "data",
        "signal",
        "parties",
        "d",
        "cuts",
        "full",
        "full, same signal",
        "sums",
        "points",
        "alone",
        "alone is better",
    ]
    return markdown_table(head, lines)


def variants(rows: Sequence[Row]) -> str:
    """Return what guards, true counts and garbage change in the first cut."""
    lines = []
    for way in ("guarded", "counts", "garbage"):
        for dataset, signal, n_parties in _cases(rows, way):
            case = {"dataset": dataset, "signal": signal, "n_parties": n_parties, "cut": 0}
            for dim in _dims(rows):
                before, after = _pick(rows, **case, way="sums"), _pick(rows, **case, way=way)
                shares = [[one[f"d{dim}"].get("shares", []) for one in found] for found in (before, after)]
                honest = [f"{np.mean(found[0][1:]):.3f}" if found and found[0] else "–" for found in shares]
                names = [way, NAMES.get(dataset, dataset), signal, str(n_parties), str(dim)]
                columns = str(after[0].get("buckets", "–") or "–")
                lines.append([*names, _pair(before, dim), _pair(after, dim), columns, " → ".join(honest)])
    head = ["way", "data", "signal", "parties", "d", "plain", "changed", "buckets", "own share of the other parties"]
    return markdown_table(head, lines)


def links(rows: Sequence[Row]) -> str:
    """Return the AUC of held-out links inside parties and across."""
    lines = []
    for row in _pick(rows, way="links"):
        for dim in row["parameters"]["dims"]:
            one = row[f"d{dim}"]
            names = [NAMES.get(row["parameters"]["dataset"], "–"), str(row["parameters"]["n_parties"]), str(dim)]
            held = f"{row['inside']} / {row['held_out'] - row['inside']}"
            figures = [f"{one[f'{way}_{where}']:.3f}" for where in ("inside", "across") for way in ("full", "sums")]
            lines.append([*names, held, *figures])
    head = ["data", "parties", "d", "held out inside / across", "inside: full", "sums", "across: full", "sums"]
    return markdown_table(head, lines)


def costs(rows: Sequence[Row]) -> str:
    """Return messages, bytes and seconds of one party."""
    lines = []
    for way in ("sums", "links"):
        for dataset, signal, n_parties in _cases(rows, way):
            row = _pick(rows, dataset=dataset, signal=signal, n_parties=n_parties, way=way)[0]
            cpu, walk = row["cpu"] / n_parties, row["walk"] / n_parties
            names = [NAMES.get(dataset, dataset), signal, str(n_parties)]
            figures = [str(row["steps"]), f"{row['bytes'] / 1e6:.1f}", f"{cpu:.2f}", f"{walk:.2f}", f"{cpu / walk:.1f}"]
            lines.append([*names, *figures])
    head = ["data", "signal", "parties", "messages", "MB", "CPU s per party", "of one walk of its columns", "ratio"]
    return markdown_table(head, lines)


def private(rows: Sequence[Row]) -> str:
    """Return what differential privacy leaves."""
    lines = []
    for dataset, signal, n_parties in _cases(rows, next(iter(PRIVATE))):
        for dim in _dims(rows):
            case = {"dataset": dataset, "signal": signal, "n_parties": n_parties}
            plain = _pair(_pick(rows, **case, way="sums", cut=0), dim)
            figures = [_pair(_pick(rows, **case, way=way), dim) for way in PRIVATE]
            lines.append([NAMES.get(dataset, dataset), str(n_parties), str(dim), plain, *figures])
    return markdown_table(["data", "parties", "d", "sums", *(way.replace("-", " ") for way in PRIVATE)], lines)


def federated_tables(rows: Sequence[Row]) -> str:
    """Return all tables in Markdown."""
    parts = {
        "Accuracy / AUC": headline,
        "Guards, true counts and garbage": variants,
        "Differential privacy": private,
        "Held-out links": links,
        "Messages and time": costs,
    }
    return "\n".join(f"### {title}\n\n{table(rows)}" for title, table in parts.items())


def write_federated(out: Path) -> list[Row]:
    """Write ``federated.json`` and ``federated.md`` from the finished cells in ``out``; return these."""
    rows = read_cells(out)
    if not rows:
        raise JobError(f"{out} has no finished cells of the study.")
    (out / "federated.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (out / "federated.md").write_text(federated_tables(rows), encoding="utf-8")
    return rows
