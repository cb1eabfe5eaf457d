"""The command that measures an embedding: evaluate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from graphquilt.cli import app
from graphquilt.cli.display import show
from graphquilt.cli.values import Output

if TYPE_CHECKING:
    from graphquilt.evaluate import EvaluationOptions


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MeasuringFlags:
    """How an embedding is measured."""

    max_edges: int | None = None
    """Look at this many edges at most. [default: all]"""
    splits: int = 50
    """Random splits for the classification."""
    seed: int = 0
    """Seed of all random choices."""

    def options(self) -> EvaluationOptions:
        """Return the options of the library."""
        from graphquilt.evaluate import EvaluationOptions

        return EvaluationOptions(seed=self.seed, splits=self.splits, max_edges=self.max_edges)


@app.command(help_epilogue="Example: graphquilt evaluate job --labels labels.csv")
def evaluate(
    job: Annotated[Path, Parameter(help="The folder of the job.")],
    *,
    labels: Annotated[
        Path | None,
        Parameter(help="Classes: a file with an id and a label in each row (CSV, TSV, Parquet), or an array (.npy)."),
    ] = None,
    diagnose: Annotated[bool, Parameter(help="Measure what each step loses, and what one encoder would give.")] = False,
    compare: Annotated[
        bool, Parameter(help="Measure the patches without alignment too, and the embedding of --full.")
    ] = False,
    full: Annotated[Path | None, Parameter(help="An embedding of the whole graph (.npy) to compare with.")] = None,
    measuring: MeasuringFlags = MeasuringFlags(),
    output: Output = Output(),
) -> None:
    """Measure how well an embedding separates edges from non-edges, and classes from each other."""
    from graphquilt.graph.reading.node_tables import read_classes
    from graphquilt.jobs import Job, compare_job, evaluate_job
    from graphquilt.jobs.export import job_ids
    from graphquilt.jobs.source import read_array

    opened, whole = Job.open(job), read_array(full, "an embedding")
    classes = None if labels is None else read_classes(labels, job_ids(opened, opened.n_nodes))
    options = measuring.options()
    evaluation = evaluate_job(opened, labels=classes, full=whole, diagnosis=diagnose, options=options)
    figures = {name: value for name, value in asdict(evaluation.quality).items() if value is not None}
    if evaluation.diagnosis is not None:
        figures["diagnosis"] = str(evaluation.diagnosis).splitlines()
        if output.json:  # the sentences hold these figures too
            figures |= {"losses": evaluation.diagnosis.losses, "unit": evaluation.diagnosis.measure}
            if evaluation.diagnosis.shared is not None:
                figures["shared"] = asdict(evaluation.diagnosis.shared)
    if compare:
        graph = None if classes is None or opened.graph is None else opened.graph.with_attributes(labels=classes)
        figures["routes"] = {
            route: {name: value for name, value in asdict(measured).items() if value is not None}
            for route, measured in compare_job(opened, graph=graph, full=whole, options=options).items()
        }
    show({"job": str(job), **figures}, as_json=output.json)
