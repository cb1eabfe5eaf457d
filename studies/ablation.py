"""What the way a graph is cut does to the result: partitioner, number of patches, degree, overlap, hierarchy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import process_time

import numpy as np

from graphquilt.datasets import loading
from graphquilt.embedders import VGAE
from graphquilt.errors import InputError
from graphquilt.evaluate import EvaluationOptions, quality
from graphquilt.jobs import Cutting, Recipe, Record, cut, embed_patches, stitch
from graphquilt.jobs.records import plain
from graphquilt.patches import Fennel, Louvain, Metis, Partitioner
from studies.cells import Row, cell_seed, read_cells
from studies.figures import figure_of, markdown_table, save_figure
from studies.trainings import study_graph

__all__ = ["AblationCell", "Cut", "ablation_cells", "ablation_table", "write_ablation"]


@dataclass(frozen=True)
class Cut:
    """One way of making patches; each series of the study changes one of these."""

    partitioner: str = "metis"
    n_patches: int = 10
    degree: int = 4
    overlap: int = 128
    hierarchical: bool = False

    def cutting(self, seed: int) -> Cutting:
        """Return it as a value of the pipeline."""
        partitioners: Mapping[str, Callable[[], Partitioner]] = {
            "metis": lambda: Metis(self.n_patches, seed=seed),
            "fennel": lambda: Fennel(self.n_patches, seed=seed),
            "louvain": lambda: Louvain(seed=seed),
        }
        partitioner = partitioners[self.partitioner]()
        overlap = (self.overlap, 4 * self.overlap)
        return Cutting(self.n_patches, partitioner=partitioner, degree=self.degree, overlap=overlap)


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
    data: Path | None = None

    @property
    def name(self) -> str:
        """Unique in the study."""
        c = self.cut
        way = f"{c.partitioner}-p{c.n_patches}-k{c.degree}-l{c.overlap}-{'tree' if c.hierarchical else 'flat'}"
        return f"{self.dataset}-{way}-d{self.dim:03d}-run{self.run_number}"

    @property
    def group(self) -> str:
        """Every cell has its own training."""
        return self.name

    @property
    def parameters(self) -> Row:
        """Everything that the result depends on; where the data lie does not count."""
        own = {key: value for key, value in asdict(self).items() if key != "data"}
        return {**own, "classifier": plain(EvaluationOptions().classifier)}

    def run(self, folder: Path) -> Record:  # noqa: ARG002
        """Cut, embed, stitch and measure."""
        graph = study_graph(self.dataset, self.data)
        times = [process_time()]
        patch_graph = cut(
            graph, embedder=VGAE(self.dim), cutting=self.cut.cutting(self.seed), recipe=Recipe(), seed=self.seed
        )
        times.append(process_time())
        seed = cell_seed(self.seed, self.dataset, "vgae", self.dim, self.run_number)
        patches = embed_patches(graph, patch_graph, VGAE(self.dim), seed=seed)
        times.append(process_time())
        branching = max(2, round(patch_graph.n_patches**0.5)) if self.cut.hierarchical else None
        _, X = stitch(patch_graph, patches, recipe=Recipe(branching=branching))
        times.append(process_time())
        figures = asdict(quality(X, graph, options=EvaluationOptions(seed=self.seed, splits=self.splits)))
        stages = zip(("cut", "embed", "align"), np.diff(times), strict=True)
        return Record(
            {},
            {
                **figures,
                "n_patches": patch_graph.n_patches,
                "largest_patch": int(patch_graph.sizes.max()),
                "oversampling": float(patch_graph.sizes.sum()) / graph.n_nodes,
                "stages": {stage: round(float(seconds), 2) for stage, seconds in stages},
            },
        )


def ablation_cells(
    datasets: Sequence[str],
    runs: int,
    *,
    dim: int = 32,
    seed: int = 0,
    splits: int = 50,
    data: Path | None = None,
) -> list[AblationCell]:
    """List the cells of all series, each cut once: run by run, data set by data set."""
    if runs < 1 or dim < 1:
        raise InputError(f"runs is {runs} and dim is {dim}; both must be at least 1.")
    for name in datasets:
        if name != "blocks":
            loading.dataset(name)  # raises where there is no such set, before anything runs
    cuts = list(dict.fromkeys(cut for series in SERIES.values() for cut in series))
    return [
        AblationCell(name, cut, run, dim=dim, seed=seed, splits=splits, data=data)
        for run in range(runs)
        for name in datasets
        for cut in cuts
    ]


def write_ablation(out: Path) -> list[Row]:
    """Write ``results.json``, ``table.md`` and the figure of the cells that are finished in ``out``.

    Returns
    -------
    list of dict
        The means over runs, one entry for each data set, series and value.
    """
    results = read_cells(out)
    (out / "results.json").write_text(json.dumps({"cells": results}, indent=1) + "\n", encoding="utf-8")
    rows = _rows(results)
    (out / "table.md").write_text(ablation_table(rows), encoding="utf-8")
    _draw(rows, out / "ablation")
    return rows


def _rows(results: Sequence[Row]) -> list[Row]:
    """Average the runs of each data set and cut, once for each series that the cut belongs to."""
    rows = []
    for dataset in dict.fromkeys(result["parameters"]["dataset"] for result in results):
        for series, cuts in SERIES.items():
            for way in cuts:
                key = (dataset, asdict(way))
                runs = [r for r in results if (r["parameters"]["dataset"], r["parameters"]["cut"]) == key]
                if runs:
                    means = {
                        name: float(np.mean([run[name] for run in runs]))
                        for name in ("auc", "accuracy", "n_patches", "oversampling", "largest_patch")
                    }
                    seconds = float(np.mean([sum(run["stages"].values()) for run in runs]))
                    spread = float(np.mean([run["accuracy_std"] for run in runs]))  # over splits
                    row = {"dataset": dataset, "series": series, "value": _WORDS[series](way), "runs": len(runs)}
                    rows.append({**row, **means, "spread": spread, "seconds": seconds})
    return rows


def ablation_table(rows: Sequence[Row]) -> str:
    """Return the study as one Markdown table."""
    head = ["data", "what", "value", "patches", "largest", "oversampling", "AUC", "accuracy", "CPU s", "runs"]
    lines = [
        [
            *(r["dataset"], r["series"], r["value"], f"{r['n_patches']:.0f}", f"{r['largest_patch']:.0f}"),
            *(f"{r['oversampling']:.2f}", f"{r['auc']:.4f}", f"{r['accuracy']:.3f} ± {r['spread']:.3f}"),
            *(f"{r['seconds']:.1f}", str(r["runs"])),
        ]
        for r in rows
    ]
    return markdown_table(head, lines)


def _draw(rows: Sequence[Row], path: Path) -> None:
    """Draw accuracy and AUC of every value, one column for each series, as ``path``.png and .svg."""
    datasets = list(dict.fromkeys(r["dataset"] for r in rows))
    figure, axes = figure_of(len(SERIES), 2, 2.6, 2.5)
    colours = dict(zip(datasets, ("#0b6fb8", "#d1495b", "#58a05c", "#444444"), strict=False))
    for line, key in enumerate(("accuracy", "auc")):
        for column, series in enumerate(SERIES):
            axis = axes[line][column]
            if column:
                axis.sharey(axes[line][0])
                axis.label_outer()
            for dataset in datasets:
                curve = [r for r in rows if (r["dataset"], r["series"]) == (dataset, series)]
                axis.errorbar(
                    [r["value"] for r in curve],
                    [r[key] for r in curve],
                    yerr=[r["spread"] for r in curve] if key == "accuracy" else None,
                    marker="o",
                    color=colours[dataset],
                    label=dataset,
                )
            axis.grid(alpha=0.3)
            axis.margins(x=0.2)
            if line == 0:
                axis.set_title(series)
    axes[0][0].set_ylabel("accuracy")
    axes[1][0].set_ylabel("reconstruction AUC")
    axes[0][0].legend(frameon=False)
    save_figure(figure, path)
