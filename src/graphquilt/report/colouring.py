"""Colourings of a map: one class or one number for each node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, Int64Array

_FEW = 30  # more different numbers than this are a scale and not classes
_MOST = 65_534  # classes that a page can tell apart


@dataclass(frozen=True, eq=False)
class Colouring:
    """One class or one number for each node that is drawn.

    Attributes
    ----------
    name : str
    classes : int array (k,) or None
        A position in ``names``, -1 for nodes without a class.
    names : tuple of str
    numbers : float array (k,) or None
        NaN for nodes without a number.
    absent : str
        What it means that a node has neither.
    """

    name: str
    classes: Int64Array | None = None
    names: tuple[str, ...] = ()
    numbers: Float64Array | None = None
    absent: str = ""

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the scale: the largest hundredth of the numbers does not stretch it."""
        assert self.numbers is not None
        finite = self.numbers[np.isfinite(self.numbers)]
        if len(finite) == 0:
            return 0.0, 1.0
        low, high = float(finite.min()), float(np.quantile(finite, 0.99))
        return low, max(high, low + 1e-12 + 1e-9 * abs(low))

    def for_page(self) -> dict[str, object]:
        """Return the colouring for the page: integers, the largest of which means none."""
        result: dict[str, object] = {"name": self.name}
        if self.classes is not None:
            kind = np.uint8 if len(self.names) < 255 else np.uint16
            none = int(np.iinfo(kind).max)
            values = np.where(self.classes < 0, none, self.classes).astype(kind)
            absent = self.absent if bool((self.classes < 0).any()) else ""
            return result | {"kind": "class", "names": self.names, "values": values, "none": none, "absent": absent}
        assert self.numbers is not None
        low, high = self.limits
        known = np.isfinite(self.numbers)
        scaled = np.clip((np.where(known, self.numbers, low) - low) / (high - low), 0, 1)
        values = np.where(known, np.round(scaled * 65_534), 65_535).astype(np.uint16)
        scale = {"low": low, "high": high, "clipped": bool((self.numbers[known] > high).any())}
        absent = "" if known.all() else self.absent
        return result | {"kind": "number", "values": values, "none": 65_535, "absent": absent} | scale


def by_class(name: str, labels: AnyArray, *, absent: str) -> Colouring:
    """Return a colouring by classes (k,), "" or negative for none; the most frequent first, or few numbers in order."""
    values, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    numeric = values.dtype.kind in "iu"
    known = np.flatnonzero(values >= 0 if numeric else values != "")
    few_numbers = len(known) <= _FEW and (numeric or all(is_number(str(values[k])) for k in known))
    if few_numbers:
        order = known[np.argsort([float(values[k]) for k in known], kind="stable")]
    else:
        order = known[np.argsort(-counts[known], kind="stable")][:_MOST]
    position = np.full(len(values), -1, dtype=np.int64)
    position[order] = np.arange(len(order))
    return Colouring(name, position[places.ravel()], tuple(str(values[k]) for k in order), absent=absent)


def by_number(name: str, numbers: Float64Array, *, absent: str) -> Colouring:
    """Return a colouring by numbers (k,), NaN for none."""
    return Colouring(name, numbers=numbers, absent=absent)


def choose_colouring(name: str, labels: AnyArray, *, absent: str) -> Colouring:
    """Return the colouring that suits ``labels (k,)``: a scale for many different numbers, classes for all else."""
    if labels.dtype.kind == "f":
        return by_number(name, labels.astype(np.float64), absent=absent)
    distinct = np.unique(labels)
    texts = [str(value) for value in distinct if str(value) != ""]
    if texts and all(map(is_number, texts)):
        fractions = any(not float(text).is_integer() for text in texts)
        if fractions or len(texts) > _FEW:
            return by_number(name, np.array([float(t) if str(t) else np.nan for t in labels]), absent=absent)
    return by_class(name, labels, absent=absent)


def is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
