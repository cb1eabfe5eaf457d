"""Progress on standard error and results on standard output."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID

    from graphquilt.graph import Graph
    from graphquilt.progress import Progress, ProgressCallback


_WORDS = {None: "none", True: "yes", False: "no"}


@contextlib.contextmanager
def watching() -> Iterator[ProgressCallback | None]:
    """Draw the progress of long work; if standard error is not a terminal, print a line now and then."""
    if not sys.stderr.isatty():
        yield LogLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    about = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[facts]}")
    with Bars(*about, *times, console=Console(stderr=True)) as bars:
        lines: dict[str, TaskID] = {}

        def draw(event: Progress) -> None:
            total = event.total or None
            if event.stage not in lines:
                lines[event.stage] = bars.add_task(event.stage, total=total, facts="")
            facts = f"loss {event.values['loss']:.4g}" if "loss" in event.values else ""
            bars.update(lines[event.stage], completed=event.done, total=total, facts=facts)

        yield draw


class LogLines:
    """A line on standard error every ten seconds, for logs; short work prints none."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.begun: dict[str, tuple[float, int]] = {}  # when each stage was first seen, and its progress then

    def __call__(self, event: Progress) -> None:
        """Print an event, unless one was printed just before."""
        now = time.monotonic()
        first, done = self.begun.setdefault(event.stage, (now, event.done))
        if event.done < done or (event.done == 0 < event.total):  # the same stage of something else
            first, done = self.begun[event.stage] = now, event.done
        if now - self.last >= 10:
            self.last = now
            text = f"{event.done} of {event.total}" if event.total else f"{event.done}"
            left = (now - first) * (event.total - event.done) / (event.done - done) if event.done > done else 0.0
            text += f", {duration(left)} left" if left >= 1 else ""
            print(f"graphquilt: {time.strftime('%H:%M:%S')} {event.stage}: {text}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return a time in words."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def show(result: Mapping[str, object], *, as_json: bool) -> None:
    """Print a result as JSON, or one line per entry."""
    if as_json:
        print(json.dumps(result, default=_plain))
        return
    for line in _lines(result):
        print(line)


def _lines(result: Mapping[str, object], indent: str = "") -> Iterator[str]:
    width = max((len(name) for name in result), default=0)
    for name, value in result.items():
        words = _words(value)
        if isinstance(value, dict) and len(words) > 60:
            yield f"{indent}{name.replace('_', ' ')}"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list) and value and all(isinstance(item, str) and " " in item for item in value):
            yield f"{indent}{name.replace('_', ' ')}"
            yield from (f"{indent}  {sentence}" for sentence in value)
        else:
            yield f"{indent}{name.replace('_', ' '):<{width}}  {words}".rstrip()


def _words(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_words(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_words(item) for item in value) or "none"
    return str(value) if value is not None and not isinstance(value, bool) else _WORDS[value]


def _plain(value: object) -> object:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def printable(text: object) -> str:
    """Return a text with control characters, which could move the cursor, written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def graph_facts(graph: Graph) -> dict[str, object]:
    """Return what commands print about a graph; an undirected edge counts once."""
    from graphquilt.evaluate.pairs import count_pairs

    return {
        "nodes": graph.n_nodes,
        "edges": count_pairs(graph, exact=False),
        "directed": graph.directed,
        "weighted": graph.weights is not None,
        "features": None if graph.features is None else graph.features.shape[1],
        "labelled": graph.labels is not None,
    }
