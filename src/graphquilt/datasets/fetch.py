"""Download a data set, only on request."""

from __future__ import annotations

import hashlib
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from graphquilt.datasets.catalogue import dataset, dataset_files, dataset_folder
from graphquilt.datasets.loading import load_dataset
from graphquilt.errors import FormatError, InputError
from graphquilt.files import temporary_sibling, translate_disk_errors
from graphquilt.progress import ProgressCallback, report

__all__ = ["download", "fetch_dataset"]


def fetch_dataset(
    name: str,
    *,
    data: str | os.PathLike[str] | None = None,
    urls: tuple[str, ...] | None = None,
    progress: ProgressCallback | None = None,
) -> list[Path]:
    """Download the files of a data set into ``DATA/NAME``, check them, and return where they are.

    Files that are not those of the data set are removed, and raise a FormatError.

    Parameters
    ----------
    name : str
        One of :func:`dataset_names`.
    data : path, optional
        See :func:`load_dataset`.
    urls : tuple of str, optional
        Download the files from these addresses instead; the file names must be the same.
    """
    entry = dataset(name)
    root = dataset_folder(data)
    try:
        return dataset_files(name, root)[1]
    except InputError:
        addresses = entry.urls if urls is None else urls
    if not addresses:
        raise InputError(f"graphquilt does not download '{name}'; it comes from {entry.source}.")
    folder = root / name
    folder.mkdir(exist_ok=True)
    files = []
    for number, address in enumerate(addresses):
        report(progress, f"fetching {name}", number, len(addresses))
        files.append(download(address, folder))
    report(progress, f"fetching {name}", len(addresses), len(addresses))
    graph = load_dataset(name, data=root)
    if (graph.n_nodes, graph.n_edges) != entry.counts:
        for path in files:
            path.unlink()
        raise FormatError(
            f"the graph from {addresses[0]} has {graph.n_nodes} nodes and {graph.n_edges} edges in its largest "
            f"component; '{name}' has {entry.counts}. The files were removed."
        )
    return files


def download(address: str, folder: Path, sha256: str | None = None) -> Path:
    """Download one file, completely and with this checksum, or not at all."""
    path = folder / address.rsplit("/", 1)[-1]
    digest = hashlib.sha256()
    with translate_disk_errors(folder), temporary_sibling(path) as part:
        with part.open("wb") as file:
            for block in _blocks(address, folder):
                digest.update(block)
                file.write(block)
        if sha256 is not None and digest.hexdigest() != sha256:
            raise FormatError(f"{address} has SHA-256 {digest.hexdigest()[:12]}…, not {sha256[:12]}…; try again later.")
        part.replace(path)
    return path


def _blocks(address: str, folder: Path) -> Iterator[bytes]:
    """Yield the bytes at an address, 1 MB at a time."""
    try:
        with urllib.request.urlopen(address, timeout=60) as source:
            while block := source.read(1 << 20):
                yield block
    except OSError as error:  # the errors of urllib are among these
        raise InputError(f"{address} cannot be downloaded: {error}. Put the file into {folder} by hand.") from error
