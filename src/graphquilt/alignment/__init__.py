"""Turn patches with coordinates of their own into one global embedding, and say how good the fit is.

``measuring`` compares patches and gives ``statistics``, ``solve`` synchronises from these, ``transforms`` and
``edge_table`` are the result, ``verdict`` puts it into words. ``extension`` adds one patch, ``hierarchy`` aligns level
by level, ``components`` aligns each component alone, ``refinement`` fits patches to their centroid, and ``centroids``
makes the embedding.
"""

from graphquilt.alignment.centroids import centroid
from graphquilt.alignment.components import align_components
from graphquilt.alignment.hierarchy import align_hierarchical, align_statistics_hierarchical
from graphquilt.alignment.measuring import overlap_statistics
from graphquilt.alignment.overlap import PatchLike
from graphquilt.alignment.refinement import refine
from graphquilt.alignment.solve import AlignOptions, align, align_statistics, undetermined_directions
from graphquilt.alignment.statistics import OverlapStatistics
from graphquilt.alignment.transforms import Alignment
from graphquilt.alignment.verdict import culprits

__all__ = [
    "AlignOptions",
    "Alignment",
    "OverlapStatistics",
    "PatchLike",
    "align",
    "align_components",
    "align_hierarchical",
    "align_statistics",
    "align_statistics_hierarchical",
    "centroid",
    "culprits",
    "overlap_statistics",
    "refine",
    "undetermined_directions",
]
