"""Write alerts as JSON lines, CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphquilt.errors import InputError
from graphquilt.files import temporary_sibling, translate_disk_errors
from graphquilt.temporal.ecs import ecs_record

__all__ = ["CSV_COLUMNS", "FORMATS", "csv_line", "json_line", "parse_formats", "write_alerts", "write_lines"]

FORMATS = {"json": "alerts.jsonl", "csv": "alerts.csv", "parquet": "alerts.parquet"}
CSV_COLUMNS = (
    "id",
    "incident",
    "repeat",
    "kind",
    "window",
    "start",
    "end",
    "date",
    "side",
    "node",
    "source",
    "destination",
    "port",
    "severity",
    "pvalue",
    "reason",
    "components",
    "degree",
    "usual_degree",
    "n_new",
    "n_gone",
    "new",
    "gone",
    "tokens",
    "surprise",
    "flows",
    "is_new",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would evaluate text that begins so


def parse_formats(text: str) -> tuple[str, ...]:
    """Read ``"json,csv"`` as the formats of alerts.

    Examples
    --------
    >>> parse_formats("csv,json")
    ('csv', 'json')
    """
    words = tuple(word.strip() for word in text.split(","))
    if not set(words) <= FORMATS.keys():
        raise InputError(f"alerts are written as {', '.join(FORMATS)}, not {text!r}.")
    return words


def json_line(record: Mapping[str, Any], *, ecs: bool = False) -> str:
    """Return an alert as one line of JSON, in ASCII, so that no name can command a terminal or lack an encoding."""
    return json.dumps(ecs_record(record) if ecs else record)


def csv_line(record: Mapping[str, Any] | None) -> str:
    """Return an alert as one line of CSV; None is the header.

    Components are ``name:z:pvalue`` with spaces between them, and so are the names of neighbours. A text that a
    spreadsheet would evaluate begins with an apostrophe.
    """
    out = io.StringIO()
    cells = CSV_COLUMNS if record is None else [_cell(record.get(name)) for name in CSV_COLUMNS]
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue()


def write_alerts(
    folder: Path, records: Sequence[Mapping[str, Any]], formats: Sequence[str], *, ecs: bool = False
) -> list[Path]:
    """Write the alerts in each format to ``alerts.jsonl``, ``alerts.csv`` and ``alerts.parquet``; return the paths."""
    paths = []
    for kind in formats:
        path = folder / FORMATS[kind]
        if kind == "parquet":
            _write_parquet(path, records)
        else:
            line: Callable[[Any], str] = csv_line if kind == "csv" else lambda record: json_line(record, ecs=ecs)
            lines = [line(record) for record in ([None] if kind == "csv" else []) + list(records)]
            write_lines(path, lines)
        paths.append(path)
    return paths


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines to a file that is complete once it is there; no lines are an empty file."""
    with temporary_sibling(path) as part:
        part.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        os.replace(part, path)


def _cell(value: object) -> object:
    if isinstance(value, list):
        value = " ".join(
            f"{item['name'].replace(' ', '_')}:{item['z']}:{item['pvalue']}" if isinstance(item, dict) else str(item)
            for item in value
        )
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return "" if value is None else value


def _write_parquet(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, whole, number, names = pa.string(), pa.int64(), pa.float64(), pa.list_(pa.string())
    component = pa.struct([("name", text), ("value", number), ("z", number), ("pvalue", number)])
    special = {"components": pa.list_(component), "new": names, "gone": names, "tokens": names, "is_new": pa.bool_()}
    special |= dict.fromkeys(("repeat", "window", "port", "degree", "n_new", "n_gone", "flows"), whole)
    special |= dict.fromkeys(("start", "end", "severity", "pvalue", "usual_degree", "surprise"), number)
    schema = pa.schema([(name, special.get(name, text)) for name in CSV_COLUMNS])
    rows = [{name: record.get(name) for name in CSV_COLUMNS} for record in records]
    with translate_disk_errors(path.parent), temporary_sibling(path) as unfinished:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), unfinished, compression="zstd")
        os.replace(unfinished, path)
