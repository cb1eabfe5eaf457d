"""Studies as many independent cells: each finished cell is kept as a record, and a killed study resumes."""

from __future__ import annotations

import json
import os
import platform
import time
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import graphquilt
from graphquilt.errors import InputError, JobError
from graphquilt.jobs import DirectoryStore, Record
from graphquilt.progress import ProgressCallback, report

__all__ = ["Cell", "Row", "cell_seed", "cell_store", "check_names", "machine", "read_cells", "run_cells"]

Row = dict[str, Any]  # what JSON holds


class Cell(Protocol):
    """One piece of a study: a frozen, picklable value that computes itself."""

    @property
    def name(self) -> str:
        """Unique in the study, and fit for a file name."""
        ...

    @property
    def group(self) -> str:
        """Cells of one group share trainings, and are computed one after the other."""
        ...

    @property
    def parameters(self) -> Row:
        """Everything that its result depends on, as JSON."""
        ...

    def run(self, folder: Path) -> Record:
        """Return the result as the parameters of a record, perhaps with arrays; jobs may be left in ``folder``."""
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


def check_names(names: Sequence[str], known: Collection[str], kind: str) -> None:
    """Refuse names that a study does not know, before anything is computed."""
    for name in names:
        if name not in known:
            raise InputError(f"the study has no {kind} '{name}'; it knows {', '.join(known)}.")


def machine() -> dict[str, str]:
    """Say on what kind of machine a result is computed."""
    return {
        "graphquilt": graphquilt.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }


def cell_store(out: Path) -> DirectoryStore:
    """Open the store of the cells of a study: one record for each, under its name."""
    return DirectoryStore(out / "cells")


def run_cells(
    cells: Sequence[Cell], out: Path, *, executor: Executor | None = None, progress: ProgressCallback | None = None
) -> list[Row]:
    """Compute every cell that has no result in ``out`` yet, and return the results of all, in order.

    Parameters
    ----------
    cells : sequence of Cell
        Groups of cells are started in this order.
    out : path
        Gets one record for each cell in the folder ``cells``, and jobs in ``trainings``. Several processes may share it
        as long as they compute different groups.
    executor : Executor, optional
        Computes whole groups; None computes the cells here, one after the other.
    progress : callable, optional

    Raises
    ------
    JobError
        Where ``out`` has the result of a cell with other parameters.
    """
    store = cell_store(out)
    missing = [cell for cell in cells if _finished(cell, store) is None]
    done = len(cells) - len(missing)
    report(progress, "cells", done, len(cells))
    for count, cell in enumerate(_computed(missing, out, executor), done + 1):
        report(progress, f"cells ({cell.name})", count, len(cells))
    return [_row(cell.name, store[cell.name]) for cell in cells]


def _computed(cells: Sequence[Cell], out: Path, executor: Executor | None) -> Iterator[Cell]:
    """Compute cells and yield each when its result is kept."""
    if executor is None:
        for cell in cells:
            _compute([cell], out)
            yield cell
        return
    groups: Mapping[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[cell.group].append(cell)
    futures = {executor.submit(_compute, group, out): group for group in groups.values()}
    try:
        for future in as_completed(futures):
            future.result()
            yield from futures[future]
    finally:
        for future in futures:
            future.cancel()


def _compute(cells: Sequence[Cell], out: Path) -> None:
    """Compute cells one after the other, and keep each result as soon as it is there."""
    store = cell_store(out)
    for cell in cells:
        if _finished(cell, store) is not None:  # another process may have finished it meanwhile
            continue
        wall, cpu = time.perf_counter(), time.process_time()
        record = cell.run(out / "trainings")
        result = {
            **record.parameters,
            "seconds": round(time.perf_counter() - wall, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
            "machine": machine(),
        }
        store[cell.name] = Record(record.arrays, {"settings": cell.parameters, "result": result})


def _finished(cell: Cell, store: DirectoryStore) -> Row | None:
    """Return the result of a cell, or None; refuse one that was computed with other parameters."""
    if cell.name not in store:
        return None
    row = _row(cell.name, store[cell.name])
    before, now = row["parameters"], json.loads(json.dumps(cell.parameters))
    changes = sorted(name for name in now if before.get(name) != now[name])
    if changes:
        raise JobError(
            f"{store.folder / cell.name}.json was computed with other values of {', '.join(changes)}: "
            f"{ {name: before.get(name) for name in changes} } instead of { {name: now[name] for name in changes} }. "
            "Write to another folder, or remove that file."
        )
    return row


def _row(name: str, record: Record) -> Row:
    parameters: Mapping[str, Any] = record.parameters
    return {"name": name, "parameters": parameters["settings"], **parameters["result"]}


def read_cells(out: Path) -> list[Row]:
    """Return the results of all cells that are finished in ``out``, by name."""
    store = cell_store(out)
    names = sorted(path.stem for path in store.folder.glob("*.json") if path.stem != "quilt")
    return [_row(name, store[name]) for name in names]
