"""From the words of the command line to the values of the library."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphquilt.errors import InputError, JobError, MissingExtraError

if TYPE_CHECKING:
    from graphquilt.embedders import Embedder
    from graphquilt.graph import Graph
    from graphquilt.partition import Partitioner
    from graphquilt.patches import EdgeWeight
    from graphquilt.recipes import Recipe
    from graphquilt.store import DirectoryStore

EMBEDDERS = {"svd": "SVD", "vgae": "VGAE", "gae": "GAE", "dgi": "DGI"}
PARTITIONERS = {"metis": "Metis", "fennel": "Fennel", "kaminpar": "KaMinPar", "louvain": "Louvain", "leiden": "Leiden"}
EDGE_WEIGHTS = {"resistance": "Resistance", "conductance": "Conductance"}


def _chosen(word: str, table: dict[str, str], what: str) -> Any:
    import graphquilt

    if word not in table:
        raise InputError(f"'{word}' is not {what}; choose one of {', '.join(table)}.")
    return getattr(graphquilt, table[word])


def embedder(word: str, dim: int, settings: Sequence[str] | None, how: Recipe) -> Embedder:
    """Return the embedder of a name, as the recipe has it, with settings like ``max_epochs=500``."""
    return _with_settings(how.tuned(_chosen(word, EMBEDDERS, "an embedder")(dim)), word, settings)


def kept_embedder(
    store: DirectoryStore, dim: int | None, settings: Sequence[str] | None, how: Recipe | None
) -> Embedder:
    """Return the embedder that a job was begun with; where they are given, with other settings and for a recipe."""
    import graphquilt
    from graphquilt.linalg.motions import Motions

    said = store["embed"].parameters["embedder"]
    name = said["name"] if isinstance(said, dict) else "one embedder a patch"
    for word, public in EMBEDDERS.items():
        kind = getattr(graphquilt, public)
        if name == f"{kind.__module__}.{kind.__qualname__}":
            known = {field.name for field in dataclasses.fields(kind)}
            kept = {field: value for field, value in said.items() if field in known}
            motions = {name: value for name, value in kept["motions"].items() if name != "name"}
            kept |= {"motions": Motions(**motions)} | ({} if dim is None else {"dim": dim})
            made = kind(**kept)
            return _with_settings(made if how is None else how.tuned(made), word, settings)
    raise JobError(
        f"{store} is embedded with {name}, which the command line cannot make: go on in Python "
        "(graphquilt.embed_in_rounds), or write the missing patches yourself (docs/job-format.md)."
    )


def _with_settings(model: Any, word: str, settings: Sequence[str] | None) -> Embedder:
    known = {field.name: str(field.type) for field in dataclasses.fields(model) if field.name not in ("dim", "motions")}
    given: dict[str, Any] = {}
    for setting in settings or ():
        name, equals, text = setting.partition("=")
        name = name.strip().replace("-", "_")
        if name not in known:
            raise InputError(f"'{name}' is no setting of {word}; it has {', '.join(sorted(known)) or 'none'}.")
        given[name] = _value(text.strip())
        if not equals or not _fits(given[name], known[name]):
            raise InputError(f"{name} of {word} takes {known[name]}, as --set {name}=VALUE; this is '{setting}'.")
    try:
        made: Embedder = dataclasses.replace(model, **given)
    except TypeError as error:
        raise InputError(f"{word} cannot be made with {', '.join(settings or ())}: {error}.") from error
    return made


def recipe(word: str | None, runs: int | None, rounds: int | None, store: DirectoryStore | None = None) -> Recipe:
    """Return the recipe of a name, or else that of the job, with the numbers of runs and rounds that are given."""
    from graphquilt.recipes import Recipe, recipe_named

    base = Recipe() if word is None else recipe_named(word)
    if word is None and store is not None and "recipe" in store:
        base = Recipe(**store["recipe"].parameters)
        if base != Recipe():
            typer.echo(
                f"graphquilt: the job keeps its recipe ({base.name}: {base.runs} runs, {base.rounds} rounds) where "
                "--recipe, --runs and --rounds do not say otherwise.",
                err=True,
            )
    return base.changed(runs=runs, rounds=rounds)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def _fits(value: Any, kind: str) -> bool:
    """Say whether a value is of a kind as a field of a dataclass states it."""
    kinds: dict[str, Any] = {"int": int, "float": int | float, "str": str, "bool": bool, "None": type(None)}
    return any(isinstance(value, kinds[one]) for one in kind.split(" | ") if isinstance(value, bool) == (one == "bool"))


def partitioner(word: str, n_patches: int, seed: int) -> Partitioner:
    """Return the partitioner of a name."""
    kind = _chosen(word, PARTITIONERS, "a partitioner")
    known = {field.name for field in dataclasses.fields(kind)}
    given = {"n_patches": n_patches, "seed": seed}
    made: Partitioner = kind(**{name: value for name, value in given.items() if name in known})
    return made


def edge_weight(word: str) -> EdgeWeight:
    """Return the edge weight of a name."""
    made: EdgeWeight = _chosen(word, EDGE_WEIGHTS, "an edge weight")()
    return made


def overlap(text: str | None) -> tuple[int, int] | None:
    """Return ``L:U`` as two numbers."""
    if text is None:
        return None
    least, colon, most = text.partition(":")
    try:
        return int(least), int(most) if colon else 4 * int(least)
    except ValueError:
        raise InputError(f"--overlap is two numbers with a colon, as 256:1024, not '{text}'.") from None


def share(text: str | None, n_patches: int) -> range | None:
    """Return the patches of share ``I/N``: I - 1, I - 1 + N, and so on."""
    if text is None:
        return None
    try:
        i, n = (int(part) for part in text.split("/"))
    except ValueError:
        raise InputError(f"--shard is two numbers with a slash, as 3/200, not '{text}'.") from None
    if not 1 <= i <= n:
        raise InputError(f"--shard {text}: shares are numbered 1/{n} to {n}/{n}.")
    return range(i - 1, n_patches, n)


def read_array(path: Path | None, what: str) -> Any:
    """Read an array (.npy), or a sparse matrix (.npz of scipy.sparse.save_npz), without unpickling anything."""
    if path is None:
        return None
    import numpy as np
    import scipy.sparse as sp

    try:
        if path.suffix == ".npz":
            return sp.csr_array(sp.load_npz(path))
        return np.load(path, allow_pickle=False, mmap_mode="r")
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} cannot be read as {what}: {error}.") from error


def columns(text: str) -> tuple[int | str, ...]:
    """Read which columns of a file of edges are source, target and perhaps weight, by position or name."""
    words = [word.strip() for word in text.split(",")]
    if not 2 <= len(words) <= 3 or not all(words):
        raise InputError(f"--columns is source,target or source,target,weight by position or name; this is '{text}'.")
    return tuple(int(word) if word.isdigit() else word for word in words)


def read_graph(
    path: Path,
    *,
    columns: tuple[int | str, ...],
    features: Path | None,
    labels: Path | None,
    directed: bool,
    largest: bool,
) -> Graph:
    """Open a graph folder, or read a file of edges."""
    from graphquilt.graph import Graph
    from graphquilt.ingest import read_edges

    if not path.exists():
        raise InputError(f"{path} does not exist.")
    X, y = read_array(features, "features"), read_array(labels, "labels")
    if path.is_dir():
        graph = completed(Graph.open(path), X, y)
    else:
        graph = read_edges(path, columns=columns, directed=directed, features=X, labels=y)
    return graph.largest_component()[0] if largest else graph


def completed(graph: Graph, features: Any, labels: Any) -> Graph:
    """Return the graph with these features and labels, where they are given."""
    if features is None and labels is None:
        return graph
    return type(graph).from_arrays(
        graph.indptr,
        graph.indices,
        graph.weights,
        features=graph.features if features is None else features,
        labels=graph.labels if labels is None else labels,
        node_ids=graph.node_ids,
        directed=graph.directed,
    )


def origin(path: Path, **others: Any) -> dict[str, Any]:
    """Say what a job is made from, so that it is not resumed with something else."""
    from graphquilt.graph import Graph
    from graphquilt.records import graph_fingerprint

    said: dict[str, Any] = {"path": str(path.absolute())}
    if path.is_dir():
        said["fingerprint"] = graph_fingerprint(Graph.open(path))
    for name, value in {"": path, **others}.items():
        if isinstance(value, Path):
            if name:
                said[name] = str(value.absolute())
            if value.is_file():
                said[f"{name}_sha256".lstrip("_")] = _digest(value)
        else:
            said[name] = list(value) if isinstance(value, tuple) else value
    return said


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cores(workers: int | None, n_tasks: int) -> int:
    """Return how many processes to use: as many as asked for, or one for each core there is work for."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return workers or max(1, min(here, n_tasks))


