"""FrameFit: what patches that were embedded in one frame say about how well that frame suits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.errors import FormatError

__all__ = ["FrameFit"]

SETTLED = 0.01  # a last round that adds a larger share has not found the directions yet
SEEN, BLIND = 0.09, 0.3  # mean share of the walk that is unseen: below the first little is lost, above the second much
SUITS = 0.7  # a patch that keeps less than this of what its own best directions would keep is not suited by the frame
COLUMNS = ("shares", "best", "unseen")


@dataclass(frozen=True, eq=False)
class FrameFit:
    """How well the directions that all patches share suit each of them.

    Attributes
    ----------
    shares : float array (p,)
        The share of each patch's signal that the directions keep.
    best : float array (p,)
        The share that as many directions of its own would keep; NaN where a patch is too small to tell.
    unseen : float array (p,)
        The share of each patch's walk that leaves it for where nothing is known; with a far field, its relative error.
    growth : float
        How much the last round added to the share that the directions keep.
    """

    shares: Float64Array
    best: Float64Array
    unseen: Float64Array
    growth: float = 0.0

    @property
    def suited(self) -> Float64Array:
        """What the directions keep of each patch, as a part of what its own best ones would, (p,); 1 if not known."""
        ratio = self.shares / np.where(self.best > 0, self.best, np.inf)
        return np.where(np.isfinite(self.best), np.minimum(ratio, 1.0), 1.0)

    @property
    def cap(self) -> str:
        """The best grade that this allows: "good", "fair" or "doubtful"."""
        if self.unseen.mean() > BLIND:
            return "doubtful"
        poor = self.unseen.mean() > SEEN or self.growth > SETTLED or self.suited.min() < SUITS
        return "fair" if poor else "good"

    def sentences(self) -> list[str]:
        """Say what the directions keep, and which patch they suit least, one sentence per line."""
        least, blind = int(self.shares.argmin()), int(self.unseen.argmax())
        lines = [
            f"The common directions keep {self.shares.mean():.0%} of the signal; of patch {least} they keep least, "
            f"{self.shares[least]:.0%}."
        ]
        worst = int(self.suited.argmin())
        if self.suited[worst] < SUITS:
            lines.append(
                f"Directions of its own would keep {self.best[worst]:.0%} of patch {worst}: use more dimensions, or "
                "embed it apart."
            )
        if self.growth > SETTLED:
            lines.append(
                f"The directions have not settled: the last round added {self.growth:.1%}. Use fewer dimensions, or "
                "features with fewer columns."
            )
        if self.unseen.mean() > SEEN:
            lines.append(
                f"{self.unseen.mean():.0%} of a walk's step is unseen on average, and most in patch {blind} "
                f"({self.unseen[blind]:.0%}): edges leave the patches for where little is known. Use fewer patches."
            )
        return lines

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return plain arrays, for a file."""
        table = np.stack([getattr(self, name) for name in COLUMNS], axis=1)
        return {"frame": table, "frame_growth": np.asarray(self.growth)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], n_patches: int) -> FrameFit | None:
        """Return what :meth:`to_arrays` gave these arrays for; None where there is nothing of it."""
        if "frame" not in arrays:
            return None
        table, growth = np.asarray(arrays["frame"]), np.asarray(arrays.get("frame_growth", 0.0))
        if (
            table.shape != (n_patches, len(COLUMNS))
            or table.dtype.kind != "f"
            or growth.shape
            or growth.dtype.kind != "f"
        ):
            raise FormatError(
                f"the frame of {n_patches} patches has {len(COLUMNS)} numbers for each, not the shape {table.shape}."
            )
        if not (np.isfinite(table[:, [0, 2]]).all() and np.isfinite(growth)):
            raise FormatError("the frame of the patches has numbers that are not finite.")
        shares, best, unseen = table.T.astype(np.float64)
        return cls(shares, best, unseen, float(growth))
