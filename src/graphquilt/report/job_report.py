"""What a job looks like in a file: its report as one self-contained page, and its map as a page or a picture."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import itertools
import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import graphquilt
from graphquilt.alignment import Alignment
from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.drawing import layout
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.evaluate.pairs import count_pairs
from graphquilt.files import translate_disk_errors, write_text
from graphquilt.jobs import Job, JobStatus, job_status
from graphquilt.jobs.export import job_ids
from graphquilt.jobs.records import patch_key
from graphquilt.patches import Patch, PatchGraph
from graphquilt.progress import ProgressCallback, report
from graphquilt.report.maps import draw_map, keep_map
from graphquilt.report.node_map import MapOptions, NodeMap, node_map, principal_plane

_FORMATS = (".html", ".png", ".svg", ".pdf")
_CURVES = 40  # loss curves on the page
_SETTINGS = 100  # embedders on the page, if every patch has its own
_EDGES = 20_000  # patch edges on the page, the worst first
_POINTS = 48  # shared nodes in a view
_VIEWS = 300  # edges with a view


def write_job_report(
    job: Job,
    path: str | Path | None = None,
    *,
    options: MapOptions = MapOptions(),
    progress: ProgressCallback | None = None,
) -> Path:
    """Write the report of a job, finished or not, as one self-contained HTML file, by default into the job's folder."""
    target = Path(job.name) / "report.html" if path is None else Path(path)
    page = job_page(job, options, progress=progress)
    with translate_disk_errors(target.parent):
        write_text(target, page)
    return target


def write_map(
    job: Job, path: str | Path, *, options: MapOptions = MapOptions(), progress: ProgressCallback | None = None
) -> NodeMap:
    """Write the map of a job as a page (.html) or a picture (.png, .svg, .pdf), and return what was drawn."""
    path, name = Path(path), Path(job.name).name
    if path.suffix not in _FORMATS:
        raise InputError(f"{path.name} does not end with {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}.")
    drawn = node_map(job, options, progress=progress)
    keep_map(job, drawn, umap=options.umap)
    if path.suffix != ".html":
        draw_map(drawn, path, title=name)
        return drawn
    data = {"title": f"Map of {name}", "lead": "", "map": drawn.for_page(job, progress)}
    with translate_disk_errors(path.parent):
        write_text(path, render_page("map_page", title=f"Map of {name}", data=data, parts=["scatter.js"]))
    return drawn


def job_page(job: Job, options: MapOptions = MapOptions(), *, progress: ProgressCallback | None = None) -> str:
    """Return the report of a job as HTML."""
    status = job_status(job)
    name = Path(job.name).name or job.name
    data: dict[str, object] = {
        "name": name,
        "folder": shlex.quote(job.name),  # for commands to copy
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": graphquilt.__version__,
        "facts": _counts(job, status),
        "fit": status.fit,
        "embedded": status.embedded,
        "wanted": status.wanted,
        "next": "" if status.next == "nothing" else status.next,
        "evaluation": status.records["evaluation"],
        "settings": list(_rows(status.settings)),
        "cite": _read("cite.bib").strip().replace("VERSION", graphquilt.__version__).split("\n\n"),
        "stages": _stages(job, status),
    }
    alignment, has_embedding = None, False
    with contextlib.suppress(JobError, FormatError):
        alignment = job.alignment
    with contextlib.suppress(JobError, FormatError):
        has_embedding = len(job.embedding) > 0
    if status.patches is not None:
        patch_graph = job.patch_graph.repeat(job.settings.recipe.runs)
        data["patches"] = _histograms(job.patch_graph)
        data["curves"] = _loss_curves(job, status.wanted)
        data["quilt"] = quilt_data(job, patch_graph, alignment, progress)
    if has_embedding:
        data["map"] = node_map(job, options, progress=progress).for_page(job, progress)
    report(progress, "report", 1, 1)
    return render_page("job_page", title=name, data=data, parts=["scatter.js", "quilt.js"])


def _counts(job: Job, status: JobStatus) -> list[tuple[str, object]]:
    """Return the counts at the top of the page, each with its name."""
    facts: list[tuple[str, object]] = []
    if job.graph is not None:
        facts = [("nodes", job.graph.n_nodes), ("edges", count_pairs(job.graph, exact=False))]
    if status.patches is not None:
        facts = facts or [("nodes", status.patches["n_nodes"])]
        facts += [("patches", status.patches["n_patches"]), ("overlaps", status.patches["n_patch_edges"])]
    return [*facts, ("dimensions", job.settings.dim)]


