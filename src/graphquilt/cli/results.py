"""The commands that read a job: inspect, export, neighbours, report, map; and plan."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

import graphquilt as gq
from graphquilt.cli import app
from graphquilt.cli.display import duration, graph_facts, printable, show, watching
from graphquilt.cli.flags import POSITIVE, EmbedderFlags, JobFolder, Output, RecipeFlags, Workers, job_settings
from graphquilt.errors import InputError

if TYPE_CHECKING:
    from graphquilt.jobs import Job, JobStatus


@app.command(help_epilogue="Example: graphquilt inspect job --verify")
def inspect(
    job: Annotated[Path, Parameter(help="The folder of the job, or a graph folder.")],
    *,
    verify: Annotated[bool, Parameter(help="Check every checksum; exit with code 1 if there is damage.")] = False,
    all: Annotated[bool, Parameter(negative="", help="Show every setting and record.")] = False,  # noqa: A002
    follow: Annotated[bool, Parameter(negative="", help="Watch until all patches are embedded.")] = False,
    output: Output = Output(),
) -> None:
    """Show how good a job is, what it holds and what to do next; or what a graph folder holds."""
    from graphquilt.jobs.store import JOB

    if (job / "graph.json").is_file() and not (job / JOB).exists():
        _inspect_graph(job, verify=verify, output=output)
        return
    if follow:
        _follow(gq.Job.open(job))
    opened = gq.Job.open(job)
    status = gq.jobs.job_status(opened, verify=verify)
    if output.json or all:
        show(asdict(status), as_json=output.json)
    else:
        _show_screen(status, opened)
    if status.damaged:
        raise SystemExit(1)


def _inspect_graph(folder: Path, *, verify: bool, output: Output) -> None:
    from graphquilt.graph.files import open_graph

    graph = open_graph(folder, verify=verify)
    result: dict[str, object] = {"graph": str(folder), **graph_facts(graph)}
    if verify:
        result["checksums"] = "everything matches"
    show(result, as_json=output.json)


def _follow(job: Job) -> None:
    """Print workers, patches per minute and time left: on one line of a terminal, or as lines of a log."""
    terminal = sys.stdout.isatty()
    interval, quiet = (1.0 if terminal else 10.0), 10.0  # seconds
    for k, now in enumerate(gq.jobs.follow_job(job, interval=interval)):
        pace = "" if now.per_minute is None else f", {now.per_minute:.3g} per minute"
        left = "" if now.seconds_left is None else f", {duration(now.seconds_left)} left"
        stage = {"cut": "cutting: ", "start": "preparing: "}.get(now.stage, "")
        if now.stage == "stitch" and now.workers:
            stage = "stitching: "
        line = f"{stage}{now.done} of {now.wanted} patches, {now.workers} workers{pace}{left}"
        print(f"\r\x1b[K{line}" if terminal else line, end="" if terminal else "\n", flush=True)
        if k * interval == quiet and now.workers == 0 and now.done < now.wanted:
            print(
                ("\n" if terminal else "")
                + f"graphquilt: no patch was finished in {quiet:.0f} seconds. If nobody is working "
                f"on this job, resume it: {job.command('embed-patches')}. This keeps waiting; Ctrl-C stops it.",
                file=sys.stderr,
            )
    if terminal:
        print()


def _show_screen(status: JobStatus, job: Job) -> None:
    """Print what fits on a screen of 80 × 24, verdict first."""
    import textwrap

    from graphquilt.evaluate.pairs import count_pairs
    from graphquilt.jobs.store import short_path

    settings, patches = job.settings, status.patches or {}
    done = f"{status.embedded} of {status.wanted}"
    state = f"{done} patches are embedded" if patches else "the graph is not cut into patches"
    for sentence in _verdict(status.fit) or [f"No verdict yet: {state}."]:
        print(textwrap.fill(sentence, 80))
    facts: dict[str, object] = {"job": short_path(status.job), "edges": "none: the job was made from embedded patches"}
    if job.graph is not None:
        origin = "memory" if settings.source.path is None else short_path(settings.source.path)
        facts["edges"] = f"{count_pairs(job.graph, exact=False)} from {origin}"
    facts["nodes"] = patches.get("n_nodes") if job.graph is None else job.graph.n_nodes
    facts["patches"] = f"{done} embedded" if patches else "not cut yet"
    facts |= {"embedder": f"{_short_name(settings.to_parameters()['embedder'])}, {settings.dim} dimensions"}
    facts |= {"signal": status.signal} if status.signal else {}
    facts |= {"recipe": f"{settings.recipe.name}, seed {settings.seed}"}
    facts |= {f"version {entry['version']}": _in_words(entry) for entry in status.history[-3:]}
    evaluation = status.records.get("evaluation")
    if evaluation is not None:
        facts["evaluation"] = {name: x for name, x in evaluation.items() if isinstance(x, float) or name == "of"}
    if status.damaged is not None:
        facts["damaged"] = status.damaged
    facts |= {} if status.next == "nothing" else {"next": status.next}
    show(facts, as_json=False)
    print(f"More: {job.command('inspect', '--all')}   {job.command('report')}")


def _in_words(entry: dict[str, object]) -> str:
    """Return one update of the history as a line."""
    line = "{date}: nodes +{nodes_added} -{nodes_gone}, edges +{edges_added} -{edges_removed}, {redone} of {n_patches} "
    line = line.format(**entry) + "patches again"
    share, before = entry.get("share"), entry.get("share_before")
    return f"{line}, share {share:.2f} ({before:.2f})" if isinstance(share, float) else line


def _verdict(fit: list[str]) -> list[str]:
    """Return the sentences on errors, on poorly determined rotations and directions, and on the first bad patch."""
    poor = "The rotations hardly", "Overlaps contradict", "Noise may", "Separate directions", "The directions have not"
    unsure = [line for line in fit[2:] if line.startswith(poor) or " is unseen on average" in line]
    patches = [line for line in fit[2:] if line.startswith("Patch ")]
    return fit[1:2] + unsure + patches[:1] or fit[:1]


def _short_name(embedder: object) -> str:
    one = embedder[0] if isinstance(embedder, list) else embedder
    name = str(one.get("name")).removeprefix("graphquilt.") if isinstance(one, dict) else str(one)
    return f"{len(embedder)} of {name} and others" if isinstance(embedder, list) else name


@app.command(help_epilogue="Example: graphquilt export job embedding.parquet")
def export(
    job: JobFolder,
    file: Annotated[Path, Parameter(help="Where to write; the suffix decides the format.")],
    *,
    format: Annotated[  # noqa: A002
        str | None, Parameter(help="npy, parquet, csv, tsv, word2vec or neo4j. [default: by suffix]")
    ] = None,
    dtype: Annotated[Literal["float32", "float64"], Parameter(help="Number type; word2vec has float32.")] = "float32",
    unit: Annotated[bool, Parameter(help="Scale every row to unit length.")] = False,
    output: Output = Output(),
) -> None:
    """Write the embedding and node ids as .npy (for FAISS), Parquet, CSV, TSV, word2vec text or for Neo4j."""
    path = gq.jobs.export_embedding(gq.Job.open(job), file, format=format, dtype=dtype, unit=unit)
    ids = path.with_suffix(".ids.npy")
    beside = {"ids": str(ids)} if (format or path.suffix.removeprefix(".")) == "npy" else {}
    show({"file": str(path), **beside, "bytes": path.stat().st_size}, as_json=output.json)


@app.command(help_epilogue="Example: graphquilt neighbours job alice -k 5")
def neighbours(
    job: JobFolder,
    node: Annotated[str, Parameter(help="The id of a node, as in your edges.", allow_leading_hyphen=True)],
    *,
    k: Annotated[int, Parameter(name=["--k", "-k"], help="Number of neighbours.", validator=POSITIVE)] = 10,
    metric: Annotated[Literal["cosine", "inner"], Parameter(help="Cosine, or inner product.")] = "cosine",
    output: Output = Output(),
) -> None:
    """Find the exact nearest neighbours of a node in the embedding."""
    result = gq.neighbours(gq.Job.open(job), node, k=k, metric=metric)
    pairs = list(zip(result.ids.tolist(), result.scores.tolist(), strict=True))
    if output.json:
        entries = [{"id": name, metric: round(score, 6)} for name, score in pairs]
        show({"job": str(job), "node": result.node, "metric": metric, "neighbours": entries}, as_json=True)
        return
    names = [printable(name) for name, _ in pairs]
    width = max(map(len, names), default=0)
    for name, (_, score) in zip(names, pairs, strict=True):
        print(f"{name:<{width}}  {score:.4f}")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MapFlags:
    """What the map shows."""

    colour: Annotated[Path | None, Parameter(name=["--labels", "--colour", "--color"])] = None
    """Colour by these labels: a table of ids and labels (CSV, TSV, Parquet), or one label per node (also .npy)."""
    umap: Annotated[bool, Parameter(negative="")] = False
    """Place the nodes by UMAP instead of principal components."""
    limit: int = 100_000
    """Draw at most this many nodes, a random sample."""
    seed: int = 0
    """Random seed of the sample and of UMAP."""
    like: Path | None = None
    """Draw nodes where the map of this job has them: of the job itself before its update, or of another."""


@app.command(help_epilogue="Example: graphquilt report job")
def report(
    job: JobFolder,
    *,
    out: Annotated[
        Path | None, Parameter(name=["--out", "-o"], help="Where to write. [default: report.html in the job folder]")
    ] = None,
    flags: MapFlags = MapFlags(),
    output: Output = Output(),
) -> None:
    """Write a self-contained HTML page: verdict, map, evaluation, cost and settings of a job."""
    with watching() as progress:
        options = gq.report.MapOptions(**vars(flags))
        path = gq.report.write_job_report(gq.Job.open(job), out, options=options, progress=progress)
    show({"report": str(path), "bytes": path.stat().st_size}, as_json=output.json)


@app.command(name="map", help_epilogue="Example: graphquilt map job --labels labels.csv --out map.html")
def draw_map(
    job: JobFolder,
    *,
    out: Annotated[
        Path, Parameter(name=["--out", "-o"], help="Where to write: an .html page, or a .png, .svg or .pdf picture.")
    ] = Path("map.png"),
    flags: MapFlags = MapFlags(),
    output: Output = Output(),
) -> None:
    """Draw the nodes of a job in the plane, coloured by labels, classes, patches or alignment error."""
    with watching() as progress:
        options = gq.report.MapOptions(**vars(flags))
        drawn = gq.report.write_map(gq.Job.open(job), out, options=options, progress=progress)
    result = {"map": str(out), "bytes": out.stat().st_size, "nodes": drawn.n_nodes, "drawn": len(drawn.rows)}
    if not output.json:
        result["about"] = drawn.about
    show(result, as_json=output.json)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SizeFlags:
    """The sizes of a future graph."""

    nodes: Annotated[int | None, Parameter(validator=POSITIVE)] = None
    """Nodes of the graph, to plan all stages without a job."""
    edges: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    """Edges of the graph, each counted once."""
    features: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    """Features of each node."""
    patches: Annotated[int | None, Parameter(name=["--patches", "-p"], validator=POSITIVE)] = None
    """Number of patches. [default: as for embed]"""


@app.command(help_epilogue="Example: graphquilt plan job --embedder vgae --dim 128 --workers 8")
def plan(
    job: Annotated[Path | None, Parameter(help="The folder of a job with patches; omit it with --nodes.")] = None,
    *,
    sizes: SizeFlags = SizeFlags(),
    embedder: EmbedderFlags = EmbedderFlags(),
    recipe: RecipeFlags = RecipeFlags(),
    workers: Workers = Workers(),
    output: Output = Output(),
) -> None:
    """Estimate CPU time, memory and disk of each stage, and what to change if it does not fit.

    Without a job, all stages are estimated from sizes alone:
    graphquilt plan --nodes 1200000 --edges 12800000 --features 768 --patches 100
    """
    from graphquilt.jobs.options import default_patches

    if (job is None) == (sizes.nodes is None):
        raise InputError("plan takes either the folder of a job, or --nodes, --edges and --patches.")
    if job is None:
        settings = job_settings({}, embedder=embedder, recipe=recipe)
        n_patches = sizes.patches or default_patches(sizes.nodes or 1)
        n_workers = workers.count(settings.recipe.runs * n_patches)
        counts = {"n_nodes": sizes.nodes or 1, "n_edges": sizes.edges, "n_features": sizes.features}
        future = gq.jobs.Sizes(**counts, n_patches=n_patches, dim=settings.dim)
        estimate = gq.jobs.plan_sizes(future, settings.embedders[0], recipe=settings.recipe, workers=n_workers)
    else:
        opened = gq.Job.open(job)
        settings = job_settings(opened.store, embedder=embedder, recipe=recipe)
        settings = replace(settings, recipe=settings.recipe.without_copies(settings.embedders))
        n_workers = workers.count(settings.recipe.runs * opened.patch_graph.n_patches)
        estimate = gq.jobs.plan_job(gq.Job(opened.store, settings, opened.graph), workers=n_workers)
    if output.json:
        show(asdict(estimate) | {"workers": n_workers}, as_json=True)
        return
    print(f"{'stage':<12}{'CPU time':>12}{'wall time':>12}{'memory':>12}{'disk':>12}    ({n_workers} workers)")
    for stage in estimate.stages:
        memory, disk = f"{stage.memory / 1e9:.2f} GB", f"{stage.disk / 1e9:.2f} GB"
        times = duration(stage.cpu_seconds), duration(stage.seconds)
        print(f"{stage.stage:<12}{times[0]:>12}{times[1]:>12}{memory:>12}{disk:>12}")
    print(f"free: {estimate.memory_available / 1e9:.1f} GB of memory, {estimate.disk_available / 1e9:.1f} GB of disk")
    for line in estimate.advice or ("It fits.",):
        print(line)
