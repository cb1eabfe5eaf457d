"""The recipes of docs/how-to/other-tools.md: a job in other people's stores gives the neighbours of graphquilt."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

import graphquilt as gq
from extras import needs

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "other-tools.md"


def recipe(heading):
    """The Python of one section of the page."""
    section = PAGE.read_text(encoding="utf-8").partition(f"### {heading}\n")[2].partition("\n### ")[0]
    return re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a job of named nodes, and what the page has read of it."""
    folder = tmp_path_factory.mktemp("desk")
    blocks = gq.datasets.load_dataset("blocks")
    names = np.array([f"node {k}" for k in range(blocks.n_nodes)])
    names[7] = "alice"
    gq.embed(blocks.with_attributes(node_ids=names), 16, n_patches=3, store=folder / "job")
    before = Path.cwd()
    os.chdir(folder)
    try:
        first = re.search(r"```python\n(import numpy.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
        known = {}
        exec(first, known)
        yield known
    finally:
        os.chdir(before)


def check(desk, nearest):
    """Compare ids and scores with those of graphquilt."""
    known = gq.neighbours(desk["job"], "alice", k=5)
    assert [name for name, _ in nearest] == known.ids.tolist()
    assert np.allclose([score for _, score in nearest], known.scores, atol=1e-4)


def test_duckdb(desk):
    needs("duckdb")
    exec(recipe("DuckDB"), desk)
    check(desk, desk["nearest"])


def test_lancedb(desk):
    needs("lancedb")
    needs("duckdb")
    if "vectors" not in desk:
        exec(recipe("DuckDB"), desk)
    exec(recipe("LanceDB"), desk)
    assert desk["nearest"][0]["id"] == "alice"
    check(desk, [(row["id"], 1 - row["_distance"]) for row in desk["nearest"][1:]])


def test_qdrant(desk):
    needs("qdrant_client")
    exec(recipe("Qdrant"), desk)
    desk["client"].close()
    check(desk, [(point.payload["id"], point.score) for point in desk["nearest"]])


def test_pgvector(desk):
    needs("psycopg")
    address = os.environ.get("GRAPHQUILT_POSTGRES")
    if address is None:
        pytest.skip("needs a PostgreSQL with pgvector: GRAPHQUILT_POSTGRES='host=… user=… dbname=…'")
    code = (
        recipe("PostgreSQL with pgvector")
        .replace("dbname=graphs", address)
        .replace("CREATE TABLE", "CREATE TEMP TABLE")
    )
    exec(code, desk)
    check(desk, desk["nearest"])
