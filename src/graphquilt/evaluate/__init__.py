"""Measures of the quality of an embedding: edges it reconstructs, classes it separates, distance to another one."""

from graphquilt.evaluate.classify import AdamLogistic, ScikitLogistic, Split, classification_accuracy, random_splits
from graphquilt.evaluate.diagnosis import Diagnosis, diagnose, one_encoder
from graphquilt.evaluate.fixed_splits import fixed_split, read_split, split_by_years
from graphquilt.evaluate.geometry import procrustes_error
from graphquilt.evaluate.grid import Grid, GridResult, mlp_grid
from graphquilt.evaluate.links import (
    LinkQuality,
    cosine,
    inner_product,
    link_prediction_auc,
    link_quality,
    negative_distance,
    reconstruction_auc,
)
from graphquilt.evaluate.logistic import InvariantLogistic
from graphquilt.evaluate.pairs import hold_out_edges, sample_non_edges
from graphquilt.evaluate.routes import Comparison, EvaluationOptions, Quality, compare_routes, quality
from graphquilt.linalg.ranking import average_precision, roc_auc

__all__ = [
    "AdamLogistic",
    "Comparison",
    "Diagnosis",
    "EvaluationOptions",
    "Grid",
    "GridResult",
    "InvariantLogistic",
    "LinkQuality",
    "Quality",
    "ScikitLogistic",
    "Split",
    "average_precision",
    "classification_accuracy",
    "compare_routes",
    "cosine",
    "diagnose",
    "fixed_split",
    "hold_out_edges",
    "inner_product",
    "link_prediction_auc",
    "link_quality",
    "mlp_grid",
    "negative_distance",
    "one_encoder",
    "procrustes_error",
    "quality",
    "random_splits",
    "read_split",
    "reconstruction_auc",
    "roc_auc",
    "sample_non_edges",
    "split_by_years",
]
