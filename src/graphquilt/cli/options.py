"""The flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Job = Annotated[Path, typer.Argument(help="The folder of the job.", show_default=False)]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the job; made anew, or resumed.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of everything that is random.")]
Dim = Annotated[int, typer.Option("--dim", "-d", min=1, help="Dimensions of the embedding.")]
Patches = Annotated[int, typer.Option("--patches", "-p", min=1, help="Number of patches.")]
Partition = Annotated[str, typer.Option("--partition", help="metis, fennel, kaminpar, louvain or leiden.")]
Degree = Annotated[
    float | None, typer.Option("--degree", help="Mean number of neighbours of a patch.  [default: from the patches]")
]
Overlap = Annotated[
    str | None,
    typer.Option("--overlap", metavar="L:U", help="Least and largest overlap.  [default: from dim and patch size]"),
]
Weight = Annotated[str, typer.Option("--edge-weight", help="resistance, or conductance (for thousands of patches).")]
Embedder = Annotated[str, typer.Option("--embedder", "-e", help="svd, vgae, gae or dgi.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the embedder; may be repeated."),
]
Recipe = Annotated[
    str | None,
    typer.Option("--recipe", help="paper, best or reconstruction.  [default: each patch once, the embedder as it is]"),
]
Runs = Annotated[
    int | None,
    typer.Option("--runs", min=1, help="Train every patch so often and align all.  [default: the recipe's]"),
]
Rounds = Annotated[
    int | None,
    typer.Option("--rounds", min=0, help="Train again so often, drawn to the consensus.  [default: the recipe's]"),
]
Workers = Annotated[
    int | None, typer.Option("--workers", "-w", min=1, help="Processes on this machine.  [default: one a core]")
]
Dask = Annotated[str | None, typer.Option("--dask", metavar="ADDRESS", help="Work on this Dask scheduler's workers.")]
Resources = Annotated[
    list[str] | None,
    typer.Option("--dask-resource", metavar="NAME=N", help="What each patch takes of a Dask worker, as GPU=1."),
]
Robust = Annotated[bool, typer.Option("--robust", help="Doubt overlaps that contradict the others.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Columns = Annotated[
    str,
    typer.Option("--columns", help="Of a file of edges: source,target or source,target,weight, by position or name."),
]
Features = Annotated[
    Path | None,
    typer.Option("--features", help="Node features, .npy or .npz (sparse): a row a node, ids in ascending order."),
]
Labels = Annotated[Path | None, typer.Option("--labels", help="Array of node classes (.npy), -1 for none.")]
Directed = Annotated[bool, typer.Option("--directed", help="Keep edges one-way.")]
Largest = Annotated[bool, typer.Option("--largest-component", help="Keep only the largest connected component.")]

# Of temporal networks.
Width = Annotated[str, typer.Option("--width", help="Length of a window: 1d, 12h, 30m …")]
Lags = Annotated[str, typer.Option("--lags", help="Align windows that are so many apart, comma-separated.")]
Least = Annotated[int, typer.Option("--min-observations", help="Windows a node must be in to be standardised.")]
Quantile = Annotated[float, typer.Option("--quantile", help="Flag scores above this quantile.")]
Background = Annotated[
    float, typer.Option("--background", help="Weight of the faint uniform background; 0 is the paper's embedding.")
]
Protocol = Annotated[str | None, typer.Option("--protocol", help="Keep only tcp, udp, icmp or a number.")]
Source = Annotated[str, typer.Option("--source", help="Column of the source.")]
Destination = Annotated[str, typer.Option("--destination", help="Column of the destination.")]
Time = Annotated[str, typer.Option("--time", help="Column of the time: seconds or ISO times.")]
FlowColumns = Annotated[
    str | None, typer.Option("--columns", help="Names of all columns, if the files have no header.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first bad row with its line number.")]
