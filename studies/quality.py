"""The study of quality: full, stitched as in the paper, and stitched from a shared start, for every embedder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import process_time

from graphquilt.arrays import FloatArray
from graphquilt.embedders import DGI, SVD, VGAE, Embedder, Propagation
from graphquilt.errors import InputError
from graphquilt.evaluate import EvaluationOptions, link_quality, quality
from graphquilt.graph import Graph
from graphquilt.jobs import embed
from graphquilt.pipeline import Recipe, Record
from graphquilt.pipeline.description import plain
from studies.cells import Row, cell_seed, check_names
from studies.trainings import PROTOCOL, held_out, study_graph

__all__ = ["MODELS", "REPETITIONS", "WAYS", "QualityCell", "quality_cells"]

REPETITIONS = 3

MODELS: Mapping[str, Callable[[int], Embedder]] = {
    "propagation": Propagation,
    "structure": Propagation,  # of the graph without its features
    "svd": SVD,
    "vgae": VGAE,
    "patient-vgae": partial(VGAE, patience=60),
    "dgi": DGI,
}
_RANDOM = ("vgae", "patient-vgae", "dgi")

# None is the whole graph at once.
WAYS: Mapping[str, Recipe | None] = {
    "full": None,
    "paper": Recipe.paper().changed(negatives=None),  # the same non-edges everywhere, so that ways can be compared
    "shared": Recipe.shared(),
    "alone": Recipe.shared(),  # patches that do not see what lies around them
    "reconstruction": Recipe.reconstruction(),
}
_MADE = {
    "propagation": ("full", "paper", "shared", "alone"),
    "structure": ("full", "paper", "shared"),
    "svd": ("full", "paper", "shared"),
    "vgae": ("full", "paper", "shared", "reconstruction"),
    "patient-vgae": ("full", "paper", "shared", "reconstruction"),
    "dgi": ("full", "paper", "shared"),
}


@dataclass(frozen=True)
class QualityCell:
    """One data set, model, dimension, way and repetition.

    Attributes
    ----------
    dataset, model, way : str
    dim, repetition, seed : int
    data : path, optional
        The folder with data sets.
    splits : int
        Random splits of the classification.
    """

    dataset: str
    model: str
    dim: int
    way: str
    repetition: int = 0
    seed: int = 0
    data: Path | None = None
    splits: int = 50

    @property
    def name(self) -> str:
        """Unique in the study."""
        return f"{self.dataset}-{self.model}-d{self.dim:03d}-{self.way}-rep{self.repetition}"

    @property
    def group(self) -> str:
        """Every cell stands alone."""
        return self.name

    @property
    def parameters(self) -> Row:
        """Everything that the result depends on; where the data lie does not count."""
        own = {key: value for key, value in asdict(self).items() if key != "data"}
        recipe = WAYS[self.way]
        described = {"recipe": None if recipe is None else plain(recipe), "embedder": plain(self._embedder)}
        return {**own, **described, "cutting": plain(PROTOCOL[self.dataset])}

    @property
    def _embedder(self) -> Embedder:
        embedder = MODELS[self.model](self.dim)
        return replace(embedder, context=None) if self.way == "alone" else embedder  # type: ignore[type-var]

    def run(self, folder: Path) -> Record:  # noqa: ARG002
        """Embed the graph, and embed it once more without a tenth of its edges, which are then predicted."""
        graph = study_graph(self.dataset, self.data)
        visible, edges = held_out(self.dataset, self.data, self.seed)
        start = process_time()
        X = self._embedded(graph)
        cost = round(process_time() - start, 2)
        options = EvaluationOptions(seed=self.seed, splits=self.splits)
        result = {**asdict(quality(X, graph, options=options)), "cost": cost}
        links = link_quality(self._embedded(visible), edges, graph, seed=self.seed)
        return Record({}, {**result, "link_cosine": links.cosine, "link_inner_product": links.inner_product})

    def _embedded(self, graph: Graph) -> FloatArray:
        seed = cell_seed(self.seed, self.dataset, self.model, self.dim, self.repetition)
        if self.model == "structure":
            graph = Graph.from_arrays(graph.indptr, graph.indices, graph.weights)
        recipe = WAYS[self.way]
        if recipe is None:
            return self._embedder(graph, seed)
        cutting = PROTOCOL[self.dataset]
        return embed(graph, self.dim, embedder=self._embedder, cutting=cutting, recipe=recipe, seed=seed).embedding


def quality_cells(
    datasets: Sequence[str],
    models: Sequence[str],
    dims: Sequence[int],
    ways: Sequence[str] = tuple(WAYS),
    *,
    repetitions: int = REPETITIONS,
    seed: int = 0,
    splits: int = 50,
    data: Path | None = None,
) -> list[QualityCell]:
    """List the cells; what is not random is not repeated, and ways that a model does not have are left out."""
    for names, known, kind in ((datasets, PROTOCOL, "data set"), (models, MODELS, "model"), (ways, WAYS, "way")):
        check_names(names, known, kind)
    if not 1 <= repetitions <= REPETITIONS:
        raise InputError(f"there are 1 to {REPETITIONS} repetitions, not {repetitions}.")
    return [
        QualityCell(dataset, model, dim, way, repetition, seed, data, splits)
        for dataset in datasets
        for repetition in range(repetitions)
        for dim in dims
        for model in models
        for way in ways
        if way in _MADE[model] and (model in _RANDOM or repetition == 0)
    ]
