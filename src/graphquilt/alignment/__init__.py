"""Turn patches, each in its own coordinates, into one global embedding, and say how good the fit is.

``statistics`` has what two patches say of each other; ``synchronisation`` and ``rotations`` find the transforms,
``hierarchy`` level by level; ``transforms`` holds the result and ``verdict`` puts it into words. ``centroids`` makes
the embedding. ``solve`` has the public functions.
"""

from graphquilt.alignment.centroids import centroid, refine
from graphquilt.alignment.fit import FrameFit, culprits
from graphquilt.alignment.patch_index import PatchesLike, PatchLike
from graphquilt.alignment.solve import align, align_components, align_statistics
from graphquilt.alignment.statistics import OverlapStatistics, overlap_statistics
from graphquilt.alignment.transforms import Alignment
from graphquilt.alignment.verdict import grade

__all__ = [
    "Alignment",
    "FrameFit",
    "OverlapStatistics",
    "PatchLike",
    "PatchesLike",
    "align",
    "align_components",
    "align_statistics",
    "centroid",
    "culprits",
    "grade",
    "overlap_statistics",
    "refine",
]
