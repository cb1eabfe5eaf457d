"""Patches that another program embeds, as docs/job-format.md says, and patches without a graph."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphquilt.embedders import SVD
from graphquilt.errors import InputError, JobError
from graphquilt.jobs import (
    DirectoryStore,
    Job,
    JobSettings,
    Recipe,
    Record,
    embed_patches,
    evaluate_job,
    export_embedding,
    job_status,
)
from graphquilt.jobs.records import patch_key
from graphquilt.linalg import Motions
from graphquilt.patches import PatchGraph
from toy_embedders import Toy, job_of_patches, ring_of_patches

PAGE = Path(__file__).parents[1] / "docs" / "job-format.md"
PROGRAM = """
import os
import numpy as np

def my_method(nodes):
    return np.random.default_rng(0).normal(size=(216, 8))[nodes]

settings, patch = (open(name).read() for name in ("settings.py", "patch.py"))
os.chdir("job")
exec(settings)
for k in range(18):
    exec(patch.replace("17", str(k)))
"""


@pytest.fixture
def job(tmp_path):
    graph, _ = ring_of_patches(18)
    patch_graph = PatchGraph.from_patches([(12 * k + np.arange(24)) % 216 for k in range(18)], min_overlap=9)
    store = DirectoryStore(tmp_path / "job")
    job_of_patches(store, graph, patch_graph, embedder=SVD(5))
    settings, patch = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (tmp_path / "settings.py").write_text(settings)
    (tmp_path / "patch.py").write_text(patch)
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, check=True)
    return Job.open(store)


def test_the_page_says_how_to_bring_patches_of_ones_own(job):
    status = job_status(job)
    assert (status.embedded, status.next) == (18, job.command("stitch"))
    assert job.settings.motions == Motions(scale=False)
    assert job.stitch().edge_errors.max() < 1e-6
    assert Job.open(job.store).embedding.shape == (216, 8)
    job.embed()  # nothing is left to do, so that nobody calls the method, which graphquilt does not have
    with pytest.raises(JobError, match="made with my-method, which graphquilt cannot recreate"):
        job.settings.embedder(None, 0)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("embedding", np.ones((3, 8)), r"patch 5 has 24 nodes and an embedding of shape \(3, 8\)"),
        ("embedding", np.ones((24, 7)), "patch 5 has 7 dimensions and patch 0 has 8"),
        ("embedding", np.ones(24), "patch 5 has 24 nodes"),
        ("embedding", np.full((24, 8), np.nan), "patch 5: 24 of 24 rows of coordinates are not finite"),
        ("X", np.ones((24, 8)), "patch 5 has no array 'embedding', but X"),
    ],
)
def test_a_wrong_patch_is_named(job, name, wrong, message):
    key = patch_key(5, "embedding")
    job.store[key] = Record({name: wrong}, job.store[key].parameters)
    with pytest.raises(InputError, match=message):
        job.stitch()


def test_another_dim_than_that_of_the_settings_is_refused(job):
    for k in range(18):
        key = patch_key(k, "embedding")
        record = job.store[key]
        job.store[key] = Record({"embedding": record.arrays["embedding"][:, :7]}, record.parameters)
    with pytest.raises(InputError, match=r"patch 0 has 7 dimensions, and the settings of .* say 8"):
        job.stitch()
    assert not (job.store.folder / "alignment.npz").exists()


def test_a_job_of_patches_alone(tmp_path):
    graph, patch_graph = ring_of_patches(6)
    store = DirectoryStore(tmp_path / "job")
    patches = embed_patches(graph, patch_graph, Toy(2), seed=7, store=store)
    with pytest.raises(
        JobError, match=r"has patches but no settings, .* Job\.begin\(store, JobSettings\(embedder=\.\.\.\)\)"
    ):
        Job.open(store)
    settings = JobSettings(embedder=Toy(2), seed=7)
    in_memory = Job(store, settings.resolved(None), None)
    in_memory.stitch()
    expected = np.array(in_memory.embedding)
    assert not (store.folder / "settings.json").exists()
    for job in (Job.begin(store, settings), Job.begin(store, settings), Job.open(store)):
        assert job.graph is None
        assert job_status(job).next == "nothing"
        assert np.array_equal(job.embed()[3].coordinates, patches[3].coordinates)
        assert np.array_equal(job.embedding, expected)
    path = export_embedding(job, tmp_path / "x.csv")
    assert [line.split(",")[0] for line in path.read_text().splitlines()] == ["node_id", *map(str, range(72))]
    with pytest.raises(JobError, match="has no graph, because it was made from patches alone"):
        evaluate_job(job)
    with pytest.raises(JobError, match="has no graph, because it was made from patches alone"):
        job.cut()
    assert Job(store, job.settings, graph).cut().n_patches == 6
    with pytest.raises(InputError, match="coverage is counted in the graph"):
        job.revise(JobSettings(embedder=Toy(2), seed=7, recipe=Recipe(coverage=2.0))).stitch()
    with pytest.raises(InputError, match="no file to read its graph from"):
        Job.begin({}, settings)
