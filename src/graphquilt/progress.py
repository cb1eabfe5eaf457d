"""The progress event and the callback that receives it; and what a stage took. The library itself never prints."""

from __future__ import annotations

import contextlib
import html
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from graphquilt.errors import InputError

__all__ = ["NotebookBars", "Progress", "ProgressCallback", "peak_memory", "report", "resource_usage"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one stage."""

    stage: str  # the name of the work, in a word or two: ``"overlaps"``
    done: int  # number of units finished, and of all units (0 where that is not known)
    total: int = 0
    values: Mapping[str, float] = field(default_factory=dict)  # other numbers of interest: an epoch, a loss, a residual


ProgressCallback = Callable[[Progress], None]


def report(
    progress: ProgressCallback | None,
    stage: str,
    done: int,
    total: int = 0,
    *,
    values: Mapping[str, float] | None = None,
) -> None:
    """Call ``progress`` with the state of ``stage``; do nothing if it is None."""
    if progress is not None:
        progress(Progress(stage, done, total, values or {}))


class NotebookBars:
    """Bars below the cell of a notebook, one per stage: ``gq.embed(edges, progress=gq.progress.NotebookBars())``."""

    def __init__(self) -> None:
        self._stages: dict[str, Progress] = {}
        self._shown, self._handle = 0.0, cast(Any, None)  # when the cell was changed last; what changes it

    def html(self) -> str:
        """Return the bars."""
        lines = []
        for event in self._stages.values():
            extent = f'value="{event.done}" max="{event.total}"' if event.total else ""
            count = f"{event.done} of {event.total}" if event.total else str(event.done)
            lines.append(f"<progress {extent}></progress> {html.escape(event.stage)}: {count}")
        return "<br>".join(lines)

    def __call__(self, event: Progress) -> None:
        """Show one event; the cell changes at most ten times a second."""
        try:
            from IPython.display import HTML, display
        except ImportError as error:
            raise InputError("NotebookBars are for notebooks, which have IPython: pip install ipython.") from error
        first = event.stage not in self._stages
        self._stages[event.stage] = event
        if not first and event.done != event.total and time.monotonic() - self._shown < 0.1:
            return
        self._shown = time.monotonic()
        if self._handle is None:
            self._handle = display(HTML(self.html()), display_id=True)
        else:
            self._handle.update(HTML(self.html()))


def peak_memory() -> int:
    """Return the most memory that this process has had so far, in bytes; 0 on a system that does not say."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextlib.contextmanager
def resource_usage() -> Iterator[dict[str, float]]:
    """Measure the block: its ``seconds`` and ``cpu_seconds``, and the ``peak_memory`` of the process at its end."""
    cost: dict[str, float] = {}
    begin, cpu = time.perf_counter(), time.process_time()
    yield cost
    cost["seconds"] = round(time.perf_counter() - begin, 6)
    cost["cpu_seconds"] = round(time.process_time() - cpu, 6)
    cost["peak_memory"] = peak_memory()
