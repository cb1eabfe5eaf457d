"""The pages of the documentation: every block of Python and every graphquilt command on them runs as it is printed."""

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import graphquilt as gq
from graphquilt.cli import main

ROOT = Path(__file__).parents[1]
GUIDES = [path for folder in ("how-to", "how-it-works") for path in (ROOT / "docs" / folder).glob("*.md")]
PAGES = ["docs/start.md", *sorted(path.relative_to(ROOT).as_posix() for path in GUIDES)]
# A block after a line "<!-- not run: the reason -->" is left alone.
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\s*)?^( *)```(\w*)\n(.*?)^\2```$", re.M | re.S)


def blocks(page):
    """Yield the language and the text of every block that is to run."""
    for skipped, indent, language, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if not skipped:
            yield language, re.sub(f"^{indent}", "", text, flags=re.M)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with the files that the pages speak of."""
    graph = gq.datasets.load_dataset("blocks").subgraph(np.arange(0, 1200, 2))
    graph, _ = graph.largest_component()
    pairs = np.argwhere(np.triu(graph.adjacency.toarray()))
    lines = [f"node{a:04d},node{b:04d}" for a, b in pairs]
    (tmp_path / "edges.csv").write_text("\n".join(lines), encoding="utf-8")
    np.save(tmp_path / "edges.npy", pairs)
    np.save(tmp_path / "x.npy", graph.features.toarray())
    np.save(tmp_path / "labels.npy", graph.labels)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_command(line, monkeypatch):
    """Run one command line in this process."""
    words = shlex.split(line, comments=True)
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ending:
        main()
    assert ending.value.code == 0, line


@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs(page, desk, monkeypatch):
    module = ModuleType("page")  # a module, so that what it defines can be pickled
    monkeypatch.setitem(sys.modules, "page", module)
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec"), module.__dict__)
        elif not language:
            for line in text.splitlines():
                if line.startswith("graphquilt "):
                    run_command(line, monkeypatch)
