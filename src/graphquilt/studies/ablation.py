"""What the way a graph is cut does to the result: partitioner, number of patches, degree, overlap, hierarchy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from graphquilt.alignment import align, align_hierarchical, centroid
from graphquilt.datasets import catalogue, load_dataset
from graphquilt.embedders import VGAE
from graphquilt.errors import InputError, MissingExtraError
from graphquilt.evaluate import EvaluationOptions, quality
from graphquilt.partition import Fennel, Louvain, Metis, Partitioner, merge_small
from graphquilt.patches import patch_graph
from graphquilt.pipeline import embed_patches
from graphquilt.progress import ProgressCallback
from graphquilt.studies.cells import cell_seed, read_cells, run_cells

__all__ = ["AblationCell", "Cut", "ablation_cells", "ablation_table", "reproduce_ablation"]


@dataclass(frozen=True)
class Cut:
    """One way of making patches; each series of the study changes one of these."""

    partitioner: str = "metis"
    n_patches: int = 10
    degree: int = 4
    overlap: int = 128
    hierarchical: bool = False

    def partition(self, seed: int) -> Partitioner:
        """Return the partitioner as a value."""
        makers: Mapping[str, Any] = {
            "metis": lambda: Metis(self.n_patches, seed=seed),
            "fennel": lambda: Fennel(self.n_patches, seed=seed),
            "louvain": lambda: Louvain(seed=seed),
        }
        partitioner: Partitioner = makers[self.partitioner]()
        return partitioner


BASE = Cut()
SERIES: Mapping[str, tuple[Cut, ...]] = {
    "partitioner": tuple(replace(BASE, partitioner=word) for word in ("metis", "fennel", "louvain")),
    "patches": tuple(replace(BASE, n_patches=n) for n in (5, 10, 20)),
    "degree": tuple(replace(BASE, degree=k) for k in (2, 4, 8)),
    "overlap": tuple(replace(BASE, overlap=o) for o in (64, 128, 256)),
    "alignment": tuple(replace(BASE, hierarchical=h) for h in (False, True)),
}
_WORDS: Mapping[str, Callable[[Cut], str]] = {
    "partitioner": lambda cut: cut.partitioner,
    "patches": lambda cut: str(cut.n_patches),
    "degree": lambda cut: str(cut.degree),
    "overlap": lambda cut: f"{cut.overlap}–{4 * cut.overlap}",
    "alignment": lambda cut: "in two levels" if cut.hierarchical else "flat",
}


@dataclass(frozen=True)
class AblationCell:
    """One data set, one cut, one run of VGAE."""

    dataset: str
    cut: Cut
    run_number: int
    dim: int = 32
    seed: int = 0
    splits: int = 50
    data: str | None = None

    @property
    def name(self) -> str:
        """Unique in the study."""
        c = self.cut
        way = f"{c.partitioner}-p{c.n_patches}-k{c.degree}-l{c.overlap}-{'tree' if c.hierarchical else 'flat'}"
        return f"{self.dataset}-{way}-d{self.dim:03d}-run{self.run_number}"

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that the result depends on; where the data lie does not count."""
        return {key: value for key, value in asdict(self).items() if key != "data"}

    def run(self, folder: Path) -> dict[str, Any]:  # noqa: ARG002
        """Cut, embed, align and measure."""
        graph, cut = load_dataset(self.dataset, data=self.data), self.cut
        start = process_time()
        labels = merge_small(graph, cut.partition(self.seed)(graph), cut.overlap // 2)
        overlap = (cut.overlap, 4 * cut.overlap)
        quilt = patch_graph(graph, labels, degree=cut.degree, overlap=overlap, seed=self.seed)
        cut_at = process_time()
        seed = cell_seed(self.seed, self.dataset, "vgae", self.dim, self.run_number)
        patches = embed_patches(graph, quilt, VGAE(self.dim), seed=seed)
        embedded = process_time()
        if cut.hierarchical:
            alignment = align_hierarchical(patches, quilt.edges, branching=max(2, round(quilt.n_patches**0.5)))
        else:
            alignment = align(patches, quilt.edges)
        X = centroid(patches, alignment, n_nodes=graph.n_nodes)
        aligned = process_time()
        return {
            **asdict(quality(X, graph, options=EvaluationOptions(seed=self.seed, splits=self.splits))),
            "n_patches": quilt.n_patches,
            "largest_patch": max(len(nodes) for nodes in quilt.node_sets),
            "oversampling": sum(len(nodes) for nodes in quilt.node_sets) / graph.n_nodes,
            "stages": {
                "cut": round(cut_at - start, 2),
                "embed": round(embedded - cut_at, 2),
                "align": round(aligned - embedded, 2),
            },
        }


def ablation_cells(
    datasets: Sequence[str], runs: int, *, dim: int = 32, seed: int = 0, splits: int = 50, data: str | None = None
) -> list[AblationCell]:
    """List the cells of all series, each cut once: run by run, data set by data set."""
    if runs < 1 or dim < 1:
        raise InputError(f"runs is {runs} and dim is {dim}; both must be at least 1.")
    for name in datasets:
        if name != "blocks":
            catalogue.dataset(name)  # raises where there is no such set, before anything runs
    cuts = list(dict.fromkeys(cut for series in SERIES.values() for cut in series))
    return [
        AblationCell(name, cut, run, dim=dim, seed=seed, splits=splits, data=data)
        for run in range(runs)
        for name in datasets
        for cut in cuts
    ]


def reproduce_ablation(
    cells: Sequence[AblationCell],
    out: Path,
    *,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> str:
    """Compute the cells that are not finished in ``out``, write ``results.json``, ``table.md`` and the figure."""
    run_cells(cells, out, executor=executor, progress=progress)
    results = read_cells(out)
    (out / "results.json").write_text(json.dumps({"cells": results}, indent=1) + "\n")
    rows = _rows(results)
    text = ablation_table(rows)
    (out / "table.md").write_text(text)
    _draw(rows, out / "ablation")
    return text


def _rows(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Average the runs of each data set and cut, once for each series that the cut belongs to."""
    rows = []
    for dataset in dict.fromkeys(result["parameters"]["dataset"] for result in results):
        for series, cuts in SERIES.items():
            for cut in cuts:
                wanted = json.loads(json.dumps(asdict(cut)))
                runs = [
                    result
                    for result in results
                    if (result["parameters"]["dataset"], result["parameters"]["cut"]) == (dataset, wanted)
                ]
                if runs:
                    means = {
                        key: float(np.mean([run[key] for run in runs]))
                        for key in ("auc", "accuracy", "n_patches", "oversampling", "largest_patch")
                    }
                    seconds = float(np.mean([sum(run["stages"].values()) for run in runs]))
                    spread = float(np.mean([run["accuracy_std"] for run in runs]))  # over splits
                    row = {"dataset": dataset, "series": series, "value": _WORDS[series](cut), "runs": len(runs)}
                    rows.append({**row, **means, "spread": spread, "seconds": seconds})
    return rows


def ablation_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the study as one Markdown table."""
    head = "| data | what | value | patches | largest | oversampling | AUC | accuracy | CPU s | runs |"
    lines = [head, "|" + " --- |" * 10]
    for r in rows:
        lines.append(
            f"| {r['dataset']} | {r['series']} | {r['value']} | {r['n_patches']:.0f} | {r['largest_patch']:.0f} | "
            f"{r['oversampling']:.2f} | {r['auc']:.4f} | {r['accuracy']:.3f} ± {r['spread']:.3f} | "
            f"{r['seconds']:.1f} | {r['runs']} |"
        )
    return "\n".join(lines) + "\n"


def _draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw accuracy and AUC of every value, one column a series, as ``path``.png and .svg."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("drawing the study", "viz") from error
    datasets = list(dict.fromkeys(r["dataset"] for r in rows))
    figure = Figure(figsize=(13, 5), layout="constrained")
    axes = figure.subplots(2, len(SERIES), sharey="row", squeeze=False)
    colours = dict(zip(datasets, ("#0b6fb8", "#d1495b", "#58a05c", "#444444"), strict=False))
    for column, series in enumerate(SERIES):
        for dataset in datasets:
            found = [r for r in rows if (r["dataset"], r["series"]) == (dataset, series)]
            for line, key in enumerate(("accuracy", "auc")):
                axes[line][column].errorbar(
                    [r["value"] for r in found],
                    [r[key] for r in found],
                    yerr=[r["spread"] for r in found] if key == "accuracy" else None,
                    marker="o",
                    color=colours[dataset],
                    label=dataset,
                )
                axes[line][column].grid(alpha=0.3)
                axes[line][column].margins(x=0.2)
        axes[0][column].set_title(series)
    axes[0][0].set_ylabel("accuracy")
    axes[1][0].set_ylabel("reconstruction AUC")
    axes[0][0].legend(frameon=False)
    for kind in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{kind}"), dpi=150, metadata={"Date": None} if kind == "svg" else None)
