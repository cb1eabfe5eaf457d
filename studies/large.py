"""The large-scale study of the paper, from the files of MAG240M to its table: each stage is kept, and done once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from graphquilt.alignment import Alignment, centroid
from graphquilt.arrays import FloatArray, Int64Array
from graphquilt.errors import FormatError
from graphquilt.evaluate import link_prediction_auc, reconstruction_auc
from graphquilt.evaluate.links import cosine
from graphquilt.evaluate.pairs import are_joined
from graphquilt.files import check_disk, map_array, temporary_sibling, translate_disk_errors
from graphquilt.graph import Graph, attach
from graphquilt.jobs import DirectoryStore, Job, JobSettings, Record, Source
from graphquilt.progress import ProgressCallback
from studies.cells import Row, run_cells
from studies.fixed_splits import fixed_split, split_by_years
from studies.large_report import draw_map, write_large_report
from studies.mag240m import Papers, mag240m_papers, read_mag240m
from studies.perceptrons import Grid, classify_job, mlp_grid
from studies.stages import StageCost

__all__ = ["YEARS", "LargeStudy", "reproduce_large"]

YEARS = 2018, 2019  # the last years of training and of validation, where the files have no official split

Workers = Callable[[int], AbstractContextManager[Executor | None]]


@dataclass(frozen=True, kw_only=True)
class LargeStudy:
    """What the large-scale study is made of.

    Attributes
    ----------
    source : path
        The folder of OGB-LSC MAG240M.
    out : path
        Gets the graph, the job and the results; a study that was stopped resumes from there.
    settings : JobSettings
        How the graph is cut, embedded and stitched; the source is filled in.
    grid : Grid
        The perceptrons.
    max_edges : int
        Edges that the AUC is computed from.
    map_nodes : int
        The most labelled papers on the map; 0 draws none.
    memory : int
        Bytes in which the graph is built.
    """

    source: Path
    out: Path
    settings: JobSettings
    grid: Grid = Grid()
    max_edges: int = 1_000_000
    map_nodes: int = 500_000
    memory: int = 1 << 30


@dataclass(frozen=True)
class _Stage:
    """One stage as a cell of the study."""

    name: str
    parameters: Row
    action: Callable[[], Row]
    group: ClassVar[str] = "large"

    def run(self, folder: Path) -> Record:
        with StageCost(folder.parent / "costs" / f"{self.name}.json", folder.parent) as cost:
            result = self.action()
        return Record({}, {**result, "cost": cost.totals})


def reproduce_large(
    study: LargeStudy, *, workers: Workers = lambda _: nullcontext(), progress: ProgressCallback | None = None
) -> list[Row]:
    """Do the stages that are not finished in ``study.out``, and write ``results.json``, ``large.md`` and the map.

    Parameters
    ----------
    study : LargeStudy
    workers : callable
        Lends an executor for so many tasks, or None for a plain loop.
    progress : callable, optional

    Returns
    -------
    list of dict
        The result of each stage, with its CPU seconds.

    Raises
    ------
    FormatError
        The folder is not MAG240M, or its files are damaged; before anything is built.
    JobError
        The disk is too small for the next stage; the message has the number.
    """
    papers = mag240m_papers(study.source)
    work = _Work(study, papers, workers, progress)
    parts = work.parts()
    fixed_split(parts, work.labels, seed=study.settings.seed)
    sizes = {"papers": papers.n_papers, "citations": papers.n_citations, "features": papers.features.shape[1]}
    made = study.settings.to_parameters()
    job = {**sizes, **{name: made[name] for name in ("cutting", "embedder", "recipe", "seed")}}
    measured = {**job, "max_edges": study.max_edges}
    trained = {**job, "grid": asdict(study.grid)}
    stages = [
        _Stage("1-graph", sizes, work.graph),
        _Stage("2-patches", job, work.patches),
        _Stage("3-embedding", job, work.embedding),
        _Stage("4-alignment", job, work.alignment),
        *([_Stage("5-no-trans", job, work.unaligned)] if study.settings.motions.free else []),
        _Stage("6-auc", measured, work.auc),
        _Stage("7-perceptrons", trained, lambda: work.perceptrons(parts)),
    ]
    if study.map_nodes > 0:
        stages.append(_Stage("8-map", {**job, "map_nodes": study.map_nodes}, work.map))
    rows = run_cells(stages, study.out, progress=progress)
    write_large_report(rows, study.out)
    return rows


@dataclass(frozen=True, eq=False)
class _Work:
    """What the stages do; each opens what those before it have left on disk."""

    study: LargeStudy
    papers: Papers
    workers: Workers
    progress: ProgressCallback | None

    @property
    def labels(self) -> Int64Array:
        if self.papers.labels is None:
            raise FormatError(f"{self.study.source} has no processed/paper/node_label.npy to train classifiers on.")
        return self.papers.labels

    def parts(self) -> dict[str, Int64Array]:
        """Return the official split or, where there is none, that by years."""
        if self.papers.split:
            return {name: self.papers.split[name] for name in ("train", "valid")}
        if self.papers.years is None:
            raise FormatError(
                f"{self.study.source} has neither split_dict.pt nor processed/paper/node_year.npy, which say what to "
                "train on."
            )
        return split_by_years(self.papers.years, self.labels, YEARS)

    def graph(self) -> Row:
        """Build the CSR out of core; features stay where they are."""
        papers, folder = self.papers, self.study.out / "graph"
        graph = read_mag240m(self.study.source, folder, memory=self.study.memory, progress=self.progress)
        if Graph.open(folder).features is None:
            file = getattr(papers.features, "filename")  # noqa: B009
            attach(folder, features=Path(file), labels=self.labels)
        return {"nodes": graph.n_nodes, "entries": graph.n_entries}

    def patches(self) -> Row:
        """Partition, sparsify and expand."""
        folder = self.study.out / "graph"
        settings = replace(self.study.settings, source=Source(path=str(folder)))
        job = Job.begin(DirectoryStore(self.study.out / "job"), settings)
        facts = job.cut(progress=self.progress).summary()
        names = ("n_patches", "n_patch_edges", "node_oversampling", "edge_oversampling", "largest_growth")
        return {name: facts[name] for name in names}

    def _job(self) -> Job:
        return Job.open(self.study.out / "job")

    def embedding(self) -> Row:
        """Embed all patches on whatever executor there is."""
        job = self._job()
        n_patches, done = job.settings.recipe.runs * job.patch_graph.n_patches, job.count_embedded()
        with self.workers(n_patches - done) as pool:
            job.embed(executor=pool, progress=self.progress)
        return {"patches": n_patches, "embedded_before": done}

    def alignment(self) -> Row:
        """Align all patches, and average them into the embedding."""
        job = self._job()
        with self.workers(len(job.patch_graph.edges)) as pool:
            alignment = job.stitch(executor=pool, progress=self.progress)
        errors = alignment.edge_errors
        return {
            "mean_edge_error": float(errors.mean()) if len(errors) else 0.0,
            "residual": float(alignment.residual),
            "fit": alignment.summary().splitlines(),
        }

    def unaligned(self) -> Row:
        """Average the patches as they are: the paper's "no-trans"."""
        job = self._job()
        shape = job.embedding.shape
        kind = np.dtype(job.settings.recipe.precision)
        check_disk(self.study.out, shape[0] * shape[1] * kind.itemsize, "the embedding without alignment")
        still, path = Alignment.identity(len(job.patches), shape[1]), self.study.out / "no-trans.npy"
        with translate_disk_errors(self.study.out), temporary_sibling(path) as part:
            out = np.lib.format.open_memmap(part, mode="w+", dtype=kind, shape=shape)
            centroid(job.patches, still, n_nodes=shape[0], weights=job.weights, out=out, progress=self.progress)
            out.flush()
            del out
            part.replace(path)
        return {"bytes": path.stat().st_size}

    def _routes(self, job: Job) -> dict[str, FloatArray]:
        unaligned = self.study.out / "no-trans.npy"
        return {"l2g": job.embedding, **({"no-trans": map_array(unaligned)} if unaligned.exists() else {})}

    def auc(self) -> Row:
        """Rank sampled edges, and those that were held out, against as many non-edges."""
        job, seed = self._job(), self.study.settings.seed
        graph, held_out = job.graph, self.papers.held_out
        assert graph is not None
        result: Row = {
            route: reconstruction_auc(X, graph, seed=seed, max_edges=self.study.max_edges)
            for route, X in self._routes(job).items()
        }
        if held_out is not None:
            pairs = np.asarray(held_out)
            pairs = pairs[~are_joined(graph, pairs)][: self.study.max_edges]  # a few are repeated in the graph
            result["held_out"] = {"edges": len(pairs)}
            for route, X in self._routes(job).items():
                result["held_out"][route] = link_prediction_auc(X, pairs, graph, seed=seed, score=cosine)
        return result

    def perceptrons(self, parts: dict[str, Int64Array]) -> Row:
        """Train the grid on both routes; a grid that was stopped is resumed."""
        study, job = self.study, self._job()
        seed, split = study.settings.seed, fixed_split(parts, self.labels, seed=study.settings.seed)
        results = {"l2g": classify_job(job, parts, grid=study.grid, seed=seed, progress=self.progress)}
        unaligned = self._routes(job).get("no-trans")
        if unaligned is not None:
            keep = study.out / "no-trans-perceptrons.json"
            results["no-trans"] = mlp_grid(
                unaligned, self.labels, split, seed=seed, grid=study.grid, keep=keep, progress=self.progress
            )
        counts = {name: len(nodes) for name, nodes in vars(split).items()}
        return {
            "split": counts,
            **{route: {"accuracy": found.accuracy, "best": asdict(found.best)} for route, found in results.items()},
        }

    def map(self) -> Row:
        """Draw labelled papers in the plane."""
        known = np.flatnonzero(self.labels >= 0)
        rng = np.random.default_rng(self.study.settings.seed)
        if len(known) > self.study.map_nodes:
            known = np.sort(rng.choice(known, self.study.map_nodes, replace=False))
        X = np.asarray(self._job().embedding[known], dtype=np.float32)
        return {"papers": len(known), **draw_map(X, self.labels[known], self.study.out / "map.png")}
