"""``--config`` and ``--save-config``: every flag of a command in a TOML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

_OWN = {"config_file", "save_config"}


def _read(context: typer.Context, path: Path | None) -> Path | None:
    """Take the file's values as the defaults of this call; what is given on the command line wins."""
    if path is None or context.resilient_parsing:
        return path
    import tomllib

    from graphquilt.errors import InputError

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read as TOML: {error}.") from error
    flags: dict[str, str] = {}
    for parameter in context.command.params:
        if parameter.name and parameter.name not in _OWN:
            flags |= {name.lstrip("-").replace("-", "_"): parameter.name for name in (*parameter.opts, parameter.name)}
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = flags.get(key.replace("-", "_"))
        if name is None:
            raise InputError(f"{path}: '{key}' is no flag of graphquilt {context.command.name}; see its --help.")
        values[name] = value
    context.default_map = {**(context.default_map or {}), **values}
    return path


Config = Annotated[
    Path | None,
    typer.Option("--config", help="Take flags from this TOML file.", is_eager=True, callback=_read),
]
SaveConfig = Annotated[
    Path | None, typer.Option("--save-config", help="Write the flags of this call to a TOML file, and stop.")
]


def save(context: typer.Context, path: Path) -> None:
    """Write every flag of this call as TOML; read back by ``--config`` they make the same call."""
    lines = [f"# graphquilt {context.command.name} --config {path}"]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in _OWN or value is None:
            continue
        longest = max(parameter.opts, key=len).lstrip("-").replace("_", "-")
        lines.append(f"{longest} = {_toml(value)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    typer.echo(str(path))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(str(value), ensure_ascii=False)
