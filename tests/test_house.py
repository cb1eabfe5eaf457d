"""The house rules that a machine can check: import direction, public names, who prints."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import graphquilt

SOURCE = Path(graphquilt.__file__).parent

# Imports only go down; modules on one floor do not import each other.
FLOORS = {
    "errors": 0,
    "progress": 0,
    "arrays": 0,
    "kernels": 0,
    "files": 0,
    "graph": 1,
    "linalg": 1,
    "workers": 1,
    "partition": 2,
    "ingest": 2,
    "store": 2,
    "patches": 3,
    "locking": 3,
    "alignment": 4,
    "embedders": 4,
    "records": 5,
    "consensus": 5,
    "recipes": 5,
    "fanout": 6,
    "temporal": 7,
    "evaluate": 7,
    "datasets": 7,
    "pipeline": 8,
    "stages": 9,
    "report": 10,
    "planning": 10,
    "export": 10,
    "studies": 11,
    "cli": 12,
}
GROUND = {"errors", "arrays", "progress"}  # imported by every package, also by those on layer 0
SIDE_RAIL = {"conformance", "synthetic"}  # imported only by cli, studies and tests
HEAVY = {
    "torch": {"embedders", "evaluate", "ingest"},
    "torch_geometric": {"embedders", "ingest"},
    "matplotlib": {"report", "studies"},
    "umap": {"report", "studies"},
}


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room != "__init__":
            yield room, path, ast.parse(path.read_text())


def imported(tree):
    """Every module imported at any depth, with whether that happens at the top of the file."""
    top = set(ast.iter_child_nodes(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node in top


def test_every_module_has_a_floor():
    assert {room for room, _, _ in modules()} <= set(FLOORS) | SIDE_RAIL


def test_the_architecture_page_draws_these_floors():
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    drawn = {
        room: int(floor)
        for floor, rooms in re.findall(r"^\| (\d+) \| (.*?) \|", page, re.M)
        for room in re.findall(r"`(\w+)`", rooms)
    }
    assert drawn == FLOORS


def test_imports_only_go_down():
    for room, path, tree in modules():
        for name, _ in imported(tree):
            parts = name.split(".")
            if parts[0] != "graphquilt" or len(parts) == 1 or parts[1] == room:
                continue
            if parts[1] in GROUND:
                assert room not in GROUND or parts[1] == "errors", f"{path} imports {name}"
            elif parts[1] in SIDE_RAIL:
                assert room in SIDE_RAIL | {"cli", "studies"}, f"{path} imports {name}"
            elif room not in SIDE_RAIL:
                assert FLOORS[parts[1]] < FLOORS[room], f"{path} imports {name}, which is not below it"


def test_heavy_packages_stay_in_their_rooms():
    for room, path, tree in modules():
        for name, _ in imported(tree):
            rooms = HEAVY.get(name.split(".")[0])
            assert rooms is None or room in rooms, f"{path} imports {name}"


def test_only_the_command_line_prints():
    for room, path, tree in modules():
        if room != "cli":
            calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
            assert not [n.lineno for n in calls if n.func.id == "print"], path


def test_public_names_exist():
    for name in graphquilt.__all__:
        assert getattr(graphquilt, name).__name__.rpartition(".")[2] == name


def test_public_modules_are_there_without_an_import():
    command = "import graphquilt as gq; gq.synthetic.quilt, gq.conformance.check_store, gq.datasets"
    subprocess.run([sys.executable, "-c", command], check=True)


def test_no_module_has_the_name_of_a_public_name():
    functions = {name for name in graphquilt.__all__ if callable(getattr(graphquilt, name))}
    assert not {room for room, _, _ in modules()} & functions


def test_the_tests_that_the_differences_name_exist():
    folder = Path(__file__).parent
    page = folder.parent / "docs" / "differences-from-the-paper.md"
    name = ""
    for file, test in re.findall(r"`(test_\w+\.py|…)(?:::(\w+))?`", page.read_text()):
        name = name if file == "…" else file
        assert (folder / name).exists(), name
        assert not test or f"def {test}(" in (folder / name).read_text(), f"{name}::{test}"
