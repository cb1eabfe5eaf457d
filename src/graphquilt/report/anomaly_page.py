"""Make one self-contained page for an analyst: a timeline, ranked alerts and the history of each node.

The page needs no network and no library.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from graphquilt.arrays import BoolArray, Int64Array
from graphquilt.temporal import Alert, AnomalyScores

__all__ = ["Timeline", "page_data", "render_page"]

_TEMPLATE = Path(__file__).with_name("anomaly_page.html")
_SHOWN = 500  # alerts on the page


class Timeline(NamedTuple):
    """The windows of a report: the label of each, the number of outliers by side, and which windows are marked."""

    labels: list[str]
    outliers: dict[str, Int64Array]
    marked: BoolArray


def page_data(
    scores: AnomalyScores,
    alerts: Sequence[Alert],
    records: Sequence[Mapping[str, object]],
    *,
    timeline: Timeline,
    title: str,
) -> dict[str, object]:
    """Collect what :func:`render_page` needs; alerts whose record has no explanation are counted but not shown."""
    labels = timeline.labels
    position = {int(number): t for t, number in enumerate(scores.numbers)}
    shown = [(alert, row) for alert, row in zip(alerts[:_SHOWN], records, strict=False) if "degree" in row]
    left_out = f", and {len(scores.left_out)} windows were left out" if scores.left_out else ""
    nodes_scored = " and ".join(
        f"{int(np.isfinite(part.standardised).any(axis=1).sum())} of {len(part.raw)} {side}s"
        for side, part in scores.sides.items()
    )
    return {
        "title": title,
        "notes": [
            f"The report covers {len(labels)} windows, from {labels[0]} to {labels[-1]}{left_out}. {nodes_scored} were "
            f"seen in enough windows to get a standardised score. There are {len(alerts)} alerts; the page shows "
            f"{len(shown)} of them.",
            "The raw score is the distance of a node from its usual position. z is that distance minus its mean over "
            "the node's other windows, in standard deviations.",
        ],
        "windows": [
            {
                "number": int(number),
                "label": labels[t],
                "marked": bool(timeline.marked[t]),
                **{side: int(count[t]) for side, count in timeline.outliers.items()},
            }
            for t, number in enumerate(scores.numbers)
        ],
        "limits": {side: part.limit for side, part in scores.sides.items()},
        "alerts": [
            {
                "window": position[alert.number],
                "z": alert.standardised,
                "raw": alert.raw,
                "usual": row["usual_degree"],
                **{key: row[key] for key in ("side", "node", "degree", "new", "gone", "n_new", "n_gone")},
            }
            for alert, row in shown
        ],
        "nodes": {
            f"{alert.side} {row['node']}": scores.sides[alert.side].standardised[alert.node].astype(float).tolist()
            for alert, row in shown
        },
    }


def render_page(data: Mapping[str, object]) -> str:
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
    # A name from the network must not be able to end the script that contains it.
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return _TEMPLATE.read_text(encoding="utf-8").replace("/*DATA*/null", text)


def _finite(value: object) -> object:
    """Round to three digits, which are enough on a page, and replace NaN, which JSON does not have, by None."""
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value
