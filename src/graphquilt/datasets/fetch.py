"""Download a data set, and only when somebody asks for it."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from pathlib import Path

from graphquilt.datasets.catalogue import dataset, dataset_files, dataset_folder
from graphquilt.datasets.checksums import SHA256
from graphquilt.datasets.loading import load_dataset
from graphquilt.errors import FormatError, InputError
from graphquilt.progress import ProgressCallback, report

__all__ = ["fetch_dataset"]


def fetch_dataset(
    name: str,
    *,
    data: str | os.PathLike[str] | None = None,
    urls: tuple[str, ...] | None = None,
    progress: ProgressCallback | None = None,
) -> list[Path]:
    """Download the files of a data set into ``DATA/NAME``, check them, and return where they are.

    Parameters
    ----------
    name : str
        One of :func:`dataset_names`.
    data : path, optional
        The folder with data sets; None means that of the variable ``GRAPHQUILT_DATA``.
    urls : tuple of str, optional
        Take the files from there instead of from their publisher; the names at the end must be the same.
    progress : callable, optional

    Raises
    ------
    InputError
        Where the publisher asks for a form, or the set is too large to be fetched on the side.
    FormatError
        Where what arrived is not what it should be; nothing is left of it then.
    """
    known = dataset(name)
    root = dataset_folder(data)
    try:
        return dataset_files(name, root)[1]
    except InputError:
        addresses = known.urls if urls is None else urls
    if not addresses:
        raise InputError(f"'{name}' is not downloaded by graphquilt; it comes from {known.source}.")
    folder = root / name
    folder.mkdir(exist_ok=True)
    files = []
    for number, address in enumerate(addresses):
        report(progress, f"fetching {name}", number, len(addresses))
        files.append(_fetched(address, folder))
    report(progress, f"fetching {name}", len(addresses), len(addresses))
    graph = load_dataset(name, data=root)
    if (graph.n_nodes, graph.n_edges) != known.counts:
        for path in files:
            path.unlink()
        raise FormatError(
            f"what came from {addresses[0]} has {graph.n_nodes} nodes and {graph.n_edges} edges in its largest "
            f"component; '{name}' has {known.counts}. The files were removed."
        )
    return files


def _fetched(address: str, folder: Path) -> Path:
    """Download one file whole or not at all."""
    path = folder / address.rsplit("/", 1)[-1]
    scratch = path.with_name(f".{path.name}.part")
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(address, timeout=60) as source, scratch.open("wb") as target:
            while block := source.read(1 << 20):
                digest.update(block)
                target.write(block)
        expected = SHA256.get(path.name)
        if expected is not None and digest.hexdigest() != expected:
            raise FormatError(
                f"{address} has SHA-256 {digest.hexdigest()[:12]}…, not {expected[:12]}…; try again later."
            )
        scratch.replace(path)
    except (urllib.error.URLError, OSError) as error:
        raise InputError(f"{address} cannot be downloaded: {error}. Put the file into {folder} by hand.") from error
    finally:
        scratch.unlink(missing_ok=True)
    return path
