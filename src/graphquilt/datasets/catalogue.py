"""Which data sets have a name here, which files each is made of, and where those come from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from graphquilt.errors import InputError

__all__ = ["CATALOGUE", "Dataset", "dataset", "dataset_files", "dataset_folder", "dataset_names"]

_PLANETOID = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


@dataclass(frozen=True)
class Dataset:
    """What is known of a data set before its files are read.

    Attributes
    ----------
    name : str
    forms : tuple of (form, tuple of paths)
        The first form whose files are all there is read. A path may hold ``*``.
    folders : tuple of str
        Where below the data folder those files are looked for.
    source : str
        Where the files come from, in words.
    urls : tuple of str
        What ``graphquilt datasets fetch`` downloads; empty where the publisher asks for a form or hundreds of GB.
    counts : tuple of int or None
        Nodes and edges (both directions) of the largest component.
    """

    name: str
    forms: tuple[tuple[str, tuple[str, ...]], ...]
    folders: tuple[str, ...]
    source: str
    urls: tuple[str, ...] = ()
    counts: tuple[int, int] | None = None


def _citations(name: str, counts: tuple[int, int]) -> Dataset:
    raw = tuple(f"ind.{name}.{part}" for part in _PLANETOID)
    address = "https://github.com/kimiyoung/planetoid/raw/master/data/"
    return Dataset(
        name=name,
        forms=(("npz", (f"{name}.npz",)), ("planetoid", raw), ("pyg", ("data.pt",))),
        folders=(name, f"{name}/raw", ".", *_cached(name.title(), "Planetoid")),
        source="the raw files of github.com/kimiyoung/planetoid (folder data), or torch_geometric.datasets.Planetoid",
        urls=tuple(address + part for part in raw),
        counts=counts,
    )


def _shchur(name: str, file: str, others: tuple[str, ...], cache: tuple[str, ...], counts: tuple[int, int]) -> Dataset:
    return Dataset(
        name=name,
        forms=(*(("npz", (each,)) for each in (f"{name}.npz", f"{file}.npz", *others)), ("pyg", ("data.pt",))),
        folders=(name, f"{name}/raw", ".", *cache),
        source="github.com/shchur/gnn-benchmark (folder data/npz), or torch_geometric.datasets.Amazon and Coauthor",
        urls=(f"https://github.com/shchur/gnn-benchmark/raw/master/data/npz/{file}.npz",),
        counts=counts,
    )


def _cached(name: str, family: str) -> tuple[str, ...]:
    """List the folders in which PyG keeps a set of a family, whichever root it was given."""
    tops = (name, f"{family}/{name}", name.lower() + "/" + name, "")
    return tuple(str(Path(top) / leaf) for top in tops if top for leaf in ("raw", "processed", f"{family}/processed"))


CATALOGUE: dict[str, Dataset] = {
    each.name: each
    for each in (
        _citations("cora", (2485, 10138)),
        _citations("citeseer", (2120, 7358)),
        _citations("pubmed", (19717, 88648)),
        _shchur(
            "amazon-photo",
            "amazon_electronics_photo",
            ("amazon_photo.graphdata.npz", "amazon_photo.npz"),
            _cached("Photo", "Amazon"),
            (7487, 238086),
        ),
        _shchur("coauthor-cs", "ms_academic_cs", (), _cached("CS", "Coauthor"), (18333, 163788)),
        Dataset(
            name="mag240m",
            forms=(
                (
                    "ogb-lsc",
                    (
                        "processed/paper/node_feat.npy",
                        "processed/paper/node_label.npy",
                        "processed/paper___cites___paper/edge_index.npy",
                    ),
                ),
            ),
            folders=("mag240m", "mag240m_kddcup2021", "mag240m/mag240m_kddcup2021", "."),
            source="the Open Graph Benchmark's large-scale challenge, ogb.stanford.edu/docs/lsc/mag240m (about 170 GB)",
            counts=(121_751_666, 2_593_241_212),
        ),
        Dataset(
            name="lanl",
            forms=(("netflow", ("netflow_day-*",)),),
            folders=("lanl", "lanl-2017-netflow", "."),
            source="Los Alamos National Laboratory, csr.lanl.gov/data/2017 (netflow; asks for a form to be filled in)",
        ),
    )
}


def dataset_names() -> list[str]:
    """Return the names that :func:`load_dataset` and :func:`dataset_files` know, the embedded one first.

    Examples
    --------
    >>> dataset_names()[:3]
    ['blocks', 'amazon-photo', 'citeseer']
    """
    return ["blocks", *sorted(CATALOGUE)]


def dataset(name: str) -> Dataset:
    """Return what is known of the set with this name."""
    if name not in CATALOGUE:
        raise InputError(f"there is no data set named '{name}'; the names are {', '.join(dataset_names())}.")
    return CATALOGUE[name]


def dataset_folder(data: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder with data sets: the one given, or that of the variable ``GRAPHQUILT_DATA``."""
    named = data if data is not None else os.environ.get("GRAPHQUILT_DATA")
    if not named:
        raise InputError(
            "no folder with data sets is named: pass --data FOLDER (data= in Python) or set GRAPHQUILT_DATA. "
            "The set 'blocks' needs none."
        )
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise InputError(f"the folder with data sets, {folder}, does not exist.")
    return folder


def dataset_files(name: str, data: str | os.PathLike[str] | None = None) -> tuple[str, list[Path]]:
    """Return in which form a set is there, and its files.

    Raises
    ------
    InputError
        Where it is in no form there: says which files are looked for and where they come from.
    """
    known = dataset(name)
    root = dataset_folder(data)
    for form, names in known.forms:
        for place in known.folders:
            found = [sorted((root / place).glob(each)) for each in names]
            if all(found):
                return form, [path for paths in found for path in paths]
    looked = "; or ".join(", ".join(names) for _, names in known.forms)
    hint = f"graphquilt datasets fetch {name}" if known.urls else "it is not downloaded by graphquilt"
    raise InputError(
        f"the data set '{name}' is not in {root}. Looked for {looked} in {', '.join(known.folders[:3])} and the "
        f"usual folders below. It comes from {known.source}; {hint}."
    )
