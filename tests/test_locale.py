"""Names that are not ASCII, in a locale that knows only ASCII (LC_ALL=C, with Python's UTF-8 mode off)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

GRAPHQUILT = "from graphquilt.cli import main; import sys; sys.argv[0] = 'graphquilt'; main()"


def graphquilt(folder, *words, **variables):
    """Run a command in the C locale; return its exit code, standard output and standard error as UTF-8."""
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"} | variables
    command = [sys.executable, "-c", GRAPHQUILT, *words]
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def folder(tmp_path):
    ring = [f"knöten-{k},knöten-{(k + step) % 40}" for k in range(40) for step in (1, 7)]
    for name in ("edges.csv", "größe.csv"):
        (tmp_path / name).write_text("from,to\n" + "\n".join(ring), encoding="utf-8")
    return tmp_path


def test_names_of_nodes_go_from_edges_to_the_export(folder):
    flags = ["--dim", "2", "--patches", "2", "--overlap", "5:12", "--workers", "1", "--out", "job"]
    assert graphquilt(folder, "embed", "edges.csv", *flags)[0] == 0
    code, _, error = graphquilt(folder, "export", "job", "x.txt")
    assert (code, error) == (0, "")
    assert (folder / "x.txt").read_text(encoding="utf-8").splitlines()[1].startswith("knöten-0 ")


def test_names_of_files_are_refused_with_the_remedy(folder):
    code, _, error = graphquilt(folder, "ingest", "größe.csv", "g")
    assert code == 2
    assert error.startswith("graphquilt: the name 'größe.csv' cannot be read: in this locale")
    assert "Set PYTHONUTF8=1" in error
    assert graphquilt(folder, "ingest", "größe.csv", "grün", PYTHONUTF8="1")[0] == 0  # the remedy
    assert Path(folder, "grün", "graph.json").is_file()
    inner = folder / "größe"
    inner.mkdir()
    code, _, error = graphquilt(inner, "inspect", "job")
    assert (code, "größe' cannot be read" in error) == (2, True)


def test_a_name_that_is_not_utf8_is_refused_in_every_locale(folder):
    code, _, error = graphquilt(folder, "ingest", b"k\xf6ln.csv", "g", PYTHONUTF8="1")
    assert code == 2
    assert error == "graphquilt: the name 'k\ufffdln.csv' is not valid UTF-8. Rename the file or folder.\n"
