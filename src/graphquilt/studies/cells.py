"""Studies as many independent cells: each leaves one JSON file as soon as it is finished, so a killed study goes on."""

from __future__ import annotations

import json
import os
import platform
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, as_completed
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import graphquilt
from graphquilt.errors import JobError
from graphquilt.progress import ProgressCallback, report

__all__ = ["Cell", "cell_seed", "machine", "read_cells", "run_cells"]

Result = dict[str, Any]


class Cell(Protocol):
    """One piece of a study: a frozen, picklable value that computes itself."""

    @property
    def name(self) -> str:
        """Unique in the study, and fit for a file name."""
        ...

    @property
    def parameters(self) -> Result:
        """Everything that its result depends on, as JSON."""
        ...

    def run(self, folder: Path) -> Result:
        """Compute the result, as JSON; large arrays may be left in ``folder``."""
        ...


def cell_seed(*parts: int | str) -> int:
    """Return a seed that depends on these numbers and words and on nothing else.

    Examples
    --------
    >>> cell_seed(0, "cora", 8) == cell_seed(0, "cora", 8), cell_seed(0, "cora", 8) == cell_seed(1, "cora", 8)
    (True, False)
    """
    words = [part if isinstance(part, int) else zlib.crc32(part.encode()) for part in parts]
    return int(np.random.SeedSequence(words).generate_state(1)[0])


def machine() -> dict[str, str]:
    """Say on what kind of machine a result is computed."""
    return {
        "graphquilt": graphquilt.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }


def run_cells(
    cells: Sequence[Cell], out: Path, *, executor: Executor | None = None, progress: ProgressCallback | None = None
) -> list[Result]:
    """Compute every cell that has no result in ``out`` yet, and return the results of all, in order.

    Parameters
    ----------
    cells : sequence of Cell
        In the order in which they are started.
    out : path
        Gets one file ``cells/NAME.json`` a cell, written whole or not at all. Several processes may share it.
    executor : Executor, optional
        None computes them here, one after the other.
    progress : callable, optional

    Raises
    ------
    JobError
        Where a file in ``out`` is the result of a cell with other parameters.
    """
    folder = out / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    kept = {cell.name: _kept(cell, folder) for cell in cells}
    done = sum(result is not None for result in kept.values())
    report(progress, "cells", done, len(cells))
    for cell, result in _results([cell for cell in cells if kept[cell.name] is None], folder, executor):
        _write(folder / f"{cell.name}.json", result)
        kept[cell.name] = result
        done += 1
        report(progress, f"cells ({cell.name})", done, len(cells), values={"seconds": result["seconds"]})
    return [result for result in kept.values() if result is not None]


def _results(cells: list[Cell], folder: Path, executor: Executor | None) -> Iterator[tuple[Cell, Result]]:
    if executor is None:
        for cell in cells:
            result = _kept(cell, folder)  # another process may have finished it meanwhile
            yield cell, _computed(cell, folder) if result is None else result
        return
    futures = {executor.submit(_computed, cell, folder): cell for cell in cells}
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()


def _computed(cell: Cell, folder: Path) -> Result:
    wall, cpu = time.perf_counter(), time.process_time()
    result = cell.run(folder)
    return {
        "name": cell.name,
        "parameters": cell.parameters,
        **result,
        "seconds": round(time.perf_counter() - wall, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "machine": machine(),
    }


def _kept(cell: Cell, folder: Path) -> Result | None:
    path = folder / f"{cell.name}.json"
    if not path.exists():
        return None
    result: Result = json.loads(path.read_text())
    wanted = json.loads(json.dumps(cell.parameters))
    if result["parameters"] != wanted:
        other = {key for key in wanted if result["parameters"].get(key) != wanted[key]}
        raise JobError(
            f"{path} was computed with other values of {', '.join(sorted(other))}: "
            f"{ {key: result['parameters'].get(key) for key in sorted(other)} } instead of "
            f"{ {key: wanted[key] for key in sorted(other)} }. Write to another folder, or remove that file."
        )
    return result


def _write(path: Path, result: Result) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(result, indent=1) + "\n")
    scratch.replace(path)


def read_cells(out: Path) -> list[Result]:
    """Return the results of all cells that are finished in ``out``, by name."""
    return [json.loads(path.read_text()) for path in sorted((out / "cells").glob("[!.]*.json"))]
