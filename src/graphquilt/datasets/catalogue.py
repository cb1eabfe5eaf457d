"""The names of the data sets, the files of each, and where the files come from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from graphquilt.errors import InputError


@dataclass(frozen=True)
class Dataset:
    """The description of a data set."""

    name: str
    files: tuple[str, ...]  # the names that its file may have, or patterns; the first that exists is used
    source: str  # where the files come from, for messages
    places: tuple[str, ...] = ()  # folders below the data folder, besides the one of its name, that may contain them
    form: str = "npz"
    # What ``graphquilt datasets fetch`` downloads; None where the publisher requires a form, or for hundreds of GB.
    url: str | None = None
    counts: tuple[int, int] | None = None  # nodes and edges of the largest component

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders below the data folder in which the files are looked for."""
        return self.name, *self.places, "."


_PLANETOID = (
    "github.com/kimiyoung/planetoid, whose pickles 'python -m studies convert' in a clone of graphquilt downloads and "
    "turns into .npz"
)
_SHCHUR = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"


def _citations(name: str, counts: tuple[int, int]) -> Dataset:
    return Dataset(name, (f"{name}.npz",), _PLANETOID, counts=counts)


def _shchur(name: str, file: str, counts: tuple[int, int]) -> Dataset:
    source = "github.com/shchur/gnn-benchmark (folder data/npz)"
    files, url = (f"{name}.npz", f"{file}.npz"), f"{_SHCHUR}/{file}.npz"
    return Dataset(name, files, source, (f"{name}/raw",), url=url, counts=counts)


CATALOGUE: dict[str, Dataset] = {
    entry.name: entry
    for entry in (
        _citations("cora", (2485, 5069)),
        _citations("citeseer", (2120, 3679)),
        _citations("pubmed", (19717, 44324)),
        _shchur("amazon-photo", "amazon_electronics_photo", (7487, 119_043)),
        _shchur("coauthor-cs", "ms_academic_cs", (18333, 81894)),
        Dataset(
            "wordnet",
            ("wordnet.npz",),
            "the synsets and relations of github.com/globalwordnet/english-wordnet (docs/results/quality.md)",
            counts=(96_502, 114_923),
        ),
        Dataset(
            "lanl",
            ("netflow_day-*",),
            "Los Alamos National Laboratory, csr.lanl.gov/data/2017 (netflow; requires a form)",
            ("lanl-2017-netflow",),
            form="flows",
        ),
        Dataset(
            "lanl-2015",
            ("flows.txt*", "auth*.txt*"),
            "Los Alamos National Laboratory, csr.lanl.gov/data/cyber1 (flows.txt or auth.txt)",
            form="flows",
        ),
        Dataset(
            "darpa-1998",
            ("darpa_original.*",),
            "the connections of DARPA's evaluation of 1998 as a table, github.com/Stream-AD/MIDAS (folder data)",
            form="flows",
        ),
        Dataset(
            "optc",
            ("ecar*.json*", "AIA-*.json*"),
            "DARPA's Operationally Transparent Cyber data, github.com/FiveDirections/OpTC-data (eCAR events)",
            ("security-logs/optc",),
            form="flows and events",
        ),
        Dataset(
            "beth",
            ("labelled_*.csv",),
            "the BETH data of Highnam et al. 2021, kaggle.com/datasets/katehighnam/beth-dataset",
            ("security-logs/beth",),
            form="events",
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
    for pattern in entry.files:
        for folder in entry.folders:
            if matches := sorted((root / folder).glob(pattern)):
                return entry.form, matches
    hint = f"graphquilt datasets fetch {name}" if entry.url else "graphquilt does not download it"
    raise InputError(
        f"the data set '{name}' is not in {root}. Looked for {' or '.join(entry.files)} in "
        f"{', '.join(entry.folders)}. It comes from {entry.source}; {hint}."
    )
