"""Group synchronization: measurements on the edges of a graph in, one group element for each vertex out.

Nothing here knows of nodes or patches. ``groups`` has the three groups (scales, rotations, translations) and robust
reweighting; ``connection``, ``eigen`` and ``laplacian`` are the operator and the solvers underneath.
"""

from graphquilt.synchronize.groups import (
    Rotations,
    reweighted,
    rotation_misfit,
    synchronize_rotations,
    synchronize_scales,
    synchronize_translations,
)

__all__ = [
    "Rotations",
    "reweighted",
    "rotation_misfit",
    "synchronize_rotations",
    "synchronize_scales",
    "synchronize_translations",
]
