"""The commands that draw a job: report and map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from graphquilt.cli import app
from graphquilt.cli.display import show, watching
from graphquilt.cli.values import JobFolder, Output

if TYPE_CHECKING:
    from graphquilt.report import MapOptions


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MapFlags:
    """What a map shows."""

    color: Annotated[Path | None, Parameter(name=["--color", "--colour"])] = None
    """Colour by this file: an id and a label in each row (CSV, TSV, Parquet), or one label per node (also .npy)."""
    umap: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Place the nodes by UMAP, and not by principal components."""
    limit: int = 100_000
    """Draw this many nodes at most; of more, a random sample is drawn."""
    seed: int = 0
    """Seed of the sample, and of UMAP."""

    def options(self) -> MapOptions:
        """Return the same as options of the library."""
        from graphquilt.report import MapOptions

        return MapOptions(color=self.color, umap=self.umap, limit=self.limit, seed=self.seed)


@app.command(help_epilogue="Example: graphquilt report job")
def report(
    job: JobFolder,
    *,
    out: Annotated[
        Path | None, Parameter(name=["--out", "-o"], help="Where to write. [default: report.html in the job]")
    ] = None,
    flags: MapFlags = MapFlags(),
    output: Output = Output(),
) -> None:
    """Write what is known of a job on one page, which needs no network: verdict, map, evaluation, cost, settings."""
    from graphquilt.jobs import Job
    from graphquilt.report import write_job_report

    with watching() as progress:
        path = write_job_report(Job.open(job), out, options=flags.options(), progress=progress)
    show({"report": str(path), "bytes": path.stat().st_size}, as_json=output.json)


@app.command(name="map", help_epilogue="Example: graphquilt map job --color labels.csv --out map.html")
def draw_map(
    job: JobFolder,
    *,
    out: Annotated[
        Path,
        Parameter(name=["--out", "-o"], help="Where to write: .html for a page, .png, .svg or .pdf for a picture."),
    ] = Path("map.png"),
    flags: MapFlags = MapFlags(),
    output: Output = Output(),
) -> None:
    """Draw the nodes of a job in the plane, coloured by labels, classes, patches or alignment error."""
    from graphquilt.jobs import Job
    from graphquilt.report import write_map

    with watching() as progress:
        drawn = write_map(Job.open(job), out, options=flags.options(), progress=progress)
    result = {"map": str(out), "bytes": out.stat().st_size, "nodes": drawn.n_nodes, "drawn": len(drawn.rows)}
    if not output.json:
        result["about"] = drawn.about
    show(result, as_json=output.json)
