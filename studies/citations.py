"""Write a citation graph of any size as the files of OGB-LSC MAG240M, in memory that does not grow with it."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float32Array, Int64Array
from graphquilt.errors import InputError
from graphquilt.files import atomic_file, check_disk, temporary_sibling, translate_disk_errors, write_text
from graphquilt.progress import ProgressCallback, report
from studies import citation_kernels as kernels

__all__ = ["citation_graph"]

_SHARES = 0.7, 0.2  # of the citations: within the community, and within the field
_SPREAD = 0.9  # of the logarithm of the number of references
_RANK = 32  # of the features
_LAST_YEAR, _FIRST_YEAR, _GROWTH = 2020, 1950, 0.105  # a tenth of all papers are of the last year
_NOISE = 0.1  # the share of labels that depend on nothing
_BLOCK = 1 << 18  # papers whose citations are made at once
_ROWS = 1 << 15  # papers whose features are made at once


def citation_graph(
    folder: str | PathLike[str],
    n_nodes: int,
    n_edges: int,
    *,
    n_features: int = 768,
    n_classes: int = 153,
    labelled: float = 0.0115,
    held_out: int = 0,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> Path:
    """Write a synthetic citation graph in the files of OGB-LSC MAG240M, and return the folder that holds them.

    Papers belong to communities of some 500, and communities to ``n_classes`` fields; both have sizes with heavy tails.
    Of the citations 70 % stay in the community and 20 % in the field. Papers cite older papers, and the number of
    citations of a paper follows a power law with exponent 3. Ids are shuffled. Features have rank 32; they come from
    the field, the community and the paper itself. The class of a paper depends on its field, which edges show best,
    and on two directions of its features; one label in ten is random, so that no method is right more often than in
    about 0.9 of all cases. Of the labelled papers, those up to 2018 are for training, those of 2019 for validation and
    those of 2020 for tests, as in the official split. A few per cent of the citations are repeated, and a few papers
    cite themselves; reading the graph removes these.

    The memory that is used does not depend on the size of the graph, but for 40 bytes per community. The same
    arguments give the same files.

    Parameters
    ----------
    folder : path
        Gets a folder ``mag240m_kddcup2021`` with the files.
    n_nodes, n_edges : int
        Papers and citations: 121 751 666 and 1 297 748 926 in MAG240M.
    n_features : int
    n_classes : int
    labelled : float
        The share of papers that have a class.
    held_out : int
        Citations beside these that are only in ``held_out.npy`` (k, 2), to test predicted links; some are repeated in
        the graph.
    seed : int
    progress : callable, optional

    Examples
    --------
    >>> import tempfile
    >>> from studies.mag240m import read_mag240m
    >>> folder = tempfile.mkdtemp()
    >>> _ = citation_graph(folder, 1000, 5000, n_features=16, n_classes=3, labelled=0.5)
    >>> graph = read_mag240m(folder, folder + "/graph")
    >>> graph.n_nodes, graph.features.shape, graph.features.dtype.name
    (1000, (1000, 16), 'float16')
    """
    _check(n_nodes, n_edges, n_features, n_classes, labelled)
    root = Path(folder) / "mag240m_kddcup2021"
    check_disk(root, 16 * n_edges + n_nodes * (2 * n_features + 6), "the files of this citation graph")
    key = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    starts, fields = _layout(n_nodes, n_classes, np.random.default_rng([seed, 1]))
    with translate_disk_errors(root):
        for name in ("paper", "paper___cites___paper"):
            (root / "processed" / name).mkdir(parents=True, exist_ok=True)
        chosen = np.sort(np.random.default_rng([seed, 3]).choice(n_edges + held_out, held_out, replace=False))
        _write_citations(root, n_edges, (starts, fields), key, held_out=chosen, progress=progress)
        split = _write_papers(root, n_features, (starts, fields), (key, seed), labelled=labelled, progress=progress)
        write_text(root / "RELEASE_v1.txt", f"synthetic: {n_nodes} papers, {n_edges} citations, seed {seed}")
        _save_torch(root / "meta.pt", {"paper": n_nodes, "author": 0, "institution": 0, "num_classes": n_classes})
        _save_torch(root / "split_dict.pt", split)
    return root


def _check(n_nodes: int, n_edges: int, n_features: int, n_classes: int, labelled: float) -> None:
    if n_nodes < 100 or n_edges < 0 or n_features < 1:
        raise InputError(
            f"a citation graph has at least 100 papers, no negative number of citations and at least one feature, not "
            f"{n_nodes}, {n_edges} and {n_features}."
        )
    if not 1 <= n_classes <= n_nodes // 20:
        raise InputError(f"{n_nodes} papers can have 1 to {n_nodes // 20} classes, not {n_classes}.")
    if not 0 <= labelled <= 1:
        raise InputError(f"the share of labelled papers is between 0 and 1, not {labelled}.")


def _layout(n: int, n_fields: int, rng: np.random.Generator) -> tuple[Int64Array, Int64Array]:
    """Return the first position of each community, and n; and the same for fields."""
    n_communities = max(n_fields, n // 500)
    least = min(20, n // n_communities)
    weights = np.cumsum(rng.lognormal(0.0, 0.8, n_communities))
    spare = n - least * n_communities
    ends = least * np.arange(1, n_communities + 1) + np.rint(weights / weights[-1] * spare).astype(np.int64)
    starts = np.concatenate([[0], ends]).astype(np.int64)
    shares = np.cumsum(rng.lognormal(0.0, 0.6, n_fields))
    borders = np.arange(1, n_fields + 1) + np.rint(shares / shares[-1] * (n_communities - n_fields)).astype(np.int64)
    return starts, starts[np.concatenate([[0], borders])]


@contextlib.contextmanager
def _array_file(path: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Iterator[Callable[[int, AnyArray], None]]:
    """Write an array that does not fit into memory to a ``.npy`` file, which appears once the block is left.

    Call the function in it with the place of the first value, counted in C order, and the values that follow. Places
    that are never written hold zeros.
    """
    kind = np.dtype(dtype)
    with atomic_file(path) as file:
        np.lib.format.write_array_header_1_0(file, {"descr": kind.str, "fortran_order": False, "shape": shape})
        start = file.tell()
        file.truncate(start + math.prod(shape) * kind.itemsize)

        def write(place: int, values: AnyArray) -> None:
            file.seek(start + place * kind.itemsize)
            file.write(np.ascontiguousarray(values, dtype=kind).reshape(-1).view(np.uint8).data)

        yield write


def _write_citations(
    root: Path,
    m: int,
    layout: tuple[Int64Array, Int64Array],
    key: np.uint64,
    *,
    held_out: Int64Array,
    progress: ProgressCallback | None,
) -> None:
    """Write m citations, and apart from them those whose numbers are in ``held_out`` (k,), which ascend."""
    whole, pairs = m + len(held_out), []
    starts, fields = layout
    n = int(starts[-1])
    blocks = [(first, min(first + _BLOCK, n)) for first in range(0, n, _BLOCK)]
    total = sum(kernels.total_references(first, last, key, _SPREAD) for first, last in blocks)
    before, made, done = 0.0, 0, 0
    with _array_file(root / "processed" / "paper___cites___paper" / "edge_index.npy", (2, m), np.int64) as write:
        for first, last in blocks:
            counts, before = kernels.reference_counts(first, last, key, _SPREAD, before, whole / total)
            if last == n:
                counts[-1] += whole - made - counts.sum()  # what rounding has left
            sources, targets = kernels.cite(first, counts, starts, fields, key, _SHARES)
            apart = held_out[slice(*np.searchsorted(held_out, [made, made + len(sources)]))] - made
            made += len(sources)
            pairs.append(np.stack([sources[apart], targets[apart]], axis=1))
            sources, targets = np.delete(sources, apart), np.delete(targets, apart)
            write(done, sources)
            write(m + done, targets)
            done += len(sources)
            report(progress, "citations", done, m)
    if len(held_out):
        with _array_file(root / "held_out.npy", (len(held_out), 2), np.int64) as write:
            write(0, np.concatenate(pairs))


def _write_papers(
    root: Path,
    n_features: int,
    layout: tuple[Int64Array, Int64Array],
    seeds: tuple[np.uint64, int],
    *,
    labelled: float,
    progress: ProgressCallback | None,
) -> dict[str, AnyArray]:
    """Write features, labels and years, and return the split."""
    starts, fields = layout
    (key, seed), n, n_classes = seeds, int(starts[-1]), len(fields) - 1
    rng = np.random.default_rng([seed, 2])
    centres = rng.standard_normal((n_classes, _RANK), dtype=np.float32)
    mixing = rng.standard_normal((_RANK, n_features), dtype=np.float32) / np.float32(np.sqrt(_RANK))
    folder = root / "processed" / "paper"
    nodes: dict[str, list[Int64Array]] = {name: [] for name in ("train", "valid", "test-dev", "test-challenge")}
    with (
        _array_file(folder / "node_feat.npy", (n, n_features), np.float16) as write_features,
        _array_file(folder / "node_label.npy", (n,), np.float32) as write_labels,
        _array_file(folder / "node_year.npy", (n,), np.int16) as write_years,
    ):
        for first in range(0, n, _ROWS):
            latent = np.empty((min(_ROWS, n - first), _RANK), dtype=np.float32)
            ages, of_field, lots = kernels.describe_papers(first, starts, fields, key, centres, latent)
            years = np.maximum(_LAST_YEAR - np.floor(-np.log(np.maximum(ages, 1e-300)) / _GROWTH), _FIRST_YEAR).astype(
                np.int16
            )
            classes = _classes(latent, of_field, lots / max(labelled, 1e-300), n_classes)
            chosen = lots < labelled
            write_features(first * n_features, (latent @ mixing).astype(np.float16))
            write_labels(first, np.where(chosen, classes, np.nan))
            write_years(first, years)
            test = chosen & (years == _LAST_YEAR)
            odd = lots * 1e9 % 1 < 0.4  # three fifths of the test papers are for development, as in the official split
            parts = (chosen & (years < _LAST_YEAR - 1), chosen & (years == _LAST_YEAR - 1), test & ~odd, test & odd)
            for name, part in zip(nodes, parts, strict=True):
                nodes[name].append(first + np.flatnonzero(part))
            report(progress, "papers", first + len(latent), n)
    return {name: np.concatenate(parts) for name, parts in nodes.items()}


def _classes(latent: Float32Array, of_field: Int64Array, lots: AnyArray, n_classes: int) -> Int64Array:
    """Return the class of each paper: one of four that belong to its field, which two directions of features decide.

    ``lots`` are uniform in 0..1 for labelled papers; those below the share of noise draw any class.
    """
    own = of_field + 2 * (latent[:, 0] > 0) + (latent[:, 1] > 0)
    return np.asarray(np.where(lots < _NOISE, lots / _NOISE * n_classes, own), dtype=np.int64) % n_classes


def _save_torch(path: Path, content: object) -> None:
    """Write what ``torch.save`` writes for a dictionary of arrays and numbers: a pickle in a zip file."""
    with temporary_sibling(path) as part:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
            for name, data in (
                ("data.pkl", pickle.dumps(content, protocol=2)),
                ("byteorder", b"little"),
                ("version", b"3\n"),
            ):
                archive.writestr(zipfile.ZipInfo(f"archive/{name}"), data)
        os.replace(part, path)
