"""Fixtures that several test files use."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

import graphquilt as gq
from graphquilt.cli import app, main

collect_ignore = ["kills"]  # modules for processes that tests kill; a system may have another sitecustomize

# The same examples on every run and every machine.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def dataset_folder() -> Callable[[str], Path]:
    """Return the function that gives the folder of a data set; it skips the test where there is none."""

    def folder(name: str) -> Path:
        root = os.environ.get("GRAPHQUILT_DATA")
        if not root:
            pytest.skip(f"this test reads {name}: set GRAPHQUILT_DATA to the folder of data sets to run it")
        path = Path(root, name)
        if not path.is_dir():
            pytest.skip(f"this test reads {path}, which does not exist")
        return path

    return folder


@pytest.fixture(scope="session")
def blocks():
    """The generated data set: dense groups of nodes, with their labels."""
    return gq.datasets.load_dataset("blocks")


@pytest.fixture(scope="session")
def blocks_quilt(blocks):
    """Four overlapping patches of ``blocks``."""
    return gq.patch_graph(blocks, gq.Metis(4)(blocks), degree=2, overlap=(40, 120), seed=0)


@pytest.fixture
def command(capsys, monkeypatch) -> Callable[..., tuple[int, str, str]]:
    """Return the function that runs a command here; it returns the exit code, standard output and standard error."""

    def call(*words: object) -> tuple[int, str, str]:
        return _call(app, words, capsys, monkeypatch)

    return call


@pytest.fixture
def study(capsys, monkeypatch) -> Callable[..., tuple[int, str, str]]:
    """Return the function that runs ``python -m studies`` here; it returns what ``command`` returns."""
    from studies.commands import app as studies_app

    def call(*words: object) -> tuple[int, str, str]:
        return _call(studies_app, words, capsys, monkeypatch)

    return call


def _call(commands, words, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [commands.name[0], *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main(commands)
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err
