"""Pictures and pages of results."""

from graphquilt.report.drawing import new_figure, save_figure
from graphquilt.report.job_report import write_job_report
from graphquilt.report.page import render_page

__all__ = ["new_figure", "render_page", "save_figure", "write_job_report"]
