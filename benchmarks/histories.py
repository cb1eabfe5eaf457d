"""Every detector after 2, 4, 8 and 16 windows of history, with what it finds in 20 and 100 alerts per window.

    python benchmarks/histories.py --out docs/results/histories.json
    python benchmarks/histories.py --table docs/results/histories.json

A stretch of ``history + 4`` windows is cut out of a labelled set, the detector begins at its start, and its last four
windows are judged; stretches follow each other in steps of four windows. DARPA is split in the middle: choices were
made on the first half, and the second half was looked at once. The other sets are those of ``detection.py``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from detectors import Settings, detect
from graphquilt.evaluate import average_precision, roc_auc
from graphquilt.files import write_text
from graphquilt.temporal import SIDES, ScoringOptions
from graphquilt.temporal.traffic import netflow
from labelled_windows import darpa_windows, email_windows, enron_windows, netflow_windows, touched

HISTORIES = (2, 4, 8, 16)
JUDGED = 4
BUDGETS = (20, 100)
COMPARED = (
    "all components, stream",
    "degree z, stream",
    "new pairs, stream",
    "new pairs first, stream",
    "volume, stream",
    "MIDAS-R, stream",
)


def load(name, seed, sources):
    """Return a labelled set, and the range of its windows that may be judged."""
    folder = Path(os.environ.get("GRAPHQUILT_DATA", ""))
    if name.startswith("darpa"):
        data = darpa_windows(folder / "darpa-1998" / "darpa.npz", "1d")
        middle = len(data.windows) // 2
        return data, range(middle) if name == "darpa-1" else range(middle, len(data.windows)), 5
    if name == "enron":
        data, dim = enron_windows(folder / "enron-jhu" / "enron_edges.csv.gz", seed=seed), 8
    elif name == "email":
        data, dim = email_windows(folder / "email-eu-core" / "email-Eu-core-temporal.txt.gz", seed=seed), 20
    else:
        data, dim = netflow_windows(netflow(sources, 20 * sources, 60, campaigns=6, seed=seed)), 20
    return data, range(data.first, len(data.windows)), dim


def stretches(data, judged, history):
    """Give stretches of a set, each of ``history`` windows to learn from and four to judge."""
    for first in range(judged.start, judged.stop - JUDGED + 1, JUDGED):
        start = first - history
        if start < (0 if judged.start and not data_is_halved(judged, data) else judged.start):
            continue
        windows = data.windows[start : first + JUDGED]
        time = data.flows[0]
        rows = slice(*np.searchsorted(time, [windows[0].start, windows[-1].end]))
        attacks = {kind: marks[start : first + JUDGED] for kind, marks in data.attacks.items()}
        flows = tuple(part[rows] for part in data.flows)
        single = None if data.single is None else data.single[start : first + JUDGED]
        yield replace(data, windows=windows, attacks=attacks, first=history, flows=flows, single=single)


def data_is_halved(judged, data):
    """Return whether the judged windows are a half of a set that is judged from its start (DARPA)."""
    return data.first < judged.start


def measure(data, judged, history, settings, names=COMPARED):
    """Return AUC and AP of sources and pairs, and the attacks found in each budget, by detector."""
    values = {name: [] for name in names}
    for part in stretches(data, judged, history):
        for name in names:
            values[name] += collect(detect(name, part, settings)[0], part)
    return {name: summarise(rows) for name, rows in values.items() if rows}


def collect(scores, data):
    """Return, for each judged window, the scores and truths of sources and of pairs, and what each budget finds.

    A budget is the hosts of highest score, of both sides together, and its precision the share that attack or are
    attacked. A detector with alerts of its own, whose victims take no place, finds attacks by these; the share of
    right ones is that of right places. A pair has the higher score of its ends, unless the detector scores pairs.
    """
    rows = []
    for t in range(data.first, len(data.windows)):
        A = data.windows[t].matrix
        here = {side: np.flatnonzero(touched(A, side)) for side in SIDES}
        truth = {side: touched(data.attacks["all"][t], side) for side in SIDES}
        lowest = min(float(np.nanmin(scores[side][:, t], initial=0.0)) for side in SIDES) - 1.0
        value = {side: np.nan_to_num(scores[side][:, t], nan=lowest) for side in SIDES}
        source = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
        ends = np.fmax(value["source"][source], value["destination"][A.indices])
        pair = scores["pairs"][t] if "pairs" in scores else ends
        attack = np.isin(source * A.shape[1] + A.indices, keys(data.attacks["all"][t]))
        ranked = [(side, node) for side in SIDES for node in here[side].tolist()]
        order = np.argsort(-np.concatenate([value[side][here[side]] for side in SIDES]), kind="stable")
        found, right, places = {}, {}, {}
        for budget in BUDGETS:
            top = [ranked[k] for k in order[:budget]]
            right[budget] = sum(bool(truth[side][node]) for side, node in top), len(top)
            if "alerts" in scores:
                top = scores["alerts"][t][budget]
                places[budget] = sum(bool(truth[side][node]) for side, node in top), len(top)
            found[budget] = count_found(top, data, t)
        rows.append(
            {
                "source": (value["source"][here["source"]], truth["source"][here["source"]]),
                "pair": (pair, attack),
                "right": right,
                "found": found,
                "places": places,
            }
        )
    return rows


def keys(marks):
    """Return one number per pair of a pattern."""
    return np.repeat(np.arange(marks.shape[0]), np.diff(marks.indptr)) * marks.shape[1] + marks.indices


def count_found(top, data, t):
    """Return how many attacks of a window an alert names, and how many there are.

    An attack is found if an alert names one of its sources or destinations.
    """
    named = {side: {node for where, node in top if where == side} for side in SIDES}
    marks = data.attacks["all"][t]
    if data.single is not None:
        attacks = [(np.flatnonzero(np.diff(A.indptr)), A.indices) for A in data.single[t]]
    else:
        sources = np.flatnonzero(np.diff(marks.indptr))
        attacks = [([i], marks.indices[marks.indptr[i] : marks.indptr[i + 1]]) for i in sources.tolist()]
    hit = [not (named["source"].isdisjoint(s) and named["destination"].isdisjoint(d)) for s, d in attacks]
    return sum(hit), len(hit)


def summarise(rows):
    """Return the figures of a detector over all judged windows."""
    result = {"windows": len(rows)}
    for what in ("source", "pair"):
        value, truth = (np.concatenate([row[what][k] for row in rows]) for k in (0, 1))
        if truth.any() and not truth.all():
            result[f"{what} AUC"] = roc_auc(value[truth], value[~truth])
            result[f"{what} AP"] = average_precision(value[truth], value[~truth])
    for budget in BUDGETS:
        result[f"found@{budget}"] = sum(row["found"][budget][0] for row in rows)
        for column, part in (("precision", "right"), ("places", "places")):
            counts = [row[part][budget] for row in rows if budget in row[part]]
            if counts:
                result[f"{column}@{budget}"] = sum(n for n, _ in counts) / max(sum(n for _, n in counts), 1)
    result["attacks"] = sum(row["found"][BUDGETS[0]][1] for row in rows)
    return result


def settings_of(dim):
    """Return the settings of every detector after a short history."""
    return Settings(ScoringOptions(dim, lags=(1, 2, 4, 8), min_observations=3), history=28)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--sets", nargs="+", default=("darpa-1", "enron", "email", "generator"))
    parser.add_argument("--histories", nargs="+", type=int, default=HISTORIES)
    parser.add_argument("--detectors", nargs="+", default=COMPARED)
    parser.add_argument("--sources", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.table:
        print(table(json.loads(arguments.table.read_text(encoding="utf-8"))))
        return
    logging.disable(logging.WARNING)
    result = json.loads(arguments.out.read_text()) if arguments.out and arguments.out.exists() else {}
    for name in arguments.sets:
        for seed in range(1 if name.startswith("darpa") else arguments.seeds):
            data, judged, dim = load(name, seed, arguments.sources)
            for history in arguments.histories:
                key = f"{name} {seed} {history}"
                missing = [d for d in arguments.detectors if d not in result.setdefault(key, {})]
                if missing:
                    rows = result[key] | measure(data, judged, history, settings_of(dim), missing)
                    result[key] = {d: rows[d] for d in COMPARED if d in rows}
                    if arguments.out:
                        write_text(arguments.out, json.dumps(result, indent=1))
    print(table(result))


def table(result):
    """Write one markdown table per set; figures are means over the seeds, AUC with half the range."""
    columns = (
        "source AUC",
        "source AP",
        "pair AUC",
        "pair AP",
        "precision@20",
        "precision@100",
        "places@20",
        "found@20",
        "found@100",
        "attacks",
    )
    lines = []
    for name in dict.fromkeys(key.split()[0] for key in result):
        lines += [
            f"### {name}",
            "",
            f"| history | detector | {' | '.join(columns)} |",
            "|---" * (len(columns) + 2) + "|",
        ]
        for history in dict.fromkeys(key.split()[2] for key in result if key.split()[0] == name):
            runs = [value for key, value in result.items() if key.split()[::2] == [name, history]]
            for detector in runs[0]:
                cells = []
                for column in columns:
                    values = [run[detector][column] for run in runs if column in run[detector]]
                    mean = np.mean(values) if values else 0.0
                    text = f"{mean:.0f}" if column.startswith(("found", "attacks")) else f"{mean:.3f}"
                    spread = (max(values) - min(values)) / 2 if len(values) > 1 and "AUC" in column else 0
                    cells.append((f"{text} ±{spread:.3f}" if spread else text) if values else "")
                lines.append(f"| {history} | {detector.removesuffix(', stream')} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
