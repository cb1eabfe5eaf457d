"""The command line: parse, call, print. Nothing else prints, but the commands of the applications.

Results go to standard output (``--json`` for machines), progress and errors to standard error. Exit codes: 0 done;
2 the input is wrong (one sentence, no traceback); 3 the fit is bad and ``--strict`` does not accept it; 1 a bug (with
its traceback); 130 stopped with Ctrl-C.

The flags of a command are the fields of the frozen values that it takes (``values``).
"""

from __future__ import annotations

import codecs
import errno
import io
import sys
from typing import Literal

from cyclopts import App, CycloptsError, Parameter

import graphquilt
from graphquilt.cli.display import show, watching
from graphquilt.cli.embedder import named_embedder
from graphquilt.cli.values import EmbedderFlags, Output, SourceFlags, changed
from graphquilt.cli.workers import Workers

__all__ = [
    "EmbedderFlags",
    "Output",
    "SourceFlags",
    "Workers",
    "app",
    "changed",
    "main",
    "named_embedder",
    "new_app",
    "show",
    "watching",
]

_LONGEST = 2000  # letters of a message


def new_app(name: str, about: str) -> App:
    """Return a command line without commands, for :func:`main` to run."""
    return App(
        name=name,
        help=about,
        help_format="plaintext",  # anything else imports a parser of Markdown, which takes longer than all commands
        version=f"graphquilt {graphquilt.__version__}",
        print_error=False,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
        default_parameter=Parameter(allow_repeating=True),  # the last flag wins
    )


app = new_app("graphquilt", "Graph embeddings stitched from independently embedded patches.")


def main(commands: App = app) -> None:
    """Run the command line."""
    from graphquilt.cli import config
    from graphquilt.errors import QuiltError

    _use_utf8()
    try:
        config.check_names(sys.argv[1:])
        config.run(commands, sys.argv[1:])
        sys.stdout.flush()
    except QuiltError as error:
        _fail(str(error))
    except CycloptsError as error:
        _fail(config.sentence(error, commands.name[0]))
    except UnicodeEncodeError as error:
        if not config.is_name(error.object):
            raise
        _fail(config.unreadable_name(error.object))
    except KeyboardInterrupt:
        from graphquilt.cli.display import resume_command

        again = resume_command(commands.name[0])
        print(f"\ngraphquilt: stopped. What is finished is kept; to go on: {again}", file=sys.stderr)
        sys.exit(130)
    except MemoryError:
        _fail(
            "there is not enough memory. What is finished is kept: run the same command again with fewer workers, or "
            "where there is more memory."
        )
    except BrokenPipeError:  # as in: graphquilt inspect job | head -1
        sys.stdout = None
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        sys.stdout = None  # whose rest cannot be written when the process ends, either
        _fail("cannot write the output: the disk is full (or the quota is used up). Free some space and run again.")
    sys.exit(0)


@app.command(name="--install-completion")
def install_completion() -> None:
    """Make the shell complete commands and flags."""
    print(app.install_completion())


@app.command(name="--show-completion")
def show_completion(shell: Literal["bash", "zsh", "fish", "powershell"] | None = None, /) -> None:
    """Print the code that makes the shell complete commands and flags."""
    print(app.generate_completion(shell=shell))


def _use_utf8() -> None:
    """Print names in UTF-8 where the locale would let Python print ASCII only, as with LC_ALL=C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name == "ascii":
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def _fail(text: str) -> None:
    if len(text) > _LONGEST:  # a value of a file may be in it
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    from graphquilt.cli.display import printable

    lines = [printable(line) for line in text.split("\n")]
    print("graphquilt: " + "\n".join(lines), file=sys.stderr)
    sys.exit(2)


# Each adds its commands to ``app``.
from graphquilt.cli import datasets, demo, evaluation, graphs, jobs, pages, results  # noqa: E402, F401

# The applications have commands of their own, which are imported when they are called.
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
    help="Align networks of parties that do not show them to each other; see docs/federated.md.",
)
