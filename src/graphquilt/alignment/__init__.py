"""Turn patches with coordinates of their own into one global embedding, and say how good the fit is.

``overlap`` compares patches, ``solve`` synchronises them, ``transforms`` and ``edge_table`` are the result, ``verdict``
puts it into words. ``extension`` adds one patch, ``hierarchy`` aligns level by level, ``components`` aligns each
component alone, ``refinement`` fits patches to their centroid, and ``centroids`` makes the embedding.
"""

from graphquilt.alignment.centroids import centroid
from graphquilt.alignment.components import align_components
from graphquilt.alignment.hierarchy import align_hierarchical
from graphquilt.alignment.refinement import refine
from graphquilt.alignment.solve import AlignOptions, align, undetermined_directions
from graphquilt.alignment.transforms import Alignment

__all__ = [
    "AlignOptions",
    "Alignment",
    "align",
    "align_components",
    "align_hierarchical",
    "centroid",
    "refine",
    "undetermined_directions",
]
