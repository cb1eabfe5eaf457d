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

__all__ = ["fetch_dataset"]

# Of the raw planetoid files, to detect an incomplete or changed download.
SHA256 = {
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
}


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
        files.append(_download(address, folder))
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


def _download(address: str, folder: Path) -> Path:
    """Download one file completely or not at all."""
    path = folder / address.rsplit("/", 1)[-1]
    digest = hashlib.sha256()
    with translate_disk_errors(folder), temporary_sibling(path) as part:
        with part.open("wb") as file:
            for block in _blocks(address, folder):
                digest.update(block)
                file.write(block)
        expected = SHA256.get(path.name)
        if expected is not None and digest.hexdigest() != expected:
            raise FormatError(
                f"{address} has SHA-256 {digest.hexdigest()[:12]}…, not {expected[:12]}…; try again later."
            )
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
