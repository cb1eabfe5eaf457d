"""The digits: a real graph inside a dependency, from neighbours to an evaluation."""

import pytest

from extras import needs
from graphquilt.cli import Workers
from graphquilt.cli.demo import digits_graph, graph_demo

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
    routes = graph_demo("digits", tmp_path, Workers(workers=1))["routes"]
    assert routes["l2g"]["accuracy"] > routes["no-trans"]["accuracy"] + 0.02
    assert routes["l2g"]["accuracy"] > routes["full"]["accuracy"] - 0.03
    assert routes["l2g"]["auc"] > routes["no-trans"]["auc"]
    assert (tmp_path / "digits.svg").stat().st_size > 20_000
