"""Speed and memory of the alignment, beside the way of the authors' implementation.

``PYTHONPATH=. python benchmarks/align.py`` runs every row in a process of its own, one thread unless it says
otherwise, and writes the tables to docs/benchmarks.md. Noise is on the rotations for the rotation step, and on the
coordinates for whole alignments. ``--only KIND`` measures the rows of one kind again, and ``--largest FOLDER`` the
one that needs 33 GB of disk there; other figures stay as docs/benchmarks-align.json has them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from measuring import PeakMemory, alone, least, machine

ROWS = {
    "rotation": [(100, 32, 10, 0.3), (100, 128, 4, 0.1)],
    "compared": [(100, 32, 10, 0.1), (100, 64, 4, 0.1)],
    "levels": [(1000, 32, 10, 0.1)],
    "whole": [(1000, 32, 10, 0.1), (10_000, 32, 20, 0.1)],
    "large": [(10_000, 32, 20, 0.1)],
}
THREAD_ROWS = {"overlaps": (1000, 64, 10), "threads": (10, 128, 4)}
BOTH_CORES = (10_000, 32, 20, 0.1)  # a whole alignment on two threads
EVERY = [*ROWS, *THREAD_ROWS, "cores"]
LARGEST = (10_000, 128, 20, 0.1, 256)
DOCS = Path(__file__).parents[1] / "docs"


def rotation_error(S, truth):
    """Root mean square distance of rotations from the truth after one global rotation, over sqrt(d)."""
    from graphquilt.linalg.procrustes import nearest_orthogonal

    turn = nearest_orthogonal(np.einsum("pij,pik->jk", S, truth))
    return float(np.sqrt(np.sum((S @ turn - truth) ** 2) / (S.shape[0] * S.shape[1])))


def buckling(edges, measured, n):
    """The rotation step as the authors' implementation solves it, on the same matrix."""
    import scipy.sparse as sp
    from scipy.sparse.linalg import eigsh

    from graphquilt.linalg.procrustes import nearest_orthogonal

    d = measured.shape[1]
    degrees = np.bincount(edges.ravel())
    blocks = measured / np.sqrt(degrees[edges[:, 0]] * degrees[edges[:, 1]])[:, None, None]
    rows, columns = np.r_[edges[:, 0], edges[:, 1]], np.r_[edges[:, 1], edges[:, 0]]
    data = np.concatenate([blocks, blocks.transpose(0, 2, 1)])
    order = np.lexsort((columns, rows))
    S = sp.bsr_matrix((data[order], columns[order], np.searchsorted(rows[order], np.arange(n + 1)))).tocsc()
    start = np.random.default_rng(0).normal(size=n * d)
    shifted = S + sp.identity(n * d, format="csc")
    _, vectors = eigsh(shifted, k=d, which="LM", sigma=2, mode="buckling", v0=start)
    return nearest_orthogonal(vectors.reshape(n, d, d))


def authors_way(patches, edges, n):
    """A whole alignment as the authors' implementation does it: pair by pair, buckling mode, and lsmr."""
    import scipy.sparse as sp
    from scipy.linalg import svd
    from scipy.sparse.linalg import lsmr

    p, d = len(patches), patches[0][1].shape[1]
    measured, shared = np.empty((len(edges), d, d)), []
    for e, (i, j) in enumerate(edges.tolist()):
        _, rows_i, rows_j = np.intersect1d(patches[i][0], patches[j][0], assume_unique=True, return_indices=True)
        a, b = patches[i][1][rows_i].astype(np.float64), patches[j][1][rows_j].astype(np.float64)
        U, _, Vt = svd((a - a.mean(axis=0)).T @ (b - b.mean(axis=0)))
        measured[e] = U @ Vt
        shared.append((a.mean(axis=0), b.mean(axis=0)))
    rotations = buckling(edges, measured, p)
    offsets = np.array([a @ rotations[i] - b @ rotations[j] for (a, b), (i, j) in zip(shared, edges, strict=True)])
    rows = np.arange(len(edges))
    ends = sp.csr_array((np.ones(len(edges)), (rows, edges[:, 1])), shape=(len(edges), p))
    starts = sp.csr_array((np.ones(len(edges)), (rows, edges[:, 0])), shape=(len(edges), p))
    translations = np.stack([lsmr(ends - starts, column)[0] for column in offsets.T], axis=1)
    total, count = np.zeros((n, d)), np.zeros(n)
    for k, (nodes, X) in enumerate(patches):
        total[nodes] += X.astype(np.float64) @ rotations[k] + translations[k]
        count[nodes] += 1
    return total / count[:, None]


