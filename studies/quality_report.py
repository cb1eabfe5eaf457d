"""The study of quality as one table and a picture, from whatever cells are finished."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from graphquilt.errors import JobError
from studies.cells import Row, read_cells
from studies.figures import figure_of, markdown_table, save_figure
from studies.quality import MODELS, WAYS
from studies.small_scale_report import TITLES

__all__ = ["quality_checks", "quality_rows", "quality_tables", "write_quality"]

NAMES: dict[str, str] = {
    "cora": TITLES["cora"],
    "citeseer": "Citeseer",
    "amazon-photo": TITLES["amazon-photo"],
    "pubmed": TITLES["pubmed"],
    "coauthor-cs": "Coauthor CS",
    "wordnet": "WordNet",
}
MODEL_NAMES = {
    "propagation": "Propagation",
    "structure": "Propagation, edges only",
    "svd": "SVD",
    "vgae": "VGAE",
    "patient-vgae": "VGAE, patience 60",
    "dgi": "DGI",
}
MARKS = {  # colour and marker of each way
    "full": ("#444444", "|"),
    "paper": ("#0b6fb8", "v"),
    "shared": ("#d1495b", "o"),
    "alone": ("#e0a458", "D"),
    "reconstruction": ("#58a05c", "s"),
}
GLANCE = 32  # the dimension of the first table, and the least in which Propagation is compared with networks
TENTH = 0.1
_MEASURES = ("accuracy", "auc", "link_cosine", "link_inner_product", "cost")


def quality_rows(results: Iterable[Row]) -> list[Row]:
    """Average the repetitions of each data set, model, dimension and way.

    Returns
    -------
    list of dict
        dataset, model, dim, way, repetitions; accuracy, auc, link_cosine, link_inner_product and cost, and the
        standard deviation of each over repetitions (``accuracy_over`` …); accuracy_std over splits.
    """
    groups: dict[tuple[str, str, int, str], list[Row]] = defaultdict(list)
    for result in results:
        p = result["parameters"]
        groups[p["dataset"], p["model"], p["dim"], p["way"]].append(result)
    rows = []
    for (dataset, model, dim, way), group in groups.items():
        row: Row = {"dataset": dataset, "model": model, "dim": dim, "way": way, "repetitions": len(group)}
        for key in (*_MEASURES, "accuracy_std"):
            values = [result[key] for result in group]
            row[key] = float(np.mean(values))
            row[f"{key}_over"] = float(np.std(values))
        rows.append(row)
    orders = [{name: k for k, name in enumerate(names)} for names in (NAMES, MODELS, WAYS)]
    return sorted(
        rows,
        key=lambda r: (
            orders[0].get(r["dataset"], 99),
            orders[1].get(r["model"], 99),
            r["dim"],
            orders[2].get(r["way"], 99),
        ),
    )


def _cases(rows: Sequence[Row]) -> Iterable[tuple[tuple[str, str, int], dict[str, Row]]]:
    """Return, for each data set, model and dimension, the row of each way."""
    cases: dict[tuple[str, str, int], dict[str, Row]] = defaultdict(dict)
    for r in rows:
        cases[r["dataset"], r["model"], r["dim"]][r["way"]] = r
    return cases.items()


def _summary(r: Row | None) -> str:
    return "–" if r is None else f"{r['accuracy']:.3f} / {r['link_cosine']:.3f}"


def _glance(rows: Sequence[Row]) -> int:
    """Return the dimension of table and figure: 32, or the largest where 32 is not there."""
    dims = {int(r["dim"]) for r in rows}
    return GLANCE if GLANCE in dims else max(dims)


def headline(rows: Sequence[Row]) -> str:
    """Return one line for each data set and model, in one dimension: accuracy and link AUC of each way."""
    dim, lines = _glance(rows), []
    for (dataset, model, d), ways in _cases(rows):
        if d != dim:
            continue
        full, shared = ways.get("full"), ways.get("shared")
        gap = "–" if full is None or shared is None else f"{100 * (shared['accuracy'] - full['accuracy']):+.1f}"
        seconds = " / ".join("–" if r is None else f"{r['cost']:.1f}" for r in (full, ways.get("paper"), shared))
        lines.append(
            [NAMES.get(dataset, dataset), MODEL_NAMES[model], *map(_summary, map(ways.get, WAYS)), gap, seconds]
        )
    head = [f"d = {dim}", "embedder", *WAYS, "shared − full, points", "CPU s: full / paper / shared"]
    return markdown_table(head, lines)


def details(rows: Sequence[Row]) -> str:
    """Return every measure of every cell."""
    lines = [
        [
            NAMES.get(r["dataset"], r["dataset"]),
            MODEL_NAMES[r["model"]],
            str(r["dim"]),
            r["way"],
            str(r["repetitions"]),
            *(
                f"{r[key]:.4f}" + (f" ± {r[f'{key}_over']:.4f}" if r["repetitions"] > 1 else "")
                for key in _MEASURES[:-1]
            ),
            f"{r['cost']:.1f}",
        ]
        for r in rows
    ]
    measures = ["accuracy", "AUC", "link AUC, cosine", "link AUC, inner product", "CPU s"]
    return markdown_table(["data", "embedder", "d", "way", "repetitions", *measures], lines)


def quality_tables(rows: Sequence[Row]) -> str:
    """Return the study as Markdown: the headline, what was expected, and every measure."""
    return (
        "## Accuracy / link AUC\n\n"
        + headline(rows)
        + "\n## What was expected\n\n"
        + quality_checks(rows)
        + "\n## Every measure\n\n"
        + details(rows)
    )


def quality_checks(rows: Sequence[Row]) -> str:
    """Return how many promises of stitching hold, and those that do not, case by case, as Markdown."""
    checks = [*_against_full(rows), *_against_paper(rows), *_against_networks(rows)]
    failed = [[*case, promise, f"{figures}"] for case, promise, held, figures in checks if not held]
    text = f"{len(checks) - len(failed)} of {len(checks)} comparisons hold"
    if not failed:
        return f"{text}.\n"
    return f"{text}. These do not:\n\n" + markdown_table(["data", "embedder", "d", "promise", "measured"], failed)


Check = tuple[list[str], str, bool, str]  # data set, model and dimension; the promise; whether it holds; the figures


def _against_full(rows: Sequence[Row]) -> Iterable[Check]:
    """Compare stitched embeddings with the same embedder on the whole graph."""
    for (dataset, model, dim), ways in _cases(rows):
        full = ways.get("full")
        for way, key, least in _PROMISES.get(model, ()):
            r = ways.get(way)
            if full is None or r is None:
                continue
            difference = r[key] - full[key]
            case = [NAMES.get(dataset, dataset), MODEL_NAMES[model], str(dim)]
            yield case, f"{way}: {_WORDS[key]} ≥ full − {-least:g}", difference >= least, f"{difference:+.4f}"


def _against_paper(rows: Sequence[Row]) -> Iterable[Check]:
    """Compare the cost of networks that are stitched from a shared start with that of the paper's way."""
    for (dataset, model, dim), ways in _cases(rows):
        paper = ways.get("paper")
        for way in ("shared", "reconstruction"):
            r = ways.get(way)
            if _PROMISES.get(model) is not _NETWORKS or paper is None or r is None:
                continue
            case = [NAMES.get(dataset, dataset), MODEL_NAMES[model], str(dim)]
            figures = f"{r['cost']:.1f} s, {paper['cost']:.1f} s"
            yield case, f"{way}: at most the CPU of paper", r["cost"] <= paper["cost"], figures


