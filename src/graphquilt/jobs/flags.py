"""The flags that a job was made with, so that advice can be the user's own command with one change."""

from __future__ import annotations

import re
from collections.abc import Mapping

from graphquilt.errors import FormatError
from graphquilt.jobs.store import Record, Store

__all__ = ["flag_words", "keep_flags", "kept_flags"]

_KEY = "flags"
_NAME = re.compile(r"[a-z_]{1,40}")


def keep_flags(store: Store, flags: Mapping[str, object]) -> None:
    """Remember the flags of a command that began or changed a job; later ones win."""
    before = kept_flags(store) or {}
    after = {**before, **flags}
    if _KEY not in store or after != before:
        store[_KEY] = Record({}, after)


def kept_flags(store: Store) -> dict[str, object] | None:
    """Return the flags of a job by name; None where it was made in Python, or they cannot be read."""
    try:
        flags = dict(store[_KEY].parameters)
    except (KeyError, FormatError):
        return None
    return flags if all(_NAME.fullmatch(name) and _is_plain(value) for name, value in flags.items()) else None


def _is_plain(value: object) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(isinstance(one, bool | int | float) or (isinstance(one, str) and one.isprintable()) for one in values)


def flag_words(flags: Mapping[str, object]) -> list[str]:
    """Return flags as words of a command.

    Examples
    --------
    >>> flag_words({"dim": 8, "start": False, "set": ["a=1", "b=2"]})
    ['--dim', '8', '--no-start', '--set', 'a=1', '--set', 'b=2']
    """
    words = []
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            for one in value if isinstance(value, list) else [value]:
                words += [f"--{flag}", str(one)]
    return words
