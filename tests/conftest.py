"""What several test files need."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data sets, or a skip that says how to name one."""
    folder = os.environ.get("GRAPHQUILT_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set GRAPHQUILT_DATA to the folder of data sets to run this test")
    return Path(folder)
