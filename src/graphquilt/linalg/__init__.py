"""Linear algebra that knows nothing of nodes or patches: Procrustes, Laplacians, eigenvectors, and the free motions."""

from graphquilt.linalg.eigenpairs import DENSE_ROWS, Operator, fixed_signs, leading_eigenpairs
from graphquilt.linalg.laplacian import adjacency, components, conjugate_gradients, solve_grounded
from graphquilt.linalg.procrustes import Motions, centred, nearest_orthogonal, polar, unit
from graphquilt.linalg.ranking import average_precision, hits_at, mean_reciprocal_rank, roc_auc

__all__ = [
    "DENSE_ROWS",
    "Motions",
    "Operator",
    "adjacency",
    "average_precision",
    "centred",
    "components",
    "conjugate_gradients",
    "fixed_signs",
    "hits_at",
    "leading_eigenpairs",
    "mean_reciprocal_rank",
    "nearest_orthogonal",
    "polar",
    "roc_auc",
    "solve_grounded",
    "unit",
]
