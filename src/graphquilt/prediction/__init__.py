"""Links that will come: candidates, counts of common neighbours, and a calibrated score learnt from the graph."""

from graphquilt.prediction.candidates import count_common
from graphquilt.prediction.model import COMPONENTS, LinkModel, fit_links, link_components
from graphquilt.prediction.predicting import Links, fit_later_links, links

__all__ = [
    "COMPONENTS",
    "LinkModel",
    "Links",
    "count_common",
    "fit_later_links",
    "fit_links",
    "link_components",
    "links",
]
