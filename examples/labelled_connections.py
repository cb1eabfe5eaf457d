"""Labelled connections of an infected device, as in IoT-23's conn.log.labeled: which incidents are attacks.

    python examples/labelled_connections.py [conn.log.labeled] [--width 1h] [--out labelled.png]

Without a log, two days of thirty devices are generated in that layout; one begins to scan after a day. Labels do not
change a score: they only say afterwards whether the author of an incident had attacks.
"""

import argparse
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import graphquilt as gq


def made_up(path):
    """Write two days of thirty devices; device 9 scans port 23 in four hours of the second day."""
    rng, kind = np.random.default_rng(0), "-   Malicious   PartOfAHorizontalPortScan"
    usual = [(h, d, k) for h in range(48) for d in range(30) for k in range(rng.integers(2, 7))]
    rows = [(3600 * h + 60 * k, d, f"10.1.0.{(d + k) % 12}", 443, "-   Benign   -") for h, d, k in usual]
    rows += [(3600 * h + k, 9, f"10.2.{h}.{k}", 23, kind) for h in (30, 31, 40, 41) for k in range(150)]
    names = "ts\tid.orig_h\tid.resp_h\tid.resp_p\torig_bytes\tresp_bytes\ttunnel_parents   label   detailed-label"
    lines = ["#separator \\x09", "#path\tconn", f"#fields\t{names}"]
    for time, device, other, port, label in sorted(rows):
        lines.append(f"{1_545_436_800 + time}\t10.0.0.{device}\t{other}\t{port}\t60\t40\t{label}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


parser = argparse.ArgumentParser()
parser.add_argument("log", nargs="?", type=Path)
parser.add_argument("--width", default="1h")
parser.add_argument("--out", default="labelled.png")
arguments = parser.parse_args()
if arguments.log is None:
    arguments.log = Path("conn.log.labeled")
    made_up(arguments.log)

attacks = Counter()
for batch in gq.temporal.read_flows(arguments.log, labels=True):
    columns = (batch.column(name).to_pylist() for name in ("label", "source", "destination"))
    attacks.update(host for label, *ends in zip(*columns, strict=True) for host in ends if "Malicious" in (label or ""))

options = gq.temporal.ScoringOptions(dim=3, lags=(1, 2, 4), min_observations=3)
found = gq.temporal.detect(arguments.log, options, windows=gq.temporal.WindowOptions(arguments.width))
for incident in found.incidents[:10]:
    author = incident.get("node") or incident["source"]
    print(
        f"{incident['date']} {author}: severity {incident['severity']:.0f}, {attacks[author]} flows labelled as attacks"
    )

figure, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
points = [(a["window"], a["severity"], attacks[a["node"]] > 0) for a in found.alerts if a["kind"] == "host"]
window, severity, is_attack = zip(*points, strict=True)
axis.scatter(window, severity, s=12, c=np.where(is_attack, "crimson", "grey"))
axis.set(xlabel="window", ylabel="severity", title="Alerts: red hosts have labelled attacks")
figure.savefig(arguments.out, dpi=120)
print(f"Picture: {arguments.out}")
