"""The study of quality: what closes the gap between stitched and full training, ingredient by ingredient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any, Literal

import numpy as np

from graphquilt.alignment import Alignment, centroid
from graphquilt.arrays import FloatArray, Int64Array
from graphquilt.embedders import DGI, VGAE
from graphquilt.errors import InputError
from graphquilt.evaluate import hold_out_edges, link_prediction_auc, reconstruction_auc
from graphquilt.fanout.calls import of_run
from graphquilt.graph import Graph
from graphquilt.patches import Patch, PatchGraph
from graphquilt.pipeline import Recipe, stitch
from graphquilt.pipeline.consensus import Round, consensus_targets
from graphquilt.progress import ProgressCallback
from graphquilt.studies.cells import cell_seed, run_cells
from graphquilt.studies.small_scale import PROTOCOL, cut_as_protocol, study_graph, study_quality
from graphquilt.studies.trainings import Training, train_patches, train_whole

__all__ = ["COLUMNS", "REPETITIONS", "RUNS", "Column", "QualityCell", "quality_cells", "reproduce_quality"]

RUNS = Recipe.best().runs
REPETITIONS = 3  # run j of repetition r is training r + 3 j, so that first runs are those of the small-scale study
MODELS: Mapping[str, type[VGAE] | type[DGI]] = {"vgae": VGAE, "dgi": DGI}


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


def _paper(**changes: Any) -> Recipe:
    return Recipe("paper, changed", negatives=1, **changes)


COLUMNS: Mapping[str, Column] = {
    "full": Column(_paper(), "whole"),
    "full, best run": Column(_paper(runs=RUNS), "whole", "best"),
    "full, runs aligned": Column(_paper(runs=RUNS), "whole"),
    "full, best recipe": Column(Recipe.best(), "whole"),
    "no-trans": Column(_paper(), combine="identity"),
    "l2g": Column(Recipe.paper()),
    "+ runs": Column(_paper(runs=RUNS)),
    "+ dropout": Column(_paper(dropout=Recipe.best().dropout)),
    "+ weight decay": Column(_paper(weight_decay=5e-4)),
    "+ validation": Column(_paper(validation=0.1)),
    "+ same start": Column(_paper(init_seed=0)),
    "+ coverage": Column(_paper(coverage=2.0)),
    "+ refine": Column(_paper(refine=10)),
    "+ rounds": Column(_paper(rounds=2)),
    "best": Column(Recipe.best()),
    "reconstruction": Column(Recipe.reconstruction()),
}


@cache
def _split(name: str, data: str | None, seed: int) -> tuple[Graph, Int64Array]:
    """Return the graph without a tenth of its edges, and those edges."""
    return hold_out_edges(study_graph(name, data), fraction=0.1, seed=seed)


@cache
def _seen(name: str, data: str | None, seed: int, *, links: bool) -> tuple[Graph, PatchGraph]:
    graph = _split(name, data, seed)[0] if links else study_graph(name, data)
    return graph, cut_as_protocol(graph, name, seed)


@dataclass(frozen=True)
class QualityCell:
    """One data set, model, dimension and repetition, in one way.

    Attributes
    ----------
    dataset, model, column : str
    dim, repetition, seed : int
    links : bool
        Train without a tenth of the edges and predict them, in place of the usual measures.
    data : str, optional
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
    data: str | None = None
    splits: int = 50

    @property
    def name(self) -> str:
        """Unique in the study."""
        word = self.column.replace("+ ", "plus-").replace(", ", "-").replace(" ", "-")
        return f"{self._stem}-rep{self.repetition}-{word}{'-links' if self.links else ''}"

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that the result depends on; where the data lie does not count."""
        own = {key: value for key, value in asdict(self).items() if key != "data"}
        return {**own, "quilting": asdict(PROTOCOL[self.dataset]), "how": asdict(COLUMNS[self.column])}

    @property
    def _stem(self) -> str:
        return f"{self.dataset}-{self.model}-d{self.dim:03d}"

    def run(self, folder: Path) -> dict[str, Any]:
        """Train what is not trained yet, stitch and measure."""
        graph, quilt = _seen(self.dataset, self.data, self.seed, links=self.links)
        how = COLUMNS[self.column]
        if how.of == "whole":
            quilt = PatchGraph.from_patches([np.arange(graph.n_nodes)])
        patches, seconds = self._trained(folder, graph, quilt)
        start = process_time()
        X = self._combined(patches, graph, quilt.repeat(how.recipe.runs))
        cost = seconds + process_time() - start
        if self.links:
            held = _split(self.dataset, self.data, self.seed)[1]
            whole = study_graph(self.dataset, self.data)
            return {"link_auc": link_prediction_auc(X, held, whole, seed=self.seed), "cost": round(cost, 2)}
        return {**study_quality(X, graph, seed=self.seed, splits=self.splits), "cost": round(cost, 2)}

    def _trained(self, folder: Path, graph: Graph, quilt: PatchGraph) -> tuple[list[Patch], float]:
        """Return the patches of all runs, after all rounds, and their CPU seconds."""
        recipe = COLUMNS[self.column].recipe
        patches: list[Patch] = []
        seconds = 0.0
        for j in range(recipe.runs):
            training = self._train(folder, graph, quilt, self.repetition + REPETITIONS * j)
            patches += training.patches
            seconds += training.seconds
        for number in range(1, recipe.rounds + 1):
            start = process_time()
            alignment, X = self._stitched(patches, graph, quilt.repeat(recipe.runs))
            targets = consensus_targets(patches, alignment, X, pull=recipe.pull)
            seconds += process_time() - start
            drawn = Round(number, recipe.rounds, targets)
            training = self._train(folder, graph, quilt, self.repetition, consensus=drawn)
            patches, seconds = training.patches, seconds + training.seconds
        return patches, seconds

    def _train(
        self, folder: Path, graph: Graph, quilt: PatchGraph, run: int, *, consensus: Round | None = None
    ) -> Training:
        how = COLUMNS[self.column]
        embedder = of_run(how.recipe.tuned(MODELS[self.model](self.dim)), run)
        seed = cell_seed(self.seed, self.dataset, self.model, self.dim, run)
        changed = "".join(f"-{field}-{value}" for field, value in _changes(embedder))
        refined = f"-refine{how.recipe.refine}" if how.recipe.refine else ""
        rounds = "" if consensus is None else f"-round{consensus.number}-coverage{how.recipe.coverage}{refined}"
        name = f"{self._stem}{changed}{'-links' if self.links else ''}{rounds}-run{run}"
        if how.of == "whole":
            return train_whole(folder, f"{name}-full", graph, embedder, seed=seed)
        return train_patches(folder, f"{name}-patches", graph, quilt, embedder, seed=seed, consensus=consensus)

    def _combined(self, patches: list[Patch], graph: Graph, quilt: PatchGraph) -> FloatArray:
        how = COLUMNS[self.column]
        if how.combine == "best":
            return max(
                (patch.coordinates for patch in patches), key=lambda X: reconstruction_auc(X, graph, seed=self.seed)
            )
        if how.combine == "identity":
            return centroid(patches, Alignment.identity(len(patches), self.dim), n_nodes=graph.n_nodes)
        return self._stitched(patches, graph, quilt)[1]

    def _stitched(self, patches: list[Patch], graph: Graph, quilt: PatchGraph) -> tuple[Alignment, FloatArray]:
        return stitch(graph, quilt, patches, [MODELS[self.model](self.dim)], recipe=COLUMNS[self.column].recipe)


def _changes(embedder: Any) -> list[tuple[str, Any]]:
    """Return what differs from the small-scale study's embedder, whose trainings have the plain names."""
    plain: Mapping[str, Any] = {"dim": None, "negatives": 1}
    found = []
    for field in fields(embedder):
        value = getattr(embedder, field.name)
        if field.name != "dim" and value != plain.get(field.name, field.default):
            # The start differs from run to run and goes without saying.
            found.append((field.name, "fixed" if field.name == "init_seed" else value))
    return found


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
    data: str | None = None,
) -> list[QualityCell]:
    """List the cells; columns that a model does not know (held-out edges are VGAE's) are left out."""
    for words, known, kind in (
        (datasets, PROTOCOL, "data set"),
        (models, MODELS, "model"),
        (columns, COLUMNS, "column"),
    ):
        for word in words:
            if word not in known:
                raise InputError(f"the study has no {kind} '{word}'; it knows {', '.join(known)}.")
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
) -> str:
    """Compute the cells that are not finished in ``out``, and write ``quality.json``, ``quality.md`` and figures.

    Returns
    -------
    str
        The tables.
    """
    from graphquilt.studies.quality_report import write_quality

    run_cells(cells, out, executor=executor, progress=progress)
    return write_quality(out)
