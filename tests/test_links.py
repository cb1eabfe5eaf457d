"""Prediction of links: counts, candidates, the score and its calibration, weights that halve, and the command."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from graphquilt.datasets.loading import block_graph
from graphquilt.graph.reading.recency import Period, read_pairs, read_recent_edges
from graphquilt.prediction import LinkModel, count_common, fit_links, link_components
from graphquilt.prediction.candidates import (
    _EXACT,
    candidate_pairs,
    nearest_rows,
    nodes_two_steps_away,
    pair_keys,
    unit_rows,
)
from graphquilt.prediction.model import are_new


def random_graph(n, density, seed, *, weighted=False):
    rng = np.random.default_rng(seed)
    A = np.triu(rng.random((n, n)) < density, 1) * (rng.random((n, n)) if weighted else 1.0)
    return gq.Graph(sp.csr_array(A + A.T))


def embed_small(graph):
    return gq.Propagation(8)(graph, 0)


@pytest.fixture(scope="module")
def blocks():
    return block_graph(n_nodes=240, n_classes=6)


@pytest.fixture(scope="module")
def result(blocks):
    return gq.embed(blocks, 8, n_patches=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_counts_are_those_of_their_definition(weighted):
    graph = random_graph(40, 0.2, 1, weighted=weighted)
    A = graph.adjacency.toarray()
    pairs = np.argwhere(np.ones((40, 40)) - np.eye(40))
    least = np.minimum(A[pairs[:, 0]], A[pairs[:, 1]])
    s = A.sum(axis=1)
    expected = [least.sum(1), (least / np.log(1 + s)).sum(1), (least / s).sum(1), A[tuple(pairs.T)]]
    assert np.allclose(count_common(graph, pairs), np.column_stack(expected))


def test_counts_are_the_same_out_of_core(tmp_path):
    graph = random_graph(60, 0.1, 2)
    graph.save(tmp_path / "graph")
    pairs = np.random.default_rng(0).integers(0, 60, size=(500, 2))
    assert np.array_equal(count_common(gq.Graph.open(tmp_path / "graph"), pairs), count_common(graph, pairs))


def test_nodes_two_steps_away_are_those_with_the_largest_counts():
    graph = random_graph(80, 0.08, 3)
    partners = nodes_two_steps_away(graph, np.arange(80), 5)
    found = (partners >= 0).sum(axis=1)
    A = graph.adjacency.toarray()
    allocation = A / A.sum(axis=1) @ A
    for u in range(80):
        free = np.flatnonzero((A[u] == 0) & (allocation[u] > 1e-12) & (np.arange(80) != u))
        best = np.sort(allocation[u][free])[::-1][:5]
        assert found[u] == len(best)
        assert np.allclose(np.sort(allocation[u][partners[u, : found[u]]])[::-1], best)


def test_the_forest_finds_most_of_the_nearest_rows(monkeypatch):
    rng = np.random.default_rng(0)
    X = unit_rows(rng.normal(size=(30, 8))[rng.integers(0, 30, 3000)] + 0.3 * rng.normal(size=(3000, 8)))
    nodes = np.sort(rng.choice(3000, 200, replace=False))
    exact = nearest_rows(X, nodes, 10)
    assert len(X) * len(nodes) <= _EXACT
    monkeypatch.setattr("graphquilt.prediction.candidates._EXACT", 0)
    found = nearest_rows(X, nodes, 10, seed=1)
    assert np.mean([len(np.intersect1d(a, b)) for a, b in zip(exact, found, strict=True)]) > 7
    assert not (found == nodes[:, None]).any()
    assert all(len(np.unique(row)) == 10 for row in found)


def test_a_hand_made_score_orders_and_explains():
    rng = np.random.default_rng(0)
    components = rng.normal(size=(4000, 7))
    truth = rng.random(4000) < 1 / (1 + np.exp(-(2 * components[:, 3] - 1)))
    model = LinkModel.fit(components, truth, np.ones(4000, dtype=bool))
    assert np.all(model.coefficients[:5] >= 0)
    assert model.contributions(components).argmax(axis=1)[components[:, 3] > 2].min() == 3
    p = model.probability(model.score(components))
    for low in (0.1, 0.3, 0.5, 0.7):
        inside = (p >= low) & (p < low + 0.2)
        assert abs(truth[inside].mean() - p[inside].mean()) < 0.05


def test_held_out_links_are_ranked_above_others_and_calibrated(blocks):
    rest, held_out = gq.evaluate.hold_out_edges(blocks, seed=3, connected=False)
    X = unit_rows(embed_small(rest))
    model = fit_links(rest, embed_small, seed=4)
    ranking = gq.evaluate.rank_links(
        lambda pairs: model.score(link_components(rest, X, pairs)), held_out, blocks, seed=0
    )
    assert ranking.auc > 0.7
    n = blocks.n_nodes
    keys = np.unique(pair_keys(candidate_pairs(rest, X, np.arange(n)), n))
    components = link_components(rest, X, np.column_stack(np.divmod(keys, n)))
    new = are_new(components)
    p, is_link = model.probability(model.score(components[new])), np.isin(keys[new], pair_keys(held_out, n))
    assert abs(p.mean() - is_link.mean()) < 0.05


def test_probabilities_allow_for_links_that_the_graph_lacks():
    # In a union of cliques every missing pair inside one is a link, also those that were counted as none when learning.
    rng = np.random.default_rng(0)
    A = np.kron(np.eye(40), np.ones((12, 12))) - np.eye(480)
    A[rng.integers(0, 480, 300), rng.integers(0, 480, 300)] = 1
    graph = gq.Graph(sp.csr_array(np.maximum(A, A.T) * (1 - np.eye(480))))
    rest, held_out = gq.evaluate.hold_out_edges(graph, seed=1, connected=False)
    model = fit_links(rest, embed_small)
    inside = held_out[held_out[:, 0] // 12 == held_out[:, 1] // 12]
    p = model.probability(model.score(link_components(rest, unit_rows(embed_small(rest)), inside)))
    assert p.mean() > 0.85


def test_a_model_does_not_depend_on_the_order_of_nodes(blocks):
    # Relabelling nodes relabels the held-out edges too; the coefficients agree up to the draw.
    order = np.random.default_rng(0).permutation(blocks.n_nodes)
    moved = blocks.subgraph(order)
    a, b = (fit_links(graph, embed_small).coefficients for graph in (blocks, moved))
    assert np.allclose(a, b, atol=0.6)


def test_links_of_a_node_of_pairs_and_of_the_graph_agree(result, blocks):
    best = gq.links(result, 7, k=5)
    assert np.array_equal(best.rows[:, 0], [7] * 5)
    assert not best.joined.any()
    assert best.calibrated.all()
    again = gq.links(result, pairs=best.ids)
    assert np.allclose(again.scores, best.scores)
    assert again.calibrated.all()
    top = gq.links(result, top=30)
    assert len(np.unique(pair_keys(top.rows, blocks.n_nodes))) == 30
    assert np.all(np.diff(top.scores) <= 0)
    own = gq.links(result, int(top.rows[0, 0]), k=1)
    assert own.scores[0] == pytest.approx(top.scores[0])
    edge = blocks.adjacency.nonzero()
    joined = gq.links(result, pairs=[[edge[0][0], edge[1][0]]])
    assert joined.joined[0]
    assert not joined.calibrated[0]


def test_a_job_keeps_what_it_has_learnt(tmp_path, blocks, monkeypatch):
    job = gq.embed(blocks, 8, n_patches=1, store=gq.DirectoryStore(tmp_path / "job")).job
    first = gq.links(job, 0)
    monkeypatch.setattr("graphquilt.prediction.predicting.fit_links", None)
    again = gq.links(gq.Job.open(tmp_path / "job"), 0)
    assert np.array_equal(first.probabilities, again.probabilities)
    with pytest.raises(TypeError):
        gq.links(gq.Job.open(tmp_path / "job"), 0, seed=1)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({}, "links takes one of"),
        ({"node": 1, "top": 3}, "links takes one of"),
        ({"top": 0}, "positive integer"),
        ({"node": 1, "k": True}, "positive integer"),
        ({"node": 999}, "the nearest are 237, 238, 239"),
        ({"pairs": [[1, 1]]}, "with itself"),
        ({"pairs": [[1, 999], [2, 998]]}, "2 of 4 ids of the pairs are unknown"),
        ({"pairs": [["a", "b"]]}, "node 'a' does not exist"),
        ({"pairs": [1, 2]}, "two ids each"),
        ({"top": 3, "after": "2024-01-01"}, "--half-life 30d"),
    ],
)
def test_bad_questions_are_refused(result, question, words):
    with pytest.raises(gq.QuiltError, match=words):
        gq.links(result, **question)


def test_embeddings_without_a_graph_have_no_links():
    X = np.random.default_rng(0).normal(size=(40, 3))
    patches = [(np.arange(30), X[:30]), (np.arange(10, 40), X[10:])]
    alignment = gq.align(patches)
    with pytest.raises(gq.QuiltError, match="without a graph"):
        gq.links(gq.align_files(patches), top=3)
    with pytest.raises(gq.QuiltError, match="knows how it was made"):
        gq.links(gq.Result(X, gq.PatchGraph([p[0] for p in patches], [[0, 1]], 40), patches, alignment), top=3)


def events(path, days=28, shape="2024-02-{:02d}"):
    rng = np.random.default_rng(0)
    lines = ["from,to,date"]
    for day in range(1, days + 1):
        for _ in range(50):
            group, (a, b) = rng.integers(5), rng.choice(10, 2, replace=False)
            other = rng.integers(5) if rng.random() < 0.1 else group
            lines.append(f"n{group}{a},n{other}{b},{shape.format(day)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_weights_halve_with_age_and_add_up(tmp_path):
    file = tmp_path / "events.csv"
    file.write_text("source,target,time\n1,2,0\n1,2,4\n2,3,2\n3,1,6\n")
    A = read_recent_edges(file, half_life="2").adjacency.toarray()
    assert np.allclose([A[0, 1], A[1, 2], A[0, 2]], [2.0**-3 + 2.0**-1, 2.0**-2, 1])
    before = read_recent_edges(file, half_life="2", period=Period(before="5"))
    assert np.allclose(before.adjacency.toarray()[0, 1], 1 + 0.25)
    shuffled = tmp_path / "shuffled.csv"
    shuffled.write_text("time;target;source\n6;1;3\n2;3;2\n4;2;1\n0;2;1\n")
    assert np.allclose(read_recent_edges(shuffled, half_life="2").adjacency.toarray(), A)


def test_times_in_parquet_are_those_of_text(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    days = np.array(["2024-01-01", "2024-01-03", "2024-01-05"], dtype="datetime64[s]")
    table = pa.table({"src": ["a", "b", "c"], "dst": ["b", "c", "a"], "when": days})
    parquet.write_table(table, tmp_path / "e.parquet")
    (tmp_path / "e.csv").write_text("src,dst,when\na,b,2024-01-01\nb,c,2024-01-03\nc,a,2024-01-05\n")
    graphs = [read_recent_edges(tmp_path / name, half_life="2d") for name in ("e.parquet", "e.csv")]
    assert np.allclose(graphs[0].adjacency.toarray(), graphs[1].adjacency.toarray())
    assert sorted(graphs[0].weights) == pytest.approx([0.25, 0.25, 0.5, 0.5, 1, 1])


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("a,b,2024-01-01\n", {"half_life": "30"}, "no unit"),
        ("a,b,3\nb,c,9\n", {"half_life": "30d"}, "without a unit, from 3 to 9"),
        ("a,b,soon\n", {"half_life": "30d"}, "is not a time"),
        ("a,b,2024-01-01\n", {"half_life": "0d"}, "must be positive"),
        ("a,b,2024-01-01\n", {"half_life": "a month"}, "not a valid duration"),
        ("a,b,2024-01-01\n", {"half_life": "1d", "columns": (0, 1)}, "takes three"),
        ("from,to,kind,place\na,b,x,y\na,c,x,z\n", {"half_life": "1d"}, "takes three, source, target and time"),
        ("a,b,2024-01-01\n", {"half_life": "1d", "period": Period(since="2025-01-01")}, "no edge in that time"),
        ("a,b,2024-01-01\n", {"half_life": "1d", "period": Period(since="12")}, "is a number"),
        ("a,b,2024-01-01\n", {"half_life": "1d", "period": Period(since="May")}, "is not a date"),
    ],
)
def test_times_that_cannot_be_used_are_refused(tmp_path, text, options, words):
    (tmp_path / "edges.csv").write_text(text)
    with pytest.raises(gq.QuiltError, match=words):
        read_recent_edges(tmp_path / "edges.csv", **options)


def test_pairs_with_odd_columns(tmp_path):
    (tmp_path / "pairs.csv").write_text("score,to,from\n1,7,2\n2,8,3\n")
    source, target = read_pairs(tmp_path / "pairs.csv")
    assert (source.tolist(), target.tolist()) == ([2, 3], [7, 8])
    (tmp_path / "pairs.csv").write_text("x,y,z\na,b,c\nd,e,c\n")
    with pytest.raises(gq.QuiltError, match="ends of an edge"):
        read_pairs(tmp_path / "pairs.csv")
    assert read_pairs(tmp_path / "pairs.csv", ("y", "z"))[0].tolist() == ["b", "e"]


def test_the_command_predicts_links_since_a_date(tmp_path, command):
    job, file = tmp_path / "job", events(tmp_path / "events.csv")
    assert command("embed", file, "--half-life", "7d", "--dim", 8, "--out", job)[0] == 0
    _, out, _ = command("links", job, "--top", 20, "--after", "2024-02-22", "--json")
    found = json.loads(out)["links"]
    assert len(found) == 20
    assert all(0 <= link["probability"] <= 1 and not link["joined"] for link in found)
    assert len(command("links", job, "n03", "-k", 3)[1].splitlines()) == 3
    (tmp_path / "pairs.csv").write_text("from,to\nn00,n01\nn00,n44\n")
    assert len(command("links", job, "--pairs", tmp_path / "pairs.csv")[1].splitlines()) == 2
    code, _, error = command("links", job, "n033")
    assert code == 2
    assert "did you mean 'n33'" in error


def test_edges_have_embeddings_and_classes():
    X = np.random.default_rng(0).normal(size=(20, 4))
    pairs = np.array([[0, 1], [5, 3]])
    for combine in ("hadamard", "mean", "l1", "l2"):
        rows = gq.edge_embeddings(X, pairs, combine)
        assert np.array_equal(rows, gq.edge_embeddings(X, pairs[:, ::-1], combine))
    assert np.array_equal(gq.edge_embeddings(X, pairs, np.maximum), np.maximum(X[pairs[:, 0]], X[pairs[:, 1]]))
    for wrong in ([[0, 20]], [0, 1], [[0.5, 1.0]]):
        with pytest.raises(gq.QuiltError):
            gq.edge_embeddings(X, wrong)
    with pytest.raises(gq.QuiltError, match="combine is one of"):
        gq.edge_embeddings(X, pairs, "cosine")
