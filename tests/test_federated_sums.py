"""A common signal and sums: the laws that a round obeys, with values alone."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from extras import needs
from graphquilt import federated
from graphquilt.embedders import agree
from sums import agreed_round, complete, contributions, networks

needs("cryptography")
NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def blocks():
    return gq.datasets.load_dataset("blocks")


def embedding(graph, parts, agreed, members, **given):
    answer = complete(parts, agreed, members, **given)
    X = np.zeros((graph.n_nodes, agreed.invitation.dim), dtype=np.float32)
    done = {}
    for name, network in parts.items():
        done[name] = federated.embed(network, agreed, members[name], answer, **given)
        X[np.asarray(network.graph.node_ids)[done[name].rows]] = done[name].embedding
    return X, done, answer


@pytest.mark.parametrize("signal", [{"features": 64}, {"buckets": 100}, {"features": 64, "buckets": 50, "edges": 0.3}])
def test_masked_sums_are_plain_sums_bit_for_bit(blocks, signal):
    signal = {**signal, **({"features": blocks.features.shape[1]} if "features" in signal else {})}
    parts = networks(blocks, NAMES)
    agreed, members = agreed_round(parts, dim=5, **signal)
    masked = sum((made.values for made in contributions(parts, agreed, members)), np.uint64(0))
    plain = [federated.plain_sum(parts[name], agreed, members[name]) for name in NAMES]
    assert {kind for kind, _ in plain} == {"moment"}
    assert np.array_equal(masked, sum((values for _, values in plain), np.uint64(0)))
    width = agreed.signal.features + agreed.signal.buckets
    assert len(masked) == width * (width + 1) // 2 + 1  # one message, half of the matrix


def test_a_round_of_features_gives_what_one_graph_gives(blocks):
    """If every party knows everything, sums over own nodes are the sum over all nodes."""
    width, labels = blocks.features.shape[1], gq.Metis(3)(blocks)
    parts = {
        name: federated.Network(
            blocks.with_attributes(node_ids=np.arange(blocks.n_nodes)).undirected(), labels == k, np.arange(3)
        )
        for k, name in enumerate(NAMES)
    }
    agreed, members = agreed_round(parts, dim=4, features=width)
    X, done, answer = embedding(blocks, parts, agreed, members)
    embedder = agreed.signal.embedder(4)
    whole = agree(embedder, [(blocks.undirected(), None)], 0)
    Y = np.asarray(whole.fit(blocks, 0).embedding)
    assert np.abs(X - Y).max() < 1e-3
    assert answer.share == pytest.approx(float(whole.start["share"]), abs=1e-6)
    assert {round(one.total, 6) for one in done.values()} == {round(answer.share, 6)}


@pytest.mark.parametrize("signal", ["features", "edges"])
def test_together_parties_see_what_one_graph_sees(blocks, signal):
    width = blocks.features.shape[1]
    graph = blocks if signal == "features" else gq.Graph(blocks.adjacency, labels=blocks.labels)
    parts = networks(graph, NAMES)
    agreed, members = agreed_round(parts, dim=6, **({"features": width} if signal == "features" else {"buckets": 400}))
    X, done, answer = embedding(graph, parts, agreed, members)
    accuracy = gq.evaluate.classification_accuracy(X, blocks.labels, splits=5, seed=0).mean()
    full = gq.evaluate.classification_accuracy(gq.Propagation(6)(graph, 0), blocks.labels, splits=5, seed=0).mean()
    assert accuracy > full - 0.05
    for one in done.values():
        assert 0 < one.share <= one.best + 1e-3
        assert one.total == answer.share
        assert one.verdict.startswith(f"The directions keep {one.share:.0%} of your signal")


def test_nothing_depends_on_the_order_of_parties_or_of_nodes(blocks):
    parts = networks(blocks, NAMES)
    agreed, members = agreed_round(parts, dim=4, buckets=100)
    made = contributions(parts, agreed, members)
    first = federated.combine(agreed, made)
    assert federated.combine(agreed, made[::-1]).id == first.id
    assert federated.Round.of(agreed.invitation, agreed.cards[::-1]).id == agreed.id
    order = np.random.default_rng(0).permutation(parts["a"].graph.n_nodes)
    shuffled = parts["a"].graph.subgraph(order)
    again = federated.Network.of(shuffled, np.flatnonzero(parts["a"].own[order]))
    one, two = (federated.plain_sum(network, agreed, members["a"])[1].view(np.int64) for network in (parts["a"], again))
    assert np.abs(one - two).max() < 2.0**36 * 1e-3


def test_a_network_has_the_edges_that_touch_its_own_nodes():
    path = gq.Graph(sp.diags_array([np.ones(5), np.ones(5)], offsets=[-1, 1]))
    network = federated.Network.of(path, np.array([0, 1]))
    assert network.graph.n_edges == 2
    assert network.border.tolist() == [1, 2, 3, 4, 5]
    assert (network.n_own, network.n_border) == (2, 1)
    assert federated.Network.of(path).n_border == 6  # nothing says who owns which


def test_the_same_node_has_the_same_column_for_everyone(blocks):
    parts = networks(blocks, NAMES)
    signal = federated.CommonSignal(buckets=50)
    columns = {}
    for network in parts.values():
        _, far = signal.place(network, b"k" * 32)
        inside = np.setdiff1d(np.arange(network.graph.n_nodes), network.border)
        assert (far.nodes["column"][inside] == -1).all()
        for node in network.border:
            columns.setdefault(int(network.graph.node_ids[node]), set()).add(int(far.nodes["column"][node]))
    assert {len(found) for found in columns.values()} == {1}
    others = signal.place(parts["a"], b"l" * 32)[1].nodes["column"]
    assert (others != signal.place(parts["a"], b"k" * 32)[1].nodes["column"]).any()


def test_ids_that_lost_their_zeros_are_noticed(blocks):
    """Nobody sees ids of others, so nothing but the form on the cards can tell; without it the verdict stays good."""
    parts = networks(gq.Graph(blocks.adjacency), NAMES)
    for name, network in parts.items():
        ids = np.array([f"{node + 1:06d}" for node in network.ids])
        ids = np.char.lstrip(ids, "0") if name == "c" else ids
        parts[name] = replace(network, graph=network.graph.with_attributes(node_ids=ids))
    agreed, members = agreed_round(parts, dim=4, buckets=200)
    assert agreed.card("a").ids == "digits, leading zeros, 6 long"
    assert agreed.card("c").ids == "digits"
    (note,) = agreed.notes
    assert "(a: digits, leading zeros, 6 long; b: digits, leading zeros, 6 long; c: digits)" in note
    answer = complete(parts, agreed, members)
    assert note in federated.embed(parts["a"], agreed, members["a"], answer).verdict
    alike = {name: parts[name] for name in "ab"}
    agreed, members = agreed_round(alike, dim=4, buckets=200, two_parties=True)
    assert agreed.notes == []
    verdict = federated.embed(alike["a"], agreed, members["a"], complete(alike, agreed, members)).verdict
    assert verdict.endswith("They suit your network.")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (["0017", "0400"], ["1700", "4004"], True),  # by chance no zero in front
        (["0017", "0400"], ["17", "400"], False),
        (["017", "0400"], ["17", "400"], False),
        (["0017", "0400"], ["00017", "00400"], False),
        (["17", "400"], ["17", "19"], True),
        (["Ada", "bob"], ["ada", "bob"], False),
        (["ada", "bob"], ["ada", "roberta"], True),
        (["ada", "bob "], ["ada", "bob"], False),
        (["p-001", "p-700"], ["p-1", "p-700"], False),
        (["é1"], ["e1"], False),
        ([], [], True),
    ],
)
def test_the_form_of_ids(one, other, same):
    from graphquilt.federated.messages import _FORM, id_form, same_form

    assert same_form(id_form(one), id_form(other)) is same
    assert same_form(id_form(other), id_form(one)) is same
    assert _FORM.fullmatch(id_form(one))


def test_guards(blocks):
    parts = networks(blocks, NAMES)
    agreed, _ = agreed_round(parts, dim=4, buckets=2000, per_bucket=4)
    assert agreed.signal.buckets == sum(card.border for card in agreed.cards) // 4
    _, far = replace(agreed.signal, least=9).place(parts["a"], b"k" * 32)
    column = far.nodes["column"]
    counts = np.bincount(column[column >= 0], minlength=agreed.signal.buckets)
    assert set(counts[counts > 0]) <= set(range(9, 1000))
    for X in (blocks.features, blocks.features.toarray()):
        graph = parts["a"].graph
        part = gq.Graph(graph.adjacency, X[np.asarray(graph.node_ids)], node_ids=graph.node_ids)
        network = federated.Network.of(part, np.flatnonzero(parts["a"].own))
        filled = np.asarray((X[np.asarray(graph.node_ids)] != 0).sum(axis=0)).ravel()
        guarded, _ = federated.CommonSignal(features=X.shape[1], least=int(np.median(filled))).place(network, b"k" * 32)
        left = guarded.features.toarray() if sp.issparse(guarded.features) else guarded.features
        assert ((left != 0).any(axis=0) == (filled >= int(np.median(filled)))).all()
    with pytest.raises(gq.errors.InputError, match="dimensions need as many"):
        agreed_round(parts, dim=64, buckets=2000, per_bucket=30)[0].signal  # noqa: B018


def test_wide_features_take_rounds(blocks, monkeypatch):
    """Above the widest moment, products of blocks are added first: the directions are those of the moment."""
    width, parts = blocks.features.shape[1], networks(blocks, NAMES)
    wide = np.random.default_rng(0).normal(size=(width, 400)) / 20
    graph = gq.Graph(blocks.adjacency, np.abs(blocks.features @ wide).astype(np.float32))
    parts = networks(graph, NAMES)
    agreed, members = agreed_round(parts, dim=5, features=400)
    expected = complete(parts, agreed, members)
    monkeypatch.setattr("graphquilt.federated.signal.WIDEST", 300)
    assert agreed.signal.is_wide
    kinds, answer = [], None
    while answer is None or not answer.complete:
        made = contributions(parts, agreed, members, received=answer)
        kinds.append(federated.plain_sum(parts["a"], agreed, members["a"], received=answer)[0])
        answer = federated.combine(agreed, made, before=answer)
        if not answer.complete and "blocks" in answer.arrays:
            assert answer.arrays["products"].shape[1] == 0  # of the total, parties get directions and no products
    assert set(kinds[:-1]) == {"product"}
    assert kinds[-1] == "moment"
    V = np.asarray(answer.arrays["basis"] @ answer.arrays["directions"])
    overlap = np.linalg.svd(V.T @ expected.arrays["directions"], compute_uv=False)
    assert overlap.min() > 0.98
    assert federated.embed(parts["a"], agreed, members["a"], answer).share > 0


def test_rows_of_nothing_count_as_empty():
    """Isolated nodes without a border have no row; the total still has the trace of all nodes."""
    u = np.array([0, 1, 2, 3, 4, 5, 6, 7])
    A = sp.csr_array((np.ones(8), (u, (u + 1) % 8)), shape=(12, 12))  # four nodes have no edge
    graph = gq.Graph(A + A.T)
    owner = np.array([0, 0, 0, 1, 1, 1, 2, 2, 0, 1, 2, 2])
    parts = networks(graph, NAMES, owner)
    agreed, members = agreed_round(parts, dim=2, buckets=8)
    plain = sum((federated.plain_sum(parts[n], agreed, members[n])[1] for n in NAMES), np.uint64(0)).view(np.int64)
    assert plain[-1] / 2.0**36 == 4
    assert federated.combine(agreed, contributions(parts, agreed, members)).complete


@pytest.mark.parametrize("kind", ["invitation", "card", "contribution", "directions", "key"])
def test_files_come_back_and_damaged_ones_are_refused(blocks, tmp_path, kind):
    from graphquilt.federated.messages import load_key, save_key

    parts = networks(blocks, NAMES)
    agreed, members = agreed_round(parts, dim=4, buckets=40)
    made = contributions(parts, agreed, members)
    answer, path = federated.combine(agreed, made), tmp_path / "file"
    if kind == "key":
        save_key(members["a"].key, path)
        load = load_key
        assert load(path) == members["a"].key
    else:
        value = {"invitation": agreed.invitation, "card": agreed.cards[0], "contribution": made[0]}.get(kind, answer)
        value.save(path)
        load = type(value).load
        again = load(path)
        assert (
            (again.id == value.id)
            if kind in ("invitation", "directions")
            else (again.content == value.content if kind == "contribution" else again == value)
        )
    assert path.stat().st_mode & 0o077 == 0
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(20):
        place = int(rng.integers(len(content)))
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << int(rng.integers(8)))]) + content[place + 1 :])
        with suppress(gq.errors.QuiltError):  # some bytes mean nothing, as those between members of an archive
            load(path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(gq.errors.QuiltError):
        load(path)


def test_fixed_point_leaves_room():
    from graphquilt.federated.round import Card

    card = Card("0" * 64, "a", 1, 0, "00" * 32, "00" * 32)
    for nodes in (1, 10**3, 2**26 - 1, 2**26, 10**9, 2**40):
        agreed = federated.Round(None, (replace(card, nodes=nodes),))
        assert nodes * 2 ** agreed.bits("moment") < 2**62
        assert agreed.bits("product") <= agreed.bits("moment") <= 36
