"""Speed and memory of the alignment, beside the eigensolver call of the authors' implementation.

``python benchmarks/align.py`` runs every row in a process of its own, one BLAS thread unless it says otherwise, and
writes the table to docs/benchmarks.md. Noise is on the rotations for the rotation step, and on the coordinates for
whole alignments.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from measuring import PeakMemory, alone, least, machine

ROTATION_ROWS = [(100, 32, 10, 0.3), (100, 128, 4, 0.1)]
WHOLE_ROWS = [(1000, 32, 10, 0.1), (10_000, 32, 20, 0.1)]
LARGE_ROWS = [(10_000, 32, 20, 0.1), (10_000, 128, 20, 0.1)]
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


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


def rotation_step(p, d, k, noise):
    """Both solvers on the same measurements, in turn."""
    from graphquilt.alignment import AlignOptions
    from graphquilt.alignment.groups import synchronize_rotations
    from graphquilt.synthetic import rotation_measurements

    edges, measured, truth = rotation_measurements(p, d, degree=k, noise=noise)

    def solve(tol):
        return synchronize_rotations(edges, measured, weights=np.ones(len(edges)), n=p, tol=tol)

    solve(1e-2)  # once without a clock: imports and first allocations are nobody's solver
    result = {"p": p, "d": d, "k": k, "noise": noise}
    for name, tol in (("default", AlignOptions().tol), ("tight", 1e-7)):
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
    from graphquilt.alignment import AlignOptions
    from graphquilt.alignment.groups import synchronize_rotations
    from graphquilt.synthetic import random_rotations
    from graphquilt.synthetic.quilts import ring_with_chords

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
        found = synchronize_rotations(edges, measured, weights=np.ones(len(edges)), n=p, tol=AlignOptions().tol)
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
    from graphquilt.linalg.procrustes import centred, relative_rotation
    from graphquilt.synthetic import quilt

    with tempfile.TemporaryDirectory() as folder:
        row = json.dumps([p, d, k, noise])
        subprocess.run([sys.executable, __file__, "--write", folder, "--row", row], check=True)
        edges, points = np.load(Path(folder, "edges.npy")), np.load(Path(folder, "points.npy"), mmap_mode="r")
        patches = MappedPatches(Path(folder), p)
        if p <= 1000:
            patches = [tuple(map(np.array, patches[k])) for k in range(p)]
        small = quilt(20, d, noise=0.1, seed=1)
        gq.centroid(small.patches, gq.align(small.patches))
        with PeakMemory() as memory:
            seconds, X = least(lambda: _stitch(patches, edges, len(points)), 3 if p <= 1000 else 1)
        a, b = centred(X)[0], centred(points)[0]
        error = float(np.linalg.norm(a @ relative_rotation(a, b) - b) / np.linalg.norm(b))
    return {"p": p, "d": d, "k": k, "noise": noise, "seconds": seconds, "gib": memory.gib, "error": error}


def _stitch(patches, edges, n):
    import graphquilt as gq

    alignment = gq.align(patches, edges)
    return gq.centroid(patches, alignment, n_nodes=n)


def write_quilt(folder, p, d, k, noise):
    """Make the problem in another process, so that making it does not count as aligning it."""
    from graphquilt.synthetic import quilt

    made = quilt(p, d, degree=k, noise=noise)
    for number, (nodes, X) in enumerate(made.patches):
        np.save(folder / f"{number}-nodes.npy", nodes)
        np.save(folder / f"{number}-x.npy", X.astype(np.float32))
    np.save(folder / "edges.npy", made.edges)
    np.save(folder / "points.npy", made.points.astype(np.float32))


def thread_control(p, d, k):
    """The least wall time of several alignments."""
    import graphquilt as gq
    from graphquilt.synthetic import quilt

    made = quilt(p, d, degree=k, noise=0.1)
    gq.align(made.patches, made.edges)
    walls = []
    for _ in range(9):
        start = time.perf_counter()
        gq.align(made.patches, made.edges)
        walls.append(time.perf_counter() - start)
    return {"p": p, "d": d, "k": k, "wall": min(walls)}


KINDS = {"rotation": rotation_step, "large": large_rotation_step, "whole": whole_alignment, "threads": thread_control}


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
        "| p | d | k | noise | CPU s | GiB | relative error of the embedding |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['p']} | {r['d']} | {r['k']} | {r['noise']} | {r['seconds']:.2f} | {r['gib']:.2f} | {r['error']:.4f} |"
        for r in results["whole"]
    ]
    one, two = results["threads"]
    lines += [
        "",
        "## Thread control",
        "",
        f"A whole alignment with p = {one['p']}, d = {one['d']} and k = {one['k']} takes {one['wall']:.3f} s of wall "
        f"time if one BLAS thread is allowed, and {two['wall']:.3f} s if two are allowed.",
        "",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--row", type=json.loads)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--quick", action="store_true", help="leave out what takes minutes or gigabytes; write nothing")
    options = parser.parse_args()
    if options.write:
        write_quilt(options.write, *options.row)
    elif options.kind:
        print(json.dumps(KINDS[options.kind](*options.row)))
    else:
        large, whole = ([], WHOLE_ROWS[:1]) if options.quick else (LARGE_ROWS, WHOLE_ROWS)
        results = {
            "rotation": [alone(__file__, "rotation", row) for row in ROTATION_ROWS],
            "large": [alone(__file__, "large", row) for row in large],
            "whole": [alone(__file__, "whole", row) for row in whole],
            "threads": [alone(__file__, "threads", (10, 128, 4), threads=threads) for threads in (1, 2)],
        }
        if not options.quick:
            PAGE.write_text(page(results))
        print(page(results))


if __name__ == "__main__":
    main()
