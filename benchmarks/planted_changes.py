"""Change what some senders of a message network do in some windows, and remember who it was.

Two kinds, fixed before any detector scored them. In half of the cases a sender writes, beside its usual mail, to three
to six people that it never wrote to before ("lateral"). In the other half its mail of the window goes to the people
that another sender of about the same degree writes to in that window ("role"), so that counts hardly change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array

__all__ = ["KINDS", "Messages", "plant_changes"]

KINDS = ("lateral", "role")
_EACH = 2  # changes of each kind in each window
_LEAST_WINDOWS, _LEAST_DEGREE = 5, 3


class Messages(NamedTuple):
    """Messages in order of time: seconds, and the ids of sender and receiver, (m,)."""

    time: Float64Array
    source: Int64Array
    destination: Int64Array


def plant_changes(messages: Messages, width: float, *, first: int, seed: int) -> tuple[Messages, list[Int64Array]]:
    """Change the messages of some senders in every window from number ``first`` on.

    Returns the changed messages, and the keys (source << 32 | destination) of the planted pairs for each kind, with the
    number of the window in front: arrays (m, 2) of window and key.
    """
    rng = np.random.default_rng(seed)
    number = (messages.time // width).astype(np.int64)
    destination = messages.destination.copy()
    everyone = np.unique(messages.destination)
    extra: list[tuple[float, int, int]] = []
    truth: tuple[list[tuple[int, int]], ...] = ([], [])
    windows_of: dict[int, set[int]] = {}
    met: dict[int, set[int]] = {}
    for w in np.unique(number):
        rows = np.flatnonzero(number == w)
        sent: dict[int, set[int]] = {}
        for i, j in zip(messages.source[rows].tolist(), messages.destination[rows].tolist(), strict=True):
            sent.setdefault(i, set()).add(j)
        able = [i for i in sent if len(windows_of.get(i, ())) >= _LEAST_WINDOWS and len(sent[i]) >= _LEAST_DEGREE]
        if w >= first and len(able) >= 4 * _EACH:
            chosen = rng.choice(able, 2 * _EACH, replace=False).tolist()
            for i in chosen[:_EACH]:
                strangers = np.setdiff1d(everyone, [*met.get(i, ()), *sent[i], i])
                for j in rng.choice(strangers, min(len(strangers), int(rng.integers(3, 7))), replace=False).tolist():
                    extra.append((float((w + rng.random()) * width), i, j))
                    truth[0].append((int(w), (i << 32) | j))
            for i in chosen[_EACH:]:
                others = [k for k in able if k != i and k not in chosen]
                near = sorted(others, key=lambda k: abs(len(sent[k]) - len(sent[i])))[:5]
                model = sorted(sent[int(rng.choice(near))] - {i})
                place = {j: model[int(rng.integers(len(model)))] for j in sorted(sent[i])}
                for row in rows[messages.source[rows] == i]:
                    destination[row] = place[int(destination[row])]
                    truth[1].append((int(w), (i << 32) | int(destination[row])))
        for i, partners in sent.items():
            windows_of.setdefault(i, set()).add(int(w))
            met.setdefault(i, set()).update(partners)
    time, source, target = (np.array(column) for column in zip(*extra, strict=True))
    time = np.concatenate([messages.time, time])
    order = np.argsort(time, kind="stable")
    changed = Messages(
        time[order],
        np.concatenate([messages.source, source])[order],
        np.concatenate([destination, target])[order],
    )
    return changed, [np.unique(np.array(rows, dtype=np.int64).reshape(-1, 2), axis=0) for rows in truth]
