"""``graphquilt demo``: see the method work, with nothing to prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphquilt.cli import app, options
from graphquilt.cli.display import resumable, watching


@app.command(epilog="Example: `graphquilt demo --out demo`")
def demo(
    what: Annotated[
        str,
        typer.Argument(
            help="quilt: 60 patches of a sheet of points, sewn together. digits: handwritten digits as a graph, "
            "embedded from patches and compared with one model of the whole. all: both."
        ),
    ] = "all",
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the results.")] = Path("demo"),
    seed: Annotated[int, typer.Option("--seed", help="Of everything that is random.")] = 0,
    workers: options.Workers = None,
) -> None:
    """Run embedded examples end to end and say where the results are."""
    from graphquilt.errors import InputError

    if what not in ("all", "quilt", "digits"):
        raise InputError(f"there is no demonstration called '{what}'; there are: quilt, digits, all.")
    if what in ("all", "quilt"):
        _quilt(out, seed)
    if what in ("all", "digits"):
        _digits(out, seed, workers)


def _quilt(out: Path, seed: int) -> None:
    from graphquilt.studies.quilt_demo import quilt_demo

    figures = quilt_demo(out, seed=seed)
    typer.echo("\n".join(figures["in words"]))
    typer.echo(
        f"Distance from the truth: {figures['root mean square error against the truth']:.4f} "
        f"(without alignment {figures['the same without alignment (no-trans)']:.2f})."
    )
    typer.echo(f"Picture: {out / 'quilt.png'}   figures: {out / 'quilt.json'}")


def _digits(out: Path, seed: int, workers: int | None) -> None:
    from graphquilt.cli.choices import cores
    from graphquilt.studies.demo import digits_demo

    with resumable(f"graphquilt demo digits --out {out}"), watching() as progress:
        figures = digits_demo(out, seed=seed, workers=cores(workers, 8), progress=progress)
    typer.echo(f"{figures['data']}")
    for name, words in (
        ("full", "one model of the whole graph"),
        ("stitched", "stitched from patches"),
        ("no-trans", "the same patches, not aligned"),
    ):
        found = figures[name]
        typer.echo(f"  {words:<30} AUC {found['reconstruction AUC']:.3f}   accuracy {found['accuracy']:.3f}")
    typer.echo(f"Picture: {out / 'digits.png'}   figures: {out / 'digits.json'}   job: {out / 'job'}")
