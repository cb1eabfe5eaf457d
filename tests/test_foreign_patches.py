"""Patches that another program embeds, as docs/job-format.md says."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graphquilt.records import keep_graph, keep_patch_graph, kept_embedding
from graphquilt.stages import align_job, cut_patches

from graphquilt.errors import InputError
from graphquilt.jobs import DirectoryStore, job_status
from graphquilt.patches import PatchGraph
from graphquilt.pipeline import Record
from graphquilt.pipeline.records import patch_key
from toy_embedders import ring_of_patches

PAGE = Path(__file__).parents[1] / "docs" / "job-format.md"
PROGRAM = """
import os
import numpy as np

def my_method(arrays):
    return np.random.default_rng(0).normal(size=(216, 8))[arrays["nodes"]]

settings, patch = (open(name).read() for name in ("settings.py", "patch.py"))
os.chdir("job")
exec(settings)
for k in range(18):
    os.chdir(f"patches/{k:05d}")
    exec(patch.replace("(17,)", f"({k},)"))
    os.chdir("../..")
"""


@pytest.fixture
def job(tmp_path):
    graph, _ = ring_of_patches(18)
    quilt = PatchGraph.from_patches([(12 * k + np.arange(24)) % 216 for k in range(18)], min_overlap=9)
    store = DirectoryStore(tmp_path / "job")
    keep_graph(store, graph, {})
    keep_patch_graph(store, quilt, graph, {"dim": 8})
    cut_patches(store, graph, quilt)
    settings, patch = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (tmp_path / "settings.py").write_text(settings)
    (tmp_path / "patch.py").write_text(patch)
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, check=True)
    return store


def test_the_page_says_how_to_bring_patches_of_ones_own(job):
    assert (job_status(job)["embedded"], job_status(job)["next"]) == ([18], "graphquilt align")
    assert align_job(job).edge_errors.max() < 1e-6
    assert kept_embedding(job).shape == (216, 8)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("embedding", np.ones((3, 8)), "patch 5: .* 3 rows"),
        ("embedding", np.ones((24, 7)), "patch 5 has 7 dimensions and patch 0 has 8"),
        ("embedding", np.ones(24), "patch 5: "),
        ("embedding", np.full((24, 8), np.nan), "patch 5: 24 of 24 rows of coordinates are not finite"),
        ("X", np.ones((24, 8)), "patch 5 has no array 'embedding', but X"),
    ],
)
def test_a_wrong_patch_is_named(job, name, wrong, message):
    key = patch_key(5, "embedding")
    job[key] = Record({name: wrong}, job[key].parameters)
    with pytest.raises(InputError, match=message):
        align_job(job)
