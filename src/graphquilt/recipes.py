"""Recipes: how often to train, how to regularise, what to trust and how often to come back, as one value."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

import numpy as np

from graphquilt.errors import InputError

__all__ = ["Recipe", "recipe_named"]

E = TypeVar("E")

_TRAINING = ("dropout", "weight_decay", "validation", "negatives", "init_seed")  # fields that embedders may have


@dataclass(frozen=True)
class Recipe:
    """What is done around an embedder to make the stitched embedding good.

    ``print`` shows it, a job keeps it, and :meth:`paper`, :meth:`best` and :meth:`reconstruction` are the ones that
    docs/results/quality.md measures.

    Attributes
    ----------
    name : str
    runs : int
        How often every patch is trained, with other seeds. All runs are aligned and averaged together.
    rounds : int
        How often all patches are trained again after that, drawn towards the aligned centroid.
    pull : float
        How strongly they are drawn.
    coverage : float
        Each row counts in overlaps and centroid with the share of its node's edges that its patch sees, to this power;
        0 counts all alike.
    refine : int
        Sweeps of generalised Procrustes analysis after synchronisation; see :func:`graphquilt.refine`.
    dropout, weight_decay, validation, negatives, init_seed : optional
        Settings of the embedder; None leaves them alone. See :class:`graphquilt.embedders.network.Network`.

    Examples
    --------
    >>> from graphquilt.embedders import SVD
    >>> Recipe.best().tuned(SVD(8)) == SVD(8)
    True
    """

    name: str = "own"
    _: KW_ONLY
    runs: int = 1
    rounds: int = 0
    pull: float = 1.0
    coverage: float = 0.0
    refine: int = 0
    dropout: float | None = None
    weight_decay: float | None = None
    validation: float | None = None
    negatives: int | None = None
    init_seed: int | None = None

    def __post_init__(self) -> None:
        for field, least in (("runs", 1), ("rounds", 0), ("refine", 0)):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise InputError(f"{field} of a recipe is a whole number of at least {least}, not {value!r}.")
            object.__setattr__(self, field, int(value))
        if not (0 <= self.coverage < math.inf and 0 < self.pull < math.inf):
            raise InputError(f"coverage is at least 0 and pull above 0; they are {self.coverage} and {self.pull}.")

    @classmethod
    def paper(cls) -> Recipe:
        """Return the paper's way: one training of each patch, as many non-edges as edges, everything counts alike.

        Examples
        --------
        >>> Recipe.paper().runs, Recipe.paper().negatives
        (1, 1)
        """
        return cls("paper", negatives=1)

    @classmethod
    def best(cls) -> Recipe:
        """Return what classified best, chosen on Cora, Citeseer and Amazon photo."""
        return cls("best", runs=6, coverage=2.0, refine=3, dropout=0.25, negatives=1, init_seed=0)

    @classmethod
    def reconstruction(cls) -> Recipe:
        """Return what tells edges from non-edges best: consensus rounds, without dropout."""
        return cls("reconstruction", rounds=2, coverage=2.0, refine=3, negatives=1)

    def changed(self, *, runs: int | None = None, rounds: int | None = None) -> Recipe:
        """Return the recipe with other numbers of runs and rounds, where they are given, and its name says so.

        Examples
        --------
        >>> Recipe.paper().changed(runs=3).runs, Recipe.paper().changed() == Recipe.paper()
        (3, True)
        """
        asked = self.runs if runs is None else runs, self.rounds if rounds is None else rounds
        if asked == (self.runs, self.rounds):
            return self
        name = f"{self.name.removesuffix(', changed')}, changed"
        return dataclasses.replace(self, name=name, runs=asked[0], rounds=asked[1])

    def tuned(self, embedder: E) -> E:
        """Return the embedder with the settings of this recipe, where it has them and they are at their defaults.

        Examples
        --------
        >>> from graphquilt.embedders import VGAE
        >>> recipe = Recipe("own", dropout=0.5)
        >>> recipe.tuned(VGAE(8)).dropout, recipe.tuned(VGAE(8, dropout=0.1)).dropout
        (0.5, 0.1)
        """
        if not dataclasses.is_dataclass(embedder) or isinstance(embedder, type):
            return embedder
        changes: dict[str, Any] = {}
        for field in dataclasses.fields(embedder):
            wanted = getattr(self, field.name) if field.name in _TRAINING else None
            if wanted is not None and getattr(embedder, field.name) == field.default:
                changes[field.name] = wanted
        return dataclasses.replace(embedder, **changes) if changes else embedder


def recipe_named(word: str) -> Recipe:
    """Return the recipe of a name.

    Examples
    --------
    >>> recipe_named("paper") == Recipe.paper()
    True
    """
    known = {recipe.name: recipe for recipe in (Recipe.paper(), Recipe.best(), Recipe.reconstruction())}
    if word not in known:
        raise InputError(f"'{word}' is not a recipe; choose one of {', '.join(known)}.")
    return known[word]
