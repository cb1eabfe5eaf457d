"""The exceptions of graphquilt, as a tree.

::

    QuiltError
    ├── InputError (ValueError)          the input is wrong; the message says what, where and what to do
    │   ├── CoverError                   a node is in no patch, or the patches do not fit the node range
    │   ├── OverlapError                 two patches share too few nodes, or all their shared points coincide
    │   ├── DisconnectedError            the patch graph is not connected
    │   ├── EmbedderError                an embedder returns something else than it promises, for every patch
    │   └── FormatError                  a file is not of the kind that is expected
    ├── ConvergenceError (RuntimeError)  a solver did not reach its tolerance; carries the residual reached
    └── JobError (RuntimeError)          a job on disk cannot be continued
        └── PatchesFailedError           some patches could not be embedded; carries their numbers and causes

A missing optional package raises :class:`MissingExtraError`, an ``ImportError`` that names the extra to install.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = [
    "ConvergenceError",
    "CoverError",
    "DisconnectedError",
    "EmbedderError",
    "FormatError",
    "InputError",
    "JobError",
    "MissingExtraError",
    "OverlapError",
    "PatchesFailedError",
    "QuiltError",
    "counted",
    "needs_extra",
]


class QuiltError(Exception):
    """The root of every error that graphquilt raises on purpose; it can be pickled with all its attributes."""

    def __reduce__(self) -> tuple[object, ...]:
        return _remade, (type(self), self.args, self.__dict__)


def _remade(kind: type[QuiltError], args: tuple[object, ...], state: dict[str, object]) -> QuiltError:
    """Make an error again from its message and attributes, without its constructor, which may take other arguments."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InputError(QuiltError, ValueError):
    """The input is wrong."""

    flags: tuple[str, ...] = ()  # with which the same command could be right


class CoverError(InputError):
    """The patches do not cover the nodes."""


class OverlapError(InputError):
    """Two patches do not share enough to be aligned."""


class DisconnectedError(InputError):
    """The patch graph has more than one component, so no single alignment exists."""


class EmbedderError(InputError):
    """An embedder returns something else than it promises; every patch would show the same."""


class FormatError(InputError):
    """A file is not of the kind that is expected, or is not complete."""


class ConvergenceError(QuiltError, RuntimeError):
    """A solver stopped before it reached its tolerance; ``residual`` is what it did reach."""

    def __init__(self, message: str, *, residual: float) -> None:
        super().__init__(message)
        self.residual = residual


class JobError(QuiltError, RuntimeError):
    """A job on disk cannot be continued."""


class PatchesFailedError(JobError):
    """Some patches failed in every attempt, the others are done; ``failures`` has the causes by number of the patch."""

    def __init__(self, failures: Mapping[int, str], *, n_done: int, kept: bool = False) -> None:
        alike: dict[str, list[int]] = {}  # causes that differ in numbers only are reported once
        for patch in sorted(failures):
            alike.setdefault(re.sub(r"\d+", "#", failures[patch]), []).append(patch)
        shown = "; ".join(f"{_numbers(patches)} ({failures[patches[0]]})" for patches in list(alike.values())[:5])
        more = f"; and {len(alike) - 5} other causes" if len(alike) > 5 else ""
        rest = ": the others are kept and only these are redone" if kept and n_done else ""
        advice = f"Remove the cause and run again{rest}."
        super().__init__(f"{len(failures)} of {len(failures) + n_done} patches failed: {shown}{more}. {advice}")
        self.failures = dict(failures)


def _numbers(patches: list[int]) -> str:
    if len(patches) == 1:
        return f"patch {patches[0]}"
    if len(patches) <= 5:
        return f"patches {', '.join(map(str, patches))}"
    return f"{len(patches)} patches, the first is {patches[0]}"


class MissingExtraError(QuiltError, ImportError):
    """An optional package is needed that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra '{extra}', which is not installed: pip install 'graphquilt[{extra}]'")
        self.what, self.extra = what, extra


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Raise :class:`MissingExtraError` where an import inside the block fails."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(what, extra) from error


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, for messages; the plural is the noun with an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
