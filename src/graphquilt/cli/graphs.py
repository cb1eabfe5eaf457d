"""The command that turns files into graphs: ingest."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

import graphquilt as gq
from graphquilt.cli import app
from graphquilt.cli.display import graph_facts, show, watching
from graphquilt.cli.flags import Output, SourceFlags
from graphquilt.errors import InputError

if TYPE_CHECKING:
    from graphquilt.graph import Graph
    from graphquilt.jobs import Source

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
datasets_app = App(name="datasets", help="List, read and download data sets.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReadingFlags:
    """How edge lists are read."""

    nodes: int | None = None
    """Node ids are 0..N-1, isolated nodes included."""
    ids: Literal["auto", "integer", "text"] = "auto"
    """What node ids in text files are."""
    header: bool | None = None
    """Whether text files have a header. [default: guessed]"""
    delimiter: str | None = None
    """What separates columns of text files. [default: guessed]"""
    memory: str | None = None
    """Build out of core within this much memory, as 2G: text, Parquet, .npy."""
    copy_features: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Out of core: copy the features into the graph's folder, which else refers to their file."""


@app.command(help_epilogue="Example: graphquilt ingest edges.csv graph --features x.npy")
def ingest(
    edges: Annotated[Path, Parameter(help="Text (.csv, .tsv, .txt, .gz), .parquet, .npy, .npz, or a folder.")],
    out: Annotated[Path, Parameter(help="The folder that will hold the graph.")],
    *,
    source: SourceFlags = SourceFlags(),
    reading: ReadingFlags = ReadingFlags(),
    output: Output = Output(),
) -> None:
    """Turn an edge list into a graph folder that opens memory-mapped."""
    logging.basicConfig(format="%(message)s", level=logging.INFO if sys.stderr.isatty() else logging.WARNING)
    if not edges.exists():
        raise InputError(f"{edges} does not exist.")
    if source.half_life is not None:
        raise InputError("a graph folder keeps no times: give --half-life, and the edge list, to embed or cut.")
    origin = source.apply_to(gq.jobs.Source(), edges)
    if reading.memory is not None or edges.is_dir():
        graph = _out_of_core(origin, out, reading)
    else:
        names = ("columns", "directed", "bad_rows", "duplicates", "features", "labels")
        options: dict[str, Any] = {name: getattr(origin, name) for name in names}
        options |= {"header": reading.header, "delimiter": reading.delimiter, "ids": reading.ids}
        graph = gq.read_edges(edges, n_nodes=reading.nodes, **options)
        graph = graph.largest_component()[0] if origin.largest_component else graph
        graph.save(out)
    show({"graph": str(out), **_summary(graph)}, as_json=output.json)


def _out_of_core(origin: Source, out: Path, reading: ReadingFlags) -> Graph:
    """Build the graph folder within the memory that is allowed."""
    from graphquilt.graph.files import save_largest_component
    from graphquilt.graph.reading.node_tables import add_node_tables, open_features
    from graphquilt.graph.reading.sources import TextOptions

    edges, memory = Path(str(origin.path)), memory_bytes(reading.memory or "1G")
    place = out / "whole" if origin.largest_component else out
    features = open_features(origin.features)
    shape = getattr(features, "shape", None)
    with watching() as progress:
        gq.graph.build_csr(
            edges,
            place,
            n_nodes=reading.nodes if shape is None else shape[0],
            directed=origin.directed,
            memory=memory,
            columns=origin.columns,
            text=TextOptions(reading.header, reading.delimiter, reading.ids),
            bad_rows=origin.bad_rows,
            duplicates=origin.duplicates,
            progress=progress,
        )
        whole = add_node_tables(gq.Graph.open(place), features, origin.labels)
        if not origin.largest_component:
            file = None if reading.copy_features else getattr(features, "filename", None)
            if file is not None:
                logging.info("The features stay in %s; --copy-features copies them.", file)
            gq.graph.attach(out, features=whole.features if file is None else Path(file), labels=whole.labels)
            return gq.Graph.open(out)
        largest = save_largest_component(whole, out, progress=progress)
        shutil.rmtree(place)
        return largest


def memory_bytes(text: str) -> int:
    """Return the number of bytes that a text such as 2G stands for."""
    number, unit = text.strip().upper().removesuffix("B").removesuffix("I"), 1
    if number and number[-1] in _UNITS:
        number, unit = number[:-1], _UNITS[number[-1]]
    try:
        return int(float(number) * unit)
    except (ValueError, OverflowError):
        raise InputError(f"--memory is a number with K, M, G or T, as 2G; this is '{text}'.") from None


def _summary(graph: Graph) -> dict[str, object]:
    import numpy as np

    sizes = np.bincount(graph.components()) if graph.n_nodes else np.zeros(0, dtype=int)
    facts = {"components": len(sizes), "largest_component": int(sizes.max(initial=0))}
    return {**graph_facts(graph), **facts, "isolated_nodes": int((sizes == 1).sum())}


app.command(datasets_app)


DataFolder = Annotated[Path | None, Parameter(env_var="GRAPHQUILT_DATA", help="The folder of data sets.")]


@datasets_app.command(name="list")
def list_datasets(*, data: DataFolder = None, output: Output = Output()) -> None:
    """List the named data sets, and which of them are in the folder."""
    forms: dict[str, str | None] = {}
    for name in gq.datasets.dataset_names():
        try:
            forms[name] = "generated" if name == "blocks" else gq.datasets.dataset_files(name, data)[0]
        except InputError:
            forms[name] = None
    show(forms, as_json=output.json)


@datasets_app.command(name="show")
def show_dataset(name: str, *, data: DataFolder = None, output: Output = Output()) -> None:
    """Read a data set and print its counts."""
    from graphquilt.evaluate.pairs import count_pairs

    graph = gq.datasets.load_dataset(name, data=data)
    n_features = 0 if graph.features is None else graph.features.shape[1]
    n_classes = 0 if graph.labels is None else len(set(graph.labels[graph.labels >= 0].tolist()))
    counts = {"nodes": graph.n_nodes, "edges": count_pairs(graph, exact=False)}
    show({**counts, "features": n_features, "classes": n_classes}, as_json=output.json)


@datasets_app.command
def fetch(name: str, *, data: DataFolder = None, output: Output = Output()) -> None:
    """Download a data set into the folder and verify it."""
    with watching() as progress:
        paths = [str(path) for path in gq.datasets.fetch_dataset(name, data=data, progress=progress)]
    print(json.dumps(paths) if output.json else "\n".join(paths))
