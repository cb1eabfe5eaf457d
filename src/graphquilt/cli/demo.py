"""``graphquilt demo``: see the method work, with nothing to prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphquilt.cli import app


@app.command(epilog="Example:  graphquilt demo quilt --out demo")
def demo(
    what: Annotated[str, typer.Argument(help="quilt: 60 patches of a sheet of points, sewn together.")] = "quilt",
    out: Annotated[Path, typer.Option(help="Where to write the results.")] = Path("demo"),
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Run an embedded example end to end and say where the results are."""
    from graphquilt.errors import InputError
    from graphquilt.studies.quilt_demo import quilt_demo

    if what != "quilt":
        raise InputError(f"there is no demonstration called '{what}'; there is: quilt.")
    figures = quilt_demo(out, seed=seed)
    typer.echo("\n".join(figures["in words"]))
    typer.echo(
        f"Distance from the truth: {figures['root mean square error against the truth']:.4f} "
        f"(without alignment {figures['the same without alignment (no-trans)']:.2f})."
    )
    typer.echo(f"Picture: {out / 'quilt.png'}   figures: {out / 'quilt.json'}")
