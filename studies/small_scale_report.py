"""The small-scale study as tables and pictures, from whatever cells are finished."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from graphquilt.arrays import FloatArray
from graphquilt.errors import JobError
from graphquilt.jobs import DirectoryStore, Record
from studies.cells import Row, cell_store, read_cells
from studies.figures import figure_of, markdown_table, save_figure, umap_plane
from studies.small_scale_checks import check_study, checks_table
from studies.trainings import study_graph

__all__ = ["draw_maps", "summarise", "tables", "write_report"]

ROUTES = ("full", "l2g", "no-trans")
COLOURS = {"full": "#444444", "l2g": "#0b6fb8", "no-trans": "#d1495b", "rotation-only": "#58a05c"}
TITLES = {"cora": "Cora", "amazon-photo": "Amazon photo", "pubmed": "Pubmed"}
MODEL_TITLES = {"vgae": "VGAE", "dgi": "DGI"}


def summarise(results: Iterable[Row]) -> list[Row]:
    """Keep the run with the best AUC of each data set, model, dimension and route, and say how the runs spread.

    Returns
    -------
    list of dict
        dataset, model, dim, route, runs, auc, accuracy, accuracy_std (over splits) of the best run, and the least
        and greatest auc and the mean and standard deviation of the accuracy over runs.
    """
    groups: dict[tuple[str, str, int, str], list[Row]] = defaultdict(list)
    for result in results:
        p = result["parameters"]
        for route, values in result["routes"].items():
            groups[p["dataset"], p["model"], p["dim"], route].append({**values, "run": p["run_number"]})
    rows = []
    for (dataset, model, dim, route), runs in groups.items():
        best = max(runs, key=lambda run: run["auc"])
        accuracies = [run["accuracy"] for run in runs]
        rows.append(
            {
                "dataset": dataset,
                "model": model,
                "dim": dim,
                "route": route,
                "runs": len(runs),
                **best,
                "auc_min": min(run["auc"] for run in runs),
                "auc_max": max(run["auc"] for run in runs),
                "accuracy_mean": float(np.mean(accuracies)),
                "accuracy_over_runs": float(np.std(accuracies)),
            }
        )
    order = {name: place for place, name in enumerate(TITLES)}
    return sorted(rows, key=lambda r: (order.get(r["dataset"], 9), r["model"] != "vgae", r["dim"], r["route"]))


def _index(rows: Iterable[Row]) -> dict[tuple[str, str, int, str], Row]:
    return {(r["dataset"], r["model"], r["dim"], r["route"]): r for r in rows}


def gap_table(rows: Sequence[Row]) -> str:
    """Return the headline: accuracy of l2g minus that of full, in points, for each dimension."""
    index = _index(rows)
    dims = sorted({r["dim"] for r in rows})
    lines: list[list[str]] = []
    for dataset, model in dict.fromkeys((r["dataset"], r["model"]) for r in rows):
        cells: list[str] = []
        for dim in dims:
            pair = [index.get((dataset, model, dim, route)) for route in ("l2g", "full")]
            if pair[0] is None or pair[1] is None:
                cells.append("–")
            else:
                cells.append(f"{100 * (pair[0]['accuracy'] - pair[1]['accuracy']):+.1f}")
        lines.append([f"{TITLES.get(dataset, dataset)}", MODEL_TITLES[model], *cells])
    return markdown_table(["data", "model", *(f"d = {dim}" for dim in dims)], lines)


def tables(rows: Sequence[Row]) -> str:
    """Return the study as Markdown: the gap, then AUC and accuracy of every route for each data set and model."""
    index = _index(rows)
    parts = ["## Accuracy of l2g minus accuracy of full, in points\n", gap_table(rows)]
    for dataset, model in dict.fromkeys((r["dataset"], r["model"]) for r in rows):
        dims = sorted({r["dim"] for r in rows if (r["dataset"], r["model"]) == (dataset, model)})
        runs = sorted({r["runs"] for r in rows if (r["dataset"], r["model"]) == (dataset, model)})
        counted = " to ".join(str(n) for n in dict.fromkeys((runs[0], runs[-1])))
        parts.append(f"\n## {TITLES.get(dataset, dataset)}, {MODEL_TITLES[model]} (runs: {counted})\n")
        lines = []
        for route in (*ROUTES, "rotation-only"):
            line = [index.get((dataset, model, dim, route)) for dim in dims]
            lines.append([f"{route}, AUC", *("–" if r is None else f"{r['auc']:.3f}" for r in line)])
            lines.append(
                [
                    f"{route}, accuracy",
                    *("–" if r is None else f"{r['accuracy']:.3f} ± {r['accuracy_std']:.3f}" for r in line),
                ]
            )
        parts.append(markdown_table(["route", *(f"d = {dim}" for dim in dims)], lines))
    return "\n".join(parts)


def write_report(out: Path, *, data: Path | None = None, maps: bool = True) -> list[Row]:
    """Write ``results.json``, ``tables.md`` and the figures from the finished cells in ``out``; return the summary."""
    results = [result for result in read_cells(out) if "routes" in result]
    if not results:
        raise JobError(f"no cell is finished in {out / 'cells'}; run the study first.")
    rows = summarise(results)
    (out / "results.json").write_text(
        json.dumps({"summary": rows, "cells": results}, indent=1) + "\n", encoding="utf-8"
    )
    (out / "tables.md").write_text(
        tables(rows) + "\n## What was expected\n\n" + checks_table(check_study(rows)), encoding="utf-8"
    )
    for model in dict.fromkeys(r["model"] for r in rows):
        draw_curves([r for r in rows if r["model"] == model], out / f"{model}-curves")
        if maps:
            draw_maps(rows, out, model, data=data)
    return rows


def draw_curves(rows: Sequence[Row], path: Path) -> None:
    """Draw AUC and accuracy against the dimension, one column for each data set, as ``path``.png and .svg."""
    datasets = list(dict.fromkeys(r["dataset"] for r in rows))
    figure, axes = figure_of(len(datasets), 2, 3.6, 2.9)
    for column, dataset in enumerate(datasets):
        for line, measure in enumerate(("auc", "accuracy")):
            axis = axes[line][column]
            for route in ROUTES:
                curve = [r for r in rows if (r["dataset"], r["route"]) == (dataset, route)]
                dims = [r["dim"] for r in curve]
                values = np.array([r[measure] for r in curve])
                axis.plot(dims, values, marker="o", markersize=4, color=COLOURS[route], label=route)
                if measure == "accuracy":
                    spread = np.array([r["accuracy_std"] for r in curve])
                    axis.fill_between(dims, values - spread, values + spread, color=COLOURS[route], alpha=0.15, lw=0)
            axis.set_xscale("log", base=2)
            ticks = sorted({r["dim"] for r in rows})
            axis.set_xticks(ticks, [str(tick) for tick in ticks])
            axis.grid(alpha=0.3)
            if line == 0:
                axis.set_title(TITLES.get(dataset, dataset))
            else:
                axis.set_xlabel("dimension d")
    axes[0][0].set_ylabel("reconstruction AUC")
    axes[1][0].set_ylabel("classification accuracy")
    axes[0][0].legend(frameon=False)
    figure.suptitle(f"{MODEL_TITLES[rows[0]['model']]}: one model on all, patches aligned, patches as they are")
    save_figure(figure, path)


def draw_maps(rows: Sequence[Row], out: Path, model: str, *, data: Path | None = None) -> None:
    """Draw UMAP pictures of the best runs at the largest dimension, coloured by class, as ``MODEL-umap.png``."""
    chosen = [r for r in rows if r["model"] == model and r["route"] in ROUTES]
    top = max(r["dim"] for r in chosen)
    store = cell_store(out)
    names: dict[tuple[str, str], str] = {}
    for r in chosen:
        name = f"{r['dataset']}-{model}-d{top:03d}-run{r['run']}"
        if r["dim"] == top and r["route"] in store[name].arrays:
            names[r["dataset"], r["route"]] = name
    if not names:
        return
    datasets = list(dict.fromkeys(dataset for dataset, _ in names))
    figure, axes = figure_of(len(ROUTES), len(datasets), 3.2, 3.2)
    for line, dataset in enumerate(datasets):
        labels = study_graph(dataset, data).labels
        for column, route in enumerate(ROUTES):
            axis = axes[line][column]
            axis.set_xticks([])
            axis.set_yticks([])
            if (dataset, route) in names:
                points = _plane(store, names[dataset, route], route)
                axis.scatter(*points.T, c=labels, cmap="tab10", s=2, linewidths=0, rasterized=True)
            axis.set_title(f"{TITLES.get(dataset, dataset)}, {route}", fontsize=10)
    figure.suptitle(f"{MODEL_TITLES[model]}, d = {top}, UMAP, coloured by class")
    figure.savefig(out / f"{model}-umap.png", dpi=150)


def _plane(store: DirectoryStore, name: str, route: str) -> FloatArray:
    """Return UMAP's picture of an embedding in the plane, (n, 2), which the store keeps."""
    key = f"umap/{name}-{route}"
    if key not in store:
        store[key] = Record({"points": umap_plane(store[name].arrays[route])})
    return store[key].arrays["points"]
