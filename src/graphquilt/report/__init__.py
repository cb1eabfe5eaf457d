"""Pictures and pages of results."""

from graphquilt.report.drawing import new_figure, save_figure
from graphquilt.report.page import render_page

__all__ = ["new_figure", "render_page", "save_figure"]
