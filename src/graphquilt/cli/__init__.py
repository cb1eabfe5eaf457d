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
    """Run the command line."""
    app()


from graphquilt.cli import studies  # noqa: E402, F401  (registers its commands)
