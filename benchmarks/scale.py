"""CPU, memory and disk of every stage between the files of a citation graph and its patches, at several sizes.

    export PYTHONPATH=.  # for studies, which makes and reads the files
    python benchmarks/scale.py FOLDER --papers 1200000 --citations 12800000 --patches 100 --json docs/results/scale.json
    python benchmarks/scale.py FOLDER --papers 1200000 --citations 12800000 --patches 100 --stages fennel patches

The files are made in FOLDER first, unless they are there. Each stage runs in a process of its own, and its figures are
in the JSON file as soon as it ends, so that a run that was stopped goes on where it was: stages that the file has are
left out, unless they are named. Times are CPU seconds of one thread, without compilation; memory is the peak of
anonymous memory above what the process had before, so that mapped files do not count.

The size of MAG240M: --papers 121751666 --citations 1297748926 --patches 10000 --features 16, on a disk with 45 GB left.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import numba
import numpy as np

import graphquilt as gq
from graphquilt.files import write_text
from graphquilt.graph.files import attach, save_largest_component
from graphquilt.jobs import Source
from graphquilt.patches import LazySequence
from graphquilt.testing import random_rotations
from measuring import PeakMemory, alone, machine
from peer_methods import PEERS
from studies.citations import citation_graph
from studies.mag240m import read_mag240m
from studies.perceptrons import Grid, mlp_grid

STAGES = ("generate", "ingest", "fennel", "largest component", "patches", "centroid")
WITH_TRAINING = (  # only where they are named
    "propagation",
    "propagation without far field",
    "propagation alone",
    "vgae",
    "peers",
)
DIM = 128
OTHERS = ("Cleora", "FastRP", "scikit-network GSVD", "scikit-network Spectral")
OWN = ("graphquilt, edges alone", "graphquilt, features")


@numba.njit
def gather(indptr, indices, labels):
    """Look up the label of every neighbour once: what no pass over the graph can do without."""
    total = 0
    for u in range(len(indptr) - 1):
        for e in range(indptr[u], indptr[u + 1]):
            total += labels[indices[e]]
    return total


class Coordinates(LazySequence):
    """Coordinates for the patches of a patch graph: rows of one random table, so that none is kept or made anew."""

    def __init__(self, node_sets):
        self.node_sets = node_sets
        largest = max(len(node_sets[k]) for k in range(len(node_sets)))
        self.table = np.random.default_rng(0).standard_normal((largest, DIM), dtype=np.float32)

    def __len__(self):
        return len(self.node_sets)

    def _item(self, k):
        nodes = self.node_sets[k]
        return nodes, self.table[: len(nodes)]

    def between(self, k, first, last):
        """Return the part of a patch that lies in first..last-1, as patches in a job's folder do."""
        nodes = self.node_sets[k]
        rows = slice(*np.searchsorted(nodes, [first, last]).tolist())
        return nodes[rows], self.table[rows], rows, len(nodes)


class Timed:
    """CPU seconds and peak memory of a block."""

    def __enter__(self):
        self.memory = PeakMemory().__enter__()
        self.start = time.process_time()
        return self

    def __exit__(self, *_):
        self.cpu = time.process_time() - self.start
        self.memory.__exit__()
        self.figures = {"cpu_s": round(self.cpu, 2), "gib": round(self.memory.gib, 3)}


def generate(row, folder):
    sizes = {"n_features": row["features"], "n_classes": 153, "labelled": row["labelled"]}
    citation_graph(tempfile.mkdtemp(), 4000, 8000, n_features=8)
    with Timed() as timed:
        root = citation_graph(folder, row["papers"], row["citations"], **sizes)
    return timed.figures | {"bytes": sum(path.stat().st_size for path in root.rglob("*") if path.is_file())}


def ingest(_, folder):
    warm = Path(tempfile.mkdtemp())
    citation_graph(warm, 4000, 8000, n_features=8)
    read_mag240m(warm, warm / "graph")
    shutil.rmtree(folder / "graph", ignore_errors=True)
    edges = next(folder.glob("**/edge_index.npy")).stat().st_size
    most = 0

    def look(_):
        nonlocal most
        most = max(most, sum(path.stat().st_size for path in (folder / "graph").rglob("*") if path.is_file()))

    with Timed() as timed:
        graph = read_mag240m(folder, folder / "graph", memory=4 << 30, progress=look)
    disk = {"disk_with_edge_file_over_edge_file": round((edges + most) / edges, 3)}
    return timed.figures | disk | {"nodes": graph.n_nodes, "entries": graph.n_entries}


def warm_graph(n=6000):
    """Return a small graph on disk, whose arrays have the types of a large one."""
    place = Path(tempfile.mkdtemp())
    citation_graph(place, n, 6 * n, n_features=8)
    read_mag240m(place, place / "graph")
    return gq.Graph.open(place / "graph")


