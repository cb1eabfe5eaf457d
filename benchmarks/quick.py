"""Compare the speed of two versions in a few minutes: ``python benchmarks/quick.py [--against REVISION]``.

Each task runs a few times, in turns with a fixed calibration task; its figure is the ratio of their CPU seconds, so a
busy or slower machine changes both. The figures of the commit go to build/bench/COMMIT.json. Beside them stand those
of an earlier commit: the one named, or the newest that has a file. A task that takes over a fifth longer ends the
script with exit code 3.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import graphquilt as gq
from graphquilt.testing import quilt

ROUNDS = 5
SLOWER = 1.2
FOLDER = Path("build/bench")


def communities(n=20_000, k=100, degree=20, seed=0):
    """A graph of k communities, with nine of ten edges inside them."""
    rng = np.random.default_rng(seed)
    m = n * degree // 2
    source = rng.integers(n, size=m)
    inside = source // (n // k) * (n // k) + rng.integers(n // k, size=m)
    target = np.where(rng.random(m) < 0.9, inside, rng.integers(n, size=m))
    A = sp.coo_array((np.ones(m), (source, target)), shape=(n, n)).tocsr()
    return gq.Graph(sp.csr_array(((A + A.T) > 0).astype(np.float64)))


def calibrate():
    """A task of the same kind as ours, which never changes: sorting, gathering and a product."""
    rng = np.random.default_rng(0)
    x = rng.random((400_000, 8))
    order = np.argsort(x[:, 0])
    return float((x[order].T @ x).sum())


def tasks(folder):
    """The tasks by name: callables without arguments, on inputs that are made once."""
    graph = communities()
    source, target = graph.adjacency.nonzero()
    text = folder / "edges.csv"
    lines = "".join(f"n{i},n{j}\n" for i, j in zip(source.tolist(), target.tolist(), strict=True) if i < j)
    text.write_text("source,target\n" + lines, encoding="utf-8")
    pieces = quilt(100, 32, noise=0.1)
    alignment = gq.align(pieces.patches, pieces.edges)
    patches = gq.cut(graph, n_patches=10)
    X = gq.embed(graph, dim=32, n_patches=1).embedding

    def job():
        with tempfile.TemporaryDirectory() as place:
            gq.embed(graph, dim=16, n_patches=20, store=gq.DirectoryStore(place))

    return {
        "read a text file": lambda: gq.read_edges(text),
        "cut into ten patches": lambda: gq.cut(graph, n_patches=10),
        "embed in one patch": lambda: gq.embed(graph, dim=32, n_patches=1),
        "embed ten patches": lambda: gq.embed_patches(graph, patches, gq.Propagation(32)),
        "embed with SVD": lambda: gq.embed(graph, embedder=gq.SVD(16), n_patches=1),
        "a job of twenty patches": job,
        "align 100 patches": lambda: gq.align(pieces.patches, pieces.edges),
        "align them robustly": lambda: gq.align(pieces.patches, pieces.edges, robust=True),
        "centroid": lambda: gq.centroid(pieces.patches, alignment),
        "reconstruction AUC": lambda: gq.evaluate.reconstruction_auc(X, graph, seed=0),
    }


def measure():
    """Return the ratio of each task to the calibration, the median of some rounds."""
    with tempfile.TemporaryDirectory() as folder:
        named = tasks(Path(folder))
        for task in named.values():
            task()  # compiles kernels
        ratios: dict[str, list[float]] = {name: [] for name in named}
        for _ in range(ROUNDS):
            for name, task in named.items():
                ratios[name].append(seconds(task) / seconds(calibrate))
    return {name: round(statistics.median(values), 3) for name, values in ratios.items()}


def seconds(task):
    """CPU seconds of one call."""
    begin = time.process_time()
    task()
    return time.process_time() - begin


def git(*words):
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout.strip()


def earlier(revision, commit):
    """Return the name and the figures of the commit to compare with, or None."""
    if revision is not None:
        path = FOLDER / f"{git('rev-parse', '--short=12', revision)}.json"
        if not path.exists():
            sys.exit(f"{path} is not there: check out {revision} and run this script first.")
    else:
        others = [path for path in FOLDER.glob("*.json") if path.stem != commit]
        if not others:
            return None
        path = max(others, key=lambda path: path.stat().st_mtime)
    return path.stem, json.loads(path.read_text(encoding="utf-8"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="REVISION", help="the commit to compare with")
    against = parser.parse_args().against
    commit = git("rev-parse", "--short=12", "HEAD") + ("-changed" if git("status", "--porcelain", "-uno") else "")
    before = earlier(against, commit)
    figures = measure()
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{commit}.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    name, old = before or ("–", {})
    print(f"| task (calibration = 1) | {name} | {commit} | ratio |\n|---|---|---|---|")
    slower = []
    for task, figure in figures.items():
        ratio = figure / old[task] if task in old else None
        slower += [task] if ratio is not None and ratio > SLOWER else []
        print(f"| {task} | {old.get(task, '–')} | {figure} | {'–' if ratio is None else f'{ratio:.2f}'} |")
    if slower:
        print(f"More than a fifth slower: {', '.join(slower)}. Run it again to rule out chance.")
        sys.exit(3)


if __name__ == "__main__":
    main()
