"""Networks over time: flows, windows, and which nodes behave unlike themselves, in batch and in a stream."""

from graphquilt.temporal.batch import LAGS, Alert, AnomalyScores, SideScores, embed_window, rank_alerts, score_windows
from graphquilt.temporal.explanations import SIDES, Explanation, explain
from graphquilt.temporal.reader import FlowCounts, Flows, read_flows
from graphquilt.temporal.scores import deviations, leave_one_out_zscore, outliers, threshold
from graphquilt.temporal.sources import LANL_COLUMNS
from graphquilt.temporal.tracker import SideWindow, Tracker, WindowScores
from graphquilt.temporal.windows import Names, Snapshots, Window, lag_edges, snapshots

__all__ = [
    "LAGS",
    "LANL_COLUMNS",
    "SIDES",
    "Alert",
    "AnomalyScores",
    "Explanation",
    "FlowCounts",
    "Flows",
    "Names",
    "SideScores",
    "SideWindow",
    "Snapshots",
    "Tracker",
    "Window",
    "WindowScores",
    "deviations",
    "embed_window",
    "explain",
    "lag_edges",
    "leave_one_out_zscore",
    "outliers",
    "rank_alerts",
    "read_flows",
    "score_windows",
    "snapshots",
    "threshold",
]