def fennel(row, folder):
    small = warm_graph()
    labels = gq.Fennel(4)(small)
    gather(np.asarray(small.indptr), np.asarray(small.indices), labels.astype(np.int32))
    graph = gq.Graph.open(folder / "graph")
    with Timed() as timed:
        labels = gq.Fennel(row["patches"], passes=2)(graph)
    np.save(folder / "labels.npy", labels)
    short = labels.astype(np.int32)
    with Timed() as once:
        gather(np.asarray(graph.indptr), np.asarray(graph.indices), short)
    ratio = timed.cpu / 2 / once.cpu
    sizes = np.bincount(labels)
    return timed.figures | {
        "gather_cpu_s": round(once.cpu, 2),
        "pass_over_gather": round(ratio, 2),
        "largest_over_mean": round(float(sizes.max() / sizes.mean()), 4),
    }


def largest_component(_, folder):
    save_largest_component(warm_graph(), tempfile.mkdtemp())
    graph = gq.Graph.open(folder / "graph")
    with Timed() as timed:
        part = save_largest_component(graph, folder / "largest")
    shutil.rmtree(folder / "largest")
    return timed.figures | {"nodes": part.n_nodes, "entries": part.n_entries}


def patches(_, folder):
    small = warm_graph()
    gq.patch_graph(small, gq.Fennel(4)(small), degree=2, overlap=(60, 200), edge_weight=gq.Conductance())
    graph = gq.Graph.open(folder / "graph")
    labels = np.load(folder / "labels.npy", mmap_mode="r")
    with Timed() as timed:
        quilt = gq.patch_graph(graph, labels, degree=20, overlap=(512, 2048), edge_weight=gq.Conductance())
    quilt.save(folder / "patches.npz")
    facts = quilt.summary()
    names = ("n_patches", "n_patch_edges", "node_oversampling", "edge_oversampling", "largest_growth")
    return timed.figures | {name: facts[name] for name in names}


def centroid(_, folder):
    quilt = gq.PatchGraph.load(folder / "patches.npz")
    p = quilt.n_patches
    still = gq.Alignment.identity(p, DIM)
    turns = random_rotations(1, DIM, np.random.default_rng(0))
    alignment = gq.Alignment.from_arrays(still.to_arrays() | {"rotations": np.repeat(turns, p, axis=0)})
    out = np.lib.format.open_memmap(folder / "X.npy", mode="w+", dtype=np.float16, shape=(quilt.n_nodes, DIM))
    made = Coordinates(quilt.node_sets)
    few = np.arange(5, dtype=made[0][0].dtype), made.table[:5]
    gq.centroid([few], gq.Alignment.identity(1, DIM))
    with Timed() as timed:
        gq.centroid(made, alignment, n_nodes=quilt.n_nodes, out=out)
    (folder / "X.npy").unlink()
    return timed.figures | {"dim": DIM, "written": "half precision"}


def cutting(n_patches, overlap=(512, 2048)):
    """Return the paper's cutting of a large graph."""
    weight = gq.Conductance()
    return gq.Cutting(n_patches, partitioner=gq.Fennel, degree=20, overlap=overlap, edge_weight=weight)


def propagation(row, folder):
    default = gq.Cutting(row["patches"])
    return end_to_end(row, folder / "job propagation", gq.Propagation(DIM), gq.Recipe.shared(), default)


def propagation_without_far_field(row, folder):
    embedder = gq.Propagation(DIM, far_field=False)
    return end_to_end(row, folder / "job without far field", embedder, gq.Recipe.shared(), cutting(row["patches"]))


def propagation_alone(row, folder):
    return end_to_end(row, folder / "job alone", gq.Propagation(DIM), gq.Recipe.paper(), cutting(row["patches"]))


def vgae(row, folder):
    embedder = gq.VGAE(DIM, max_epochs=row["epochs"])
    return end_to_end(row, folder / "job vgae", embedder, gq.Recipe.paper(), cutting(row["patches"]))


