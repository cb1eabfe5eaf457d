"""The command line: parse, call, print. The only place that prints or draws a progress bar.

Results go to standard output (``--json`` for machines), progress and errors to standard error. Exit codes: 0 done;
2 the input is wrong (one sentence, no traceback); 1 a bug (with its traceback); 130 stopped with Ctrl-C.
"""

from __future__ import annotations

import sys

import typer

import graphquilt

app = typer.Typer(
    name="graphquilt",
    help="Graph embeddings stitched from independently embedded patches.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"graphquilt {graphquilt.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Say which version this is."
    ),
) -> None:
    """Graph embeddings stitched from independently embedded patches."""


def main() -> None:
    """Run the command line."""
    from graphquilt.errors import QuiltError

    try:
        app()
    except QuiltError as error:
        typer.echo(f"graphquilt: {error}", err=True)
        sys.exit(2)


# Each adds its commands to ``app``.
from graphquilt.cli import (  # noqa: E402, F401
    demo,
    graphs,
    jobs,
    results,
    studies,
    temporal,
)
