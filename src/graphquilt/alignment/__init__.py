"""Alignment: from patches with coordinates of their own to one global embedding, and how good the fit is.

``overlap`` compares patches, ``solve`` synchronises them, ``transforms`` is the result, ``verdict`` puts it into words,
``extension`` adds a patch, ``hierarchy`` goes level by level, ``components`` takes what is not connected apart,
``refinement`` lays patches onto their centroid, ``centroids`` makes the embedding.
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
