"""The report of a job: everything that its folder knows, as one self-contained page."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import graphquilt
from graphquilt.alignment import Alignment
from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, JobError
from graphquilt.evaluate.pairs import count_pairs
from graphquilt.files import translate_disk_errors, write_text
from graphquilt.jobs import Job, JobStatus, job_status
from graphquilt.jobs.export import job_ids
from graphquilt.jobs.records import patch_key
from graphquilt.patches import PatchGraph
from graphquilt.progress import ProgressCallback, report
from graphquilt.report.node_map import MapOptions, node_map
from graphquilt.report.overlap_views import overlap_views
from graphquilt.report.page import render_page
from graphquilt.report.patch_graph import layout

__all__ = ["job_page", "write_job_report"]

_EDGES = 20_000  # patch edges on the page, the worst first
_CURVES = 40  # loss curves on the page
_SETTINGS = 100  # embedders on the page, where every patch has its own
_PAPER = """@article{jeub2023local2global,
  title   = {{Local2Global}: a distributed approach for scaling representation learning on graphs},
  author  = {Jeub, Lucas G. S. and Colavizza, Giovanni and Dong, Xiaowen and Bazzi, Marya and Cucuringu, Mihai},
  journal = {Machine Learning},
  volume  = {112},
  pages   = {1663--1692},
  year    = {2023},
  doi     = {10.1007/s10994-022-06285-7}
}"""


def write_job_report(
    job: Job,
    path: str | Path | None = None,
    *,
    options: MapOptions = MapOptions(),
    progress: ProgressCallback | None = None,
) -> Path:
    """Write the report of a job as one HTML file that needs nothing else, and return where it is.

    A job that is not finished gets a report of what it has so far.

    Parameters
    ----------
    job : Job
    path : path, optional
        By default ``report.html`` in the job's folder.
    options : MapOptions
    progress : callable, optional
    """
    target = Path(job.name) / "report.html" if path is None else Path(path)
    page = job_page(job, options, progress=progress)
    with translate_disk_errors(target.parent):
        write_text(target, page)
    return target


def job_page(job: Job, options: MapOptions = MapOptions(), *, progress: ProgressCallback | None = None) -> str:
    """Return the report of a job as HTML."""
    status = job_status(job)
    name = Path(job.name).name or job.name
    data: dict[str, object] = {
        "name": name,
        "folder": shlex.quote(job.name),  # for commands to copy
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": graphquilt.__version__,
        "facts": _facts(job, status),
        "fit": status.fit,
        "advice": [(one.why, one.command) for one in status.advice],
        "embedded": status.embedded,
        "wanted": status.wanted,
        "next": "" if status.next == "nothing" else status.next,
        "evaluation": status.records["evaluation"],
        "settings": list(_rows(status.settings)),
        "cite": [_software(), _PAPER],
        "stages": _stages(job, status),
    }
    if status.patches is not None:
        patch_graph = job.patch_graph.repeat(job.settings.recipe.runs)
        data["patches"] = _patches(job.patch_graph)
        data["curves"] = _curves(job, status.wanted)
        data["quilt"] = _quilt(job, patch_graph, _alignment(job), progress)
    if _has_embedding(job):
        drawn = node_map(job, options, progress=progress)
        neighbours = drawn.nearest(np.asarray(job.embedding[drawn.rows]), progress)
        data["map"] = drawn.for_page(neighbours)
    report(progress, "report", 1, 1)
    return render_page("job_page", title=name, data=data, parts=["scatter.js", "quilt.js"])


def _facts(job: Job, status: JobStatus) -> list[tuple[str, object]]:
    """Return the figures at the top, each with what it counts."""
    facts: list[tuple[str, object]] = []
    if job.graph is not None:
        facts += [("nodes", job.graph.n_nodes), ("edges", count_pairs(job.graph, exact=False))]
    elif status.patches is not None:
        facts += [("nodes", status.patches["n_nodes"])]
    if status.patches is not None:
        facts += [("patches", status.patches["n_patches"]), ("overlaps", status.patches["n_patch_edges"])]
    facts += [("dimensions", job.settings.dim)]
    return facts


def _has_embedding(job: Job) -> bool:
    try:
        return len(job.embedding) > 0
    except (JobError, FormatError):
        return False


def _alignment(job: Job) -> Alignment | None:
    try:
        return job.alignment
    except (JobError, FormatError):
        return None


def _patches(patch_graph: PatchGraph) -> dict[str, object]:
    """Return histograms of patch sizes, overlaps and the number of patches of each node."""
    covered = np.zeros(patch_graph.n_nodes, dtype=np.int32)
    for nodes in patch_graph.node_sets:
        covered[nodes] += 1
    sets: dict[str, AnyArray] = {"sizes": patch_graph.sizes, "overlaps": patch_graph.overlaps, "coverage": covered}
    return {name: _histogram(values) for name, values in sets.items() if len(values)}


def _histogram(values: AnyArray) -> dict[str, object]:
    low, high = int(values.min()), int(values.max())
    # Few values need few bars: about two for every root of their number.
    bars = int(np.clip(2 * np.sqrt(len(values)), 6, 24))
    bins = np.arange(low - 0.5, high + 1) if high - low < 24 else np.linspace(low, high, bars + 1)
    counts, edges = np.histogram(values, bins=bins)
    spread = {"least": low, "mean": float(values.mean()), "most": high}
    return {"counts": counts.tolist(), "edges": edges.tolist(), **spread}


def _quilt(
    job: Job, patch_graph: PatchGraph, alignment: Alignment | None, progress: ProgressCallback | None
) -> dict[str, object]:
    """Return the patch graph: where patches are drawn, their edges with errors, and views of the overlaps."""
    x, y = np.round(layout(patch_graph, seed=0) * 65_535).astype(np.uint16).T
    result: dict[str, object] = {"x": x, "y": y, "sizes": patch_graph.sizes.astype(np.uint32)}
    done = [patch_key(k, "embedding") in job.store for k in range(patch_graph.n_patches)]
    result["done"] = np.array(done, dtype=np.uint8)
    if alignment is None or alignment.n_patches != patch_graph.n_patches or len(alignment.edges) == 0:
        edges = patch_graph.edges[:_EDGES]
        ends = {"first": edges[:, 0].astype("u4"), "second": edges[:, 1].astype("u4")}
        overlaps = patch_graph.overlaps[:_EDGES].astype("u4")
        return result | ends | {"overlaps": overlaps, "n_edges": len(patch_graph.edges)}
    viewed, views = overlap_views(job.patches, alignment, progress=progress)
    _name_nodes(job, patch_graph.n_nodes, views)
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
    """Return the number of nodes that each pair of patches shares, as far as they are edges of the patch graph."""
    known = dict(zip(map(tuple, patch_graph.edges.tolist()), patch_graph.overlaps.tolist(), strict=True))
    return np.array([known.get((i, j), 0) for i, j in pairs.tolist()], dtype=np.int64)


def _name_nodes(job: Job, n_nodes: int, views: list[dict[str, object]]) -> None:
    """Give each view the ids of its nodes, unless ids are the numbers of nodes."""
    ids = job_ids(job, n_nodes)
    for view in views:
        names = np.asarray(ids)[np.asarray(view.pop("nodes"))]
        view["ids"] = [text if len(text) <= 40 else f"{text[:39]}…" for text in map(str, names.tolist())]


def _markers(job: Job, wanted: int, content: str = "embedding") -> Iterator[tuple[int, Mapping[str, object]]]:
    """Yield number and parameters of every patch that is embedded, or has prepared for a round."""
    for k in range(wanted):
        try:
            yield k, job.store[patch_key(k, content)].parameters
        except (KeyError, FormatError):
            continue


def _curves(job: Job, wanted: int) -> list[dict[str, object]]:
    """Return the loss curves of some or all patches, where their embedder has losses."""
    embedded = ((k, parameters.get("losses")) for k, parameters in _markers(job, wanted))
    curves: list[dict[str, object]] = [{"patch": k, "points": losses} for k, losses in embedded if losses]
    step = max(1, -(-len(curves) // _CURVES))
    return curves[::step]


def _stages(job: Job, status: JobStatus) -> list[dict[str, object]]:
    """Return seconds and peak memory of each stage, as far as the records have them."""
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
    """Return the cost of a stage that made these records; nothing where they do not say it."""
    seconds = [value for record in records if isinstance(value := record.get("seconds"), int | float)]
    memory = [value for record in records if isinstance(value := record.get("peak_memory"), int | float)]
    if not seconds:
        return {}
    cost = {"seconds": sum(seconds), "longest": max(seconds), "memory": max(memory) if memory else None}
    return {"stage": title, **cost, "patches": len(seconds) if len(records) > 1 else None}


def _rows(settings: Mapping[str, object], group: str = "") -> Iterator[tuple[str, str]]:
    """Yield every setting with its full name, and its value in words; the times of files are left out."""
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


def _software() -> str:
    return (
        "@software{graphquilt,\n"
        "  title   = {graphquilt: graph embeddings stitched from independently embedded patches},\n"
        "  author  = {{the graphquilt authors}},\n"
        f"  version = {{{graphquilt.__version__}}}\n"
        "}"
    )
