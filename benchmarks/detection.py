"""The study behind docs/results/anomaly.md: every detector on generated traffic and on DARPA 1998.

    python benchmarks/detection.py --out docs/results/anomaly.json
    python benchmarks/detection.py --out small.json --sources 300 --seeds 1 --no-darpa
    python benchmarks/detection.py --table docs/results/anomaly.json

The DARPA file is read from darpa-1998/darpa.npz under $GRAPHQUILT_DATA. Every detector sees the same windows.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from pathlib import Path

from detectors import DETECTORS, Settings, detect
from graphquilt.errors import QuiltError
from graphquilt.files import write_text
from graphquilt.synthetic.netflow import netflow
from graphquilt.temporal import ScoringOptions
from labelled_windows import darpa_windows, judge, netflow_windows


def measure(data, settings, names):
    rows = {}
    for name in names:
        try:
            scores, seconds = detect(name, data, settings)
        except QuiltError as error:
            rows[name] = {"failed": str(error)}
        else:
            least = settings.scoring.min_observations
            quality = judge(scores, data, min_observations=least, budgets=settings.budgets)
            rows[name] = {"cpu_s": round(seconds, 2), "quality": quality}
        print(name, json.dumps(rows[name])[:300], flush=True)
    return rows


def cell(qualities, key):
    values = [q[key] for q in qualities if q is not None]
    return f"{sum(values) / len(values):.3f}" if values else "–"


def table(runs, kind, what, keys=("roc_auc", "average_precision", "recall@10", "recall@50")):
    """Write one markdown table with a row per detector and a column per measure, as means over the runs."""
    lines = [f"| detector | {' | '.join(keys)} | CPU s |", "|---" * (len(keys) + 2) + "|"]
    for name in runs[0]["detectors"]:
        rows = [run["detectors"][name] for run in runs]
        if any("failed" in row for row in rows):
            lines.append(f"| {name} |" + " failed |" * len(keys) + " |")
            continue
        qualities = [row["quality"].get(kind, {}).get(what) for row in rows]
        seconds = sum(row["cpu_s"] for row in rows) / len(rows)
        lines.append(f"| {name} | {' | '.join(cell(qualities, key) for key in keys)} | {seconds:.1f} |")
    sample = next((row["quality"][kind].get(what) for row in runs[0]["detectors"].values() if "quality" in row), None)
    if sample:
        known = sample.get("known_attacks")
        note = f"{sample['attacks']:.0f} attacks among {sample['pairs']:.0f} ({what}, window)"
        lines.append(f"\n{note}" + ("" if known is None else f"; {known:.0%} of the attacks are by or on known hosts"))
    return "\n".join(lines) + "\n"


def tables(path: Path) -> str:
    result = json.loads(path.read_text(encoding="utf-8"))
    parts = []
    if result["generator"]:
        runs = result["generator"]
        parts += [f"### Generator, {what}\n\n{table(runs, 'all', what)}" for what in ("source", "destination", "pair")]
        for kind in ("lateral movement", "scanning", "beaconing", "role change"):
            parts.append(f"### Generator, sources, {kind}\n\n{table(runs, kind, 'source')}")
    for width, run in result["darpa"].items():
        parts += [
            f"### DARPA 1998, windows of {width}, {what}\n\n{table([run], 'all', what)}"
            for what in ("source", "destination", "pair")
        ]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="print the tables of a result and stop")
    parser.add_argument("--sources", type=int, default=1000)
    parser.add_argument("--destinations", type=int, default=0, help="20 per source if not given")
    parser.add_argument("--days", type=int, default=89)
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--campaigns", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--darpa", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    if arguments.table:
        print(tables(arguments.table))
        return
    if arguments.out is None:
        parser.error("--out or --table is needed")
    logging.disable(logging.WARNING)
    result = {"generator": [], "darpa": {}}
    settings = Settings(ScoringOptions(dim=arguments.dim))
    for seed in range(arguments.seeds):
        size = (arguments.sources, arguments.destinations or 20 * arguments.sources, arguments.days)
        data = netflow_windows(netflow(*size, campaigns=arguments.campaigns, seed=seed))
        rows = measure(data, settings, DETECTORS)
        result["generator"].append({"size": size, "seed": seed, "dim": arguments.dim, "detectors": rows})
        write_text(arguments.out, json.dumps(result, indent=1))
    if arguments.darpa:
        path = Path(os.environ["GRAPHQUILT_DATA"], "darpa-1998", "darpa.npz")
        for width, options in (
            ("1d", Settings(ScoringOptions(5, lags=(1, 2, 3, 7, 14), min_observations=10), history=28)),
            ("6h", Settings(ScoringOptions(5, lags=(1, 2, 3, 4, 8, 28, 56)), history=56, refit=14)),
        ):
            data = darpa_windows(path, width)
            rows = measure(data, options, DETECTORS)
            result["darpa"][width] = {"windows": len(data.windows), "dim": options.scoring.dim, "detectors": rows}
            write_text(arguments.out, json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
