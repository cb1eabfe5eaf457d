"""How long the walk is from a graph to its embedding: the files and functions of graphquilt that are reached.

``python benchmarks/walk.py`` counts them for ``gq.embed`` of a small graph in memory and for ``graphquilt embed`` of a
small file, both with defaults; ``--list`` names every function. Bodies of classes and modules are not counted, nor is
what runs while modules are imported.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np

import graphquilt as gq
from graphquilt.__main__ import main as run_command

SOURCE = str(Path(gq.__file__).parent) + os.sep


def trace(call: Callable[[], object]) -> set[tuple[str, str, int]]:
    """Return file, name and first line of every function of graphquilt that a call reaches."""
    reached: set[tuple[str, str, int]] = set()
    importing = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib"):
            if code.co_name == "_find_and_load":
                importing += (event == "call") - (event == "return")
        elif event == "call" and not importing and code.co_filename.startswith(SOURCE):
            is_function = code.co_flags & 0x2 and not code.co_name.startswith("<")  # fast locals: no body of a class
            if is_function:
                reached.add((code.co_filename.removeprefix(SOURCE), code.co_qualname, code.co_firstlineno))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return reached


def small_graph(n: int = 600, seed: int = 0) -> np.ndarray:
    """Return the edges of a ring with random chords."""
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1)
    return np.concatenate([ring, np.random.default_rng(seed).integers(n, size=(2 * n, 2))])


def main() -> None:
    """Print the length of both walks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--list", action="store_true", help="name every function")
    names = parser.parse_args().list
    edges = small_graph()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "edges.csv"
        np.savetxt(file, edges, fmt="%d", delimiter=",")
        graph = gq.read_edges(edges)

        def command() -> None:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
                sys.argv = ["graphquilt", "embed", str(file), "--out", str(Path(folder) / "job")]
                run_command()

        walks = {"gq.embed(graph)": lambda: gq.embed(graph), "graphquilt embed edges.csv": command}
        for name, walk in walks.items():
            reached = trace(walk)
            print(f"{name}: {len({file for file, _, _ in reached})} files, {len(reached)} functions")
            packages = Counter(Path(file).parts[0] for file, _, _ in reached)
            print("  " + ", ".join(f"{package} {count}" for package, count in packages.most_common()))
            for entry in sorted(reached) if names else ():
                print(f"  {entry[0]}: {entry[1]}")


if __name__ == "__main__":
    main()
