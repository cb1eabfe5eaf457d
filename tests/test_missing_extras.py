"""Where an optional package is missing, the error names the extra and the command that installs it: all places."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import graphquilt
from extras import EXTRAS

SOURCE = Path(graphquilt.__file__).parent
# What only these packages' users have, and what graphquilt needs of them: install commands without an extra.
PLAIN = {"pandas": "pip install pandas", "IPython": "pip install ipython"}
OPTIONAL = {name for name, extra in EXTRAS.items() if extra != "dev"} | set(PLAIN)

# Each opens one place with all optional packages hidden; the extra that its error must name.
PLACES = {
    "gq.VGAE(4)(graph, 0)": "torch",
    "gq.GAE(4)(graph, 0)": "torch",
    "gq.DGI(4)(graph, 0)": "torch",
    "gq.embedders.Encoder.load('encoder.safetensors')": "torch",
    "gq.Louvain()(graph)": "partition",
    "gq.Leiden()(graph)": "partition",
    "gq.GraphQuilt().__sklearn_tags__()": "eval",
    "gq.report.write_map(result.as_job(), 'map.png')": "viz",
    "gq.report.write_map(result.as_job(), 'map.html', options=gq.report.MapOptions(umap=True))": "viz",
    "__import__('graphquilt.cli.demo').cli.demo.digits_graph()": "eval",
    "__import__('graphquilt.cli').cli.Workers(dask='tcp://127.0.0.1:1').executor(4).__enter__()": "dask",
    "__import__('graphquilt.federated.flower')": "flower",
    "gq.federated.round._crypto()": "federated",
    "gq.federated.align.exchange._psi()": "federated",
    "result.to_frame()": "pip install pandas",
    "gq.progress.NotebookBars()(gq.progress.Progress('stage', 1))": "pip install ipython",
}
# Imports that are reached only behind one of the places above.
BEHIND = {
    "embedders/gcn.py": {"torch"},
    "embedders/network.py": {"torch"},
    "embedders/training.py": {"torch"},
    "embedders/vgae.py": {"torch"},
    "federated/flower.py": {"flwr"},
    "federated/round.py": {"cryptography"},
    "report/maps.py": {"matplotlib"},
}
SCRIPT = f"""
import json, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(OPTIONAL)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
import graphquilt as gq
import graphquilt.federated, graphquilt.federated.align.exchange, graphquilt.temporal.page, graphquilt.progress
graph = gq.datasets.load_dataset("blocks")
result = gq.embed(graph, 4, n_patches=2)
messages = {{}}
for place in json.load(sys.stdin):
    try:
        eval(place)
        messages[place] = "no error"
    except Exception as error:
        messages[place] = f"{{type(error).__name__}}: {{error}}"
print(json.dumps(messages))
"""


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(list(PLACES)),
        capture_output=True,
        text=True,
        cwd=tmp_path_factory.mktemp("empty"),
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("place", PLACES)
def test_the_error_says_what_to_install(place, messages):
    what = PLACES[place]
    command = what if what.startswith("pip ") else f"pip install 'graphquilt[{what}]'"
    assert command in messages[place]


def test_every_import_of_an_optional_package_is_in_a_place_that_says_so():
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            packages = {name.partition(".")[0] for name in names} & OPTIONAL
            if packages - BEHIND.get(path.relative_to(SOURCE).as_posix(), set()):
                assert _is_guarded(node, above), f"{path}:{node.lineno} imports {packages}"


def _is_guarded(node, above):
    while node in above:
        node = above[node]
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return True
        if isinstance(node, ast.With) and "needs_extra" in ast.unparse(node.items[0].context_expr):
            return True
        if isinstance(node, ast.Try) and any(h.type and "ImportError" in ast.unparse(h.type) for h in node.handlers):
            return True
    return False
