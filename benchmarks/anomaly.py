"""Measure temporal networks at LANL's size: reading flows, the batch run, one streamed day.

    python benchmarks/anomaly.py read   --rows 10_000_000
    python benchmarks/anomaly.py batch  --days 89
    python benchmarks/anomaly.py stream
    python benchmarks/anomaly.py stream --names 5_000_000 --forget 90d

Times are CPU seconds of this process and its children, and wall seconds. Memory is the resident memory above that of
the imports, children included. ``--scale 0.1`` makes the network ten times smaller. Results are printed as JSON.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import numpy as np
import psutil
import pyarrow as pa

from graphquilt.temporal import (
    LANL_COLUMNS,
    SIDES,
    ScoringOptions,
    Tracker,
    Window,
    drift,
    embed_window,
    read_flows,
    score_windows,
    snapshots,
)
from graphquilt.temporal.traffic import LANL_SIZE, netflow
from graphquilt.temporal.watching import WatchState, watch_windows


def cpu() -> float:
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def resident() -> int:
    this_process = psutil.Process()
    total = 0
    for process in [this_process, *this_process.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


class Measure:
    """CPU and wall seconds and peak resident bytes of a block."""

    def __enter__(self) -> Measure:
        self._stop = threading.Event()
        self.start, self.peak = resident(), 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        self._cpu, self._wall = cpu(), time.perf_counter()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            self.peak = max(self.peak, resident() - self.start)

    def __exit__(self, *_: object) -> None:
        self.wall, self.cpu = time.perf_counter() - self._wall, cpu() - self._cpu
        self._stop.set()
        self._thread.join()

    def row(self) -> dict[str, float]:
        """Round for printing."""
        return {"cpu_s": round(self.cpu, 2), "wall_s": round(self.wall, 2), "peak_gb": round(self.peak / 1e9, 2)}


def network(scale: float, days: int, campaigns: int = 18):
    size = LANL_SIZE | {"n_days": days}
    size |= {key: max(200, int(LANL_SIZE[key] * scale)) for key in ("n_sources", "n_destinations")}
    return netflow(**size, campaigns=campaigns)


def windows_of(net, busy: list[float]):
    """Give the days as windows; ``busy`` adds up the CPU seconds of generating them, which are not measured."""
    ids = np.arange(net.n_destinations)
    as_source = np.where(ids < net.n_sources, ids, -1)  # internal hosts come first
    for day in range(net.n_days):
        start = time.process_time()
        matrix = net.matrix(day)
        busy[0] += time.process_time() - start
        yield Window(day, 86400.0 * day, 86400.0 * (day + 1), matrix, matrix.nnz, as_source=as_source)


@contextmanager
def timed_steps(seconds: dict[str, float]):
    """Add up the CPU seconds of the steps of a batch run in this process, by their names."""
    steps = {
        "embedding": (drift, "embed_or_explain"),
        "components": (Tracker, "update"),
        "alignment": (drift, "align"),
        "deviations": (drift, "deviations"),
        "leave-one-out z": (drift, "leave_one_out_zscore"),
    }

    def timed(name, function):
        @functools.wraps(function)
        def wrapper(*arguments, **options):
            start = cpu()
            try:
                return function(*arguments, **options)
            finally:
                seconds[name] = seconds.get(name, 0.0) + cpu() - start

        return wrapper

    with ExitStack() as stack:
        for name, (owner, attribute) in steps.items():
            stack.enter_context(mock.patch.object(owner, attribute, timed(name, getattr(owner, attribute))))
        yield


def batch(scale: float, days: int, dim: int, workers: int) -> dict[str, object]:
    """Score all days; the steps are timed in this process, so that embedding counts there with one worker only."""
    net, busy, steps = network(scale, days), [0.0], {}
    net.matrix(0)
    options = ScoringOptions(dim, min_observations=min(21, max(3, days // 3)))
    with (
        timed_steps(steps),
        Measure() as whole,
        ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool,
    ):
        scores = score_windows(windows_of(net, busy), options, executor=pool)
    pairs = [int(pattern.indptr[-1]) for pattern in scores.patterns]
    spent = whole.cpu - busy[0]
    return {
        "windows": len(scores.numbers),
        "dim": dim,
        "workers": workers,
        "mean_pairs": round(float(np.mean(pairs))),
        "cpu_s": round(spent, 1),
        "wall_s": round(whole.wall, 1),
        "peak_gib": round(whole.peak / 2**30, 2),
        "and_drawing_cpu_s": round(busy[0], 1),
        "steps_cpu_s": {name: round(value, 1) for name, value in steps.items()},
        "alignment_share": round(steps["alignment"] / spent, 4),
        "median_edge_error": {
            side: round(float(np.median(part.alignment.edge_errors)), 3) for side, part in scores.drift.sides.items()
        },
    }


def stream(scale: float, dim: int) -> dict[str, object]:
    """Time one weekday after a week."""
    net, busy = network(scale, 89), [0.0]
    tracker = Tracker(ScoringOptions(dim))
    week = list(itertools.islice(windows_of(net, busy), 7))
    with Measure() as learning:
        for window in week:
            tracker.update(window)
    today = next(itertools.islice(windows_of(net, busy), 7, None))
    with Measure() as embedded:
        embed_window(today.matrix, dim)
    with Measure() as day:
        scores = tracker.update(today)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.npz")
        with Measure() as saved:
            tracker.save(path)
        with Measure() as loaded:
            Tracker.load(path)
        size = path.stat().st_size
    return {
        "windows_remembered": len(tracker.numbers),
        "pairs": today.matrix.nnz,
        "hosts": {side: len(scores.sides[side].nodes) for side in SIDES},
        "day": day.row(),
        "of_which_embedding_cpu_s": round(embedded.cpu, 2),
        "scoring_over_embedding": round((day.cpu - embedded.cpu) / embedded.cpu, 2),
        "first_week": learning.row(),
        "state": {"mb": round(size / 1e6), "save_s": round(saved.wall, 2), "load_s": round(loaded.wall, 2)},
    }


def stream_of_names(n_names: int, forget: str | None, dim: int) -> dict[str, object]:
    """Watch a year of days, in which a network of 1000 sources gets ``n_names`` sources that are seen once."""
    net, n_new, rng = netflow(1000, 5000, 365, campaigns=0), n_names // 365, np.random.default_rng(0)
    memory = {}

    def flows():
        for day in range(365):
            pairs = net.matrix(day).tocoo()
            usual = [f"10.0.{i >> 8}.{i & 255}" for i in pairs.row], [f"10.1.{j >> 8}.{j & 255}" for j in pairs.col]
            new = [
                f"{1 + (k >> 24)}.{k >> 16 & 255}.{k >> 8 & 255}.{k & 255}"
                for k in range(day * n_new, (day + 1) * n_new)
            ]
            targets = [f"10.1.{j >> 8}.{j & 255}" for j in rng.integers(0, 50, n_new)]
            time = np.sort(86400.0 * day + rng.uniform(0, 86400, len(usual[0]) + n_new))
            columns = [pa.array(time), pa.array(usual[0] + new), pa.array(usual[1] + targets)]
            yield pa.RecordBatch.from_arrays(columns, ["time", "source", "destination"])

    with Measure() as whole, WatchState(None, Tracker(ScoringOptions(dim)), forget=forget) as state:
        for scores in watch_windows(snapshots(flows()), state):
            if scores.number % 30 == 29:
                memory[scores.number + 1] = {
                    "mb": round((resident() - whole.start) / 1e6),
                    "names": len(state.names["source"]),
                    "hosts": len(state.tracker.known["source"]),
                }
        arrays = sum(array.nbytes for array in state.tracker._memory.arrays().values())
    memory["arrays"] = round(arrays / 1e6)
    return {"names": n_names, "forget": forget, "dim": dim, **whole.row(), "after_days": memory}


def write_rows(folder: Path, rows: int, scale: float) -> list[Path]:
    net = network(scale, 89)
    paths, total = [], 0
    for day in range(net.n_days):
        path = net.write(folder, days=range(day, day + 1))[0]
        total += path.read_bytes().count(b"\n")
        paths.append(path)
        if total >= rows:
            break
    whole = folder / "all.csv"
    with open(whole, "wb") as out:
        for path in paths:
            out.write(path.read_bytes())
            path.unlink()
    return [whole]


def read(scale: float, rows: int) -> dict[str, object]:
    import polars as pl
    from pyarrow import csv

    wanted = ["time", "srcdevice", "dstdevice", "protocol"]
    out: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = write_rows(Path(folder), rows, scale)
        names = csv.ReadOptions(column_names=list(LANL_COLUMNS))

        def ours() -> int:
            return sum(len(part) for part in read_flows(paths))

        def ours_tcp() -> int:
            return sum(len(part) for part in read_flows(paths, protocol="tcp"))

        def windows() -> int:
            return sum(window.rows for window in snapshots(read_flows(paths)).windows())

        def arrow() -> int:
            options = csv.ConvertOptions(include_columns=wanted)
            return sum(csv.read_csv(p, read_options=names, convert_options=options).num_rows for p in paths)

        def arrow_all() -> int:
            return sum(csv.read_csv(p, read_options=names).num_rows for p in paths)

        def polars() -> int:
            return sum(
                pl.read_csv(p, has_header=False, new_columns=list(LANL_COLUMNS), columns=[0, 2, 3, 4]).height
                for p in paths
            )

        def polars_all() -> int:
            return sum(pl.read_csv(p, has_header=False, new_columns=list(LANL_COLUMNS)).height for p in paths)

        out["megabytes"] = round(sum(p.stat().st_size for p in paths) / 1e6)
        arrow()  # the file is in the page cache from here on
        for work in (ours, arrow, polars, ours_tcp, windows, arrow_all, polars_all):
            best = None
            for _ in range(2):
                with Measure() as measured:
                    count = work()
                if best is None or measured.wall < best.wall:
                    best = measured
            out[work.__name__] = best.row() | {"rows": count, "rows_per_s": round(count / best.wall)}
    for other in ("arrow", "polars"):
        out[f"speed_against_{other}"] = round(out[other]["wall_s"] / out["ours"]["wall_s"], 2)
        out[f"cpu_against_{other}"] = round(out[other]["cpu_s"] / out["ours"]["cpu_s"], 2)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["read", "batch", "stream"])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--days", type=int, default=89)
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--names", type=int, help="watch a year with so many sources that are seen once")
    parser.add_argument("--forget")
    parser.add_argument("--rows", type=int, default=10_000_000)
    arguments = parser.parse_args()
    if arguments.what == "read":
        result = read(arguments.scale, arguments.rows)
    elif arguments.what == "batch":
        result = batch(arguments.scale, arguments.days, arguments.dim, arguments.workers)
    elif arguments.names:
        result = stream_of_names(arguments.names, arguments.forget, arguments.dim)
    else:
        result = stream(arguments.scale, arguments.dim)
    print(json.dumps({arguments.what: result, "scale": arguments.scale}, indent=2))


if __name__ == "__main__":
    main()
