"""Write the results of a batch run: alerts in several formats, incidents, scores, the page, a summary."""

from __future__ import annotations

import csv
import io
import ipaddress
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from graphquilt.errors import InputError
from graphquilt.files import atomic_file, translate_disk_errors, write_text
from graphquilt.report import render_page
from graphquilt.temporal.batch import AnomalyScores, Detection
from graphquilt.temporal.judging import LEARNT
from graphquilt.temporal.names import Names
from graphquilt.temporal.page import count_unusual, judged_in_words, page_data
from graphquilt.temporal.records import Record
from graphquilt.temporal.rescoring import SCORES, save_scores
from graphquilt.temporal.results import COMPONENTS
from graphquilt.temporal.windows import SIDES

_FORMATS = {"json": "alerts.jsonl", "csv": "alerts.csv"}
_COLUMNS = """id incident repeat kind window start end date side node source destination port severity pvalue reason
components degree usual_degree n_new n_gone new gone n_victims victims ports tokens surprise flows is_new"""
CSV_COLUMNS = tuple(_COLUMNS.split())
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would evaluate text that begins so
_ECS_VERSION = "8.11.0"
_FIRST, _LAST = -62_135_596_800.0, 253_402_300_799.0  # the years 1 to 9999


def write_report(
    folder: str | Path,
    detection: Detection,
    *,
    title: str = "Anomalies",
    formats: Sequence[str] = ("json",),
    ecs: bool = False,
) -> Record:
    """Write ``scores.parquet``, alerts, ``incidents.jsonl``, ``report.html`` and, last, ``summary.json``.

    ``formats`` of the alerts are ``json``, ``csv`` or both; ``ecs`` writes JSON with the names of the
    Elastic Common Schema. The folder is created if necessary. Returns the summary.
    """
    folder, scores, names = Path(folder), detection.scores, detection.names
    summary, data = _summarise(detection), {"title": title, **page_data(detection)}
    page = render_page(Path(__file__).with_name("anomaly_page"), title=title, data=data)
    with translate_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write_scores(folder / "scores.parquet", scores, names)
        save_scores(folder / SCORES, detection)
        write_alerts(folder, detection.alerts, formats, ecs=ecs)
        _write_lines(folder / "incidents.jsonl", [json.dumps(incident) for incident in detection.incidents])
        write_text(folder / "report.html", page)
        write_text(folder / "summary.json", json.dumps(summary, indent=2))
    return summary


def _summarise(detection: Detection) -> Record:
    scores = detection.scores
    return {
        "windows": len(scores.numbers),
        "left_out": {str(number): reason for number, reason in scores.left_out.items()},
        "node_windows_scored": {side: sum(len(w.sides[side].nodes) for w in scores.windows) for side in SIDES},
        "outliers": {side: count.tolist() for side, count in count_unusual(scores).items()},
        "numbers": scores.numbers.tolist(),
        "drift_missing": scores.drift_missing,
        "learning": [window.number for window in scores.windows if window.n_learnt < LEARNT],
        "judged": [verdict["text"] for verdict in judged_in_words(scores)],
        "alerts": len(detection.alerts),
        "incidents": len(detection.incidents),
        "highest_severity": max((record["severity"] for record in detection.alerts), default=None),
        **detection.facts,
    }


