"""``--config`` and ``--save-config``: the flags of any command in a TOML file."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from cyclopts import App, CycloptsError, MissingArgumentError
from cyclopts.config import Toml

from graphquilt.cli.values import Output
from graphquilt.errors import InputError

__all__ = ["run", "sentence"]


def run(app: App, tokens: Sequence[str]) -> None:
    """Run the command that the words name, with the flags of ``--config FILE``; flags in the words win.

    With ``--save-config FILE`` the flags of the call are written to a file, and nothing is run.
    """
    path = _value_after(tokens, "--config")
    app.config = () if path is None else (_toml(path),)
    command, bound, *_ = app.parse_args(list(tokens), print_error=False, exit_on_error=False)
    output = next((value for value in bound.arguments.values() if isinstance(value, Output)), None)
    if output is not None and output.save_config is not None:
        name = " ".join(app.parse_commands(list(tokens))[0])
        _save(name, bound, output.save_config)
        print(output.save_config)
        return
    command(*bound.args, **bound.kwargs)


def sentence(error: CycloptsError) -> str:
    """Return what is wrong with the words of a call, in one line."""
    if isinstance(error, MissingArgumentError) and error.argument is not None and not error.argument.tokens:
        name = error.argument.name.lstrip("-").upper()
        command = " ".join(("graphquilt", *(error.command_chain or ())))
        return f"{name} is missing; {command} --help says what it is."
    return " ".join(str(error).split())


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
    from graphquilt.files import explained, sync_folder, write_text

    lines = [f"# graphquilt {name} --config {path}"]
    for flag, value in _flags(bound):
        if value is not None and value != () and flag not in ("config", "save_config"):
            lines.append(f"{flag.replace('_', '-')} = {_text(value)}")
    with explained(path.parent):
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
