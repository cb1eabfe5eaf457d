"""The commands about data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from graphquilt.cli import app
from graphquilt.cli.display import watching
from graphquilt.cli.values import Output

datasets_app = App(name="datasets", help="List, read and download data sets.")
app.command(datasets_app)

DataFolder = Annotated[Path | None, Parameter(env_var="GRAPHQUILT_DATA", help="The folder of data sets.")]


@datasets_app.command(name="list")
def list_datasets(*, data: DataFolder = None, output: Output = Output()) -> None:
    """List the named data sets, and which of them are in the folder."""
    from graphquilt.datasets import dataset_files, dataset_names
    from graphquilt.errors import InputError

    forms: dict[str, str | None] = {}
    for name in dataset_names():
        try:
            forms[name] = "generated" if name == "blocks" else dataset_files(name, data)[0]
        except InputError:
            forms[name] = None
    if output.json:
        print(json.dumps(forms))
        return
    for name, form in forms.items():
        print(f"{name:14} {form or '–'}")


@datasets_app.command(name="show")
def show_dataset(name: str, *, data: DataFolder = None, output: Output = Output()) -> None:
    """Read a data set and print its counts."""
    from graphquilt.datasets import load_dataset
    from graphquilt.evaluate.pairs import count_pairs

    graph = load_dataset(name, data=data)
    counts = {
        "nodes": graph.n_nodes,
        "edges": count_pairs(graph, exact=False),
        "features": 0 if graph.features is None else graph.features.shape[1],
        "classes": 0 if graph.labels is None else len(set(graph.labels[graph.labels >= 0].tolist())),
    }
    words = ", ".join(f"{count} {content}" for content, count in counts.items())
    print(json.dumps(counts) if output.json else f"{name}: {words}")


@datasets_app.command
def fetch(name: str, *, data: DataFolder = None, output: Output = Output()) -> None:
    """Download a data set into the folder and verify it."""
    from graphquilt.datasets import fetch_dataset

    with watching() as progress:
        paths = [str(path) for path in fetch_dataset(name, data=data, progress=progress)]
    print(json.dumps(paths) if output.json else "\n".join(paths))
