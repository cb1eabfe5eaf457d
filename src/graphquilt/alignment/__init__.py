"""Turn patches, each in its own coordinates, into one global embedding, and say how good the fit is."""

from graphquilt.alignment.centroids import centroid, refine
from graphquilt.alignment.fit import FrameFit
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
    "grade",
    "overlap_statistics",
    "refine",
]