def embedding_error(X, points):
    """Relative error of an embedding against the points, after one rotation and shift."""
    from graphquilt.linalg.procrustes import centred, nearest_orthogonal

    some = slice(None, None, max(1, len(X) // 500_000))  # of very many points some are enough
    a, b = centred(X[some])[0], centred(points[some])[0]
    return float(np.linalg.norm(a @ nearest_orthogonal(a.T @ b) - b) / np.linalg.norm(b))


def compared_alignment(p, d, k, noise):
    """Whole alignments of the same patches, ours and the authors' way, in turn."""
    from graphquilt.testing import quilt

    made = quilt(p, d, degree=k, noise=noise)
    patches, n = [(nodes, X.astype(np.float32)) for nodes, X in made.patches], len(made.points)
    _stitch(patches, made.edges, n)
    ours, theirs = float("inf"), float("inf")
    for _ in range(3):
        seconds, X = least(lambda: _stitch(patches, made.edges, n), 3)
        ours = min(ours, seconds)
        seconds, Y = least(lambda: authors_way(patches, made.edges, n))
        theirs = min(theirs, seconds)
    errors = embedding_error(X, made.points), embedding_error(Y, made.points)
    row = {"p": p, "d": d, "k": k, "noise": noise, "seconds": ours, "baseline_seconds": theirs}
    return row | {"error": errors[0], "baseline_error": errors[1]}


def level_by_level(p, d, k, noise):
    """Rotation errors of a flat alignment and of one level by level."""
    import graphquilt as gq
    from graphquilt.testing import quilt

    made = quilt(p, d, degree=k, noise=noise)
    row = {"p": p, "d": d, "k": k, "noise": noise}
    for name, align in (("flat", gq.align), ("levels", partial(gq.align, branching=100))):
        align(made.patches, made.edges)
        seconds, alignment = least(lambda align=align: align(made.patches, made.edges), 2)
        error = rotation_error(alignment.rotations, made.rotations)
        row |= {f"{name}_seconds": seconds, f"{name}_error": error}
    return row


def measured_overlaps(p, d, k):
    """The least wall time of measuring all overlaps."""
    from graphquilt.alignment.patch_index import index_patches
    from graphquilt.alignment.statistics import measure_overlaps
    from graphquilt.testing import quilt

    made = quilt(p, d, degree=k, noise=0.1)
    index, walls = index_patches(made.patches), []
    for _ in range(7):
        start = time.perf_counter()
        measure_overlaps(made.patches, index, made.edges)
        walls.append(time.perf_counter() - start)
    return {"p": p, "d": d, "k": k, "wall": min(walls[1:])}


def rotation_step(p, d, k, noise):
    """Both solvers on the same measurements, in turn."""
    from graphquilt.alignment.rotations import synchronise_rotations
    from studies.rotations import rotation_measurements

    edges, measured, truth = rotation_measurements(p, d, degree=k, noise=noise)

    def solve(tol):
        return synchronise_rotations(edges, measured, weights=np.ones(len(edges)), n=p, tol=tol)

    solve(1e-2)  # once without a clock: imports and first allocations are nobody's solver
    result = {"p": p, "d": d, "k": k, "noise": noise}
    for name, tol in (("default", 1e-5), ("tight", 1e-7)):
        seconds, found = least(lambda tol=tol: solve(tol), 7)
        result |= {
            f"{name}_tol": tol,
            f"{name}_seconds": seconds,
            f"{name}_error": rotation_error(found.rotations, truth),
            f"{name}_iterations": found.iterations,
        }
    seconds, rotations = least(lambda: buckling(edges, measured, p), 5 if d < 100 else 2)
    return result | {"baseline_seconds": seconds, "baseline_error": rotation_error(rotations, truth)}


def nearly_polar(matrices):
    """The orthogonal matrices nearest to some that are nearly so, by Newton-Schulz steps: much quicker to make."""
    for _ in range(4):
        matrices = 1.5 * matrices - 0.5 * (matrices @ (matrices.transpose(0, 2, 1) @ matrices))
    return matrices


def large_rotation_step(p, d, k, noise):
    """One solve of single-precision measurements that lie in memory once."""
    from graphquilt.alignment.rotations import synchronise_rotations
    from graphquilt.testing import random_rotations
    from graphquilt.testing.quilts import ring_with_chords

    rng = np.random.default_rng(0)
    with PeakMemory() as memory:
        edges = ring_with_chords(p, k, rng)
        edges = edges[np.lexsort((edges[:, 0], edges[:, 1]))]
        truth = np.concatenate([random_rotations(100, d, rng).astype(np.float32) for _ in range(p // 100)])
        measured = np.empty((len(edges), d, d), dtype=np.float32)
        for start in range(0, len(edges), 500):
            here = slice(start, start + 500)
            clean = truth[edges[here, 0]] @ truth[edges[here, 1]].transpose(0, 2, 1)
            spread = rng.standard_normal(size=clean.shape, dtype=np.float32)
            measured[here] = nearly_polar(clean + float(noise / np.sqrt(d)) * spread)
        cpu, wall = time.process_time(), time.perf_counter()
        found = synchronise_rotations(edges, measured, weights=np.ones(len(edges)), n=p, tol=1e-5)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "p": p,
        "d": d,
        "k": k,
        "noise": noise,
        "seconds": cpu,
        "wall": wall,
        "iterations": found.iterations,
        "residual": found.residual,
        "error": rotation_error(found.rotations, truth.astype(np.float64)),
        "gap": float(found.eigenvalues[-2] - found.eigenvalues[-1]),
        "gib": memory.gib,
    }


class MappedPatches:
    """Patches in files, opened when asked."""

    def __init__(self, folder, n):
        self.folder, self.n = folder, n

    def __len__(self):
        return self.n

    def __getitem__(self, k):
        return tuple(np.load(self.folder / f"{k}-{name}.npy", mmap_mode="r") for name in ("nodes", "x"))


def whole_alignment(p, d, k, noise):
    """Overlaps, transforms, rotations, translations, edge errors and centroid of patches that lie in files."""
    import graphquilt as gq
    from graphquilt.testing import quilt

    with tempfile.TemporaryDirectory() as folder:
        row = json.dumps([p, d, k, noise])
        subprocess.run([sys.executable, __file__, "--write", folder, "--row", row], check=True)
        edges, points = np.load(Path(folder, "edges.npy")), np.load(Path(folder, "points.npy"), mmap_mode="r")
        patches = MappedPatches(Path(folder), p)
        if p <= 1000:
            patches = [tuple(map(np.array, patches[k])) for k in range(p)]
        small = quilt(20, d, noise=0.1, seed=1)
        single = [(nodes, X.astype(np.float32)) for nodes, X in small.patches]
        gq.centroid(single, gq.align(single))
        with PeakMemory() as memory:
            wall = time.perf_counter()
            seconds, X = least(lambda: _stitch(patches, edges, len(points)), 3 if p <= 1000 else 1)
            wall = (time.perf_counter() - wall) / (3 if p <= 1000 else 1)
        error = embedding_error(X, points)
    figures = {"seconds": seconds, "wall": wall, "gib": memory.gib, "error": error, "load": os.getloadavg()[0]}
    return {"p": p, "d": d, "k": k, "noise": noise} | figures


def _stitch(patches, edges, n):
    import graphquilt as gq

    alignment = gq.align(patches, edges)
    return gq.centroid(patches, alignment, n_nodes=n)


def write_quilt(folder, p, d, k, noise):
    """Make the problem in another process, so that making it does not count as aligning it."""
    from graphquilt.testing import quilt

    made = quilt(p, d, degree=k, noise=noise)
    for number, (nodes, X) in enumerate(made.patches):
        np.save(folder / f"{number}-nodes.npy", nodes)
        np.save(folder / f"{number}-x.npy", X.astype(np.float32))
    np.save(folder / "edges.npy", made.edges)
    np.save(folder / "points.npy", made.points.astype(np.float32))


def thread_control(p, d, k):
    """The least wall time of several alignments."""
    import graphquilt as gq
    from graphquilt.testing import quilt

    made = quilt(p, d, degree=k, noise=0.1)
    gq.align(made.patches, made.edges)
    walls = []
    for _ in range(9):
        start = time.perf_counter()
        gq.align(made.patches, made.edges)
        walls.append(time.perf_counter() - start)
    return {"p": p, "d": d, "k": k, "wall": min(walls)}


def write_largest(folder, p, d, k, *, noise, overlap):
    """Write patches whose points are made edge by edge, so that they never lie in memory together."""
    from graphquilt.testing import random_rotations
    from graphquilt.testing.quilts import ring_with_chords

    edges = ring_with_chords(p, k, np.random.default_rng(0))
    incident = [np.flatnonzero((edges == n).any(axis=1)) for n in range(p)]
    truth = np.lib.format.open_memmap(folder / "rotations.npy", mode="w+", dtype=np.float32, shape=(p, d, d))
    for n in range(p):
        rng = np.random.default_rng([1, n])
        truth[n] = random_rotations(1, d, rng)[0]
        points = [np.random.default_rng([2, e]).standard_normal((overlap, d), dtype=np.float32) for e in incident[n]]
        Z = np.concatenate(points)
        Z += noise * rng.standard_normal(Z.shape, dtype=np.float32)
        np.save(folder / f"{n}-x.npy", Z @ truth[n].T + rng.standard_normal(d, dtype=np.float32))
        np.save(folder / f"{n}-nodes.npy", (incident[n][:, None] * overlap + np.arange(overlap)).ravel())
    np.save(folder / "edges.npy", edges)


def largest_alignment(folder, kind, *row):
    """One alignment of patches in files that are larger than the memory; without the centroid."""
    p, d, k, noise, overlap = row
    import graphquilt as gq
    from graphquilt.testing import quilt

    small = quilt(20, d, noise=0.1, seed=1)
    gq.align([(nodes, X.astype(np.float32)) for nodes, X in small.patches])
    edges, patches = np.load(Path(folder, "edges.npy")), MappedPatches(Path(folder), p)
    align = {"flat": gq.align, "levels": partial(gq.align, branching=100)}[kind]
    with PeakMemory() as memory:
        cpu, wall = time.process_time(), time.perf_counter()
        alignment = align(patches, edges)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    error = rotation_error(alignment.rotations, np.load(Path(folder, "rotations.npy")).astype(np.float64))
    result = {"kind": kind, "p": p, "d": d, "k": k, "noise": noise, "overlap": overlap}
    return result | {"seconds": cpu, "wall": wall, "gib": memory.gib, "error": error, "residual": alignment.residual}


KINDS = {
    "rotation": rotation_step,
    "compared": compared_alignment,
    "levels": level_by_level,
    "large": large_rotation_step,
    "whole": whole_alignment,
    "overlaps": measured_overlaps,
    "threads": thread_control,
    "largest": largest_alignment,
}


def page(results):
    """The tables in Markdown."""
    lines = [
        "# Benchmarks: alignment",
        "",
        f"This page is written by `benchmarks/align.py` (`make bench`). It was measured on {machine()}. Times are CPU "
        "seconds with one BLAS thread, unless the text says otherwise; short runs are repeated, and the least time "
        "counts. Errors are root mean square errors against the known answer. Memory is the peak above what the "
        "process needs after the import of the package; mapped files do not count.",
        "",
        "## Rotation step",
        "",
        "Our solver and shift-invert Lanczos in buckling mode (the authors' solver) solve the same matrix in the same "
        "process. The last column says how many times less CPU time ours takes.",
        "",
        "| p | d | k | noise | tol | CPU s | steps | error | baseline CPU s | its error | times less |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results["rotation"]:
        lines += [
            f"| {r['p']} | {r['d']} | {r['k']} | {r['noise']} | {r[f'{name}_tol']:.0e} | {r[f'{name}_seconds']:.3f} | "
            f"{r[f'{name}_iterations']} | {r[f'{name}_error']:.5f} | {r['baseline_seconds']:.2f} | "
            f"{r['baseline_error']:.5f} | {r['baseline_seconds'] / r[f'{name}_seconds']:.1f} |"
            for name in ("default", "tight")
        ]
    lines += [
        "",
        "The next problems are too large for the baseline. Their blocks are in single precision and are stored once; "
        "the memory includes them.",
        "",
        "| p | d | k | noise | CPU s | wall s | steps | residual | error | gap | GiB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['p']} | {r['d']} | {r['k']} | {r['noise']} | {r['seconds']:.1f} | {r['wall']:.1f} | {r['iterations']} | "
        f"{r['residual']:.1e} | {r['error']:.5f} | {r['gap']:.3f} | {r['gib']:.2f} |"
        for r in results["large"]
    ]
    lines += [
        "",
        "## Whole alignment",
        "",
        "These figures include overlaps (of 2d nodes each), relative transforms, rotations, translations, edge errors "
        "and the centroid. The larger problem lies in memory-mapped files.",
        "",
        "| p | d | k | noise | CPU s | wall s | GiB | relative error of the embedding |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['p']} | {r['d']} | {r['k']} | {r['noise']} | {r['seconds']:.2f} | {r['wall']:.2f} | {r['gib']:.2f} | "
        f"{r['error']:.4f} |"
        for r in results["whole"]
    ]
    if "earlier" in results:
        r = results["earlier"]
        lines += [
            "",
            "Commit 42fd1d6, before overlaps became statistics, took "
            f"{r['before_seconds']:.2f} CPU s for p = {r['p']}, "
            f"d = {r['d']}, k = {r['k']}; this one takes {r['seconds']:.2f} in the same run, "
            f"{r['before_seconds'] / r['seconds']:.1f} times less.",
        ]
    lines += [
        "",
        "The same steps as the authors' implementation does them (overlaps and relative transforms pair by pair, "
        "shift-invert Lanczos in buckling mode, lsmr for every column of the translations), in the same process:",
        "",
        "| p | d | k | noise | CPU s | error | authors' way, CPU s | its error | times less |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['p']} | {r['d']} | {r['k']} | {r['noise']} | {r['seconds']:.3f} | {r['error']:.4f} | "
        f"{r['baseline_seconds']:.2f} | {r['baseline_error']:.4f} | {r['baseline_seconds'] / r['seconds']:.1f} |"
        for r in results["compared"]
    ]
    lines += ["", "Level by level (`branching=100`), against a flat alignment:", ""]
    lines += ["| p | d | k | noise | flat, CPU s | its rotation error | levels, CPU s | its rotation error | ratio |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    lines += [
        f"| {r['p']} | {r['d']} | {r['k']} | {r['noise']} | {r['flat_seconds']:.2f} | {r['flat_error']:.5f} | "
        f"{r['levels_seconds']:.2f} | {r['levels_error']:.5f} | {r['levels_error'] / r['flat_error']:.2f} |"
        for r in results["levels"]
    ]
    if results.get("largest"):
        lines += [
            "",
            "The largest problem lies in memory-mapped float32 files, 27 GB for 10 000 patches. The figures are "
            "without the centroid, and wall times were taken while other programs used the disk and both cores:",
            "",
            "| p | d | k | overlap | way | CPU s | wall s | GiB | rotation error | commit |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {r['p']} | {r['d']} | {r['k']} | {r['overlap']} | {r['kind']} | {r['seconds']:.0f} | {r['wall']:.0f} | "
            f"{r['gib']:.2f} | {r['error']:.5f} | {r.get('commit', 'this one')} |"
            for r in results["largest"]
        ]
    if "windows" in results:  # put in by hand, from benchmarks/anomaly.py batch
        r = results["windows"]
        lines += [
            "",
            f"In a batch run over {r['days']} days of the size of LANL's network (`benchmarks/anomaly.py batch`), "
            f"alignment takes {r['alignment_seconds']:.1f} of {r['seconds']:.0f} CPU s: "
            f"{r['alignment_seconds'] / r['seconds']:.1%}.",
        ]
    one, two = results["threads"]
    cores = results["cores"][0]
    alone_, both = results["overlaps"]
    lines += [
        "",
        "## Thread control",
        "",
        f"Measuring the overlaps with p = {both['p']}, d = {both['d']} and k = {both['k']} takes "
        f"{alone_['wall']:.3f} s of wall time on one thread and {both['wall']:.3f} s on two: "
        f"{alone_['wall'] / both['wall']:.2f} times less.",
        "",
        f"The whole alignment with p = {cores['p']}, d = {cores['d']} and k = {cores['k']}, the centroid included, "
        f"takes {cores['wall']:.1f} s of wall time on two threads ({cores['seconds']:.1f} CPU s), "
        f"while the load average of the machine was {cores['load']:.0f}.",
        "",
        f"A whole alignment with p = {one['p']}, d = {one['d']} and k = {one['k']} takes {one['wall']:.3f} s of wall "
        f"time if one BLAS thread is allowed, and {two['wall']:.3f} s if two are allowed.",
        "",
    ]
    return "\n".join(lines)


def measure(kind):
    """Run all rows of one kind."""
    if kind in THREAD_ROWS:
        return [alone(__file__, kind, THREAD_ROWS[kind], threads=threads) for threads in (1, 2)]
    if kind == "cores":
        return [alone(__file__, "whole", BOTH_CORES, threads=2)]
    return [alone(__file__, kind, row) for row in ROWS[kind]]


def measure_largest(folder, kinds, p):
    """Write the largest problem to ``folder`` unless it is there, and yield the figures of each way to align it."""
    row = (p, *LARGEST[1:])
    if not (folder / "edges.npy").exists():  # written last
        write_largest(folder, *row[:3], noise=row[3], overlap=row[4])
    for kind in kinds:
        yield alone(__file__, "largest", (str(folder), kind, *row))


def measure_earlier(source):
    """The first whole alignment with the package of this checkout and with an earlier one, in turn; the least times."""
    seconds = {}
    for place in (DOCS.parent / "src", source) * 2:
        os.environ["PYTHONPATH"] = str(place)
        row = alone(__file__, "whole", ROWS["whole"][0])
        seconds[place] = min(row["seconds"], seconds.get(place, float("inf")))
    now, before = seconds.values()
    return {"p": row["p"], "d": row["d"], "k": row["k"], "seconds": now, "before_seconds": before}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--row", type=json.loads)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--only", choices=EVERY, help="measure the rows of one kind again")
    parser.add_argument(
        "--largest", type=Path, help="measure the largest problem again; its patches stay in this folder"
    )
    parser.add_argument("--ways", nargs="+", default=["flat", "levels"], choices=["flat", "levels"])
    parser.add_argument("--patches", type=int, default=LARGEST[0], help="of the largest problem")
    parser.add_argument(
        "--earlier", type=Path, help="compare with the package in the src folder of an earlier checkout"
    )
    parser.add_argument("--quick", action="store_true", help="leave out what takes minutes or gigabytes; write nothing")
    options = parser.parse_args()
    if options.write:
        write_quilt(options.write, *options.row)
        return
    if options.kind:
        print(json.dumps(KINDS[options.kind](*options.row)))
        return
    if options.quick:
        for kind in ("compared", "levels", *THREAD_ROWS):
            measure(kind)
        return
    file = DOCS / "benchmarks-align.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    if options.earlier:
        results["earlier"] = measure_earlier(options.earlier)
        file.write_text(json.dumps(results, indent=1) + "\n")
    elif options.largest:
        for row in measure_largest(options.largest, options.ways, options.patches):
            same = (row["p"], row["kind"])
            others = [r for r in results.get("largest", []) if (r["p"], r["kind"]) != same]
            results["largest"] = sorted([*others, row], key=lambda r: (r["p"], r["kind"]))
            file.write_text(json.dumps(results, indent=1) + "\n")
    else:
        results |= {kind: measure(kind) for kind in ([options.only] if options.only else EVERY)}
        file.write_text(json.dumps(results, indent=1) + "\n")
    if results.keys() >= {*EVERY}:
        (DOCS / "benchmarks.md").write_text(page(results))


if __name__ == "__main__":
    main()
