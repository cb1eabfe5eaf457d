"""The names of the data sets, the files of each, and where the files come from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from graphquilt.errors import InputError

RECORDS = ("flows", "events", "flows and events")  # the forms of data sets that are no graphs


@dataclass(frozen=True)
class Dataset:
    """The description of a data set."""

    name: str
    # Formats with their files, of which the first whose files all exist is used; a file name may contain ``*``.
    forms: tuple[tuple[str, tuple[str, ...]], ...]
    folders: tuple[str, ...]  # the folders below the data folder that may contain those files
    source: str  # where the files come from, for messages
    # What ``graphquilt datasets fetch`` downloads; empty where the publisher requires a form, or for hundreds of GB.
    urls: tuple[str, ...] = ()
    counts: tuple[int, int] | None = None  # nodes and edges of the largest component


def _citations(name: str, counts: tuple[int, int]) -> Dataset:
    return Dataset(
        name=name,
        forms=(("npz", (f"{name}.npz",)),),
        folders=(name, "."),
        source="github.com/kimiyoung/planetoid, whose pickles 'python -m studies convert' in a clone of graphquilt "
        "downloads and turns into .npz",
        counts=counts,
    )


def _shchur(name: str, file: str, counts: tuple[int, int]) -> Dataset:
    return Dataset(
        name=name,
        forms=(("npz", (f"{name}.npz",)), ("npz", (f"{file}.npz",))),
        folders=(name, f"{name}/raw", "."),
        source="github.com/shchur/gnn-benchmark (folder data/npz)",
        urls=(f"https://github.com/shchur/gnn-benchmark/raw/master/data/npz/{file}.npz",),
        counts=counts,
    )


CATALOGUE: dict[str, Dataset] = {
    entry.name: entry
    for entry in (
        _citations("cora", (2485, 5069)),
        _citations("citeseer", (2120, 3679)),
        _citations("pubmed", (19717, 44324)),
        _shchur("amazon-photo", "amazon_electronics_photo", (7487, 119_043)),
        _shchur("coauthor-cs", "ms_academic_cs", (18333, 81894)),
        Dataset(
            name="wordnet",
            forms=(("npz", ("wordnet.npz",)),),
            folders=("wordnet", "."),
            source="the synsets and relations of github.com/globalwordnet/english-wordnet (docs/results/quality.md)",
            counts=(96_502, 114_923),
        ),
        Dataset(
            name="lanl",
            forms=(("flows", ("netflow_day-*",)),),
            folders=("lanl", "lanl-2017-netflow", "."),
            source="Los Alamos National Laboratory, csr.lanl.gov/data/2017 (netflow; requires a form)",
        ),
        Dataset(
            name="lanl-2015",
            forms=(("flows", ("flows.txt*",)), ("flows", ("auth*.txt*",))),
            folders=("lanl-2015", "."),
            source="Los Alamos National Laboratory, csr.lanl.gov/data/cyber1 (flows.txt or auth.txt)",
        ),
        Dataset(
            name="darpa-1998",
            forms=(("flows", ("darpa_original.*",)),),
            folders=("darpa-1998", "."),
            source="the connections of DARPA's evaluation of 1998 as a table, github.com/Stream-AD/MIDAS (folder data)",
        ),
        Dataset(
            name="optc",
            forms=(("flows and events", ("ecar*.json*",)), ("flows and events", ("AIA-*.json*",))),
            folders=("optc", "security-logs/optc", "."),
            source="DARPA's Operationally Transparent Cyber data, github.com/FiveDirections/OpTC-data (eCAR events)",
        ),
        Dataset(
            name="beth",
            forms=(("events", ("labelled_*.csv",)),),
            folders=("beth", "security-logs/beth", "."),
            source="the BETH data of Highnam et al. 2021, kaggle.com/datasets/katehighnam/beth-dataset",
        ),
    )
}


def dataset_names() -> list[str]:
    """Return the names of all data sets, first the one that needs no file."""
    return ["blocks", *sorted(CATALOGUE)]


def dataset(name: str) -> Dataset:
    """Return the description of the data set with this name."""
    if name not in CATALOGUE:
        raise InputError(f"there is no data set named '{name}'; the names are {', '.join(dataset_names())}.")
    return CATALOGUE[name]


def dataset_folder(data: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder with data sets: ``data``, or that of the variable ``GRAPHQUILT_DATA``."""
    path = data if data is not None else os.environ.get("GRAPHQUILT_DATA")
    if not path:
        raise InputError(
            "no folder with data sets is named: pass --data FOLDER (data= in Python) or set GRAPHQUILT_DATA. "
            "The data set 'blocks' needs none."
        )
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise InputError(f"the folder with data sets, {folder}, does not exist.")
    return folder


def dataset_files(name: str, data: str | os.PathLike[str] | None = None) -> tuple[str, list[Path]]:
    """Return the file format of a data set in a folder, and its files."""
    entry = dataset(name)
    root = dataset_folder(data)
    for form, names in entry.forms:
        for folder in entry.folders:
            matches = [sorted((root / folder).glob(pattern)) for pattern in names]
            if all(matches):
                return form, [path for paths in matches for path in paths]
    files = "; or ".join(", ".join(names) for _, names in entry.forms)
    hint = f"graphquilt datasets fetch {name}" if entry.urls else "graphquilt does not download it"
    raise InputError(
        f"the data set '{name}' is not in {root}. Looked for {files} in {', '.join(entry.folders[:3])} and the "
        f"usual folders below. It comes from {entry.source}; {hint}."
    )
