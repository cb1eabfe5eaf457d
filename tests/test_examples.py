"""Every script in examples runs as it is, on small data, and ends in a figure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from extras import needs

FOLDER = Path(__file__).parents[1] / "examples"
DATA = os.environ.get("GRAPHQUILT_DATA")
# The arguments of each script, with which it runs on less data where that takes long, and the packages it needs.
SCRIPTS = {
    "cora_from_raw_files.py": ([DATA], []),
    "labelled_connections.py": ([], []),
    "larger_than_memory.py": (["--nodes", "20000"], []),
    "new_nodes.py": ([], []),
    "patches_of_edges.py": ([], []),
    "pyg_encoder.py": (["--epochs", "60"], ["torch_geometric", "sklearn"]),
    "three_departments.py": ([], []),
    "walks_of_another_library.py": ([], ["gensim", "sklearn"]),
    "week_of_zeek_logs.py": ([], []),
    "word_vectors.py": ([], []),
}


def test_every_script_is_tested():
    assert set(SCRIPTS) == {path.name for path in FOLDER.glob("*.py")}


LONG = ("cora_from_raw_files.py", "walks_of_another_library.py", "larger_than_memory.py")  # over ten seconds each


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in SCRIPTS]
)
def test_an_example_is_short_and_ends_in_a_figure(name, tmp_path):
    arguments, packages = SCRIPTS[name]
    for package in ["matplotlib", *packages]:
        needs(package)
    if None in arguments:
        pytest.skip("GRAPHQUILT_DATA names no folder with data sets")
    assert len((FOLDER / name).read_text(encoding="utf-8").splitlines()) <= 60
    command = [sys.executable, FOLDER / name, *arguments, "--out", "figure.png"]
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "figure.png").stat().st_size > 5000
