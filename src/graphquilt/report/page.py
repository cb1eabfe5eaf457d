"""One self-contained HTML page: the shared design, the parts of one kind of page, and its data."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from graphquilt.arrays import AnyArray

_FOLDER = Path(__file__).parent
_TYPES = {"|u1": "u1", "<u2": "u2", "<u4": "u4", "<i4": "i4", "<f4": "f4"}  # what the page can decode

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
img-src data: blob:; script-src 'sha256-{digest}'">
<link rel="icon" href="data:,">
<title>{title} · graphquilt</title>
<style>
{style}</style>
</head>
<body>
<header class="top"><div class="brand">graph<span>quilt</span></div><nav aria-label="sections"></nav>\
<button type="button" id="theme" class="quiet"></button></header>
<main>
{body}</main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def render_page(kind: str | Path, *, title: str, data: Mapping[str, object], parts: Sequence[str] = ()) -> str:
    """Return one kind of page with its data, as HTML that needs no other file and no network.

    Text in ``data`` cannot become markup or a script: it is JSON without any ``<``, the scripts only make text nodes
    of it, and the page allows the browser one script, named by its SHA-256, and no request.

    ``kind.html`` (the content of ``main``) and ``kind.js``, in this folder or elsewhere, are combined with the shared
    ``page.css`` and ``page.js``, and with ``parts``, other scripts of this folder. Scripts read ``data``, plain values
    and one-dimensional arrays, from ``Page.data``; numbers that are not finite become null.
    """
    script = "\n".join(_read(name) for name in ("page.js", *parts, f"{kind}.js"))
    # The digest covers the text between the script tags.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = json.dumps(_plain(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _PAGE.format(
        digest=digest,
        title=html.escape(title),
        style=_read("page.css"),
        body=_read(f"{kind}.html"),
        data=text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
        script=script,
    )


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _plain(value: object) -> object:
    """Return a value that JSON can represent: arrays in base 64, null for numbers that are not finite."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str):
        # A lone surrogate from a damaged file cannot be written as UTF-8.
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return value


def _array(values: AnyArray) -> object:
    kind = _TYPES.get(values.dtype.str)
    if kind is None or values.ndim != 1:
        return _plain(values.tolist())
    return {"$array": [kind, base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()]}
