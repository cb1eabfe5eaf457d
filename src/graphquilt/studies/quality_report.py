"""The study of quality as tables and pictures, from whatever cells are finished."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from graphquilt.errors import JobError
from graphquilt.studies.cells import Row, read_cells
from graphquilt.studies.figures import figure_of, markdown_table, save_figure
from graphquilt.studies.quality import COLUMNS
from graphquilt.studies.small_scale_report import MODEL_TITLES, TITLES

__all__ = ["quality_checks", "quality_rows", "quality_tables", "write_quality"]

NAMES: dict[str, str] = {
    "cora": TITLES["cora"],
    "citeseer": "Citeseer",
    "amazon-photo": TITLES["amazon-photo"],
    "pubmed": TITLES["pubmed"],
    "coauthor-cs": "Coauthor CS",
}
TUNED_ON = ("cora", "citeseer", "amazon-photo")
COLOURS = {
    "full": "#444444",
    "full, runs aligned": "#999999",
    "l2g": "#0b6fb8",
    "+ runs": "#58a05c",
    "best": "#d1495b",
    "no-trans": "#e0a458",
}


def quality_rows(results: Iterable[Row]) -> list[Row]:
    """Average the repetitions of each data set, model, dimension and column.

    Returns
    -------
    list of dict
        dataset, model, dim, column, repetitions; auc, accuracy and their standard deviations over repetitions
        (``auc_over``, ``accuracy_over``) and by repetition (``auc_each``, ``accuracy_each``), accuracy_std over splits,
        cost in seconds; link_auc where edges were held out.
    """
    groups: dict[tuple[str, str, int, str], list[Row]] = defaultdict(list)
    for result in results:
        p = result["parameters"]
        groups[p["dataset"], p["model"], p["dim"], p["column"]].append(result)
    rows = []
    for (dataset, model, dim, column), group in groups.items():
        row: Row = {"dataset": dataset, "model": model, "dim": dim, "column": column}
        plain = [result for result in group if not result["parameters"]["links"]]
        row["repetitions"] = len(plain)
        for key in ("auc", "accuracy", "accuracy_std", "cost") if plain else ():
            values = [result[key] for result in plain]
            row[key] = float(np.mean(values))
            if key in ("auc", "accuracy"):
                row[f"{key}_over"] = float(np.std(values))
                row[f"{key}_each"] = {str(result["parameters"]["repetition"]): result[key] for result in plain}
        links = [result for result in group if result["parameters"]["links"]]
        if links:
            row["link_auc"] = float(np.mean([result["link_auc"] for result in links]))
        rows.append(row)
    sets, columns = {name: k for k, name in enumerate(NAMES)}, {name: k for k, name in enumerate(COLUMNS)}
    return sorted(
        rows, key=lambda r: (sets.get(r["dataset"], 9), r["model"] != "vgae", r["dim"], columns.get(r["column"], 99))
    )


def _titled(dataset: str) -> str:
    return NAMES.get(dataset, dataset)


def _index(rows: Iterable[Row]) -> dict[tuple[str, str, int, str], Row]:
    return {(r["dataset"], r["model"], r["dim"], r["column"]): r for r in rows if r["repetitions"]}


def _accuracy(r: Row | None) -> str:
    if r is None:
        return "–"
    spread = f" ± {r['accuracy_over']:.3f}" if r["repetitions"] > 1 else ""
    return f"{r['accuracy']:.3f}{spread}"


def headline(rows: Sequence[Row]) -> str:
    """Return accuracies of full, the fair rival, no-trans, l2g and best side by side, one line for each cell."""
    index = _index(rows)
    shown = ("full", "full, best run", "full, runs aligned", "no-trans", "l2g", "+ runs", "best")
    lines = []
    for dataset, model, dim in dict.fromkeys((r["dataset"], r["model"], r["dim"]) for r in rows):
        line = [index.get((dataset, model, dim, column)) for column in shown]
        first, best = line[0], line[-1]
        gap = "–" if first is None or best is None else f"{100 * _difference(best, first, 'accuracy'):+.1f}"
        count = str(max((r["repetitions"] for r in line if r is not None), default=0))
        name = _titled(dataset)
        lines.append([name, MODEL_TITLES[model], str(dim), count, *(_accuracy(r) for r in line), gap])
    return markdown_table(["data", "model", "d", "reps", *shown, "best − full, points"], lines)


def quality_tables(rows: Sequence[Row]) -> str:
    """Return the study as Markdown: the headline, every column of each data set and model, and what was expected."""
    parts = ["## Accuracy\n", headline(rows)]
    for dataset, model in dict.fromkeys((r["dataset"], r["model"]) for r in rows):
        block = [r for r in rows if (r["dataset"], r["model"]) == (dataset, model)]
        dims = sorted({r["dim"] for r in block})
        by_place = {(r["dim"], r["column"]): _cells(r) for r in block}
        lines = [
            [column, *(cell for dim in dims for cell in by_place.get((dim, column), ["–"] * 4))]
            for column in dict.fromkeys(r["column"] for r in block)
        ]
        head = ["way", *(f"d = {dim}: {word}" for dim in dims for word in ("accuracy", "AUC", "link AUC", "s"))]
        parts += [f"\n### {_titled(dataset)}, {MODEL_TITLES[model]}\n", markdown_table(head, lines)]
    return "\n".join(parts) + "\n## What was expected\n\n" + quality_checks(rows)


def _cells(r: Row) -> list[str]:
    link = f"{r['link_auc']:.3f}" if "link_auc" in r else "–"
    if not r["repetitions"]:
        return ["–", "–", link, "–"]
    return [_accuracy(r), f"{r['auc']:.4f}", link, f"{r['cost']:.0f}"]


def quality_checks(rows: Sequence[Row]) -> str:
    """Return, cell by cell, whether the recipes keep what they promise, as Markdown.

    ``best`` against full training and against l2g, each within the larger of the spreads over splits; the AUC of
    ``reconstruction`` against full training less .002.
    """
    index = _index(rows)
    lines = []
    for dataset, model, dim in dict.fromkeys((r["dataset"], r["model"], r["dim"]) for r in rows):
        ways = {
            column: index.get((dataset, model, dim, column)) for column in ("full", "l2g", "best", "reconstruction")
        }
        words = [
            _compared(ways["best"], ways["full"], "accuracy"),
            _compared(ways["best"], ways["l2g"], "accuracy"),
            _compared(ways["reconstruction"], ways["full"], "auc"),
            _compared(ways["best"], ways["l2g"], "auc"),
        ]
        chosen = "" if dataset in TUNED_ON else " (not tuned on)"
        lines.append([_titled(dataset) + chosen, MODEL_TITLES[model], str(dim), *words])
    head = ["best ≥ full, accuracy", "best ≥ l2g, accuracy", "reconstruction ≥ full − .002, AUC", "best ≥ l2g, AUC"]
    return markdown_table(["data", "model", "d", *head], lines)


def _difference(one: Row, other: Row, key: str) -> float:
    """Return the mean difference over the repetitions that both have: seeds differ more than ways do."""
    first, second = one[f"{key}_each"], other[f"{key}_each"]
    return float(np.mean([first[number] - second[number] for number in first if number in second]))


def _compared(one: Row | None, other: Row | None, key: str) -> str:
    if one is None or other is None:
        return "–"
    difference = _difference(one, other, key)
    spread = max(one["accuracy_std"], other["accuracy_std"]) if key == "accuracy" else 0.002
    holds = "yes" if difference >= 0 else "within the spread" if difference >= -spread else "**no**"
    return f"{holds} ({difference:+.3f})"


def write_quality(out: Path) -> list[Row]:
    """Write ``quality.json``, ``quality.md`` and the figures from the finished cells in ``out``; return the rows."""
    results = [result for result in read_cells(out) if "column" in result["parameters"]]
    if not results:
        raise JobError(f"no cell is finished in {out / 'cells'}; run the study first.")
    rows = quality_rows(results)
    text = json.dumps({"summary": rows, "cells": results}, indent=1) + "\n"
    (out / "quality.json").write_text(text, encoding="utf-8")
    (out / "quality.md").write_text(quality_tables(rows), encoding="utf-8")
    if measured := [r for r in rows if r["repetitions"]]:
        draw_quality(measured, out / "quality")
    return rows


def draw_quality(rows: Sequence[Row], path: Path) -> None:
    """Draw accuracy against the dimension, by data set and model, as ``path``.png and .svg."""
    datasets, models = (list(dict.fromkeys(r[key] for r in rows)) for key in ("dataset", "model"))
    figure, axes = figure_of(len(datasets), len(models), 3.2, 2.9)
    for line, model in enumerate(models):
        for column, dataset in enumerate(datasets):
            axis = axes[line][column]
            for name, colour in COLOURS.items():
                curve = [r for r in rows if (r["dataset"], r["model"], r["column"]) == (dataset, model, name)]
                axis.errorbar(
                    [r["dim"] for r in curve],
                    [r["accuracy"] for r in curve],
                    yerr=[r["accuracy_over"] for r in curve],
                    marker="o",
                    markersize=4,
                    capsize=2,
                    color=colour,
                    label=name,
                )
            axis.set_xscale("log", base=2)
            ticks = sorted({r["dim"] for r in rows})
            axis.set_xticks(ticks, [str(tick) for tick in ticks])
            axis.grid(alpha=0.3)
            axis.set_title(f"{_titled(dataset)}, {MODEL_TITLES[model]}", fontsize=10)
        axes[line][0].set_ylabel("accuracy")
    for axis in axes[-1]:
        axis.set_xlabel("dimension d")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(COLOURS), frameon=False
    )
    save_figure(figure, path)
