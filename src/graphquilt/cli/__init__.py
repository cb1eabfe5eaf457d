"""The command line: parse, call, print. The only module that prints or draws a progress bar."""

from __future__ import annotations

import typer

import graphquilt

app = typer.Typer(
    name="graphquilt",
    help="Graph embeddings stitched from independently embedded patches.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
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
    """Run the command line: exit 0 when done, 2 with one sentence where the input is wrong, 1 with a traceback else."""
    try:
        app()
    except (graphquilt.InputError, graphquilt.JobError, graphquilt.MissingExtraError) as problem:
        typer.echo(f"graphquilt: {problem}", err=True)
        raise SystemExit(2) from None


from graphquilt.cli import demo, graphs, studies, temporal  # noqa: E402, F401  (they register their commands)
