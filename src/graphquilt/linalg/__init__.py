"""Linear algebra that knows nothing of nodes or patches: Procrustes, Laplacians, eigenvectors, and the free motions."""

from graphquilt.linalg.eigenpairs import DENSE_ROWS, Operator, fixed_signs, leading_eigenpairs
from graphquilt.linalg.laplacian import components
from graphquilt.linalg.procrustes import Motions, centred, nearest_orthogonal, polar, unit

__all__ = [
    "DENSE_ROWS",
    "Motions",
    "Operator",
    "centred",
    "components",
    "fixed_signs",
    "leading_eigenpairs",
    "nearest_orthogonal",
    "polar",
    "unit",
]
