"""Federated alignment as functions on values: what two parties compute is what one place would compute."""

import hashlib
import hmac
import stat
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from extras import needs
from federation import measurements, offers, shares, with_arrays
from graphquilt import federated
from graphquilt.federated.messages import subkey
from graphquilt.federated.sharing import noise_cost, noisy

DIM = 6


@pytest.fixture(scope="module")
def four(blocks):
    """Four parties with their offers, and the nodes of each."""
    return offers(blocks, 4, gq.Propagation(DIM))


@pytest.fixture(scope="module")
def measured(four):
    return measurements(four[0])


def test_federated_is_central(blocks, four, measured):
    parties, nodes = four
    result = federated.align(measured, of_round=parties[0].round)
    central = gq.align([(some, party.embedding) for some, party in zip(nodes, parties, strict=True)])
    assert result.alignment.edges.tolist() == central.edges.tolist()
    for name in ("scales", "rotations", "translations", "edge_errors"):
        np.testing.assert_allclose(getattr(result.alignment, name), getattr(central, name), atol=1e-9)
    for k, party in enumerate(parties):
        ids, X = federated.apply(party, result.transforms[party.name])
        np.testing.assert_array_equal(ids, nodes[k])
        np.testing.assert_allclose(X, central.apply(k, party.embedding), atol=1e-9)


def test_either_party_measures_the_same(four):
    a, b, *_ = four[0]
    one, other = federated.measure(b, federated.reply(a, b.offer)), federated.measure(a, federated.reply(b, a.offer))
    assert one.facts["parties"] == other.facts["parties"] == ["bank-a", "bank-b"]
    for name in ("counts", "means", "spreads", "products"):
        np.testing.assert_allclose(one.arrays[name], other.arrays[name], rtol=1e-12)
    assert len(federated.align([one, other]).pairs) == 1


def test_the_order_of_measurements_changes_nothing(measured):
    one, other = federated.align(measured), federated.align(measured[::-1])
    assert one.parties == other.parties
    np.testing.assert_array_equal(one.alignment.rotations, other.alignment.rotations)


def test_pseudonyms_are_hmacs_of_the_round_and_the_id():
    key, round_id = bytes(range(32)), "ab" * 32
    secret = hmac.new(key, b"graphquilt pseudonyms", hashlib.sha256).digest()
    expected = hmac.new(secret, bytes.fromhex(round_id) + b"17", hashlib.sha256).digest()
    numbers, texts = (federated.pseudonyms(ids, key, round_id) for ids in (np.array([17, 4]), ["17", "4"]))
    assert numbers.tobytes() == texts.tobytes()
    assert numbers.tobytes()[:32] == expected
    assert federated.pseudonyms(["17"], key, "cd" * 32).tobytes() != expected
    assert federated.pseudonyms(["017"], key, round_id).tobytes() != expected


def test_letters_that_look_alike_are_one_id():
    composed, combined = "caf\u00e9", "cafe\u0301"
    assert federated.canonical_ids([composed]) == federated.canonical_ids([combined])
    with pytest.raises(gq.errors.InputError, match="stands for two nodes"):
        federated.pseudonyms([composed, combined], bytes(32), "00" * 32)
    with pytest.raises(gq.errors.InputError, match="must be integers or text"):
        federated.pseudonyms([0.5], bytes(32), "00" * 32)


def test_subkeys_differ():
    assert len({subkey(bytes(32), purpose) for purpose in ("pseudonyms", "authentication", "check")}) == 3


def test_the_offer_does_not_show_the_order_of_nodes(four):
    party = four[0][0]
    assert (np.diff(party.rows) < 0).any()
    assert (party.pseudonyms[1:] > party.pseudonyms[:-1]).all()
    assert set(party.offer.arrays) == {"pseudonyms"}


def test_the_boundary_has_all_nodes_that_two_parties_share(blocks):
    own, nodes = shares(blocks, 4)
    edges = []
    for mine, some in zip(own, nodes, strict=True):
        part = blocks.subgraph(some)
        rows = federated.boundary(part, np.searchsorted(some, mine))
        edges.append(set(some[rows].tolist()))
    for i in range(4):
        for j in range(i):
            both = set(nodes[i].tolist()) & set(nodes[j].tolist())
            # A neighbour of two parties that belongs to a third is on the boundary of all.
            assert both <= edges[i] & edges[j]
    with pytest.raises(gq.errors.InputError, match="has no boundary"):
        federated.boundary(blocks, np.arange(blocks.n_nodes))


