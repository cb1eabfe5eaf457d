"""The study of federated alignment as tables and a picture, from whatever cells are finished."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from graphquilt.errors import JobError
from studies.cells import Row, read_cells
from studies.federated import LIES
from studies.figures import figure_of, markdown_table, save_figure
from studies.npz_graphs import NAMES

__all__ = ["federated_tables", "write_federated"]

MODEL_NAMES = {"propagation": "Propagation", "vgae": "VGAE"}
_DISTRUSTED = ("distrusted", "distrusted_others")
COLOURS = {3: "#0b6fb8", 10: "#d1495b"}


def _cases(results: Sequence[Row]) -> Iterable[tuple[str, int, str, list[Row]]]:
    """Return the results of each data set, number of parties and embedder."""
    keys = [(p["dataset"], p["n_parties"], p["model"]) for p in (result["parameters"] for result in results)]
    order = {name: k for k, name in enumerate(NAMES)}
    for case in sorted(set(keys), key=lambda case: (order.get(case[0], 99), case[2], case[1])):
        yield *case, [result for result, key in zip(results, keys, strict=True) if key == case]


def _plain(rows: Sequence[Row], way: str) -> Row | None:
    for row in rows:
        p = row["parameters"]
        if p["way"] == way and not p["noise"] and p["cap"] is None and p["lie"] is None:
            return row
    return None


def _figures(row: Row | None, prefix: str = "") -> str:
    if row is None or f"{prefix}accuracy" not in row:
        return "–"
    return f"{row[f'{prefix}accuracy']:.3f} / {row[f'{prefix}auc']:.3f}"


def headline(results: Sequence[Row]) -> str:
    """Return accuracy and AUC of every way, one line for each data set and number of parties."""
    lines = []
    for dataset, n_parties, model, rows in _cases(results):
        together, started = _plain(rows, "federated"), _plain(rows, "started")
        difference = "–" if together is None else f"{together['difference']:.0e}"
        pairs = "–" if together is None else f"{together['pairs']} pairs, {together['shared']:.0f} nodes"
        name = [NAMES.get(dataset, dataset), MODEL_NAMES[model], str(n_parties), pairs]
        ways = [
            _figures(_plain(rows, "alone")),
            _figures(together, "unaligned_"),
            _figures(together),
            _figures(together, "central_"),
            difference,
            _figures(started),
            _figures(_plain(rows, "full")),
        ]
        lines.append([*name, *ways])
    head = ["data", "embedder", "parties", "measured", "alone", "unaligned", "federated", "central", "difference"]
    return markdown_table([*head, "federated, shared start", "full"], lines)


def _sweep(rows: Sequence[Row], key: str) -> list[Row]:
    """Return the federated results against the noise or the cap, in its order; no cap comes last."""
    wanted = [row for row in rows if row["parameters"][key]]
    base = _plain(rows, "federated")
    wanted = sorted(wanted, key=lambda row: row["parameters"][key])
    if base is None:
        return wanted
    return [base, *wanted] if key == "noise" else [*wanted, base]


def noise_table(results: Sequence[Row]) -> str:
    """Return what noise costs."""
    lines = []
    for dataset, n_parties, _, rows in _cases(results):
        for row in _sweep(rows, "noise"):
            if len(_sweep(rows, "noise")) > 1:
                name = [NAMES.get(dataset, dataset), str(n_parties), f"{row['parameters']['noise']:g}"]
                figures = [f"{row[key]:.2f}" for key in ("edge_error", "expected", "displacement")]
                lines.append([*name, _figures(row), *figures])
    head = ["data", "parties", "noise", "accuracy / AUC", "edge error", "expected of noise alone", "displacement"]
    return markdown_table(head, lines)


def cap_table(results: Sequence[Row]) -> str:
    """Return what a cap on shared nodes costs."""
    lines = []
    for dataset, n_parties, _, rows in _cases(results):
        for row in _sweep(rows, "cap"):
            if len(_sweep(rows, "cap")) > 1:
                name = [NAMES.get(dataset, dataset), str(n_parties), str(row["parameters"]["cap"] or "none")]
                lines.append([*name, f"{row['shared']:.0f}", _figures(row), f"{row['edge_error']:.2f}"])
    head = ["data", "parties", "cap", "nodes compared (median)", "accuracy / AUC", "edge error"]
    return markdown_table(head, lines)


def lie_table(results: Sequence[Row]) -> str:
    """Return how often a party that lies is found, and what its lie does to the others."""
    lines = []
    for dataset, n_parties, _, rows in _cases(results):
        for lie in LIES:
            for row in (row for row in rows if row["parameters"]["lie"] == lie):
                lies = row["lies"]
                middle = {key: float(np.median([one[key] for one in lies])) for key in lies[0] if "error" in key}
                accused = sum(len(one["accused"]) for one in lies)
                name = [NAMES.get(dataset, dataset), str(n_parties), lie]
                found = f"{sum(one['found'] for one in lies)} of {len(lies)}"
                errors = f"{middle['error_of_liar']:.2f} / {middle['error_of_others']:.2f}"
                doubt = " / ".join(f"{np.mean([one[key] for one in lies]):.0%}" for key in _DISTRUSTED)
                harm = " / ".join(f"{lies[0][key]:.3f}" for key in ("honest", "believed", "robust"))
                lines.append([*name, found, str(accused), errors, doubt, harm])
    head = ["data", "parties", "lie", "liar found", "honest parties accused", "edge error of liar / others"]
    return markdown_table(
        [*head, "pairs distrusted, of liar / others", "accuracy of the others: no lie / believed / robust"], lines
    )


def federated_tables(results: Sequence[Row]) -> str:
    """Return the study as Markdown."""
    return (
        "## Accuracy / AUC\n\n"
        + headline(results)
        + "\n## Noise\n\n"
        + noise_table(results)
        + "\n## A cap on shared nodes\n\n"
        + cap_table(results)
        + "\n## A party that lies\n\n"
        + lie_table(results)
    )


def write_federated(out: Path) -> list[Row]:
    """Write ``federated.json``, ``federated.md`` and the figures from the finished cells in ``out``; return these."""
    results = [result for result in read_cells(out) if "n_parties" in result["parameters"]]
    if not results:
        raise JobError(f"no cell is finished in {out / 'cells'}; run the study first.")
    (out / "federated.json").write_text(json.dumps({"cells": results}, indent=1) + "\n", encoding="utf-8")
    (out / "federated.md").write_text(federated_tables(results), encoding="utf-8")
    draw_federated(results, out / "federated")
    return results


def draw_federated(results: Sequence[Row], path: Path) -> None:
    """Draw accuracy against the noise and against the cap, one column for each data set, as ``path``.png and .svg."""
    cases = [case for case in _cases(results) if any(row["parameters"]["noise"] for row in case[3])]
    datasets = list(dict.fromkeys(case[0] for case in cases))
    if not datasets:
        return
    figure, axes = figure_of(len(datasets), 2, 3.2, 2.6)
    for dataset, n_parties, _, rows in cases:
        column, colour = datasets.index(dataset), COLOURS.get(n_parties, "#444444")
        for line, key in enumerate(("noise", "cap")):
            axis, curve = axes[line][column], _sweep(rows, key)
            names = [f"{row['parameters'][key]:g}" if row["parameters"][key] else "none" for row in curve]
            axis.plot(names, [row["accuracy"] for row in curve], "o-", color=colour, label=f"{n_parties} parties")
            axis.set_xlabel("noise, as a share of the spread" if key == "noise" else "most nodes per pair")
        axes[0][column].set_title(NAMES.get(dataset, dataset), fontsize=10)
    for column, dataset in enumerate(datasets):
        rows = [row for case in cases if case[0] == dataset for row in case[3]]
        lines = [("full", "full", "#444444", "-")]
        lines += [("alone", f"{n} parties, each alone", colour, ":") for n, colour in COLOURS.items()]
        for way, name, colour, style in lines:
            own = [row for row in rows if way == "full" or name.startswith(f"{row['parameters']['n_parties']} ")]
            level = _plain(own, way)
            if level is not None:
                for axis in axes[:, column]:
                    axis.axhline(level["accuracy"], color=colour, linestyle=style, lw=1, label=name)
        for axis in axes[:, column]:
            axis.grid(alpha=0.3)
            axis.tick_params(labelsize=7)
    for line in (0, 1):
        axes[line][0].set_ylabel("accuracy")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    save_figure(figure, path)