def _against_networks(rows: Sequence[Row]) -> Iterable[Check]:
    """Compare Propagation from a shared start with VGAE and DGI on the whole graph, from d = 32 on."""
    cases = dict(_cases(rows))
    for (dataset, model, dim), ways in cases.items():
        shared = ways.get("shared")
        if model != "propagation" or dim < GLANCE or shared is None:
            continue
        case = [NAMES.get(dataset, dataset), MODEL_NAMES[model], str(dim)]
        for network in ("vgae", "dgi"):
            full = cases.get((dataset, network, dim), {}).get("full")
            if full is None:
                continue
            better = shared["accuracy"] >= full["accuracy"]
            figures = f"{shared['accuracy']:.4f}, {full['accuracy']:.4f}"
            yield case, f"shared: accuracy ≥ full {MODEL_NAMES[network]}", better, figures
            if network == "vgae":
                cheaper = shared["cost"] <= TENTH * full["cost"]
                figures = f"{shared['cost']:.1f} s, {full['cost']:.1f} s"
                yield case, "shared: a tenth of the CPU of full VGAE", cheaper, figures


_WORDS = {"accuracy": "accuracy", "link_cosine": "link AUC", "auc": "AUC"}
_CONTEXT = (("shared", "accuracy", -0.008), ("shared", "link_cosine", -0.005))
_NETWORKS = (("shared", "accuracy", -0.01), ("reconstruction", "auc", -0.002))
_PROMISES: dict[str, tuple[tuple[str, str, float], ...]] = {
    "propagation": (*_CONTEXT, ("alone", "accuracy", -0.015)),
    "structure": _CONTEXT,
    "vgae": _NETWORKS,
    "patient-vgae": _NETWORKS,
}