def test_a_cap_is_the_same_for_both_partners(blocks):
    parties, _ = offers(blocks, 3, gq.Propagation(DIM), sharing=federated.Sharing(cap=20))
    a, b, _ = parties
    there, back = federated.reply(a, b.offer), federated.reply(b, a.offer)
    assert len(there.arrays["pseudonyms"]) == 20
    assert there.arrays["pseudonyms"].tobytes() == back.arrays["pseudonyms"].tobytes()
    assert all(pair.shared == 20 for pair in federated.align(measurements(parties)).pairs)


def test_noise_is_the_same_for_all_partners_and_in_the_statistics(blocks):
    parties, _ = offers(blocks, 3, gq.Propagation(DIM), sharing=federated.Sharing(noise=0.5))
    a, b, c = parties
    assert not np.array_equal(a.coordinates, a.embedding[a.rows])
    # A partner cannot average the noise away by asking twice, and two partners cannot by comparing.
    seen = {}
    for reply in (federated.reply(a, b.offer), federated.reply(a, b.offer), federated.reply(a, c.offer)):
        for name, x in zip(reply.arrays["pseudonyms"].tolist(), reply.arrays["coordinates"].tolist(), strict=True):
            assert seen.setdefault(name, x) == x
    pair = federated.align([federated.measure(b, federated.reply(a, b.offer))]).pairs[0]
    assert pair.expected == pytest.approx(np.sqrt(0.5 / 2.5))
    assert pair.expected - 0.1 < pair.error < 0.8


@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_the_cost_of_noise_is_what_the_formula_says(noise):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4))
    cost = noise_cost(X, noisy(X, noise, rng), gq.Motions(), 2000)
    assert cost.edge_error == pytest.approx(noise / np.sqrt(2 + noise**2), rel=0.1)
    fewer = noise_cost(X, noisy(X, noise, rng), gq.Motions(), 20)
    assert cost.displacement < fewer.displacement


def test_a_shared_start_puts_all_parties_in_one_frame(blocks):
    sample = blocks.subgraph(np.arange(0, blocks.n_nodes, 10))
    parties, _ = offers(blocks, 3, gq.Propagation(3), sample=sample)
    assert not parties[0].round.motions.free
    result = federated.align(measurements(parties))
    assert result.alignment.moves_nothing
    assert result.alignment.edge_errors.max() < 0.6
    _, X = federated.apply(parties[0], result.transforms["bank-a"])
    np.testing.assert_array_equal(X, parties[0].embedding)
    made = parties[0].round
    with pytest.raises(gq.errors.InputError, match="needs a shared start"):
        federated.offer(blocks, made, parties[0].key, party="bank-a")
    with pytest.raises(gq.errors.InputError, match="cannot make a shared start"):
        federated.invite("night-1", gq.SVD(3), sample=sample)


def test_private_set_intersection_finds_what_pseudonyms_find(blocks, four):
    needs("private_set_intersection")
    parties, _ = offers(blocks, 4, gq.Propagation(DIM), psi=True)
    assert set(parties[0].offer.arrays) == {"request"}
    plain, private = federated.align(measurements(four[0])), federated.align(measurements(parties))
    assert [pair.shared for pair in plain.pairs] == [pair.shared for pair in private.pairs]
    np.testing.assert_allclose(plain.alignment.rotations, private.alignment.rotations, atol=1e-9)
    # What a partner sees of the other's nodes in the exchange is in neither message as a pseudonym.
    a, b, *_ = parties
    answer = federated.reply(a, b.offer)
    sent = b.offer.arrays["request"].tobytes() + answer.arrays["setup"].tobytes() + answer.arrays["response"].tobytes()
    names = [party.pseudonyms.tobytes()[k : k + 32] for party in (a, b) for k in range(0, 32 * len(party.rows), 32)]
    assert not any(name in sent or name.hex().encode() in sent for name in names)
    with pytest.raises(gq.errors.InputError, match="is for bank-b, and not for bank-c"):
        federated.reply(parties[2], answer)


