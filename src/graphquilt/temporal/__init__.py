"""Networks over time: read flows, cut them into windows, and score which nodes behave unlike themselves.

:func:`score_windows` scores all windows at once, and :class:`Tracker` scores each window from the windows before it.
"""

from graphquilt.temporal.alerts import Explanation, explain
from graphquilt.temporal.batch import AnomalyScores, DriftScores, SideScores, drift_scores, score_windows
from graphquilt.temporal.bipartite import bipartite_factors, bipartite_svd
from graphquilt.temporal.embedding import embed_window
from graphquilt.temporal.evaluation import alert_quality
from graphquilt.temporal.lags import lag_edges
from graphquilt.temporal.logs.events import Events, read_events
from graphquilt.temporal.logs.flow_files import BadRows, FlowCounts
from graphquilt.temporal.logs.flows import Flows, read_flows
from graphquilt.temporal.logs.formats import LANL_COLUMNS, FlowColumns
from graphquilt.temporal.names import Names
from graphquilt.temporal.results import COMPONENTS, Alert, Component, HostTable, PairAlert, PairTable, WindowScores
from graphquilt.temporal.scores import LAGS, ScoringOptions, deviations, leave_one_out_zscore, outliers, threshold
from graphquilt.temporal.tokens import TokenWindows, WindowTokens
from graphquilt.temporal.tracker import Tracker
from graphquilt.temporal.traffic import Netflow, netflow
from graphquilt.temporal.windows import SIDES, Snapshots, Window, snapshots

__all__ = [
    "COMPONENTS",
    "LAGS",
    "LANL_COLUMNS",
    "SIDES",
    "Alert",
    "AnomalyScores",
    "BadRows",
    "Component",
    "DriftScores",
    "Events",
    "Explanation",
    "FlowColumns",
    "FlowCounts",
    "Flows",
    "HostTable",
    "Names",
    "Netflow",
    "PairAlert",
    "PairTable",
    "ScoringOptions",
    "SideScores",
    "Snapshots",
    "TokenWindows",
    "Tracker",
    "Window",
    "WindowScores",
    "WindowTokens",
    "alert_quality",
    "bipartite_factors",
    "bipartite_svd",
    "deviations",
    "drift_scores",
    "embed_window",
    "explain",
    "lag_edges",
    "leave_one_out_zscore",
    "netflow",
    "outliers",
    "read_events",
    "read_flows",
    "score_windows",
    "snapshots",
    "threshold",
]
