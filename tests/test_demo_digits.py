"""The digits: a real graph inside a dependency, from neighbours to an evaluation."""

import json

import pytest

from extras import needs
from graphquilt.cli.demo import digits_demo, digits_graph

needs("sklearn")


def test_the_digits_are_a_connected_graph_with_labels():
    graph = digits_graph()
    assert graph.n_nodes == 1797
    assert graph.features.shape == (1797, 64)
    assert set(graph.labels.tolist()) == set(range(10))
    assert graph.components().max() == 0


@pytest.mark.slow
def test_stitched_digits_are_near_full_training_and_above_no_trans(tmp_path):
    needs("torch")
    figures = digits_demo(tmp_path, seed=0)
    assert figures["stitched"]["accuracy"] > figures["no-trans"]["accuracy"] + 0.02
    assert figures["stitched"]["accuracy"] > figures["full"]["accuracy"] - 0.03
    assert figures["stitched"]["auc"] > figures["no-trans"]["auc"]
    assert json.loads((tmp_path / "digits.json").read_text())["data"].startswith("1797 digits")
    assert (tmp_path / "digits.png").stat().st_size > 20_000