def end_to_end(row, place, embedder, recipe, cut):
    """A job from the graph folder to figures of its embedding; a job that was stopped goes on."""
    folder = place.parent
    if gq.Graph.open(folder / "graph").features is None:
        files = next(folder.glob("**/paper"))
        attach(folder / "graph", features=files / "node_feat.npy", labels=read_mag240m(folder, folder / "graph").labels)
    source = Source(path=str(folder / "graph"))
    recipe = recipe.replace(precision="float32")
    settings = gq.JobSettings(embedder=embedder, cutting=cut, recipe=recipe, source=source)
    figures = {"embedder": str(embedder), "recipe": recipe.name}
    with Timed() as timed:
        job = gq.Job.begin(gq.DirectoryStore(place), settings)
        job.cut()
    figures["cut"] = timed.figures | {"node_oversampling": job.patch_graph.summary()["node_oversampling"]}
    with Timed() as timed:
        job.embed()
    costs = [job.store[f"patches/{k:05d}/embedding"].parameters for k in range(row["patches"])]
    passes = [path for path in place.glob("patches/*/*.json") if path.stem.startswith(("kept", "embedding"))]
    total = sum(json.loads(path.read_text())["parameters"]["cpu_seconds"] for path in passes)
    losses = [cost["loss"] for cost in costs if "loss" in cost]
    figures["embed"] = timed.figures | {"patches_cpu_s": round(total, 1)}
    figures["embed"] |= {"mean_loss": round(float(np.mean(losses)), 4)} if losses else {}
    with Timed() as timed:
        job.stitch()
    figures["align and centroid"] = timed.figures
    figures["bytes_of_job"] = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    routes = {"l2g": job.embedding}
    if job.settings.motions.free:
        still = gq.Alignment.identity(row["patches"], DIM)
        out = np.empty(job.embedding.shape, dtype=np.float32)
        routes["no-trans"] = gq.centroid(job.patches, still, n_nodes=len(out), weights=job.weights, out=out)
    with Timed() as timed:
        figures["routes"] = {name: quality(X, job.graph, folder) for name, X in routes.items()}
    figures["evaluate"] = timed.figures
    return figures


def quality(X, graph, folder):
    """AUC of a million edges, and the accuracy of the best of eight perceptrons in the split by years."""
    auc = gq.evaluate.reconstruction_auc(X, graph, seed=0, max_edges=1_000_000)
    years = np.load(next(folder.glob("**/node_year.npy")), mmap_mode="r")
    known = np.flatnonzero(graph.labels >= 0)
    when = np.asarray(years[known])
    split = gq.evaluate.Split(known[when <= 2018], known[when == 2019], known[when >= 2020])
    grid = Grid(hidden=(256,), layers=(2, 3), dropout=(0.0, 0.5), learning_rate=(0.01, 0.001))
    result = mlp_grid(X, graph.labels, split, seed=0, grid=grid)
    sizes = {f"n_{name}": len(nodes) for name, nodes in vars(split).items()}
    return {"auc": round(auc, 4), "accuracy": round(result.accuracy, 4), "best": str(result.best)} | sizes


def peers(row, folder):
    """Other embedders of whole graphs, and graphquilt with all patches, on the graph without one edge in a hundred."""
    if not (folder / "held_out.npy").exists():
        graph = gq.Graph.open(folder / "graph")
        rest, held_out = gq.evaluate.hold_out_edges(gq.Graph(graph.adjacency), fraction=0.01, seed=0, connected=False)
        rest.save(folder / "rest")
        np.save(folder / "held_out.npy", held_out)
    figures = {}
    for name in (*OTHERS, *OWN):
        known = folder / f"peer {name}.json"
        figures[name] = (
            json.loads(known.read_text()) if known.exists() else alone(__file__, "peer", row | {"method": name})
        )
    return figures


def peer(row, folder):
    """One embedder without the held-out edges: CPU seconds, memory, and the AUC of these edges."""
    method, rest = row["method"], gq.Graph.open(folder / "rest")

    def embedded(graph, n_patches):
        if method in OWN:
            return gq.embed(graph, DIM, n_patches=n_patches).embedding
        return PEERS[method](graph.adjacency.astype(np.float32), DIM, 0)

    if method == "graphquilt, features":
        rest = rest.with_attributes(features=gq.Graph.open(folder / "graph").features)
    embedded(gq.datasets.load_dataset("blocks"), 1)  # compiles kernels
    with Timed() as timed:
        X = embedded(rest, row["patches"])
    held_out, graph = np.load(folder / "held_out.npy"), gq.Graph.open(folder / "graph")
    figures = dict(timed.figures)
    for name in ("cosine", "inner_product"):
        score = getattr(gq.evaluate, name)
        figures[name] = round(gq.evaluate.link_prediction_auc(X, held_out, graph, seed=0, score=score), 4)
    write_text(folder / f"peer {method}.json", json.dumps(figures))
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    for name, default in (("papers", 1_200_000), ("citations", 12_800_000), ("patches", 100), ("features", 768)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--labelled", type=float, default=0.0115)
    parser.add_argument("--epochs", type=int, default=100, help="of the VGAE")
    parser.add_argument("--stages", nargs="+", choices=(*STAGES, *WITH_TRAINING))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--row", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        stage = globals()[options.kind.replace(" ", "_")]
        print(json.dumps(stage(options.row, Path(options.row["folder"]))))
        return
    names = ("papers", "citations", "patches", "features", "labelled", "epochs")
    row = {name: getattr(options, name) for name in names}
    path = options.json or options.folder / "figures.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    key = f"{options.papers} papers, {options.citations} citations"
    figures = results.setdefault(key, {"settings": row, "machine": machine(), "stages": {}})
    for stage in options.stages or STAGES:
        if options.stages or stage not in figures["stages"]:
            figures["stages"][stage] = alone(__file__, stage, row | {"folder": str(options.folder)})
            write_text(path, json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
