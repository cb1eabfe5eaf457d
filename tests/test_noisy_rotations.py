"""The iterative rotation solver gives the dense answer, whatever the noise, the gap, the graph and the processor.

How far a single-precision iteration gets depends on the order in which the processor adds numbers. So the problems
below are many and hard, and some of them are solved again with the BLAS kernels of other processors.
"""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from graphquilt.alignment import rotations
from graphquilt.alignment.connection import Connection
from graphquilt.linalg.procrustes import nearest_orthogonal
from graphquilt.temporal import lag_edges
from graphquilt.testing import random_rotations
from graphquilt.testing.quilts import ring_with_chords

TOL = 1e-5
RANDOM = np.inf  # a noise level: measured rotations that have nothing to do with any truth
NOISES = (0.0, 0.05, 0.2, 0.5, 1.0, RANDOM)
NO_SUCH_KERNEL = 77  # an exit code
KERNELS = [
    ("Nehalem", "sse4_2"),
    ("Sandybridge", "avx"),
    ("Haswell", "avx2"),
    ("Zen", "avx2"),
    ("SkylakeX", "avx512f"),
]


def clique(first, last):
    return list(itertools.combinations(range(first, last), 2))


def star_of_cliques(n, _):
    size = max(3, n // 6)
    starts = range(1, n, size)
    return [(0, k) for k in starts] + [edge for k in starts for edge in clique(k, min(k + size, n))]


SHAPES = {
    "ring": lambda n, rng: ring_with_chords(n, 2, rng),
    "path": lambda n, _: [(k, k + 1) for k in range(n - 1)],
    "tree": lambda n, rng: [(int(rng.integers(k)), k) for k in range(1, n)],
    "lags": lambda n, _: lag_edges(n, (1, 7, 14)),
    "chords": lambda n, rng: ring_with_chords(n, 5, rng),
    "star": star_of_cliques,
    "bridge": lambda n, _: [*clique(0, n // 2), *clique(n // 2, n), (n // 2 - 1, n // 2)],
}


def problem(shape, n, d, noise, seed):
    rng = np.random.default_rng([seed, n, d])
    edges = np.asarray(SHAPES[shape](n, rng), dtype=np.int64)
    truth = random_rotations(n, d, rng)
    measured = truth[edges[:, 0]] @ truth[edges[:, 1]].transpose(0, 2, 1)
    if noise == RANDOM:
        measured = random_rotations(len(edges), d, rng)
    elif noise > 0:
        measured = nearest_orthogonal(measured + noise * rng.normal(size=measured.shape))
    return edges, measured, rng.uniform(0.5, 2.0, len(edges))


def check_against_dense(edges, measured, weights, n, tol=TOL, **options):
    """Solve, and compare with all eigenpairs of the dense matrix; return the solution."""
    d = measured.shape[1]
    solution = rotations.synchronise_rotations(edges, measured, weights=weights, n=n, tol=tol, **options)
    values, vectors = np.linalg.eigh(Connection(edges, measured, weights, n).sparse().toarray())
    assert solution.residual <= tol
    np.testing.assert_allclose(solution.eigenvalues[:d], 1 - values[:d], atol=1e-6)
    # Some eigenvalue lies within the residual of the next one; 1e-5 is for single precision.
    assert np.abs(1 - values - solution.eigenvalues[d]).min() <= solution.next_residual + 1e-5
    gap = values[d] - values[d - 1]
    if gap > 0.01:  # Davis and Kahan: the angle to the invariant subspace is at most the residual over the gap
        lowest = vectors[:, :d]
        outside = solution.vectors - lowest @ (lowest.T @ solution.vectors)
        assert np.linalg.norm(outside) <= 1.1 * np.sqrt(d) * tol / gap
    return solution


@pytest.fixture
def iterate(monkeypatch):
    """Forbid the dense solver, before and after the iteration."""
    monkeypatch.setattr(rotations, "DENSE_SIZE", 0)
    monkeypatch.setattr(rotations, "DENSE_RESCUE", 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("iterate")
def test_the_iteration_gives_the_dense_answer(shape):
    sizes = ((12, 3), (20, 6), (40, 3), (16, 9))
    for (n, d), noise, dtype in itertools.product(sizes, NOISES, (np.float32, np.float64)):
        edges, measured, weights = problem(shape, n, d, noise, seed=0)
        check_against_dense(edges, measured.astype(dtype), weights, n)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("iterate")
def test_the_iteration_gives_the_dense_answer_to_many_more_problems(shape, seed):
    sizes = ((16, 1), (60, 6), (89, 8), (40, 16), (150, 4), (200, 2))
    for (n, d), noise, dtype in itertools.product(sizes, NOISES, (np.float32, np.float64)):
        edges, measured, weights = problem(shape, n, d, noise, seed=1 + seed)
        check_against_dense(edges, measured.astype(dtype), weights, n)
        check_against_dense(edges, measured.astype(dtype), weights, n, tol=1e-8)


@pytest.mark.parametrize("noise", [0.5, 0.8, 1.2])
@pytest.mark.usefixtures("iterate")
def test_days_of_traffic_with_hardly_any_gap(noise):
    rng = np.random.default_rng(1)
    edges = lag_edges(89, (1, 7, 14, 21, 28, 35, 42, 49))
    truth = nearest_orthogonal(rng.normal(size=(89, 8, 8)))
    measured = np.einsum("eij,ekj->eik", truth[edges[:, 0]], truth[edges[:, 1]])
    measured = nearest_orthogonal(measured + noise * rng.normal(size=measured.shape))
    check_against_dense(edges, measured, rng.uniform(0.5, 2.0, len(edges)), 89)


@pytest.mark.parametrize("strength", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.usefixtures("iterate")
def test_no_gap_at_all_has_an_answer(noise, strength):
    """Two copies of one graph with a weak bridge between them: without it every eigenvalue would occur twice."""
    edges, half, _ = problem("chords", 15, 6, noise, seed=3)
    doubled = np.vstack([edges, edges + 15, [[14, 15]]])
    measured = np.concatenate([half, half, np.eye(6)[None]])
    weights = np.r_[np.ones(2 * len(edges)), strength]
    check_against_dense(doubled, measured, weights, 30)


@pytest.mark.usefixtures("iterate")
def test_a_start_from_the_wrong_eigenvectors_is_noticed():
    """Eigenvectors d + 1 to 2 d have no residual at all, and are the wrong ones."""
    edges, measured, weights = problem("chords", 30, 4, 0.3, seed=5)
    order = np.lexsort((edges[:, 0], edges[:, 1]))
    edges, measured, weights = edges[order], measured[order], weights[order]
    _, vectors = np.linalg.eigh(Connection(edges, measured, weights, 30).sparse().toarray())
    check_against_dense(edges, measured, weights, 30, start=vectors[:, 4:8])


def test_what_the_iteration_cannot_solve_is_solved_whole(monkeypatch):
    monkeypatch.setattr(rotations, "DENSE_SIZE", 0)
    edges, measured, weights = problem("bridge", 30, 4, 0.5, seed=6)
    solution = check_against_dense(edges, measured, weights, 30, tol=1e-9, max_iterations=1)
    assert solution.iterations >= 1


@pytest.mark.parametrize(("kernel", "instructions"), KERNELS)
def test_other_processors_give_the_same_answer(kernel, instructions):
    """Run some of the tests above in a process whose BLAS behaves as on another processor."""
    kernels = {library["architecture"] for library in threadpool_info() if library["internal_api"] == "openblas"}
    if not kernels:
        pytest.skip("only OpenBLAS can be told which kernel to use")
    if kernels == {kernel}:
        pytest.skip(f"the tests above have run with the {kernel} kernel already")
    description = Path("/proc/cpuinfo")
    if not description.exists() or instructions not in description.read_text().split():
        pytest.skip(f"the {kernel} kernel needs {instructions} instructions, which this processor does not have")
    program = (
        "import sys, numpy, pytest, threadpoolctl\n"
        "names = {library.get('architecture') for library in threadpoolctl.threadpool_info()}\n"
        "if sys.argv[1] not in names:\n"
        f"    sys.exit({NO_SUCH_KERNEL})\n"
        "numpy.ones((712, 24)).T @ numpy.ones((712, 12))\n"
        "print('It multiplies.', flush=True)\n"
        "sys.exit(pytest.main(['-p', 'no:cacheprovider', '-k', sys.argv[3], sys.argv[2]]))"
    )
    chosen = "days_of_traffic or no_gap or wrong_eigenvectors"
    environment = os.environ | {"OPENBLAS_CORETYPE": kernel, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, kernel, __file__, chosen]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode == NO_SUCH_KERNEL:
        pytest.skip(f"this build of OpenBLAS has no {kernel} kernel")
    if "It multiplies." not in result.stdout:  # NumPy 2.5.4: a plain product of matrices is a segmentation fault
        pytest.skip(f"this build of OpenBLAS crashes when it is told to use its {kernel} kernel")
    assert result.returncode == 0, result.stdout + result.stderr
