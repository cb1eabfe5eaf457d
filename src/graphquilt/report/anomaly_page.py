"""One self-contained page for an analyst: timeline, ranked alerts, a node's history. No network, no library."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["render_page", "write_page"]

_TEMPLATE = Path(__file__).with_name("anomaly_page.html")


def render_page(data: Mapping[str, Any]) -> str:
    """Return the page as text.

    Parameters
    ----------
    data : mapping
        ``title``; ``windows``: a list of ``{"number", "label", "source", "destination", "marked"}`` with the outlier
        counts; ``limits``: side to limit; ``alerts``: a list of ``{"window", "side", "node", "raw", "z", "new",
        "gone", "degree", "usual"}`` where ``window`` is a position; ``nodes``: ``"side name"`` to the z-scores of all
        windows; ``notes``: a list of lines.

    Examples
    --------
    >>> page = render_page({"title": "t", "windows": [], "limits": {}, "alerts": [], "nodes": {}, "notes": ["<b>"]})
    >>> "http://" in page or "https://" in page, "<b>" in page
    (False, False)
    """
    text = json.dumps(_finite(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A name from the network must not be able to end the script it is written in.
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return _TEMPLATE.read_text(encoding="utf-8").replace("/*DATA*/null", text)


def write_page(path: str | Path, data: Mapping[str, Any]) -> Path:
    """Write the page of :func:`render_page`."""
    target = Path(path)
    target.write_text(render_page(data), encoding="utf-8")
    return target


def _finite(value: Any) -> Any:
    """Three digits are enough on a page, and JSON has no NaN."""
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(part) for part in value]
    return value
