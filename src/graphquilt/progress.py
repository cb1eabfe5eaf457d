"""The one progress event, and the callback that receives it.

Long work calls ``report(progress, stage, done, total, ...)``; whoever wants to see it passes a function of one
:class:`Progress`. The library itself never prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Progress", "ProgressCallback", "report"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one stage has come.

    Attributes
    ----------
    stage : str
        What is being done, in a word or two: ``"relative transforms"``.
    done, total : int
        Units finished, and how many there are (0 where that is not known).
    values : mapping of str to float
        What else is worth seeing: an epoch, a loss, a residual.
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
    """Tell ``progress`` how far ``stage`` has come; do nothing if nobody listens.

    Examples
    --------
    >>> report(lambda event: print(event.stage, event.done, event.total), "patches", 3, 10)
    patches 3 10
    """
    if progress is not None:
        progress(Progress(stage, done, total, values or {}))
