"""``--config`` and ``--save-config``: the flags of any command in a TOML file."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cyclopts import App, CycloptsError, MissingArgumentError, UnusedCliTokensError
from cyclopts.config import Toml

from graphquilt.cli.values import Output
from graphquilt.errors import InputError

__all__ = ["check_names", "is_name", "run", "sentence", "unreadable_name"]


def run(app: App, tokens: Sequence[str]) -> None:
    """Run the command that the words name, with the flags of ``--config FILE``; flags in the words win.

    With ``--save-config FILE`` the flags of the call are written to a file, and nothing is run.
    """
    path = _value_after(tokens, "--config")
    app.config = () if path is None else (_toml(path),)
    command, bound, *_ = app.parse_args(list(tokens), print_error=False, exit_on_error=False)
    output = next((value for value in bound.arguments.values() if isinstance(value, Output)), None)
    if output is not None and output.save_config is not None:
        name = " ".join((app.name[0], *app.parse_commands(list(tokens))[0]))
        _save(name, bound, output.save_config)
        print(output.save_config)
        return
    command(*bound.args, **bound.kwargs)


def sentence(error: CycloptsError, program: str) -> str:
    """Return what is wrong with the words of a call of ``program``, in one line."""
    if isinstance(error, MissingArgumentError) and error.argument is not None and not error.argument.tokens:
        name = error.argument.name.lstrip("-").upper()
        command = " ".join((program, *(error.command_chain or ())))
        return f"{name} is missing; {command} --help says what it is."
    if isinstance(error, UnusedCliTokensError) and error.command_chain:
        words, command = " ".join(error.unused_tokens or ()), " ".join(error.command_chain)
        return f"{command} does not take '{words}'; {program} {command} --help says what it takes."
    return " ".join(str(error).split())


def check_names(tokens: Sequence[str]) -> None:
    """Refuse words of a call, and a working folder, whose bytes are not text for Python: other packages do."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""  # it was removed; only a command that uses it has to say so
    for name in (*tokens, folder):
        if is_name(name):
            raise InputError(unreadable_name(name))


def is_name(text: str) -> bool:
    """Return whether a text has bytes of the name of a file in it that Python cannot read as text."""
    return any("\udc80" <= letter <= "\udcff" for letter in text)


def unreadable_name(name: str) -> str:
    """Return what to do about a name that :func:`is_name` finds."""
    shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    encoding = sys.getfilesystemencoding()
    if encoding == "utf-8":
        return f"the name '{shown}' is not text in UTF-8. Rename the file or folder."
    return (
        f"the name '{shown}' cannot be read: in this locale Python takes the names of files for {encoding}. Set "
        "PYTHONUTF8=1, or a locale with UTF-8, as LC_ALL=C.UTF-8, and run the same command again."
    )


def _value_after(tokens: Sequence[str], flag: str) -> str | None:
    for place, token in enumerate(tokens):
        if token == flag and place + 1 < len(tokens):
            return tokens[place + 1]
        if token.startswith(f"{flag}="):
            return token.partition("=")[2]
    return None


def _toml(path: str) -> Toml:
    import tomllib

    try:
        tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read as TOML: {error}.") from error
    return Toml(path, use_commands_as_keys=False, must_exist=True)


def _save(name: str, bound: inspect.BoundArguments, path: Path) -> None:
    """Write every flag of a call as TOML; read back by ``--config`` they make the same call."""
    from graphquilt.files import sync_folder, translate_disk_errors, write_text

    lines = [f"# {name} --config {path}"]
    for flag, value in _flags(bound):
        if value is not None and value != () and flag not in ("config", "save_config"):
            lines.append(f"{flag.replace('_', '-')} = {_text(value)}")
    with translate_disk_errors(path.parent):
        write_text(path, "\n".join(lines))
        sync_folder(path.parent)


def _flags(bound: inspect.BoundArguments) -> Iterator[tuple[str, object]]:
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        if dataclasses.is_dataclass(value):
            yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        else:
            yield name, value


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return json.dumps(str(value), ensure_ascii=False)