def _histograms(patch_graph: PatchGraph) -> dict[str, object]:
    """Return histograms of patch sizes, overlaps and the number of patches of each node."""
    covered = np.zeros(patch_graph.n_nodes, dtype=np.int32)
    for nodes in patch_graph.node_sets:
        covered[nodes] += 1
    sets: dict[str, AnyArray] = {"sizes": patch_graph.sizes, "overlaps": patch_graph.overlaps, "coverage": covered}
    return {name: _histogram(values) for name, values in sets.items() if len(values)}


def _histogram(values: AnyArray) -> dict[str, object]:
    low, high = int(values.min()), int(values.max())
    # About twice the square root of the number of values.
    bars = int(np.clip(2 * np.sqrt(len(values)), 6, 24))
    bins = np.arange(low - 0.5, high + 1) if high - low < 24 else np.linspace(low, high, bars + 1)
    counts, edges = np.histogram(values, bins=bins)
    spread = {"least": low, "mean": float(values.mean()), "most": high}
    return {"counts": counts.tolist(), "edges": edges.tolist(), **spread}


def _markers(job: Job, wanted: int, content: str = "embedding") -> Iterator[tuple[int, Mapping[str, object]]]:
    """Yield the number and the recorded parameters of every patch that is embedded, or prepared for a round."""
    for k in range(wanted):
        try:
            yield k, job.store[patch_key(k, content)].parameters
        except (KeyError, FormatError):
            continue


