"""Which nodes of a temporal network behave unlike themselves, in batch and in a stream."""

from graphquilt.anomaly.batch import LAGS, Alert, AnomalyScores, SideScores, embed_window, rank_alerts, score_windows
from graphquilt.anomaly.explanations import SIDES, Explanation, explain
from graphquilt.anomaly.scores import deviations, leave_one_out_zscore, outliers, threshold
from graphquilt.anomaly.tracker import SideWindow, Tracker, WindowScores

__all__ = [
    "LAGS",
    "SIDES",
    "Alert",
    "AnomalyScores",
    "Explanation",
    "SideScores",
    "SideWindow",
    "Tracker",
    "WindowScores",
    "deviations",
    "embed_window",
    "explain",
    "leave_one_out_zscore",
    "outliers",
    "rank_alerts",
    "score_windows",
    "threshold",
]
