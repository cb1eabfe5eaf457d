"""What a notebook shows for a value on the last line of a cell, and bars while it waits."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import graphquilt as gq
from graphquilt import drawing
from graphquilt.evaluate import EvaluationOptions
from graphquilt.progress import NotebookBars, Progress

PARTS = {
    "result": (lambda result: result, {"circle": 1000}),
    "patch graph": (lambda result: result.patch_graph, {"circle": 4}),
    "alignment": (lambda result: result.alignment, {"circle": 4}),
    "comparison": (
        lambda result: gq.compare(result, full=False, options=EvaluationOptions(splits=2)),
        {"circle": 2000},
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_value_has_a_picture(part, blocks):
    take, counts = PARTS[part]
    result = gq.embed(blocks, 4, n_patches=4)
    shown = take(result)._repr_html_()
    tree = ET.fromstring(shown.replace("<br>", "<br/>"))
    for tag, count in counts.items():
        assert len(tree.findall(f".//{{http://www.w3.org/2000/svg}}{tag}")) == count
    if part in ("patch graph", "alignment"):
        lines = tree.findall(".//{http://www.w3.org/2000/svg}line")
        assert len(lines) == len(result.patch_graph.edges)
    assert "nan" not in shown


def test_a_name_in_a_verdict_is_text():
    assert "&lt;b&gt;" in drawing.points_svg({"<b>": np.zeros((3, 2))})


def test_a_bad_overlap_is_red():
    sizes, edges, errors = np.ones(3), np.array([[0, 1], [1, 2]]), np.array([0.0, np.nan])
    picture = drawing.network_svg(sizes, edges, np.ones(2), errors)
    assert "rgb(150,150,150)" in picture
    assert "rgb(225,50,50)" in picture


def test_bars_count_the_stages(blocks, monkeypatch):
    display = pytest.importorskip("IPython.display", reason="needs IPython")
    shown = []

    class Handle:
        def update(self, content):
            shown.append(content.data)

    monkeypatch.setattr(display, "display", lambda content, display_id: shown.append(content.data) or Handle())
    bars = NotebookBars()
    gq.embed(blocks, 4, n_patches=4, progress=bars)
    assert any("patches: 4 of 4" in cell for cell in shown)
    bars(Progress("counting", 7))
    assert "<progress ></progress> counting: 7" in bars.html()
