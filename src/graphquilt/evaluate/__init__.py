"""Measures of the quality of an embedding: edges it reconstructs, classes it separates, distance to another one."""

from graphquilt.evaluate.classification import (
    Classifier,
    InvariantLogistic,
    Split,
    classification_accuracy,
    edge_classification_accuracy,
    edge_embeddings,
    random_splits,
)
from graphquilt.evaluate.links import (
    LinkRanking,
    cosine,
    inner_product,
    link_prediction_auc,
    link_quality,
    negative_distance,
    rank_links,
    reconstruction_auc,
    source_target,
)
from graphquilt.evaluate.pairs import hold_out_edges, sample_non_edges
from graphquilt.evaluate.positions import procrustes_error
from graphquilt.evaluate.quality import EvaluationOptions, Quality, quality
from graphquilt.linalg.ranking import average_precision, hits_at, mean_reciprocal_rank, roc_auc

__all__ = [
    "Classifier",
    "EvaluationOptions",
    "InvariantLogistic",
    "LinkRanking",
    "Quality",
    "Split",
    "average_precision",
    "classification_accuracy",
    "cosine",
    "edge_classification_accuracy",
    "edge_embeddings",
    "hits_at",
    "hold_out_edges",
    "inner_product",
    "link_prediction_auc",
    "link_quality",
    "mean_reciprocal_rank",
    "negative_distance",
    "procrustes_error",
    "quality",
    "random_splits",
    "rank_links",
    "reconstruction_auc",
    "roc_auc",
    "sample_non_edges",
    "source_target",
]
