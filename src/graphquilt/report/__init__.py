"""Pictures and pages of results."""

from graphquilt.report.job_report import job_page, render_page, write_job_report, write_map
from graphquilt.report.maps import draw_map, save_figure
from graphquilt.report.node_map import MapOptions, NodeMap, node_map

__all__ = [
    "MapOptions",
    "NodeMap",
    "draw_map",
    "job_page",
    "node_map",
    "render_page",
    "save_figure",
    "write_job_report",
    "write_map",
]
