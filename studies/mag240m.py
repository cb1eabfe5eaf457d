"""The citation graph of OGB-LSC MAG240M: its edges, features and classes, the years of its papers, and its split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import FormatError
from graphquilt.graph import Graph, build_csr
from graphquilt.graph.files import DESCRIPTION, open_array
from graphquilt.progress import ProgressCallback
from studies.pickles import load_torch

__all__ = ["Papers", "mag240m_papers", "read_mag240m"]

_EDGES = "paper___cites___paper/edge_index.npy"
_FEATURES = "paper/node_feat.npy"
_SPLIT = "split_dict.pt"
_LARGEST_LABEL = 2.0**31  # more classes than any data set has
_ROWS = 1 << 22  # labels that are read at once


@dataclass(frozen=True, eq=False)
class Papers:
    """What the files of MAG240M say of its papers.

    Attributes
    ----------
    n_papers, n_citations : int
    features : float array (n, f)
        A memory map.
    labels : int array (n,) or None
        The class of each paper, -1 where it has none; None where there is no file of classes.
    years : int array (n,) or None
        A memory map; None where there is no file of years.
    split : mapping of str to int array
        The papers of each part of the official split: ``train``, ``valid``, ``test-dev`` and ``test-challenge``; empty
        where there is no file with it.
    held_out : int array (k, 2) or None
        Citations that are not among the edges; only synthetic files have them.
    """

    n_papers: int
    n_citations: int
    features: AnyArray
    labels: AnyArray | None
    years: AnyArray | None
    split: Mapping[str, Int64Array]
    held_out: AnyArray | None = None


def mag240m_papers(folder: str | PathLike[str]) -> Papers:
    """Read what the OGB-LSC MAG240M folder says of its papers; nothing in its split is unpickled.

    Parameters
    ----------
    folder : path
        The folder that holds ``processed``, ``split_dict.pt`` and others; or its parent.

    Raises
    ------
    FormatError
        The folder is another one, or files are missing, cut short, or do not have one row for each paper.
    """
    root = _root(Path(folder))
    edges, features = _edges(root), open_array(root / "processed" / _FEATURES)
    if features.ndim != 2 or features.dtype.kind != "f":
        raise FormatError(
            f"{root / 'processed' / _FEATURES} holds {features.dtype} of shape {features.shape}, not one row of "
            "features for each paper. Get it again."
        )
    papers = root / "processed" / "paper"
    labels = _paper_labels(papers / "node_label.npy", len(features))
    years = open_array(papers / "node_year.npy") if (papers / "node_year.npy").is_file() else None
    if years is not None and (years.shape != (len(features),) or years.dtype.kind not in "iu"):
        raise FormatError(
            f"{papers / 'node_year.npy'} holds {years.dtype} of shape {years.shape}, not one year for each of "
            f"{len(features)} papers. Get it again."
        )
    split = _split(root / _SPLIT, len(features)) if (root / _SPLIT).is_file() else {}
    held_out = open_array(root / "held_out.npy") if (root / "held_out.npy").is_file() else None
    return Papers(len(features), edges.shape[1], features, labels, years, split, held_out)


def read_mag240m(
    folder: str | PathLike[str],
    out: str | PathLike[str],
    *,
    memory: int = 1 << 30,
    progress: ProgressCallback | None = None,
) -> Graph:
    """Build the citation graph of the OGB-LSC MAG240M folder, made undirected, without the ``ogb`` package.

    Everything that :func:`mag240m_papers` reads is checked before the work begins.

    Parameters
    ----------
    folder : path
        The folder that holds ``processed/paper___cites___paper/edge_index.npy`` (2, m), and
        ``processed/paper/node_feat.npy`` and ``node_label.npy``; or its parent. Features and labels of the graph are
        memory maps of these files; papers without a class have the label NaN there and -1 here.
    out : path
        Where the CSR goes (some 11 GB, and 21 GB more while it is built). A graph that is there is opened.
    memory, progress
        As for :func:`graphquilt.graph.build_csr`.
    """
    papers = mag240m_papers(folder)
    target = Path(out)
    if (target / DESCRIPTION).is_file():
        graph = Graph.open(target)
    else:
        edges = _edges(_root(Path(folder)))
        graph = build_csr(edges, target, n_nodes=papers.n_papers, memory=memory, progress=progress)
    return graph.with_attributes(features=papers.features, labels=papers.labels)


def _root(folder: Path) -> Path:
    """Return the folder with the files, which is the given one or in it."""
    root = folder
    if not (root / "processed").is_dir():
        root = next((child for child in sorted(root.glob("*")) if (child / "processed").is_dir()), root)
    for name in (_EDGES, _FEATURES):
        if not (root / "processed" / name).is_file():
            raise FormatError(f"{folder} is not a folder of OGB-LSC MAG240M: processed/{name} is missing.")
    return root


def _edges(root: Path) -> AnyArray:
    edges = open_array(root / "processed" / _EDGES)
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise FormatError(
            f"{root / 'processed' / _EDGES} holds {edges.dtype} of shape {edges.shape}, not two rows of paper numbers. "
            "Get it again."
        )
    return edges


def _paper_labels(path: Path, n_papers: int) -> AnyArray | None:
    """Return the class of each paper, -1 where it has none; None where there is no file of classes."""
    if not path.is_file():
        return None
    labels = open_array(path)
    if labels.shape != (n_papers,) or labels.dtype.kind not in "iuf":
        raise FormatError(
            f"{path} holds {labels.dtype} of shape {labels.shape}, not one class for each of {n_papers} papers. Get it "
            "again."
        )
    classes = np.empty(n_papers, dtype=np.int32)
    for first in range(0, n_papers, _ROWS):
        block = np.asarray(labels[first : first + _ROWS])
        block = np.where(np.isnan(block), -1, block) if block.dtype.kind == "f" else block
        largest = max(abs(float(block.min())), abs(float(block.max())))
        if largest >= _LARGEST_LABEL:
            raise FormatError(f"{path} holds labels up to {largest}, which are no classes. Get it again.")
        classes[first : first + _ROWS] = block
    return classes


def _split(path: Path, n_papers: int) -> dict[str, Int64Array]:
    parts = load_torch(path)
    if not isinstance(parts, dict) or not {"train", "valid"} <= set(parts):
        raise FormatError(f"{path} is not the split of MAG240M: it has no parts train and valid. Get it again.")
    split: dict[str, Int64Array] = {}
    for name, papers in parts.items():
        numbers = papers if isinstance(papers, np.ndarray) else np.empty((0, 0))
        if not isinstance(name, str) or numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise FormatError(f"{path} is not the split of MAG240M: its part {name!s:.40} is no list of papers.")
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < n_papers:
            raise FormatError(
                f"{path}: the part {name:.40} has papers {numbers.min()} to {numbers.max()}, and there are {n_papers} "
                "papers. Files of different data sets are mixed; get them again."
            )
        split[name] = numbers.astype(np.int64)
    return split
