"""Measures of the quality of an embedding: edges it reconstructs, classes it separates, distance to another one."""

from graphquilt.evaluate.classification import (
    Classifier,
    InvariantLogistic,
    Split,
    classification_accuracy,
    random_splits,
)
from graphquilt.evaluate.links import (
    LinkQuality,
    cosine,
    inner_product,
    link_prediction_auc,
    link_quality,
    negative_distance,
    reconstruction_auc,
)
from graphquilt.evaluate.pairs import hold_out_edges, sample_non_edges
from graphquilt.evaluate.positions import procrustes_error
from graphquilt.evaluate.quality import EvaluationOptions, Quality, quality
from graphquilt.linalg import average_precision, roc_auc

__all__ = [
    "Classifier",
    "EvaluationOptions",
    "InvariantLogistic",
    "LinkQuality",
    "Quality",
    "Split",
    "average_precision",
    "classification_accuracy",
    "cosine",
    "hold_out_edges",
    "inner_product",
    "link_prediction_auc",
    "link_quality",
    "negative_distance",
    "procrustes_error",
    "quality",
    "random_splits",
    "reconstruction_auc",
    "roc_auc",
    "sample_non_edges",
]
