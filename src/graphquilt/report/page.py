"""One self-contained page: the shared design, the parts of one kind of page, and its data inside."""

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

__all__ = ["render_page"]

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
    """Return one kind of page with its data, as HTML that needs nothing else: no file, no network.

    Text in ``data`` cannot become markup or a script: it is JSON in which no ``<`` is left, the scripts only ever make
    text nodes of it, and the page allows its browser no script but the one whose SHA-256 it names, and no request.

    Parameters
    ----------
    kind : str or path
        The page is made of ``kind.html`` (the content of ``main``) and ``kind.js``, in this folder or where the path
        says, and of the shared ``page.css`` and ``page.js``.
    title : str
    data : mapping
        Plain values and arrays of one dimension; the scripts find them in ``Page.data``. Numbers that are not finite
        become null. Arrays of unsigned bytes, 16-bit and 32-bit numbers and single floats become typed arrays.
    parts : sequence of str
        Other scripts of this folder that the page uses, such as ``scatter.js``.

    Examples
    --------
    >>> page = render_page("map_page", title="<b>", data={"ids": ["</script><script>"]}, parts=["scatter.js"])
    >>> "<b>" in page, page.count("</script>")
    (False, 2)
    """
    script = "\n".join(_read(name) for name in ("page.js", *parts, f"{kind}.js"))
    # The digest is that of the text between the tags, which must not be able to end them.
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
    """Return a value as JSON can hold it: arrays as text in base 64, null for numbers that are not finite."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str):
        # A lone surrogate, as a damaged file may have, cannot be written as UTF-8.
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return value


def _array(values: AnyArray) -> object:
    kind = _TYPES.get(values.dtype.str)
    if kind is None or values.ndim != 1:
        return _plain(values.tolist())
    return {"$array": [kind, base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()]}
