"""What the files of alignments and of overlap statistics have in common: a version, names, and errors with a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError
from graphquilt.files import load_arrays

__all__ = ["check_layout", "load_value"]

Value = TypeVar("Value")


def load_value(
    path: str | PathLike[str], from_arrays: Callable[[Mapping[str, Any]], Value], *, what: str, remedy: str
) -> Value:
    """Read a ``.npz`` archive and return ``from_arrays`` of its arrays; errors name the file and ``what`` it is not.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "x.npz"
    >>> _ = file.write_text("text")
    >>> load_value(file, dict, what="an alignment", remedy="Align again.")
    Traceback (most recent call last):
    ...
    graphquilt.errors.FormatError: ...
    """
    try:
        return from_arrays(load_arrays(Path(path)))
    except FileNotFoundError:
        raise
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    except Exception as error:
        raise FormatError(f"{path} cannot be read as {what}: {error}. {remedy}") from error


def check_layout(arrays: Mapping[str, AnyArray], names: Iterable[str], *, version: int, what: str, remedy: str) -> None:
    """Refuse arrays that lack one of the ``names``, or that were written in another version of the layout."""
    missing = [name for name in ("format", *names) if name not in arrays]
    if missing:
        raise FormatError(f"this is not {what}: it lacks {', '.join(missing)}. {remedy}")
    given = np.asarray(arrays["format"])
    if given.shape or given != version:
        raise FormatError(
            f"this is {what} of format {str(given)[:20]}; this version reads {version}. Upgrade graphquilt."
        )
