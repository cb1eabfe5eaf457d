"""Score a log with labels that you keep: our alerts beside counting, volume and MIDAS-R, each from the past only.

    python benchmarks/labelled_log.py conn.log.labeled --width 10m --learn 8

A log is any that ``read_flows`` knows, with a column of labels. Flows whose label does not match ``--benign`` are
attacks, and all flows with one label in one window are one attack. The first ``--learn`` windows are learnt from, and
all others are judged. Nothing is chosen by the labels; run it once per set, and report what it prints.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from detectors import Settings, detect
from graphquilt.temporal import ScoringOptions
from histories import COMPARED, collect, summarise, table
from labelled_windows import log_windows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--width", default="1d")
    parser.add_argument("--learn", type=int, default=8)
    parser.add_argument("--dim", type=int, default=5)
    parser.add_argument("--benign", default=r"^-?$|benign|normal|background")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    data = log_windows(arguments.logs, arguments.width, benign=arguments.benign, learnt=arguments.learn)
    settings = Settings(ScoringOptions(arguments.dim, lags=(1, 2, 4, 8), min_observations=3), history=28)
    found = {name: summarise(collect(detect(name, data, settings)[0], data)) for name in COMPARED}
    print(f"{len(data.windows) - data.first} windows of {len(data.windows)} are judged.")
    print(table({f"{arguments.logs[0].name} 0 {arguments.learn}": found}))


if __name__ == "__main__":
    main()
