"""A month of Zeek logs: which hosts behave unlike themselves in the last week, and why.

    python examples/week_of_zeek_logs.py [FOLDER] [--out zeek.png]

FOLDER has conn.log files, packed or not, of at least three weeks. Without one, logs are generated: 60 hosts talk to
their usual servers, and on one day host 7 scans the network.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import graphquilt as gq


def made_up(folder, days=28):
    """Write one conn.log with flows of four weeks; host 7 scans on day 25."""
    rng, usual = np.random.default_rng(0), np.random.default_rng(1).integers(20, size=(60, 4))
    rows = [(d, h, usual[h, k]) for d in range(days) for h in range(60) for k in range(4) if rng.random() < 0.9]
    rows += [(25, 7, server) for server in range(20)] * 3
    lines = ["#separator \\x09", "#path\tconn", "#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto"]
    for number, (day, host, server) in enumerate(sorted(rows, key=lambda row: row[0])):
        time = 1_699_920_000 + 86400 * day + 20 * (number % 4000)
        lines.append(f"{time:.6f}\tC{number}\t10.0.0.{host}\t50000\t10.0.1.{server}\t443\ttcp")
    folder.mkdir(exist_ok=True)
    (folder / "conn.log").write_text("\n".join(lines) + "\n", encoding="utf-8")


parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", type=Path)
parser.add_argument("--out", default="zeek.png")
arguments = parser.parse_args()
if arguments.folder is None:
    arguments.folder = Path("zeek-logs")
    made_up(arguments.folder)

windows = gq.temporal.snapshots(gq.temporal.read_flows(arguments.folder), width="1d")
scores = gq.temporal.score_windows(windows.windows(), gq.temporal.ScoringOptions(dim=4, lags=(1, 7)))
week = [alert for alert in scores.alerts(budget=3) if alert.number > scores.windows[-1].number - 7]
for alert in week[:5]:
    why = ", ".join(component.name for component in alert.components[:2])
    day = np.datetime64(alert.number, "D")
    print(f"{day}: {windows.names[alert.side][alert.node]} as {alert.side}, severity {alert.severity:.0f}: {why}")

figure, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
for side in gq.temporal.SIDES:
    hosts = [(np.datetime64(w.number, "D"), p) for w in scores.windows for p in w.sides[side].pvalue]
    points = [(day, -20 * np.log10(p)) for day, p in hosts if np.isfinite(p)]
    axis.scatter(*zip(*points, strict=True), s=8, alpha=0.6, label=f"as {side}")
axis.set(ylabel="severity", title="Every host on every day")
axis.legend()
figure.autofmt_xdate()
figure.savefig(arguments.out, dpi=120)
print(f"Picture: {arguments.out}")
