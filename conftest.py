"""Let the doctests under src and studies skip where an optional package is missing, with the name of the extra."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from extras import DOCTESTS, EXTRAS, needs

SOURCES = {Path(__file__).parent / "src", Path(__file__).parent / "studies"}


def pytest_collectstart(collector):
    """Skip the doctests of a private module that imports an optional package at its top."""
    if isinstance(collector, pytest.Module) and SOURCES & set(collector.path.parents):
        missing = [
            package for package in _packages_at_the_top(collector.path) & EXTRAS.keys() if not find_spec(package)
        ]
        if missing:
            collector.collect = lambda: needs(missing[0])


def pytest_runtest_setup(item):
    """Skip the doctest of a public name that needs an optional package."""
    if isinstance(item, pytest.DoctestItem):
        package = DOCTESTS.get(item.name.rpartition(".")[2])
        if package is not None:
            needs(package)


def _packages_at_the_top(path):
    """Return the packages that a file imports as soon as it is itself imported."""
    statements = ast.parse(path.read_text(encoding="utf-8")).body
    statements += [inner for node in statements if isinstance(node, ast.With) for inner in node.body]
    names = [alias.name for node in statements if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in statements if isinstance(node, ast.ImportFrom) and node.module]
    return {name.partition(".")[0] for name in names}
