"""The command that turns files into graphs: ingest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphquilt.cli import app
from graphquilt.cli.choices import columns as columns_of
from graphquilt.cli.choices import read_array
from graphquilt.cli.display import resumable, show, watching

if TYPE_CHECKING:
    from graphquilt.graph import Graph

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _bytes(text: str) -> int:
    from graphquilt.errors import InputError

    number, unit = text.strip().upper().removesuffix("B").removesuffix("I"), 1
    if number and number[-1] in _UNITS:
        number, unit = number[:-1], _UNITS[number[-1]]
    try:
        return int(float(number) * unit)
    except ValueError:
        raise InputError(f"--memory is a number with K, M, G or T, as 2G; this is '{text}'.") from None


def _build(
    source: Path, out: Path, *, memory: int, columns: tuple[int | str, ...], nodes: int | None, directed: bool
) -> Graph:
    from graphquilt.ingest import build_csr, read_mag240m

    with resumable("the same command again"), watching() as progress:
        if source.is_dir() and not any(source.glob("**/*.parquet")):
            return read_mag240m(source, out, memory=memory, progress=progress)
        return build_csr(
            source, out, n_nodes=nodes, directed=directed, memory=memory, columns=columns, progress=progress
        )


@app.command(epilog="Example: `graphquilt ingest edges.csv graph --features x.npy`")
def ingest(
    source: Annotated[Path, typer.Argument(help="Text (.csv, .tsv, .txt, .gz), .parquet, .npy, .npz, or a folder.")],
    out: Annotated[Path, typer.Argument(help="The folder that will hold the graph.")],
    *,
    columns: Annotated[str, typer.Option(help="source,target or source,target,weight, by position or name.")] = "0,1",
    directed: Annotated[bool, typer.Option("--directed", help="Keep edges one-way.")] = False,
    nodes: Annotated[int | None, typer.Option(help="Ids are 0..N-1, isolated nodes included.", min=0)] = None,
    ids: Annotated[str, typer.Option(help="Of text: auto, integer or text.")] = "auto",
    header: Annotated[bool | None, typer.Option("--header/--no-header", help="Of text; guessed by default.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Of text; guessed by default.")] = None,
    features: Annotated[Path | None, typer.Option(help="Features of the nodes, .npy or a sparse .npz.")] = None,
    labels: Annotated[Path | None, typer.Option(help="Classes of the nodes, .npy.")] = None,
    largest: Annotated[bool, typer.Option("--largest-component", help="Keep only the largest component.")] = False,
    memory: Annotated[
        str | None, typer.Option(help="Build out of core within this much memory, as 2G: .npy, Parquet, MAG240M.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Turn a file of edges into a graph folder that opens memory-mapped."""
    import logging

    from graphquilt.errors import InputError
    from graphquilt.graph import Graph
    from graphquilt.graph.files import attach
    from graphquilt.ingest import read_edges

    logging.basicConfig(format="%(message)s", level=logging.INFO if sys.stderr.isatty() else logging.WARNING)
    if not source.exists():
        raise InputError(f"{source} does not exist.")
    if ids not in ("auto", "integer", "text"):
        raise InputError(f"--ids is auto, integer or text, not '{ids}'.")
    X, y = read_array(features, "features"), read_array(labels, "labels")
    if memory is not None or source.is_dir():
        if largest:
            raise InputError("--largest-component needs the graph in memory; leave out --memory, or take it later.")
        graph = _build(
            source,
            out,
            memory=_bytes(memory or "1G"),
            columns=columns_of(columns),
            nodes=nodes if X is None else X.shape[0],
            directed=directed,
        )
        if graph.features is not None and X is None:
            logging.warning(
                "The features (%s × %s) were left where they are; to have them in %s too, add "
                "--features %s/…/node_feat.npy.",
                *graph.features.shape,
                out,
                source,
            )
        attach(out, features=X, labels=graph.labels if y is None else y)
        graph = Graph.open(out)
    else:
        graph = read_edges(
            source,
            columns=columns_of(columns),
            directed=directed,
            n_nodes=nodes,
            header=header,
            delimiter=delimiter,
            ids=ids,  # type: ignore[arg-type]
            features=X,
            labels=y,
        )
        if largest:
            graph = graph.largest_component()[0]
        graph.save(out)
    _tell(graph, out, as_json=as_json)


def _tell(graph: Graph, out: Path, *, as_json: bool) -> None:
    import numpy as np

    component = np.bincount(graph.components()) if graph.n_nodes else np.zeros(0, dtype=int)
    result = {
        "graph": str(out),
        "nodes": graph.n_nodes,
        "entries": graph.n_edges,
        "directed": graph.directed,
        "weighted": graph.weights is not None,
        "features": None if graph.features is None else graph.features.shape[1],
        "labelled": graph.labels is not None,
        "components": len(component),
        "largest_component": int(component.max()) if len(component) else 0,
        "isolated_nodes": int((component == 1).sum()),
    }
    show(result, as_json=as_json)
