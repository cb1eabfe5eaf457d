"""Motions: which of scale, rotation and translation an embedding method leaves free."""

from __future__ import annotations

from dataclasses import dataclass

from graphquilt.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Motions:
    """Which motions of an embedding carry no meaning: alignment has to undo them.

    ``scale`` multiplies all coordinates by one positive number, ``rotate`` is the orthogonal group O(d) with its
    reflections, and ``translate`` shifts all points by one vector.

    Examples
    --------
    >>> Motions(scale=True)
    Motions(scale=True, rotate=True, translate=True)
    >>> Motions(rotate=False) | Motions(translate=False)
    Motions(scale=False, rotate=True, translate=True)
    """

    scale: bool = False
    rotate: bool = True
    translate: bool = True

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, bool):
                raise InputError(f"{name} of Motions is True or False, not {value!r}.")

    def __or__(self, other: Motions) -> Motions:
        """Return the motions that are free in either of two."""
        return Motions(**{name: value or getattr(other, name) for name, value in vars(self).items()})

    @property
    def free(self) -> bool:
        """Whether any motion is free; otherwise all embeddings lie in one frame and there is nothing to align."""
        return self.scale or self.rotate or self.translate

    def points_needed(self, dim: int) -> int:
        """Return how many shared points two patches need in ``dim`` dimensions.

        Examples
        --------
        >>> Motions().points_needed(8), Motions(rotate=False).points_needed(8)
        (9, 1)
        """
        return dim + 1 if self.rotate else 2 if self.scale else 1