@pytest.mark.parametrize("lie", ["scrambled", "turned", "shifted"])
def test_one_party_that_lies_is_found(blocks, lie):
    parties, _ = offers(blocks, 6, gq.Propagation(4, signal=gq.embedders.Signal.features()))
    rng = np.random.default_rng(0)

    def falsify(sender, message):
        if sender.name != "bank-a":
            return message
        X = message.arrays["coordinates"]
        lies = {
            "scrambled": X[rng.permutation(len(X))],
            "turned": (X @ np.linalg.qr(rng.normal(size=(4, 4)))[0]).astype(X.dtype),
            "shifted": X + (3 * X.std() * rng.normal(size=4)).astype(X.dtype),
        }
        return with_arrays(message, coordinates=lies[lie])

    result = federated.align(measurements(parties, change=falsify), robust=True)
    assert result.doubtful == ("bank-a",)
    assert {pair.trusted for pair in result.pairs if "bank-a" in pair.parties} == {False}
    assert "Ask bank-a" in result.summary()
    assert federated.align(measurements(parties)).doubtful == ()


def test_nobody_is_accused_where_nothing_fits(blocks):
    parties, _ = offers(blocks, 3, gq.Propagation(4))
    rng = np.random.default_rng(0)

    def scramble(sender, message):
        X = message.arrays["coordinates"]
        return with_arrays(message, coordinates=X[rng.permutation(len(X))])

    result = federated.align(measurements(parties, change=scramble))
    assert result.alignment.edge_errors.min() > 0.9
    assert result.doubtful == ()


def test_values_survive_the_disk(four, measured, tmp_path):
    party = four[0][0]
    party.save(tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert {stat.S_IMODE((tmp_path / "a" / name).stat().st_mode) for name in ("key", "party", "offer")} == {0o600}
    again = federated.Party.load(tmp_path / "a")
    assert (again.name, again.round, again.key, again.offer_id) == (party.name, party.round, party.key, party.offer_id)
    for name in ("ids", "embedding", "rows", "pseudonyms", "coordinates"):
        np.testing.assert_array_equal(getattr(again, name), getattr(party, name))
    measured[0].save(tmp_path / "m")
    loaded = federated.Message.load(tmp_path / "m")
    assert loaded.is_authentic(party.key)
    assert not replace(loaded, sender="bank-z").is_authentic(party.key)
    assert not loaded.is_authentic(bytes(32))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "m"]
    with pytest.raises(gq.errors.InputError, match="not empty"):
        party.save(tmp_path / "a")


names = st.text(st.sampled_from("abcXYZ019._-"), min_size=0, max_size=8).map(lambda text: "n" + text)


@settings(max_examples=20)
@given(
    name=names,
    dim=st.integers(1, 40),
    parties=st.sets(names, max_size=4).filter(lambda parties: len(parties) != 1),
    psi=st.booleans(),
    scale=st.booleans(),
    seed=st.integers(0, 2**40),
)
def test_a_round_survives_toml_and_shows_any_change(tmp_path_factory, *, name, dim, parties, psi, scale, seed):
    embedder = gq.Propagation(dim, clusters=dim)
    made, _, _ = federated.invite(
        name, embedder, motions=gq.Motions(scale=scale), parties=sorted(parties), psi=psi, seed=seed
    )
    path = tmp_path_factory.mktemp("round") / "round.toml"
    made.save(path)
    assert federated.Round.load(path) == made
    assert federated.Round.load(path).made_embedder() == embedder
    path.write_text(path.read_text(encoding="utf-8").replace(f"dim = {dim}\n", f"dim = {dim + 1}\n"), encoding="utf-8")
    with pytest.raises(gq.errors.FormatError, match=r"was changed|at least"):
        federated.Round.load(path)


def test_a_round_of_the_same_settings_is_another_round():
    one, key, _ = federated.invite("night-1", gq.SVD(4))
    other, _, _ = federated.invite("night-1", gq.SVD(4))
    assert one.id != other.id
    assert one.has_key(key)
    assert not other.has_key(key)


class Own:
    """An embedder that graphquilt cannot make by itself."""

    def __init__(self, dim, power=1):
        self.dim, self.power = dim, power

    def __call__(self, graph, seed):
        return gq.SVD(self.dim)(graph, seed) ** self.power


def test_parties_may_agree_on_an_embedder_of_their_own(blocks):
    made, key, _ = federated.invite("night-1", Own(3))
    with pytest.raises(gq.errors.InputError, match="which graphquilt cannot make by itself"):
        federated.offer(blocks, made, key, party="bank-a")
    with pytest.raises(gq.errors.InputError, match=r"power 1 \(now 2"):
        federated.offer(blocks, made, key, party="bank-a", embedder=Own(3, power=2))
    assert federated.offer(blocks, made, key, party="bank-a", embedder=Own(3)).embedding.shape[1] == 3
