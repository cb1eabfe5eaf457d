"""What several test files need."""

import os
from pathlib import Path

import pytest

import graphquilt as gq


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data sets, or a skip that says how to name one."""
    folder = os.environ.get("GRAPHQUILT_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set GRAPHQUILT_DATA to the folder of data sets to run this test")
    return Path(folder)


@pytest.fixture(scope="session")
def blocks():
    """The embedded data set: dense groups of nodes, with their labels."""
    return gq.datasets.load_dataset("blocks")


@pytest.fixture(scope="session")
def blocks_quilt(blocks):
    """Four overlapping patches of it."""
    return gq.patch_graph(blocks, gq.Metis(4)(blocks), degree=2, overlap=(40, 120), seed=0)
