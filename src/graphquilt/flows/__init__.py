"""Flow records from files of any size, a batch at a time."""

from graphquilt.flows.files import LANL_COLUMNS
from graphquilt.flows.reader import FlowCounts, Flows, read_flows

__all__ = ["LANL_COLUMNS", "FlowCounts", "Flows", "read_flows"]
