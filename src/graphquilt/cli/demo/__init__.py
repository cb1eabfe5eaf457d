"""``graphquilt demo``: see the method work, with nothing to prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from graphquilt.cli import app
from graphquilt.cli.display import show, watching
from graphquilt.cli.values import Output
from graphquilt.cli.workers import Workers


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
    output: Output = Output(),
) -> None:
    """Run built-in examples end to end and say where the results are."""
    results: dict[str, object] = {}
    if example in ("all", "quilt"):
        results["quilt"] = _quilt(out, seed, quiet=output.json)
    if example in ("all", "digits"):
        results["digits"] = _digits(out, seed, workers, quiet=output.json)
    if output.json:
        show(results, as_json=True)


def _quilt(out: Path, seed: int, *, quiet: bool) -> dict[str, object]:
    from graphquilt.cli.demo.quilt import quilt_demo

    figures = quilt_demo(out, seed=seed)
    if not quiet:
        print("\n".join(figures["in words"]))
        print(
            f"Distance from the truth: {figures['root mean square error against the truth']:.4f} "
            f"(without alignment {figures['the same without alignment (no-trans)']:.2f})."
        )
        print(f"Picture: {out / 'quilt.png'}   figures: {out / 'quilt.json'}")
    return figures


def _digits(out: Path, seed: int, workers: Workers, *, quiet: bool) -> dict[str, object]:
    from graphquilt.jobs import Job
    from graphquilt.report import write_job_report
    from graphquilt.cli.demo.digits import PATCHES, TITLES, digits_demo

    with watching() as progress, workers.executor(PATCHES) as pool:
        figures = digits_demo(out, seed=seed, executor=pool, progress=progress)
        page = write_job_report(Job.open(out / "job"), out / "report.html", progress=progress)
    if not quiet:
        print(figures["data"])
        for route, title in TITLES.items():
            measured = figures[route]
            print(f"  {title:<30} AUC {measured['auc']:.3f}   accuracy {measured['accuracy']:.3f}")
        print(f"Picture: {out / 'digits.png'}   figures: {out / 'digits.json'}   job: {out / 'job'}")
        print(f"Report, to open in a browser: {page.absolute()}")
    return {**figures, "report": page.name}
