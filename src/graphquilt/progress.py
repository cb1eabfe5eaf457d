"""The progress event and the callback that receives it; and what a stage took.

Long work calls ``report(progress, stage, done, total, ...)``; a caller who wants to see it passes a
function of one :class:`Progress`. The library itself never prints.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["Progress", "ProgressCallback", "peak_memory", "report", "resource_usage"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one stage.

    Attributes
    ----------
    stage : str
        The name of the work, in a word or two: ``"overlaps"``.
    done, total : int
        Number of units finished, and of all units (0 where that is not known).
    values : mapping of str to float
        Other numbers of interest: an epoch, a loss, a residual.
    """

    stage: str
    done: int
    total: int = 0
    values: Mapping[str, float] = field(default_factory=dict)


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
