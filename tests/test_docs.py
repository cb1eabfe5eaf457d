"""The pages of the documentation: every block of Python and every graphquilt command on them runs as it is printed."""

import gzip
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import graphquilt as gq
from extras import needs
from graphquilt.cli import main

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "docs/how-to", "docs/how-it-works")
PAGES = sorted(path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))
# Other tests run these pages, with the files that they speak of: test_foreign_patches.py, test_anomaly.py and
# test_federated_sums_processes.py.
ELSEWHERE = {f"docs/{page}.md" for page in ("job-format", "anomaly", "federated")}
PAGES = [page for page in PAGES if page not in ELSEWHERE]
# What a page takes as given: names that its blocks use, and the packages that they need.
GIVEN = {
    "docs/embedders.md": """
import numpy as np, torch_geometric
from sklearn.decomposition import TruncatedSVD
import graphquilt as gq
graph = gq.Graph.open("blocks")
patch_graph = gq.cut(graph, 3)
grown_patch = graph.subgraph(np.arange(300))
def my_function(graph, seed): return graph.features[:, :8].toarray()
MyEmbedder = gq.SVD
""",
    "docs/patches.md": """
import numpy as np
import graphquilt as gq
X, y = np.load("x.npy"), np.load("labels.npy")
from pathlib import Path
from graphquilt.jobs.export import write_embedding
Z, names = gq.embed("blocks", dim=4).embedding, np.array([f"n{k}" for k in range(1200)])
write_embedding(Path("a.vec"), names[:600], Z[:600], format="word2vec", dtype="float32")
write_embedding(Path("b.parquet"), names[400:1000], Z[400:1000], format="parquet", dtype="float32")
np.savez("c.npz", ids=names[800:], vectors=Z[800:])
""",
    "docs/evaluation.md": """
import graphquilt as gq
gq.embed("blocks", dim=8, n_patches=3, store=gq.DirectoryStore("job"))
""",
    "docs/how-to/update.md": """
from pathlib import Path
import numpy as np
import graphquilt as gq
blocks = gq.Graph.open("blocks")
graph = gq.Graph(blocks.adjacency, np.eye(6)[blocks.labels])
gq.embed(graph.subgraph(np.arange(1190)), dim=4, n_patches=2, store=gq.DirectoryStore("job"))
A = graph.adjacency.tocoo()
rows = [f"{u},{v}\\n" for u, v in zip(A.row.tolist(), A.col.tolist()) if u < v]
Path("edges-of-today.csv").write_text("source,target\\n" + "".join(rows))
Path("edges-of-tuesday.csv").write_text("source,target\\n" + "".join(rows[5:]))
Path("new.csv").write_text("source,target\\n1200,0\\n1200,1\\n")
Path("old.csv").write_text("source,target\\n" + rows[0])
Path("new-nodes.csv").write_text("id,a,b,c,d,e,f\\n1200,1,0,0,0,0,0\\n")
""",
    "docs/how-to/new-nodes.md": """
import numpy as np
import graphquilt as gq
graph = gq.Graph.open("blocks")
gq.embed(graph.subgraph(np.arange(1190)), dim=4, n_patches=2, store=gq.DirectoryStore("job"))
A = graph.adjacency.tocoo()
np.savetxt("edges-of-today.csv", np.column_stack([A.row, A.col]), fmt="%d", delimiter=",")
""",
    "docs/how-to/links.md": """
from pathlib import Path
import graphquilt as gq
gq.embed("blocks", dim=8, n_patches=3, store=gq.DirectoryStore("job"))
Path("pairs.csv").write_text("from,to\\n7,8\\n7,9\\n")
rows = [(a, (a * d + 1) % 40, d) for a in range(40) for d in range(1, 29)]
Path("events.csv").write_text("from,to,date\\n" + "".join(f"n{a},n{b},2024-02-{d:02d}\\n" for a, b, d in rows))
""",
    "docs/report.md": """
from pathlib import Path
import graphquilt as gq
gq.embed("blocks", dim=8, n_patches=3, store=gq.DirectoryStore("job"))
Path("labels.csv").write_text("id,team\\n" + "".join(f"{k},team {k % 4}\\n" for k in range(1200)))
""",
    "docs/how-to/federated-alignment.md": """
import numpy as np
import graphquilt as gq
rng = np.random.default_rng(0)
Z = rng.normal(size=(90, 6))
embeddings = {f"bank-{k}": (np.arange(60) + 10 * n, Z[10 * n : 10 * n + 60]) for n, k in enumerate("abc")}
""",
    "docs/how-to/other-tools.md": """
import graphquilt as gq
gq.embed("blocks", dim=8, n_patches=3, store="job")
""",
    "docs/recipes.md": """
import numpy as np
import graphquilt as gq
graph = gq.Graph.open("blocks")
np.save("whole.npy", gq.SVD(32)(graph, seed=0))
""",
}
PACKAGES = {
    "docs/embedders.md": ["torch_geometric", "safetensors", "sklearn"],
    "docs/evaluation.md": ["torch"],
    "docs/how-to/federated-alignment.md": ["private_set_intersection"],
    "docs/recipes.md": ["torch"],
    "docs/report.md": ["matplotlib"],
}
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
    graph = gq.datasets.load_dataset("blocks")
    pairs = np.argwhere(np.triu(graph.adjacency.toarray()))
    lines = [f"node{a:04d},node{b:04d}" for a, b in pairs]
    graph.save(tmp_path / "blocks")
    (tmp_path / "edges.csv").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "edges.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
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


LONG = ("docs/recipes.md", "docs/evaluation.md")  # half a minute and ten seconds; make test-slow


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # PyG uses it when it is imported
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow) if page in LONG else page for page in PAGES]
)
def test_every_block_runs(page, desk, monkeypatch):
    for package in PACKAGES.get(page, []):
        needs(package)
    module = ModuleType("page")  # a module, so that what it defines can be pickled
    monkeypatch.setitem(sys.modules, "page", module)
    exec(GIVEN.get(page, ""), module.__dict__)
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec"), module.__dict__)
        elif not language:
            for line in text.splitlines():
                if line.startswith("graphquilt "):
                    run_command(line, monkeypatch)