def _write_scores(path: Path, scores: AnomalyScores, names: Mapping[str, Names]) -> None:
    """Write one row per node and window: node, side, window, pvalue, severity, and the z-score of each component."""
    label, number = pa.dictionary(pa.int32(), pa.string()), pa.float32()
    fields = [("node", label), ("side", label), ("window", pa.int64()), ("pvalue", pa.float64()), ("severity", number)]
    schema = pa.schema([*fields, *((name.replace(" ", "_"), number) for name in COMPONENTS)])
    with (
        translate_disk_errors(path.parent),
        atomic_file(path) as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for side in SIDES:
            for window in scores.windows:
                table = window.sides[side]
                columns = [
                    pa.array([names[side][int(node)] for node in table.nodes], label),
                    pa.array([side] * len(table.nodes), label),
                    pa.array(np.full(len(table.nodes), window.number), pa.int64()),
                    pa.array(table.pvalue),
                    pa.array(table.severity, number),
                    *(pa.array(z, number, from_pandas=True) for z in table.z.T),
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def parse_formats(text: str) -> tuple[str, ...]:
    """Read ``"json,csv"`` as formats of alerts."""
    words = tuple(word.strip() for word in text.split(","))
    if not set(words) <= _FORMATS.keys():
        raise InputError(f"alerts are written as {', '.join(_FORMATS)}, not {text!r}.")
    return words


def json_line(record: Record, *, ecs: bool = False) -> str:
    """Return an alert as one line of ASCII JSON: no name can send commands to a terminal, or lack an encoding."""
    return json.dumps(ecs_record(record) if ecs else record)


def csv_line(record: Record | None) -> str:
    """Return an alert as one line of CSV; None is the header.

    Components are ``name:z:pvalue`` with spaces between them, and so are the names of neighbours. A text that a
    spreadsheet would evaluate begins with an apostrophe.
    """
    out = io.StringIO()
    cells = CSV_COLUMNS if record is None else [_cell(record.get(name)) for name in CSV_COLUMNS]
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue()


def write_alerts(folder: Path, records: Sequence[Record], formats: Sequence[str], *, ecs: bool = False) -> None:
    """Write the alerts in each format, to ``alerts.jsonl`` and ``alerts.csv``."""
    for kind in formats:
        as_json = [json_line(record, ecs=ecs) for record in records]
        lines = as_json if kind == "json" else [csv_line(record) for record in (None, *records)]
        _write_lines(folder / _FORMATS[kind], lines)


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines to a file, which appears when it is complete."""
    with atomic_file(path) as file:
        file.writelines(f"{line}\n".encode() for line in lines)


def _cell(value: object) -> object:
    if isinstance(value, list):
        value = " ".join(
            f"{item['name'].replace(' ', '_')}:{item['z']}:{item['pvalue']}" if isinstance(item, dict) else str(item)
            for item in value
        )
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return "" if value is None else value


def ecs_record(record: Record) -> Record:
    """Return the record of an alert with the names of ECS; everything else is below ``graphquilt``."""
    start, end = _stamp(record["start"]), _stamp(record["end"])
    is_pair = record["kind"] == "pair"
    renamed = ("id", "start", "end", "severity", "reason", "date")
    ecs: Record = {
        "@timestamp": start,
        "ecs": {"version": _ECS_VERSION},
        "event": {
            "kind": "alert",
            "category": ["network", "intrusion_detection"],
            "type": ["connection", "info"] if is_pair else ["info"],
            "module": "graphquilt",
            "dataset": "graphquilt.anomaly",
            "id": record["id"],
            "start": start,
            "end": end,
            "severity": round(record["severity"]),
            "risk_score": float(record["severity"]),
            "risk_score_norm": float(record["severity"]),
            "reason": record["reason"],
        },
        "rule": {"name": "unusual connection" if is_pair else "unusual host"},
        "graphquilt": {key: value for key, value in record.items() if key not in renamed},
    }
    names = [record["source"], record["destination"]] if is_pair else [record["node"]]
    if is_pair:
        ecs["source"], ecs["destination"] = _endpoint(record["source"]), _endpoint(record["destination"])
        if record.get("port") is not None:
            ecs["destination"]["port"] = record["port"]
    else:
        ecs[record["side"]] = _endpoint(record["node"])
        ecs["host"] = {"name": record["node"]} | ({"ip": [record["node"]]} if _is_address(record["node"]) else {})
    addresses = [name for name in names if _is_address(name)]
    ecs["related"] = {"hosts": names} | ({"ip": addresses} if addresses else {})
    ecs["message"] = f"{' → '.join(names)}: {record['reason']}"
    return ecs


def _stamp(seconds: float) -> str:
    stamp = datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), UTC)
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _endpoint(name: str) -> Record:
    return {"address": name} | ({"ip": name} if _is_address(name) else {})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