def _loss_curves(job: Job, wanted: int) -> list[dict[str, object]]:
    """Return up to 40 loss curves, if the embedder records losses."""
    embedded = ((k, parameters.get("losses")) for k, parameters in _markers(job, wanted))
    curves: list[dict[str, object]] = [{"patch": k, "points": losses} for k, losses in embedded if losses]
    step = max(1, -(-len(curves) // _CURVES))
    return curves[::step]


def _stages(job: Job, status: JobStatus) -> list[dict[str, object]]:
    """Return the seconds and peak memory of each stage that are on record."""
    stages = [_stage("cut the graph into patches", [status.records["patch_graph"] or {}])]
    for step in itertools.count():
        kept = [parameters for _, parameters in _markers(job, status.wanted, f"kept{step}")]
        if not kept:
            break
        stages.append(_stage(f"shared start, round {step + 1}", kept))
    stages.append(_stage("embed the patches", [parameters for _, parameters in _markers(job, status.wanted)]))
    stages.append(_stage("align and average", [status.records["embedding"] or {}]))
    return [stage for stage in stages if stage]


def _stage(title: str, records: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Return the cost of the stage that made these records, if they have it."""
    seconds = [value for record in records if isinstance(value := record.get("seconds"), int | float)]
    memory = [value for record in records if isinstance(value := record.get("peak_memory"), int | float)]
    if not seconds:
        return {}
    cost = {"seconds": sum(seconds), "longest": max(seconds), "memory": max(memory) if memory else None}
    return {"stage": title, **cost, "patches": len(seconds) if len(records) > 1 else None}


def _rows(settings: Mapping[str, object], group: str = "") -> Iterator[tuple[str, str]]:
    """Yield every setting by its full name with its value in words, without the time stamps of files."""
    for name, value in settings.items():
        full = f"{group}.{name}" if group else str(name)
        if full == "source.stamps":
            continue
        if isinstance(value, Mapping) and value:
            yield from _rows(value, full)
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for k, item in enumerate(value[:_SETTINGS]):
                yield from _rows(item, f"{full}.{k}")
            if len(value) > _SETTINGS:
                yield full, f"and {len(value) - _SETTINGS} more"
        else:
            yield full, _words(value)


def _words(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value)) or "none"
    if value is None or value == {}:
        return "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def quilt_data(
    job: Job, patch_graph: PatchGraph, alignment: Alignment | None, progress: ProgressCallback | None
) -> dict[str, object]:
    """Return the patch graph as ``quilt.js`` reads it: positions of patches, edges with errors, views of overlaps."""
    x, y = np.round(layout(patch_graph.n_patches, patch_graph.edges) * 65_535).astype(np.uint16).T
    result: dict[str, object] = {"x": x, "y": y, "sizes": patch_graph.sizes.astype(np.uint32)}
    embedded = [patch_key(k, "embedding") in job.store for k in range(patch_graph.n_patches)]
    result["done"] = np.array(embedded, dtype=np.uint8)
    if alignment is None or alignment.n_patches != patch_graph.n_patches or len(alignment.edges) == 0:
        edges = patch_graph.edges[:_EDGES]
        ends = {"first": edges[:, 0].astype("u4"), "second": edges[:, 1].astype("u4")}
        overlaps = patch_graph.overlaps[:_EDGES].astype("u4")
        return result | ends | {"overlaps": overlaps, "n_edges": len(patch_graph.edges)}
    viewed = viewed_edges(alignment.edge_errors)
    views, patches, ids = [], job.patches, np.asarray(job_ids(job, patch_graph.n_nodes))
    for done, (i, j) in enumerate(alignment.edges[viewed].tolist(), 1):
        views.append(overlap_view((patches[i], patches[j]), alignment, (i, j), ids))
        report(progress, "overlaps", done, len(viewed))
    view = np.full(len(alignment.edges), -1, dtype=np.int32)
    view[viewed] = np.arange(len(viewed))
    order = np.argsort(-alignment.edge_errors, kind="stable")[:_EDGES]
    table = alignment.edge_table.take(order)
    return result | {
        "first": table.pairs[:, 0].astype("u4"),
        "second": table.pairs[:, 1].astype("u4"),
        "overlaps": _overlaps(patch_graph, table.pairs).astype("u4"),
        "errors": table.errors.astype("f4"),
        "doubted": (table.trust < 1).astype("u1"),
        "view": view[order],
        "views": views,
        "n_edges": len(alignment.edges),
        "moves_nothing": alignment.moves_nothing,
    }


def _overlaps(patch_graph: PatchGraph, pairs: AnyArray) -> AnyArray:
    """Return the number of shared nodes of each pair of patches; 0 for pairs that the patch graph does not join."""
    known = dict(zip(map(tuple, patch_graph.edges.tolist()), patch_graph.overlaps.tolist(), strict=True))
    return np.array([known.get((i, j), 0) for i, j in pairs.tolist()], dtype=np.int64)


def viewed_edges(errors: Float64Array, limit: int = _VIEWS) -> Int64Array:
    """Return the edges that get a view, ascending: all, or the worst ``limit / 2`` and an even sample of the rest."""
    order = np.argsort(-errors, kind="stable")
    if len(order) <= limit:
        return np.arange(len(order))
    worst, rest = order[: limit // 2], order[limit // 2 :]
    spread = np.linspace(0, len(rest) - 1, limit - limit // 2).astype(np.int64)
    return np.unique(np.r_[worst, rest[np.flip(len(rest) - 1 - spread)]])


def overlap_view(
    patches: tuple[Patch, Patch], alignment: Alignment, edge: tuple[int, int], ids: AnyArray
) -> dict[str, object]:
    """Return the positions of some shared nodes in both patches, before and after alignment."""
    first, second = patches
    shared, rows_i, rows_j = np.intersect1d(first.nodes, second.nodes, assume_unique=True, return_indices=True)
    chosen = np.unique(np.linspace(0, len(shared) - 1, min(len(shared), _POINTS)).astype(np.int64))
    a = np.asarray(first.coordinates[rows_i[chosen]], dtype=np.float64)
    b = np.asarray(second.coordinates[rows_j[chosen]], dtype=np.float64)
    before, gap_before = _places(a, b)
    after, gap_after = _places(alignment.apply(edge[0], a), alignment.apply(edge[1], b))
    names = [text if len(text) <= 40 else f"{text[:39]}…" for text in map(str, ids[shared[chosen]].tolist())]
    return {"before": before, "after": after, "gap_before": gap_before, "gap_after": gap_after, "ids": names}


def _places(a: Float64Array, b: Float64Array) -> tuple[AnyArray, float]:
    """Return 16-bit positions of both sides in one plane, and their relative distance."""
    both = np.concatenate([a, b])
    points = principal_plane(both)(both)
    low, high = points.min(axis=0), points.max(axis=0)
    side = max(float((high - low).max()), 1e-12)
    places = np.round(((points - (low + high) / 2) / side + 0.5) * 65_535).astype(np.uint16)
    # The spread within each side, without the distance between the sides.
    spread = np.sqrt((((a - a.mean(axis=0)) ** 2).sum() + ((b - b.mean(axis=0)) ** 2).sum()) / len(both))
    return places.ravel(), float(np.sqrt(((a - b) ** 2).sum(axis=1).mean()) / max(float(spread), 1e-300))


_FOLDER = Path(__file__).parent
_TYPES = {"|u1": "u1", "<u2": "u2", "<u4": "u4", "<i4": "i4", "<f4": "f4"}  # what the page can decode


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
    return _read("page.html").format(
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
