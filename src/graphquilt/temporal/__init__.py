"""Networks over time: read flows, cut them into windows, and score which nodes behave unlike themselves.

:func:`detect` goes from logs to alerts, :func:`score_windows` scores all windows at once, and :class:`Tracker` scores
each window from the windows before it.
"""

from graphquilt.temporal.batch import AnomalyScores, Detection, detect, score_windows
from graphquilt.temporal.drift import DriftScores, SideScores, deviations, drift_scores, lag_edges, leave_one_out_zscore
from graphquilt.temporal.embedding import bipartite_svd, embed_window
from graphquilt.temporal.logs.columns import BadRows, HostList, RowCounts
from graphquilt.temporal.logs.events import Events, read_events
from graphquilt.temporal.logs.flows import Flows, read_flows
from graphquilt.temporal.logs.formats import LANL_COLUMNS, FlowColumns
from graphquilt.temporal.names import Names
from graphquilt.temporal.records import AlertOptions
from graphquilt.temporal.report import write_report
from graphquilt.temporal.results import (
    COMPONENTS,
    Alert,
    Component,
    Explanation,
    HostTable,
    PairAlert,
    PairTable,
    WindowScores,
)
from graphquilt.temporal.tokens import TokenWindows, WindowTokens
from graphquilt.temporal.tracker import LAGS, ScoringOptions, Tracker
from graphquilt.temporal.traffic import Netflow, netflow
from graphquilt.temporal.windows import SIDES, Snapshots, Window, WindowOptions, snapshots

__all__ = [
    "COMPONENTS",
    "LAGS",
    "LANL_COLUMNS",
    "SIDES",
    "Alert",
    "AlertOptions",
    "AnomalyScores",
    "BadRows",
    "Component",
    "Detection",
    "DriftScores",
    "Events",
    "Explanation",
    "FlowColumns",
    "Flows",
    "HostList",
    "HostTable",
    "Names",
    "Netflow",
    "PairAlert",
    "PairTable",
    "RowCounts",
    "ScoringOptions",
    "SideScores",
    "Snapshots",
    "TokenWindows",
    "Tracker",
    "Window",
    "WindowOptions",
    "WindowScores",
    "WindowTokens",
    "bipartite_svd",
    "detect",
    "deviations",
    "drift_scores",
    "embed_window",
    "lag_edges",
    "leave_one_out_zscore",
    "netflow",
    "read_events",
    "read_flows",
    "score_windows",
    "snapshots",
    "write_report",
]