def write_quality(out: Path) -> list[Row]:
    """Write ``quality.json``, ``quality.md`` and the figures from the finished cells in ``out``; return the rows."""
    results = [result for result in read_cells(out) if "way" in result["parameters"]]
    if not results:
        raise JobError(f"no cell is finished in {out / 'cells'}; run the study first.")
    rows = quality_rows(results)
    text = json.dumps({"summary": rows, "cells": results}, indent=1) + "\n"
    (out / "quality.json").write_text(text, encoding="utf-8")
    (out / "quality.md").write_text(quality_tables(rows), encoding="utf-8")
    draw_quality(rows, out / "quality")
    return rows


def draw_quality(rows: Sequence[Row], path: Path) -> None:
    """Draw the accuracy of each embedder and way in the dimension of the headline, as ``path``.png and .svg."""
    dim = _glance(rows)
    rows = [r for r in rows if r["dim"] == dim]
    datasets = list(dict.fromkeys(r["dataset"] for r in rows))
    models = [model for model in MODELS if any(r["model"] == model for r in rows)]
    columns = min(3, len(datasets))
    figure, axes = figure_of(columns, -(-len(datasets) // columns), 3.6, 0.9 + 0.36 * len(models))
    for place, axis in enumerate(axes.flat):
        if place >= len(datasets):
            axis.set_axis_off()
            continue
        for way, (colour, marker) in MARKS.items():
            own = [r for r in rows if (r["dataset"], r["way"]) == (datasets[place], way)]
            axis.errorbar(
                [r["accuracy"] for r in own],
                [models.index(r["model"]) for r in own],
                xerr=[r["accuracy_over"] for r in own],
                linestyle="none",
                marker=marker,
                markersize=16 if way == "full" else 6,
                markeredgewidth=2 if way == "full" else 1,
                zorder=3 if way == "full" else 2,
                capsize=2,
                color=colour,
                label=way,
            )
        first = place % columns == 0
        axis.set_yticks(range(len(models)), [MODEL_NAMES[model] for model in models] if first else [])
        axis.set_ylim(len(models) - 0.5, -0.5)
        axis.grid(alpha=0.3)
        axis.set_title(NAMES.get(datasets[place], datasets[place]), fontsize=10)
        axis.set_xlabel("accuracy")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(MARKS), frameon=False)
    save_figure(figure, path)
