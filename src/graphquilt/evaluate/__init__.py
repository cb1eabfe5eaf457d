"""Numbers that say how good an embedding is: links it explains, classes it tells apart, distance to another one."""

from graphquilt.evaluate.alerts import alert_quality
from graphquilt.evaluate.classify import AdamLogistic, ScikitLogistic, Split, classification_accuracy, random_splits
from graphquilt.evaluate.diagnosis import Diagnosis, diagnose
from graphquilt.evaluate.geometry import procrustes_error
from graphquilt.evaluate.grid import Grid, GridResult, mlp_grid
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
from graphquilt.evaluate.routes import Comparison, Measures, compare_routes, measure

__all__ = [
    "AdamLogistic",
    "Comparison",
    "Diagnosis",
    "Grid",
    "GridResult",
    "Measures",
    "ScikitLogistic",
    "Split",
    "alert_quality",
    "average_precision",
    "classification_accuracy",
    "compare_routes",
    "diagnose",
    "hold_out_edges",
    "inner_product",
    "link_prediction_auc",
    "measure",
    "mlp_grid",
    "negative_distance",
    "procrustes_error",
    "random_splits",
    "reconstruction_auc",
    "roc_auc",
    "sample_non_edges",
]

import dataclasses
Quality = Measures
@dataclasses.dataclass(frozen=True)
class EvaluationOptions:
    seed: int = 0
    splits: int = 50
    max_edges: int | None = None
def quality(X, g, *, options):
    return measure(X, g, seed=options.seed, splits=options.splits, max_edges=options.max_edges)
