"""The command line: parse, call, print. Only this package and the commands of the applications print.

Results go to standard output (``--json`` for machines), progress and errors to standard error. Exit codes: 0 done;
2 the input is wrong (one sentence, no traceback); 3 the fit is bad and ``--strict`` does not accept it; 1 a bug (with
its traceback); 130 stopped with Ctrl-C.

The flags of a command are the fields of the frozen values that it takes (``flags``).
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Literal, get_args

from cyclopts import App, ArgumentCollection, CycloptsError, MissingArgumentError, Parameter, UnusedCliTokensError

import graphquilt
from graphquilt.cli.display import printable, show, watching
from graphquilt.cli.flags import Output, SourceFlags, Workers
from graphquilt.errors import InputError, QuiltError

__all__ = ["Output", "SourceFlags", "Workers", "app", "main", "new_app", "run", "show", "watching"]

_LONGEST = 2000  # characters of a message


def _check_integers(_app: App, _commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse fractions for flags that are integers, which cyclopts would round."""
    for argument in arguments:
        kinds = set(get_args(argument.hint) or (argument.hint,)) - {type(None), ...}
        for token in argument.tokens if kinds == {int} and argument.parameter.converter is None else ():
            if not re.fullmatch(r"[+-]?\d+", str(token.value)):
                raise InputError(f"{argument.name} takes an integer, not '{token.value}'.")


def new_app(name: str, about: str) -> App:
    """Return a command line without commands, for :func:`main` to run."""
    return App(
        name=name,
        help=about,
        help_format="plaintext",  # anything else imports a Markdown parser, which takes longer than all commands
        version=f"graphquilt {graphquilt.__version__}",
        print_error=False,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
        default_parameter=Parameter(allow_repeating=True),  # the last flag wins
        config=_check_integers,
    )


app = new_app("graphquilt", "Graph embeddings stitched from independently embedded patches.")


def main(commands: App = app) -> None:
    """Run the command line."""
    _use_utf8()
    program = commands.name[0]
    try:
        _check_names(sys.argv[1:])
        run(commands, sys.argv[1:])
        sys.stdout.flush()
    except QuiltError as error:
        _fail(str(error) + _corrected(commands, getattr(error, "flags", ())))
    except CycloptsError as error:
        _fail(_explain(error, program))
    except UnicodeEncodeError as error:
        if not _has_raw_bytes(error.object):
            raise
        _fail(_unreadable_name(error.object))
    except KeyboardInterrupt:
        command = shlex.join([program, *sys.argv[1:]])
        print(f"\ngraphquilt: stopped. Finished work is kept; to resume: {command}", file=sys.stderr)
        sys.exit(130)
    except MemoryError:
        _fail("out of memory. Finished work is kept: rerun the command with fewer workers, or on a larger machine.")
    except BrokenPipeError:  # as in: graphquilt inspect job | head -1
        sys.stdout = None
        sys.exit(1)
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.EIO, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.ELOOP):
            name = str(error.filename or "a file")
            shown = name if len(name) <= 80 else f"{name[:40]}… ({len(name)} letters)"
            _fail(f"{shown} cannot be used: {error.strerror}. Give another file or folder.")
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        sys.stdout = None  # what is left in its buffer cannot be written at exit, either
        _fail("cannot write the output: the disk is full (or the quota is used up). Free some space and run again.")
    sys.exit(0)


def run(commands: App, tokens: Sequence[str]) -> None:
    """Run the command that the tokens name."""
    command, bound, *_ = commands.parse_args(list(tokens), print_error=False, exit_on_error=False)
    command(*bound.args, **bound.kwargs)


def _corrected(commands: App, flags: Sequence[str]) -> str:
    """Return the command with the flags that an error names, if it takes them."""
    tokens = [*sys.argv[1:], *flags]
    with contextlib.suppress(CycloptsError, QuiltError):
        commands.parse_args(tokens, print_error=False, exit_on_error=False)
        return f"\nFor example: {shlex.join([commands.name[0], *tokens])}" if flags else ""
    return ""


app.register_install_completion_command(help="Install shell completion of commands and flags.")


@app.command(name="--show-completion")
def show_completion(shell: Literal["bash", "zsh", "fish", "powershell"] | None = None, /) -> None:
    """Print the script for shell completion."""
    print(app.generate_completion(shell=shell))


def _use_utf8() -> None:
    """Print names in UTF-8 if the locale would make Python print ASCII only, as with LC_ALL=C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name == "ascii":
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def _fail(text: str) -> None:
    if len(text) > _LONGEST:  # it may quote a value from a file
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    print("graphquilt: " + "\n".join(printable(line) for line in text.split("\n")), file=sys.stderr)
    sys.exit(2)


def _explain(error: CycloptsError, program: str) -> str:
    """Return what is wrong with the tokens of a call, in one line."""
    command = " ".join((program, *(error.command_chain or ())))
    if isinstance(error, MissingArgumentError) and error.argument is not None and not error.argument.tokens:
        name = error.argument.name
        what = f"the value of {name}" if name in sys.argv else name.lstrip("-").upper()
        return f"{what} is missing; see {command} --help."
    if isinstance(error, UnusedCliTokensError) and error.command_chain:
        tokens = " ".join(error.unused_tokens or ())
        return f"{' '.join(error.command_chain)} does not take '{tokens}'; see {command} --help."
    return " ".join(str(error).split())


def _check_names(tokens: Sequence[str]) -> None:
    """Refuse tokens and a working folder that are not valid text: other packages fail on them."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""  # it was removed; only commands that use it need to fail
    for name in (*tokens, folder):
        if _has_raw_bytes(name):
            raise InputError(_unreadable_name(name))


def _has_raw_bytes(text: str) -> bool:
    """Return whether a name contains bytes that Python could not decode."""
    return any("\udc80" <= letter <= "\udcff" for letter in text)


def _unreadable_name(name: str) -> str:
    shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    encoding = sys.getfilesystemencoding()
    if encoding == "utf-8":
        return f"the name '{shown}' is not valid UTF-8. Rename the file or folder."
    return (
        f"the name '{shown}' cannot be read: in this locale Python decodes file names as {encoding}. Set PYTHONUTF8=1, "
        "or a UTF-8 locale such as LC_ALL=C.UTF-8, and run the same command again."
    )


# Each adds its commands to ``app``.
from graphquilt.cli import evaluation, graphs, jobs, results  # noqa: E402, F401

# These commands are imported when they are called.
app.command(
    "graphquilt.cli.demo:demo",
    help="Run built-in examples end to end and print where the results are.",
    help_epilogue="Example: graphquilt demo --out demo",
)
app.command(
    "graphquilt.temporal.commands:anomaly",
    help="Score every host in every window from the windows before it. With --exit-code, alerts give exit code 3.",
    help_epilogue="Example: graphquilt anomaly netflow.csv --width 1d --dim 20 --lags 1,7,14,21 --out scores",
)
app.command(
    "graphquilt.temporal.commands:watch",
    help="Score windows as they arrive and print one line per alert. With --exit-code, alerts give exit code 3.",
    help_epilogue="Example: graphquilt watch flows --state memory --width 1d --dim 20",
)
app.command(
    "graphquilt.federated.commands:federate_app",
    name="federate",
    help="Embed networks of parties that do not show them to each other; see docs/federated.md.",
)
