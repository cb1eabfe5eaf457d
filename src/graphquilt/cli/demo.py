"""``graphquilt demo``: see the method work, with nothing to prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from graphquilt.cli import app
from graphquilt.cli.display import watching
from graphquilt.cli.values import Workers


@app.command(help_epilogue="Example: graphquilt demo --out demo")
def demo(
    example: Annotated[
        Literal["quilt", "digits", "all"],
        Parameter(
            help="quilt: 60 patches of a sheet of points, stitched together. digits: handwritten digits as a graph, "
            "embedded from patches and compared with one model of the whole graph."
        ),
    ] = "all",
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="Where to write the results.")] = Path("demo"),
    seed: Annotated[int, Parameter(help="Seed of all random choices.")] = 0,
    workers: Workers = Workers(),
) -> None:
    """Run built-in examples end to end and say where the results are."""
    if example in ("all", "quilt"):
        _quilt(out, seed)
    if example in ("all", "digits"):
        _digits(out, seed, workers)


def _quilt(out: Path, seed: int) -> None:
    from graphquilt.studies.quilt_demo import quilt_demo

    figures = quilt_demo(out, seed=seed)
    print("\n".join(figures["in words"]))
    print(
        f"Distance from the truth: {figures['root mean square error against the truth']:.4f} "
        f"(without alignment {figures['the same without alignment (no-trans)']:.2f})."
    )
    print(f"Picture: {out / 'quilt.png'}   figures: {out / 'quilt.json'}")


def _digits(out: Path, seed: int, workers: Workers) -> None:
    from graphquilt.studies.demo import digits_demo

    with watching() as progress, workers.executor(8) as pool:
        figures = digits_demo(out, seed=seed, executor=pool, progress=progress)
    print(f"{figures['data']}")
    for name, words in (
        ("full", "one model of the whole graph"),
        ("stitched", "stitched from patches"),
        ("no-trans", "the same patches, not aligned"),
    ):
        route = figures[name]
        print(f"  {words:<30} AUC {route['auc']:.3f}   accuracy {route['accuracy']:.3f}")
    print(f"Picture: {out / 'digits.png'}   figures: {out / 'digits.json'}   job: {out / 'job'}")
