"""Splits that are given: lists of nodes in files, or the years of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.evaluate import Split
from graphquilt.evaluate.positions import checked_labels
from graphquilt.files import load_arrays, map_array
from graphquilt.graph.reading.tables import text_lines
from studies.pickles import load_torch

__all__ = ["VALIDATION", "fixed_split", "read_split", "split_by_years"]

VALIDATION = 10_000  # nodes that decide when to stop, where a split has none for tests: the number of the paper
_PARTS = ("train", "valid", "test")
_ENDINGS = (".npy", ".csv.gz", ".csv", ".txt")
_ROWS = 1 << 22  # nodes that are looked at at once
_LARGEST = 1 << 62


def read_split(path: Path) -> dict[str, Int64Array]:
    """Read which nodes are for training, validation and tests.

    Parameters
    ----------
    path : path
        An ``.npz`` file with arrays ``train``, ``valid`` and perhaps ``test``; the ``.pt`` file of a data set of OGB,
        which is read without unpickling it; or a folder with ``train``, ``valid`` and perhaps ``test``, each as
        ``.npy`` or as text (``.csv``, ``.csv.gz``, ``.txt``) with one number on each line, or with ``split_dict.pt``.

    Returns
    -------
    dict of str to int array
        Node numbers by the name of their part; names other than the three are left out.
    """
    try:
        if path.is_dir() and (path / "split_dict.pt").is_file():
            parts = load_torch(path / "split_dict.pt")
        elif path.is_dir():
            parts = _from_folder(path)
        elif path.suffix == ".pt":
            parts = load_torch(path)
        elif path.suffix == ".npz":
            parts = load_arrays(path)
        else:
            raise FormatError(f"{path} is not a split; give a folder, an .npz file or the .pt file of OGB.")
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist.") from error
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not isinstance(parts, dict) or not {"train", "valid"} <= set(parts):
        names = ", ".join(f"{name!s:.20}" for name in list(parts)[:5]) if isinstance(parts, dict) else "no parts"
        raise FormatError(f"{path} holds {names or 'nothing'}; a split has at least train and valid.")
    return {name: _checked(path, name, parts[name]) for name in _PARTS if name in parts}


def _from_folder(folder: Path) -> dict[str, AnyArray]:
    parts: dict[str, AnyArray] = {}
    for name in _PARTS:
        path = next((folder / f"{name}{end}" for end in _ENDINGS if (folder / f"{name}{end}").is_file()), None)
        if path is not None:
            parts[name] = map_array(path) if path.suffix == ".npy" else _numbers(path)
    return parts


def _numbers(path: Path) -> AnyArray:
    numbers = []
    for line, text in text_lines(path):
        if not (text.isascii() and text.strip().isdigit() and len(text.strip()) < 19):
            raise FormatError(f"{path}, line {line}: expected a node number, not {text[:40]!r}.")
        numbers.append(int(text.strip()))
    return np.array(numbers, dtype=np.int64)


def _checked(path: Path, name: str, nodes: object) -> Int64Array:
    if not isinstance(nodes, np.ndarray) or nodes.ndim != 1 or nodes.dtype.kind not in "iu":
        raise FormatError(f"{path}: the part {name} is not a list of node numbers. Write it again.")
    if len(nodes) and not 0 <= int(nodes.min()) <= int(nodes.max()) < _LARGEST:
        raise FormatError(f"{path}: the part {name} has node numbers from {nodes.min()} to {nodes.max()}.")
    return np.unique(nodes.astype(np.int64))


def split_by_years(years: AnyArray, labels: AnyArray, until: tuple[int, int]) -> dict[str, Int64Array]:
    """Split the labelled nodes by their years, as OGB does.

    Parameters
    ----------
    years : int array (n,)
        Read in blocks; it may be a memory map.
    labels : array (n,)
        Classes; negative or NaN for nodes without one.
    until : (first, second)
        Nodes up to the first year are for training, those up to the second for validation, later ones for tests.

    Examples
    --------
    >>> parts = split_by_years(np.array([2017, 2018, 2019, 2020]), np.array([1, -1, 0, 2]), (2018, 2019))
    >>> {name: nodes.tolist() for name, nodes in parts.items()}
    {'train': [0], 'valid': [2], 'test': [3]}
    """
    if years.shape != labels.shape or years.ndim != 1 or years.dtype.kind not in "iu":
        raise InputError(
            f"the years are {years.dtype} of shape {years.shape} and the labels have shape {labels.shape}; each node "
            "has one whole number as its year."
        )
    if not until[0] < until[1]:
        raise InputError(f"training ends with {until[0]} and validation with {until[1]}; the second year is later.")
    found: dict[str, list[Int64Array]] = {name: [] for name in _PARTS}
    for first in range(0, len(years), _ROWS):
        block = years[first : first + _ROWS]
        known = np.asarray(labels[first : first + _ROWS] >= 0)  # not so for NaN
        for name, low, high in zip(_PARTS, (-np.inf, *until), (*until, np.inf), strict=True):
            found[name].append(first + np.flatnonzero(known & (block > low) & (block <= high)))
    return {name: np.concatenate([np.empty(0, dtype=np.int64), *nodes]) for name, nodes in found.items()}


def fixed_split(parts: Mapping[str, Int64Array], labels: AnyArray, *, seed: int, validation: int = VALIDATION) -> Split:
    """Return the labelled nodes of a given split; where none of them is for tests, some of those for validation are.

    That is the paper's rule for MAG240M, whose test labels are not public: ``validation`` nodes, drawn at random from
    those for validation, decide when to stop, and the rest is tested on. Where there are no more than twice as many,
    half of them are tested on.

    Parameters
    ----------
    parts : mapping of str to int array
        Nodes of ``train``, ``valid`` and perhaps ``test``.
    labels : array (n,)
        Classes; negative or NaN for nodes without one. Only those of the nodes in the split are read.
    seed : int
    validation : int

    Examples
    --------
    >>> split = fixed_split({"train": np.arange(5), "valid": np.arange(5, 9)}, np.zeros(9), seed=0)
    >>> len(split.train), len(split.validation), len(split.test)
    (5, 2, 2)
    """
    labelled = {}
    for name, nodes in parts.items():
        if len(nodes) and int(nodes.max()) >= len(labels):
            raise InputError(
                f"the split has node {int(nodes.max())} in its part {name}, and there are {len(labels)} nodes. It "
                "belongs to another graph, or to the graph before it was cut to its largest component."
            )
        labelled[name] = nodes[checked_labels(labels[nodes], len(nodes)) >= 0]
    train, valid, test = (labelled.get(name, np.empty(0, dtype=np.int64)) for name in _PARTS)
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        both = np.intersect1d(labelled.get(one, []), labelled.get(other, []))
        if len(both):
            raise InputError(f"{len(both)} nodes are in {one} and in {other} of the split, the first is {both[0]:.0f}.")
    if len(test) == 0:
        order = np.random.default_rng(seed).permutation(valid)
        size = validation if len(valid) > 2 * validation else len(valid) // 2
        valid, test = np.sort(order[:size]), np.sort(order[size:])
    return Split(train, valid, test)
