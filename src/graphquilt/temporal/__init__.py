"""Networks over time: read flows, cut them into windows, and score which nodes behave unlike themselves.

:func:`score_windows` scores all windows at once, and :class:`Tracker` scores each window from the windows before it.
"""

from graphquilt.temporal.alerts import Alert, Explanation, explain
from graphquilt.temporal.batch import AnomalyScores, SideScores, rank_alerts, score_windows
from graphquilt.temporal.embedding import embed_window
from graphquilt.temporal.events import Events, read_events
from graphquilt.temporal.flow_files import BadRows, FlowCounts
from graphquilt.temporal.flows import Flows, read_flows
from graphquilt.temporal.log_formats import LANL_COLUMNS, FlowColumns
from graphquilt.temporal.names import Names
from graphquilt.temporal.scores import LAGS, ScoringOptions, deviations, leave_one_out_zscore, outliers, threshold
from graphquilt.temporal.tracker import SideWindow, Tracker, WindowScores
from graphquilt.temporal.windows import SIDES, Snapshots, Window, lag_edges, snapshots

__all__ = [
    "LAGS",
    "LANL_COLUMNS",
    "SIDES",
    "Alert",
    "AnomalyScores",
    "BadRows",
    "Events",
    "Explanation",
    "FlowColumns",
    "FlowCounts",
    "Flows",
    "Names",
    "ScoringOptions",
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
    "read_events",
    "read_flows",
    "score_windows",
    "snapshots",
    "threshold",
]
