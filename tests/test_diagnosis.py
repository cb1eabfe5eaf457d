"""Diagnosis: a loss that was put in on purpose is found where it was put."""

import weakref
from collections.abc import Sequence

import numpy as np
import pytest

import graphquilt as gq
from graphquilt.evaluate import EvaluationOptions
from graphquilt.jobs import evaluate_job


@pytest.fixture(scope="module")
def truth(blocks):
    """Places that tell the classes apart well, but not perfectly."""
    rng = np.random.default_rng(0)
    return np.eye(6)[blocks.labels] + 0.35 * rng.normal(size=(blocks.n_nodes, 6))


def cut(quilt, X, noise, seed=1):
    rng = np.random.default_rng(seed)
    turns = [np.linalg.qr(rng.normal(size=(6, 6)))[0] for _ in quilt.node_sets]
    return [
        gq.Patch(nodes, (X[nodes] + noise * rng.normal(size=(len(nodes), 6))) @ turn)
        for nodes, turn in zip(quilt.node_sets, turns, strict=True)
    ]


def test_perfect_patches_lose_nothing(blocks, blocks_quilt, truth):
    patches = cut(blocks_quilt, truth, 0.0)
    found = gq.jobs.diagnose(
        blocks, patches, gq.align(patches, blocks_quilt.edges), full=truth, options=EvaluationOptions(splits=10)
    )
    assert all(abs(loss) < 0.01 for loss in found.losses.values())
    assert sum(found.losses.values()) == pytest.approx(found.full.accuracy - found.stitched.accuracy)


def test_noise_in_the_patches_is_found_there_and_averaging_gains_some_back(blocks, blocks_quilt, truth):
    patches = cut(blocks_quilt, truth, 0.5)
    found = gq.jobs.diagnose(
        blocks, patches, gq.align(patches, blocks_quilt.edges), full=truth, options=EvaluationOptions(splits=10)
    )
    assert found.losses["local training"] > 0.1
    assert found.losses["averaging"] < 0
    assert "Local training loses most" in str(found)
    assert "points of accuracy lost" in str(found)


def test_patches_that_are_not_aligned_are_found_as_such(blocks, blocks_quilt, truth):
    patches = cut(blocks_quilt, truth, 0.0)
    found = gq.jobs.diagnose(
        blocks, patches, gq.Alignment.identity(4, 6), full=truth, options=EvaluationOptions(splits=10)
    )
    assert max(found.losses, key=found.losses.get) == "alignment"
    assert found.losses["alignment"] > 0.1
    assert "Alignment loses most" in str(found)


def test_without_full_training_it_speaks_of_the_rest_and_without_labels_of_auc(blocks, blocks_quilt, truth):
    patches = cut(blocks_quilt, truth, 0.2)
    bare = gq.Graph(blocks.adjacency)
    found = gq.jobs.diagnose(bare, patches, gq.align(patches, blocks_quilt.edges))
    assert set(found.losses) == {"averaging", "alignment"}
    assert str(found).startswith("Stitched AUC")


def test_a_full_embedding_of_another_shape_is_refused(blocks, blocks_quilt, truth):
    patches = cut(blocks_quilt, truth, 0.0)
    with pytest.raises(gq.errors.InputError, match="rows"):
        gq.jobs.diagnose(blocks, patches, gq.align(patches, blocks_quilt.edges), full=truth[:-1])


def test_weights_of_the_centroid_are_not_taken_for_misalignment(blocks, blocks_quilt, truth):
    weights = gq.coverage_weights(blocks, blocks_quilt, power=4)
    rng = np.random.default_rng(0)
    patches = [
        gq.Patch(nodes, truth[nodes] + (1 - w[:, None]) * rng.normal(size=(len(nodes), 6)))
        for nodes, w in zip(blocks_quilt.node_sets, weights, strict=True)
    ]
    alignment = gq.Alignment.identity(4, 6)
    found = gq.jobs.diagnose(
        blocks, patches, alignment, weights=weights, full=truth, options=EvaluationOptions(splits=10)
    )
    assert abs(found.losses["alignment"]) < 0.03


def test_patches_in_any_form_and_order(blocks, blocks_quilt, truth):
    patches = cut(blocks_quilt, truth, 0.2)
    alignment = gq.align(patches, blocks_quilt.edges)
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(patch.nodes)) for patch in patches]
    mixed = [[patch.nodes[order], patch.coordinates[order]] for patch, order in zip(patches, orders, strict=True)]
    one, other = (
        gq.jobs.diagnose(blocks, each, alignment, full=truth, options=EvaluationOptions(splits=3))
        for each in (patches, mixed)
    )
    assert one.losses == pytest.approx(other.losses)
    with pytest.raises(gq.errors.InputError, match="finite"):
        gq.jobs.diagnose(blocks, patches, alignment, full=np.full_like(truth, np.nan))


class OneAtATime(Sequence):
    """Patches that are made when they are asked for, and that count how many of them live at once."""

    def __init__(self, patches):
        self.patches, self.alive, self.most = patches, 0, 0

    def __len__(self):
        return len(self.patches)

    def __getitem__(self, k):
        patch = gq.Patch(self.patches[k].nodes, self.patches[k].coordinates.copy())
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(patch, self.gone)
        return patch

    def gone(self):
        self.alive -= 1


def test_patches_are_opened_one_after_the_other(blocks, blocks_quilt, truth, monkeypatch):
    monkeypatch.setattr("graphquilt.alignment.patch_index.MEMORY", 0)  # no room for patches that stay open
    patches = [*cut(blocks_quilt, truth, 0.2)] * 4
    alignment = gq.align(patches, blocks_quilt.repeat(4).edges)
    lazy = OneAtATime(patches)
    found = gq.jobs.diagnose(blocks, lazy, alignment, full=truth, options=EvaluationOptions(splits=2))
    assert lazy.most <= 2
    assert found == gq.jobs.diagnose(blocks, patches, alignment, full=truth, options=EvaluationOptions(splits=2))


def test_a_job_is_diagnosed_and_keeps_the_losses(blocks):
    job = gq.embed(blocks, dim=3, n_patches=4, embedder=gq.SVD(3), store={}).job
    options = EvaluationOptions(splits=2)
    found = evaluate_job(job, diagnosis=True, options=options).diagnosis
    assert set(found.losses) == {"averaging", "alignment"}
    assert job.store["evaluation"].parameters["losses"] == found.losses
    assert evaluate_job(job, options=options).diagnosis is None
