"""The results of the large-scale study: a page, a JSON file, and a map of labelled papers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from graphquilt.arrays import Float32Array, Int64Array
from graphquilt.embedders.directions import leading
from graphquilt.files import write_text
from studies.cells import Row
from studies.figures import figure_of, markdown_table, umap_plane

__all__ = ["draw_map", "large_table", "write_large_report"]

# Tables 3 and 4 of the paper: AUC and accuracy of l2g and no-trans on MAG240M, d = 128.
PAPER = {"VGAE": ((0.96, 0.54), (0.70, 0.42)), "DGI": ((0.91, 0.53), (0.69, 0.45))}


def draw_map(X: Float32Array, labels: Int64Array, path: Path) -> Row:
    """Draw ``X (k, d)`` in the plane, coloured by class: by UMAP or, where that is not installed, principal components.

    Returns
    -------
    dict
        What the plane is, and the name of the picture; or why there is none.
    """
    if find_spec("matplotlib") is None:
        return {"map": "none was drawn, because matplotlib is not installed (pip install graphquilt[viz])"}
    if find_spec("umap") is not None and len(X) > 3:
        points, plane = umap_plane(X), "UMAP"
    else:
        centred = X - X.mean(axis=0)
        points = centred @ leading((centred.T @ centred).astype(np.float64), 2)[1]
        plane = "two principal components, because umap is not installed (pip install graphquilt[viz])"
    figure, axes = figure_of(1, 1, 7, 7)
    axis = axes[0][0]
    axis.scatter(*points.T, c=labels % 20, cmap="tab20", s=max(0.1, min(4.0, 2e4 / len(X))), linewidths=0)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_title(f"{len(X):,} labelled papers, l2g, coloured by class")
    figure.savefig(path, dpi=150)
    return {"map": path.name, "plane": plane}


def large_table(rows: Sequence[Row]) -> str:
    """Return AUC and accuracy of both routes as a table, beside the paper's where it has this embedder."""
    by_name = {row["name"]: row for row in rows}
    auc, accuracy = by_name["6-auc"], by_name["7-perceptrons"]
    name = str(by_name["3-embedding"]["parameters"]["embedder"].get("name", "")).rpartition(".")[2]
    published = PAPER.get(name)
    routes = [route for route in ("l2g", "no-trans") if route in auc]
    head = ["", *routes, *(["paper, MAG240M, l2g", "paper, no-trans"] if published else [])]
    lines = [
        ["reconstruction AUC", *(f"{auc[route]:.4f}" for route in routes)],
        ["classification accuracy", *(f"{accuracy[route]['accuracy']:.4f}" for route in routes)],
    ]
    if "held_out" in auc:
        blank = [""] * (len(head) - len(routes) - 1)
        lines.append(["AUC of held-out links", *(f"{auc['held_out'][route]:.4f}" for route in routes), *blank])
    for place, line in enumerate(lines[:2] if published else []):
        line += [f"{figures[place]:.2f}" for figures in published or ()]
    return markdown_table(head, lines)


def write_large_report(rows: Sequence[Row], out: Path) -> None:
    """Write ``results.json`` and ``large.md``."""
    by_name = {row["name"]: row for row in rows}
    graph, patches, settings = by_name["1-graph"], by_name["2-patches"], by_name["3-embedding"]["parameters"]
    total = sum(row["cost"]["cpu_seconds"] for row in rows)
    split = by_name["7-perceptrons"]["split"]
    costs = [
        [
            row["name"],
            *(f"{row['cost'][name]:.1f}" for name in ("cpu_seconds", "seconds")),
            *(f"{row['cost'][name] / 2**30:.2f}" for name in ("memory", "disk")),
            f"{row['cost']['kills']:.0f}",
        ]
        for row in rows
    ]
    text = [
        "# The large-scale study\n",
        f"{graph['nodes']:,} papers, {graph['entries']:,} entries (both directions), {settings['features']} features; "
        f"{patches['n_patches']:,} patches, {patches['n_patch_edges']:,} patch edges; embedder "
        f"{settings['embedder'].get('name')} with {settings['embedder'].get('dim', '?')} dimensions, recipe "
        f"{settings['recipe'].get('name')}, seed {settings['seed']}.\n",
        large_table(rows),
        f"The perceptrons were trained on {split['train']:,} papers, stopped by {split['validation']:,} and tested on "
        f"{split['test']:,}.\n",
        "\n".join(by_name["4-alignment"]["fit"]) + "\n",
        f"## Cost\n\nCPU hours in all: {total / 3600:.3f}, of all processes. Memory is anonymous, of all processes at "
        "one time; disk is what the folder of the study has. A stage that was killed and continued counts as one.\n",
        markdown_table(["stage", "CPU s", "wall s", "memory, GiB", "disk, GiB", "kills"], costs),
    ]
    if "8-map" in by_name:
        facts = by_name["8-map"]
        drawn = (
            f"![map]({facts['map']})\n\nThe plane is {facts['plane']}.\n" if "plane" in facts else f"{facts['map']}.\n"
        )
        text.append(f"## Map\n\n{drawn}")
    write_text(out / "results.json", json.dumps(list(rows), indent=1))
    write_text(out / "large.md", "\n".join(text))
