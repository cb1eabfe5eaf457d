"""The study behind docs/results/anomaly.md: every detector on labelled windows, each from the past only.

    python benchmarks/detection.py --out docs/results/anomaly.json
    python benchmarks/detection.py --out small.json --sets generator --sources 300 --seeds 1
    python benchmarks/detection.py --table docs/results/anomaly.json
    python benchmarks/detection.py --figure docs/results/anomaly.svg --out docs/results/anomaly.json

A set that the output already holds is not run again. Data is read from $GRAPHQUILT_DATA. The settings were chosen on
``darpa`` and ``enron``; ``email`` and ``generator`` were looked at once, with the settings fixed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from pathlib import Path

import numpy as np

from detectors import DETECTORS, Settings, detect
from graphquilt.errors import QuiltError
from graphquilt.files import write_text
from graphquilt.temporal import ScoringOptions
from graphquilt.temporal.traffic import netflow
from labelled_windows import (
    darpa_windows,
    email_windows,
    enron_windows,
    false_share,
    judge,
    macro_auc,
    netflow_windows,
    precision,
)

SETS = ("darpa", "enron", "email", "generator")
BUDGET = 20


def load(name, seed, arguments):
    """Return labelled windows and the settings for them."""
    folder = Path(os.environ.get("GRAPHQUILT_DATA", ""))
    if name == "darpa":
        options = ScoringOptions(5, lags=(1, 2, 3, 7, 14), min_observations=10)
        return darpa_windows(folder / "darpa-1998" / "darpa.npz", "1d"), Settings(options, history=28)
    if name == "enron":
        options = ScoringOptions(8, lags=(1, 2, 4, 8), min_observations=10)
        return enron_windows(folder / "enron-jhu" / "enron_edges.csv.gz", seed=seed), Settings(options)
    if name == "email":
        options = ScoringOptions(20, lags=(1, 2, 4, 8), min_observations=10)
        path = folder / "email-eu-core" / "email-Eu-core-temporal.txt.gz"
        return email_windows(path, seed=seed), Settings(options)
    size = (arguments.sources, 20 * arguments.sources, arguments.days)
    data = netflow_windows(netflow(*size, campaigns=arguments.campaigns, seed=seed))
    return data, Settings(ScoringOptions(20))


def measure(data, settings):
    """Run every detector on the same windows."""
    rows = {}
    for name in DETECTORS:
        try:
            scores, seconds = detect(name, data, settings)
        except QuiltError as error:
            rows[name] = {"failed": str(error)}
            continue
        quality = judge(scores, data, min_observations=0, budgets=settings.budgets)
        rows[name] = {
            "cpu_s": round(seconds, 2),
            "macro_auc": macro_auc(scores, data),
            "precision": precision(scores, data, BUDGET),
            "quality": quality,
        }
        if name.startswith("all components"):
            rows[name]["false_share"] = false_share(scores, data, -np.log(0.01))
        print(name, json.dumps(rows[name])[:200], flush=True)
    return rows


def figures(row):
    """Return the figures of one row of the table, by the name of the column."""
    quality = row["quality"]
    columns = {
        "pair AUC": quality["all"]["pair"]["roc_auc"],
        "pair macro AUC": row["macro_auc"],
        f"precision@{BUDGET}": row["precision"],
    }
    for kind, sides in quality.items():
        if "source" in sides:
            label = "source" if kind == "all" else kind
            columns[f"{label} AUC"] = sides["source"]["roc_auc"]
            columns[f"{label} AP"] = sides["source"]["average_precision"]
    columns["CPU s"] = row["cpu_s"]
    if "false_share" in row:
        columns["normal with p < .01"] = row["false_share"]
    return columns


def cell(values):
    """Write the mean, and the spread where there are several seeds."""
    mean = sum(values) / len(values)
    text = f"{mean:.1f}" if mean >= 2 else f"{mean:.3f}"
    return text if len(values) == 1 or mean >= 2 else f"{text} ±{(max(values) - min(values)) / 2:.3f}"


def tables(path: Path) -> str:
    """Write one markdown table per set; figures are means over the seeds, and half the range."""
    result = json.loads(path.read_text(encoding="utf-8"))
    parts = []
    for name, runs in result.items():
        first = [figures(row) for row in runs[0].values() if "quality" in row]
        columns = list(dict.fromkeys(column for row in first for column in row))
        lines = [f"### {name}", "", f"| detector | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for detector in runs[0]:
            rows = [figures(run[detector]) for run in runs if "quality" in run[detector]]
            cells = [cell([row[c] for row in rows if c in row]) if rows and c in rows[0] else "" for c in columns]
            lines.append(f"| {detector} | {' | '.join(cells)} |")
        sample = next(row["quality"]["all"] for row in runs[0].values() if "quality" in row)
        counts = ", ".join(f"{sample[w]['attacks']:.0f} of {sample[w]['pairs']:.0f} {w}-windows" for w in sample)
        parts.append("\n".join([*lines, "", f"{len(runs)} seeds. Attacks in the first: {counts}.", ""]))
    return "\n".join(parts)


PANELS = (
    ("darpa", f"precision@{BUDGET}", "DARPA 1998\nprecision of 20 alerts per day"),
    ("email", "source AUC", "email, planted changes\nAUC of sources"),
    ("generator", "source AP", "generator, all attacks\naverage precision"),
    ("generator", "lateral movement AP", "generator, lateral movement\naverage precision"),
)


def draw(result, path: Path) -> None:
    """Draw one panel of bars per line of the summary; whiskers span the seeds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(PANELS), figsize=(11, 2.8), sharey=True, layout="constrained")
    names = [name.split(",")[0] for name in DETECTORS]
    for axis, (data, column, title) in zip(axes, PANELS, strict=True):
        for row, detector in enumerate(DETECTORS):
            runs = [figures(run[detector]) for run in result[data] if "quality" in run[detector]]
            values = [run[column] for run in runs]
            if values:
                axis.barh(row, np.mean(values), color="#0b6e6e" if row == 0 else "#b8c4c4")
                axis.plot([min(values), max(values)], [row, row], color="black", linewidth=1)
        axis.set_title(title, fontsize=9)
        axis.set_xlim(0, 1 if "AUC" in column else None)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(names)), names, fontsize=9)
    axes[0].invert_yaxis()
    plt.rcParams["svg.hashsalt"] = "graphquilt"
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="print the tables of a result and stop")
    parser.add_argument("--figure", type=Path, help="draw the summary of a result and stop")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--sources", type=int, default=1000)
    parser.add_argument("--days", type=int, default=89)
    parser.add_argument("--campaigns", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.table:
        print(tables(arguments.table))
        return
    if arguments.out is None:
        parser.error("--out or --table is needed")
    if arguments.figure:
        draw(json.loads(arguments.out.read_text(encoding="utf-8")), arguments.figure)
        return
    logging.disable(logging.WARNING)
    result = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
    for name in arguments.sets:
        runs = result.setdefault(name, [])
        for seed in range(len(runs), 1 if name == "darpa" else arguments.seeds):  # nothing of DARPA is random
            print(name, seed, flush=True)
            runs.append(measure(*load(name, seed, arguments)))
            write_text(arguments.out, json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
