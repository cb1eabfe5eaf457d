"""What a stage took: its time, and the memory of its process."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Iterator

__all__ = ["peak_memory", "resource_usage"]


def peak_memory() -> int:
    """Return the most memory that this process has had so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextlib.contextmanager
def resource_usage() -> Iterator[dict[str, float]]:
    """Measure the block: the dict has its ``seconds``, ``cpu_seconds`` and ``peak_memory`` of the process at its end.

    Examples
    --------
    >>> with resource_usage() as cost:
    ...     pass
    >>> sorted(cost)
    ['cpu_seconds', 'peak_memory', 'seconds']
    """
    cost: dict[str, float] = {}
    begin, cpu = time.perf_counter(), time.process_time()
    yield cost
    cost["seconds"] = round(time.perf_counter() - begin, 6)
    cost["cpu_seconds"] = round(time.process_time() - cpu, 6)
    cost["peak_memory"] = peak_memory()
