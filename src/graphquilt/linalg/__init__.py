"""Linear algebra that knows nothing of nodes or patches: Procrustes, Laplacians, eigenvectors, and the free motions."""

from graphquilt.linalg.eigen import Eigenpairs, lowest_eigenpairs, orthonormalize
from graphquilt.linalg.laplacian import (
    adjacency,
    components,
    conjugate_gradients,
    solve_grounded,
    solve_laplacian,
    spanning_tree,
)
from graphquilt.linalg.motions import Motions
from graphquilt.linalg.procrustes import (
    Polar,
    centred,
    nearest_orthogonal,
    polar,
    relative_rotation,
    relative_scale,
    unit,
)

__all__ = [
    "Eigenpairs",
    "Motions",
    "Polar",
    "adjacency",
    "centred",
    "components",
    "conjugate_gradients",
    "lowest_eigenpairs",
    "nearest_orthogonal",
    "orthonormalize",
    "polar",
    "relative_rotation",
    "relative_scale",
    "solve_grounded",
    "solve_laplacian",
    "spanning_tree",
    "unit",
]
