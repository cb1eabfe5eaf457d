"""The command line: parse, call, print. The only package that prints or draws a progress bar.

Results go to standard output (``--json`` for machines), progress and errors to standard error. Exit codes: 0 done;
2 the input is wrong (one sentence, no traceback); 1 a bug (with its traceback); 130 stopped with Ctrl-C.

The flags of a command are the fields of the frozen values that it takes (``values``).
"""

from __future__ import annotations

import sys

from cyclopts import App, CycloptsError, Parameter

import graphquilt

__all__ = ["app", "main"]

app = App(
    name="graphquilt",
    help="Graph embeddings stitched from independently embedded patches.",
    version=f"graphquilt {graphquilt.__version__}",
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
    result_action="return_value",
    default_parameter=Parameter(allow_repeating=True),  # the last flag wins
)


def main() -> None:
    """Run the command line."""
    from graphquilt.cli import config
    from graphquilt.errors import QuiltError

    try:
        config.run(app, sys.argv[1:])
    except (QuiltError, CycloptsError) as error:
        text = " ".join(str(error).split()) if isinstance(error, CycloptsError) else str(error)
        print(f"graphquilt: {text}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        from graphquilt.cli.display import resume_command

        print(f"\ngraphquilt: stopped. What is finished is kept; to go on: {resume_command()}", file=sys.stderr)
        sys.exit(130)
    sys.exit(0)


# Each adds its commands to ``app``.
from graphquilt.cli import (  # noqa: E402, F401
    demo,
    graphs,
    jobs,
    results,
    studies,
    temporal,
)
