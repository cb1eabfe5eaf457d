"""The study of quality: what closes the gap between stitched and full training, ingredient by ingredient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Literal

from graphquilt.alignment import Alignment, centroid
from graphquilt.arrays import FloatArray
from graphquilt.errors import InputError
from graphquilt.evaluate import InvariantLogistic, link_prediction_auc, reconstruction_auc
from graphquilt.graph import Graph
from graphquilt.jobs import Job
from graphquilt.pipeline import Recipe, Record
from graphquilt.pipeline.calls import embedder_of_run
from graphquilt.pipeline.description import describe, plain
from graphquilt.progress import ProgressCallback
from graphquilt.studies.cells import Row, cell_seed, check_names, run_cells
from graphquilt.studies.small_scale import measured
from graphquilt.studies.trainings import (
    MODELS,
    PROTOCOL,
    held_out,
    study_graph,
    study_patches,
    trained,
    training_fact,
)

__all__ = ["COLUMNS", "REPETITIONS", "RUNS", "Column", "QualityCell", "quality_cells", "reproduce_quality"]

RUNS = Recipe.best().runs
REPETITIONS = 3
CLASSIFIER = InvariantLogistic()


@dataclass(frozen=True)
class Column:
    """One way to an embedding.

    Attributes
    ----------
    recipe : Recipe
    of : {"patches", "whole"}
        What is trained: the patches, or the whole graph.
    combine : {"align", "identity", "best"}
        Align all trainings, leave them as they are, or keep the one with the best reconstruction AUC.
    """

    recipe: Recipe
    of: Literal["patches", "whole"] = "patches"
    combine: Literal["align", "identity", "best"] = "align"


_paper = Recipe.paper().changed
COLUMNS: Mapping[str, Column] = {
    "full": Column(_paper(), "whole"),
    "full, best run": Column(_paper(runs=RUNS), "whole", "best"),
    "full, runs aligned": Column(_paper(runs=RUNS), "whole"),
    "full, best recipe": Column(Recipe.best(), "whole"),
    "no-trans": Column(_paper(), combine="identity"),
    "l2g": Column(_paper()),
    "+ runs": Column(_paper(runs=RUNS)),
    "+ dropout": Column(_paper(dropout=Recipe.best().dropout)),
    "+ weight decay": Column(_paper(weight_decay=5e-4)),
    "+ validation": Column(_paper(validation=0.1)),
    "+ same start": Column(_paper(init_seed=0)),
    "+ coverage": Column(_paper(coverage=2.0)),
    "+ refine": Column(_paper(refine=10)),
    "best": Column(Recipe.best()),
    "reconstruction": Column(Recipe.reconstruction()),
}


@dataclass(frozen=True)
class QualityCell:
    """One data set, model, dimension and repetition, in one way.

    Attributes
    ----------
    dataset, model, column : str
    dim, repetition, seed : int
    links : bool
        Train without a tenth of the edges and predict them, in place of the usual measures.
    data : path, optional
        The folder with data sets.
    splits : int
        Random splits of the classification.
    """

    dataset: str
    model: str
    dim: int
    repetition: int
    column: str
    links: bool = False
    seed: int = 0
    data: Path | None = None
    splits: int = 50

    @property
    def name(self) -> str:
        """Unique in the study."""
        word = self.column.replace("+ ", "plus-").replace(", ", "-").replace(" ", "-")
        return f"{self._stem}-rep{self.repetition}-{word}{'-links' if self.links else ''}"

    @property
    def group(self) -> str:
        """All columns share trainings."""
        return f"{self._stem}-rep{self.repetition}{'-links' if self.links else ''}"

    @property
    def parameters(self) -> Row:
        """Everything that the result depends on; where the data lie does not count."""
        own = {key: value for key, value in asdict(self).items() if key != "data"}
        way = {"cutting": plain(PROTOCOL[self.dataset]), "way": plain(COLUMNS[self.column])}
        return own | way | ({} if self.links else {"classifier": plain(CLASSIFIER)})

    @property
    def _stem(self) -> str:
        return f"{self.dataset}-{self.model}-d{self.dim:03d}"

    def run(self, folder: Path) -> Record:
        """Train what is not trained yet, stitch and measure."""
        graph = study_graph(self.dataset, self.data)
        visible, edges = held_out(self.dataset, self.data, self.seed) if self.links else (graph, None)
        job = self._trained(folder, visible)
        start = process_time()
        X = self._combined(job, visible)
        cost = round(training_fact(job, "seconds") + process_time() - start, 2)
        if edges is not None:
            return Record({}, {"link_auc": link_prediction_auc(X, edges, graph, seed=self.seed), "cost": cost})
        figures = measured(X, graph, seed=self.seed, splits=self.splits, classifier=CLASSIFIER)
        return Record({}, {**figures, "cost": cost})

    def _trained(self, folder: Path, graph: Graph) -> Job:
        """Train in a folder that all columns share whose embedders are equal; run 0 is that of the small study."""
        column = COLUMNS[self.column]
        embedder = embedder_of_run(column.recipe.tuned(MODELS[self.model](self.dim)), RUNS * self.repetition)
        plainest = Recipe.paper().tuned(MODELS[self.model](self.dim))
        changes = "".join(
            f"-{setting}-{value}"
            for setting, value in describe(embedder).items()
            if value != describe(plainest)[setting]
        )
        name = f"{self._stem}{changes}{'-links' if self.links else ''}-run{self.repetition}"
        seed = cell_seed(self.seed, self.dataset, self.model, self.dim, self.repetition)
        if column.of == "whole":
            return trained(folder / f"{name}-full", graph, None, embedder, seed=seed, recipe=column.recipe)
        patch_graph = study_patches(self.dataset, self.data, self.seed, links=self.links)
        return trained(folder / f"{name}-patches", graph, patch_graph, embedder, seed=seed, recipe=column.recipe)

    def _combined(self, job: Job, graph: Graph) -> FloatArray:
        combine = COLUMNS[self.column].combine
        if combine == "best":
            embeddings = [patch.coordinates for patch in job.patches]
            return max(embeddings, key=lambda X: reconstruction_auc(X, graph, seed=self.seed))
        if combine == "identity":
            return centroid(job.patches, Alignment.identity(len(job.patches), self.dim), n_nodes=graph.n_nodes)
        job.stitch()
        return job.embedding


def quality_cells(
    datasets: Sequence[str],
    models: Sequence[str],
    dims: Sequence[int],
    columns: Sequence[str],
    *,
    repetitions: int = REPETITIONS,
    links: bool = False,
    seed: int = 0,
    splits: int = 50,
    data: Path | None = None,
) -> list[QualityCell]:
    """List the cells; columns that a model does not know (held-out edges are VGAE's) are left out."""
    check_names(datasets, PROTOCOL, "data set")
    check_names(models, MODELS, "model")
    check_names(columns, COLUMNS, "column")
    if not 1 <= repetitions <= REPETITIONS:
        raise InputError(f"there are 1 to {REPETITIONS} repetitions, not {repetitions}.")
    return [
        QualityCell(dataset, model, dim, repetition, column, links, seed, data, splits)
        for dataset in datasets
        for repetition in range(repetitions)
        for dim in dims
        for model in models
        for column in columns
        if not (model == "dgi" and column in ("+ validation", "+ dropout"))
    ]


def reproduce_quality(
    cells: Sequence[QualityCell],
    out: Path,
    *,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> list[Row]:
    """Compute the cells that are not finished in ``out``, and write ``quality.json``, ``quality.md`` and figures.

    Returns
    -------
    list of dict
        See :func:`graphquilt.studies.quality_report.quality_rows`.
    """
    from graphquilt.studies.quality_report import write_quality

    run_cells(cells, out, executor=executor, progress=progress)
    return write_quality(out)
