"""Compute scored features again from a log that ends at their window, in a batch and in a stream, and compare.

    python benchmarks/causality.py --features 5000000
    python benchmarks/causality.py --features 100000 --windows 10

The log is generated (``graphquilt.temporal.traffic``) and written as files, one per day. The whole of it is scored
once. Then, for some windows, the log is cut off at the end of the window and scored again by :func:`detect` (batch) and
by :func:`watch` (stream, with a state, one day at a time). Every value, z-score and p-value of every host of the window
must be the same, bit for bit. A control that peeks, with flows of the next day in the window, must differ.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path

import numpy as np

from graphquilt.temporal import SIDES, ScoringOptions, Tracker, netflow, read_flows, snapshots
from graphquilt.temporal.batch import score_windows
from graphquilt.temporal.watching import WatchState, watch


def features(scores):
    """Return all numbers that a window was given: values, z-scores and p-values of hosts, surprise of pairs."""
    tables = [scores.sides[side] for side in SIDES]
    columns = [array for t in tables for array in (t.values, t.z, t.pvalues, t.pvalue)]
    pairs = scores.connections
    return np.concatenate([np.asarray(c, dtype=np.float64).ravel() for c in (*columns, pairs.surprise, pairs.pvalue)])


def names_of(cut, scores):
    """Return the names of the hosts of a window: ids are given in the order in which names appear."""
    return [cut.names[side][int(node)] for side in SIDES for node in scores.sides[side].nodes]


def batch(paths, options):
    """Score logs at once, with all hosts kept; return the windows by number, and the names of their hosts."""
    cut = snapshots(read_flows(paths))
    scores = score_windows(cut.windows(), options, keep=None)
    return {w.number: (features(w), names_of(cut, w)) for w in scores.windows}


def stream(paths, options, folder):
    """Score logs one day after another, with a restart after each; return the windows by number."""
    inbox = folder / "inbox"
    inbox.mkdir()
    scored = {}
    for path in paths:
        (inbox / path.name).write_bytes(path.read_bytes())
        with WatchState(folder / "state", Tracker(options)) as state:
            for scores, _ in watch(inbox, state, read_flows, idle=0):
                scored[scores.number] = features(scores)
    return scored


def n_differences(a, b):
    """Return how many of two arrays of features differ; those of different lengths differ altogether."""
    return max(len(a), len(b)) if len(a) != len(b) else int((~((a == b) | (np.isnan(a) & np.isnan(b)))).sum())


def check(n_sources, n_days, wanted, folder):
    """Return how many features were compared in a batch and in a stream, how many differ, and what the control has."""
    options = ScoringOptions(dim=8, lags=(1, 7), min_observations=5)
    paths = netflow(n_sources, 10 * n_sources, n_days, campaigns=1, seed=5).write(folder / "logs")
    whole = batch(paths, options)
    streamed = stream(paths, options, folder)
    compared = {"batch": 0, "stream": 0}
    differ = {"batch": 0, "stream": 0}
    for number, (values, _) in whole.items():
        compared["stream"] += len(values)
        differ["stream"] += n_differences(values, streamed[number])
    for number in sorted(whole, reverse=True):
        if compared["batch"] >= wanted:
            break
        cut = batch(paths[: number + 1], options)
        for earlier in cut:
            compared["batch"] += len(cut[earlier][0])
            differ["batch"] += n_differences(whole[earlier][0], cut[earlier][0])
    last = max(whole) - 1
    peeking = folder / "peeking"
    peeking.mkdir()
    for path in paths[: last + 1]:
        (peeking / path.name).write_bytes(path.read_bytes())
    # The control: one host of the next day is moved into the last day.
    ahead = paths[last + 1].read_text().splitlines()
    stolen = [",".join([str((last + 1) * 86_400 - 1), *line.split(",")[1:]]) for line in ahead[:50]]
    with (peeking / paths[last].name).open("a") as file:
        file.write("\n".join(stolen) + "\n")
    control = batch(sorted(peeking.iterdir()), options)
    return compared, differ, n_differences(whole[last][0], control[last][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=5_000_000)
    parser.add_argument("--sources", type=int, default=600)
    parser.add_argument("--windows", type=int, default=24)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        compared, differ, control = check(arguments.sources, arguments.windows, arguments.features, Path(folder))
    for kind in compared:
        print(f"{kind}: {compared[kind]} features computed again, {differ[kind]} differ")
    print(f"control that peeks: {control} features differ")
    if any(differ.values()) or not control or compared["batch"] < arguments.features:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
