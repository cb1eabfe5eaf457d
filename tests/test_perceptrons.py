"""The grid of perceptrons of the paper."""

import json

import numpy as np
import pytest

import graphquilt as gq
from extras import needs
from graphquilt.files.checksums import sealed_text
from studies.perceptrons import Grid, mlp_grid

SMALL = Grid(hidden=(16, 32), layers=(2, 3), dropout=(0.0,), learning_rate=(0.01,), batch_size=64, max_epochs=30)


def problem(n=600, dim=5, seed=0):
    needs("torch")
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = (2 * rng.normal(size=(3, dim))[y] + rng.normal(size=(n, dim))).astype(np.float32)
    order = rng.permutation(n)
    return X, y, gq.evaluate.Split(order[:400], order[400:500], order[500:])


def test_the_grid_of_the_paper_has_108_points():
    assert len(list(Grid())) == 108


def test_a_memory_map_gives_what_memory_gives(tmp_path):
    X, y, split = problem()
    np.save(tmp_path / "x.npy", X)
    kept = mlp_grid(X, y, split, seed=0, grid=SMALL)
    mapped = mlp_grid(np.load(tmp_path / "x.npy", mmap_mode="r"), y, split, seed=0, grid=SMALL)
    assert kept == mapped
    assert kept.accuracy > 0.8
    assert len(kept.trials) == 4
    best = min(kept.trials, key=lambda trial: trial["validation_loss"])
    assert (best["hidden"], best["layers"]) == (kept.best.hidden, kept.best.layers)


def test_only_the_rows_of_the_split_are_read(tmp_path):
    """A terabyte of which nothing but a few rows may be touched: the file has holes everywhere else."""
    X, y, split = problem(n=600)
    path = tmp_path / "x.npy"
    large = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(10_000_000, 5))
    large[:600] = X
    large.flush()
    labels = np.full(len(large), -1)
    labels[:600] = y
    once = Grid(hidden=(16,), layers=(2,), dropout=(0.0,), learning_rate=(0.01,), batch_size=64, max_epochs=5)
    answer = mlp_grid(np.load(path, mmap_mode="r"), labels, split, seed=0, grid=once)
    assert answer.accuracy == mlp_grid(X, y, split, seed=0, grid=once).accuracy


def test_nodes_without_label_and_last_batches_of_one_do_no_harm():
    X, y, split = problem()
    hidden = y.copy()
    hidden[split.train[::4]] = -1
    hidden[split.test[::2]] = -1
    odd = gq.evaluate.Split(split.train[:257], split.validation, split.test)
    grid = Grid(hidden=(8,), layers=(2,), dropout=(0.5,), learning_rate=(0.01,), batch_size=1, max_epochs=2)
    assert 0 <= mlp_grid(X, hidden, odd, seed=0, grid=grid).accuracy <= 1


def test_the_seed_of_torch_is_left_as_it_was():
    X, y, split = problem()
    torch = needs("torch")
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    mlp_grid(X, y, split, seed=0, grid=Grid((8,), (2,), (0.0,), (0.01,), max_epochs=1))
    assert torch.rand(1) == expected


def test_a_grid_that_was_stopped_goes_on(tmp_path):
    X, y, split = problem()
    whole = mlp_grid(X, y, split, seed=0, grid=SMALL)
    keep, trained = tmp_path / "trials.json", []

    def stop(event):
        trained.append(event.done)
        if event.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mlp_grid(X, y, split, seed=0, grid=SMALL, keep=keep, progress=stop)
    kept = json.loads(keep.read_text())["trials"]
    assert len(kept) == 2
    marked = {"of": json.loads(keep.read_text())["of"], "trials": kept}
    marked["trials"][0]["trial"]["epochs"] = 12345  # shows that it is not trained again
    keep.write_text(sealed_text(marked))
    again = mlp_grid(X, y, split, seed=0, grid=SMALL, keep=keep)
    assert again.trials[0]["epochs"] == 12345
    assert (again.best, again.accuracy, again.trials[1:]) == (whole.best, whole.accuracy, whole.trials[1:])
    assert mlp_grid(X, y, split, seed=1, grid=SMALL, keep=keep).trials[0]["epochs"] != 12345
    keep.write_text("{")
    assert mlp_grid(X, y, split, seed=0, grid=SMALL, keep=keep) == whole
    part = Grid(hidden=(32,), layers=(3,), dropout=(0.0,), learning_rate=(0.01,), batch_size=64, max_epochs=30)
    alone = mlp_grid(X, y, split, seed=0, grid=part, keep=keep)
    assert alone.trials == tuple(trial for trial in whole.trials if (trial["hidden"], trial["layers"]) == (32, 3))


def test_what_the_grid_cannot_use_is_named():
    X, y, split = problem()
    with pytest.raises(gq.errors.InputError, match="have 1 class"):
        mlp_grid(X, np.zeros(600, dtype=int), split, seed=0, grid=SMALL)
    other = y.copy()
    other[split.test] = 9
    with pytest.raises(gq.errors.InputError, match="no test node"):
        mlp_grid(X, other, split, seed=0, grid=SMALL)
    X[split.train[3]] = np.nan
    with pytest.raises(gq.errors.InputError, match=f"node {split.train[3]}; leave"):
        mlp_grid(X, y, split, seed=0, grid=SMALL)
