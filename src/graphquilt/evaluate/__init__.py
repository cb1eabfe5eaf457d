"""Numbers that say how good an embedding is: links it explains, classes it tells apart, distance to another one."""

from graphquilt.evaluate.alerts import alert_quality
from graphquilt.evaluate.classify import AdamLogistic, ScikitLogistic, classification_accuracy
from graphquilt.evaluate.geometry import procrustes_error
from graphquilt.evaluate.links import (
    average_precision,
    hold_out_edges,
    inner_product,
    link_prediction_auc,
    negative_distance,
    reconstruction_auc,
    roc_auc,
    sample_non_edges,
)

__all__ = [
    "AdamLogistic",
    "ScikitLogistic",
    "alert_quality",
    "average_precision",
    "classification_accuracy",
    "hold_out_edges",
    "inner_product",
    "link_prediction_auc",
    "negative_distance",
    "procrustes_error",
    "reconstruction_auc",
    "roc_auc",
    "sample_non_edges",
]
