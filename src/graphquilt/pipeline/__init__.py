"""The three steps from a graph to its embedding: cut, embed the patches, stitch.

Each step takes any :class:`Store`, a plain dict included, and knows nothing of disks. ``cutting``, ``embedding`` and
``stitching`` hold the steps, ``recipe`` says how they go; ``passes`` and ``calls`` work through the patches on an
executor, ``patch_data`` cuts what each needs; ``store``, ``records``, ``stored`` and ``description`` are about keeping.
"""

from graphquilt.pipeline.calls import patch_seed
from graphquilt.pipeline.cutting import Cutting, cut, stored_patch_graph
from graphquilt.pipeline.description import describe, differences, restored
from graphquilt.pipeline.embedding import embed_patches
from graphquilt.pipeline.recipe import Recipe, common_motions
from graphquilt.pipeline.stitching import stitch
from graphquilt.pipeline.store import Record, Store
from graphquilt.pipeline.stored import StoredPatches

__all__ = [
    "Cutting",
    "Recipe",
    "Record",
    "Store",
    "StoredPatches",
    "common_motions",
    "cut",
    "describe",
    "differences",
    "embed_patches",
    "patch_seed",
    "restored",
    "stitch",
    "stored_patch_graph",
]
