"""Differential privacy of a round of sums: the bound that the proof needs, the noise, and what is left."""

from dataclasses import replace

import numpy as np
import pytest

import graphquilt as gq
from extras import needs
from graphquilt import federated
from graphquilt.errors import InputError
from graphquilt.federated.signal import SENSITIVITY, noise_multiplier
from sums import agreed_round, complete, contributions, networks

needs("cryptography")
NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def blocks():
    return gq.datasets.load_dataset("blocks")


@pytest.fixture(scope="module")
def private(blocks):
    parts = networks(blocks, NAMES)
    return parts, *agreed_round(parts, dim=4, features=blocks.features.shape[1], epsilon=4)


def real(values):
    return values.view(np.int64) / 2.0**36


@pytest.mark.parametrize(
    ("epsilon", "delta", "expected"), [(1, 1e-6, 4.2247), (4, 1e-6, 1.1935), (8, 1e-6, 0.6529), (1, 1e-5, 3.7306)]
)
def test_the_noise_is_what_dp_accounting_finds(epsilon, delta, expected):
    """The figures are those of the PLD accountant of dp-accounting 0.6, which discretises losses."""
    assert noise_multiplier(epsilon, delta) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("change", ["a row", "an empty row", "edges"])
def test_another_node_moves_the_sum_by_at_most_the_sensitivity(private, change):
    """The proof: what a node adds does not depend on edges or on other nodes, and has norm 1."""
    parts, agreed, members = private
    network, rng = parts["a"], np.random.default_rng(0)
    graph, own = network.graph, np.flatnonzero(network.own)
    before = federated.plain_sum(network, agreed, members["a"])[1]
    worst = 0.0
    for node in rng.choice(own, 8, replace=False).tolist():
        X, A = graph.features.toarray(), graph.adjacency.tolil()
        if change == "edges":
            A[node, :], A[:, node] = 0, 0
            A[node, own[own != node][:50]] = A[own[own != node][:50], node] = 1
        else:
            X[node] = 0
            X[node, rng.choice(X.shape[1], 3, replace=False)] = change == "a row"
        other = federated.Network(gq.Graph(A.tocsr(), X, node_ids=graph.node_ids), network.own, network.border)
        after = federated.plain_sum(other, agreed, members["a"])[1]  # the noise is the same
        worst = max(worst, float(np.linalg.norm(real(after - before))))
    assert worst <= (0 if change == "edges" else SENSITIVITY)
    assert change == "edges" or worst > 1


def test_every_party_adds_all_of_the_noise(private):
    """So it holds against all other parties and the coordinator together, who know the sum of the party."""
    parts, agreed, members = private
    again = federated.join(parts["a"], agreed.invitation, members["a"].key, party="a")
    one, two = (federated.plain_sum(parts["a"], agreed, member)[1] for member in (members["a"], again))
    drawn = real(one - two) / np.sqrt(2)
    noise = SENSITIVITY * noise_multiplier(4, 1e-6)
    assert drawn.std() == pytest.approx(noise, rel=0.03)
    assert abs(drawn.mean()) < 6 * noise / np.sqrt(len(drawn))
    kurtosis = np.mean((drawn / drawn.std()) ** 4)
    assert kurtosis == pytest.approx(3, abs=0.3)
    assert np.array_equal(one, federated.plain_sum(parts["a"], agreed, members["a"])[1])  # asking again tells nothing


def test_a_round_with_noise_works_and_its_checks_still_hold(private):
    parts, agreed, members = private
    done = federated.embed(parts["a"], agreed, members["a"], complete(parts, agreed, members))
    assert 0 < done.share <= done.best + 1e-3
    made = contributions(parts, agreed, members)
    large = np.zeros(len(made[0].values), dtype=np.int64)
    large[0] = 10 * agreed.n_nodes << 36
    made[0] = replace(made[0], values=made[0].values + large.view(np.uint64)).signed(members["a"].signing)
    with pytest.raises(InputError, match="Masks hide who sent what is wrong"):
        federated.combine(agreed, made)


def test_what_is_not_proved_is_refused():
    for signal in ({"buckets": 10}, {"features": 10, "buckets": 10}, {"features": 10, "least": 2}, {"features": 5000}):
        with pytest.raises(InputError, match="is proved for at most"):
            agreed_round(dict.fromkeys(NAMES), dim=4, epsilon=1, **signal)
    with pytest.raises(InputError, match="epsilon is from 0 to 100"):
        agreed_round(dict.fromkeys(NAMES), dim=4, features=10, epsilon=-1)


def test_the_command_line_asks_for_it_and_says_what_it_does_not_cover(command, tmp_path):
    files = ("--out", tmp_path / "invitation", "--key", tmp_path / "key")
    words = ("--name", "n", "--dim", 4, "--parties", "a,b,c", "--width", 10, "--epsilon", 4)
    code, out, err = command("federate", "invite", *words, *files)
    assert code == 0, err
    assert "each further round with the same data costs epsilon again" in " ".join(out.split())
    assert federated.Invitation.load(tmp_path / "invitation").epsilon == 4