def made_for(store: DirectoryStore) -> int:
    """Return the dimension that a job's patches were made for."""
    dim: int = store["patch_graph"].parameters.get("made_with", {}).get("dim", 64)
    return dim


@contextlib.contextmanager
def hands(
    workers: int | None, dask: str | None = None, resources: Sequence[str] | None = None, n_tasks: int = 1
) -> Iterator[Executor | None]:
    """Lend the executor that was asked for: a Dask cluster, processes here, or None for a plain loop."""
    if dask is not None:
        with _cluster(dask, resources) as pool:
            yield pool
        return
    n = cores(workers, n_tasks)
    if n == 1:
        yield None
        return
    from graphquilt.workers import Processes

    with Processes(n) as processes:
        yield processes


@contextlib.contextmanager
def _cluster(address: str, resources: Sequence[str] | None) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtraError("--dask", "dask") from error
    needs: dict[str, float] = {}
    for text in resources or ():
        name, _, amount = text.partition("=")
        try:
            needs[name] = float(amount)
        except ValueError:
            raise InputError(f"--dask-resource is a name and a number, as GPU=1, not '{text}'.") from None
    try:
        client = Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        raise JobError(f"there is no Dask scheduler at {address}: {error}") from error
    with client, client.get_executor(pure=False, retries=2, **({"resources": needs} if needs else {})) as pool:
        yield pool
