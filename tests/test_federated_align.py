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
from federation import measurements, offers, with_arrays
from graphquilt import federated
from graphquilt.federated import align
from graphquilt.federated.align.exchange import blur, noisy
from graphquilt.federated.messages import subkey

DIM = 6


@pytest.fixture(scope="module")
def four(blocks):
    """Four parties with their offers, and the nodes of each."""
    return offers(blocks, 4, gq.Propagation(DIM))


@pytest.fixture(scope="module")
def measured(four):
    return measurements(four[0])


def test_federated_is_central(four, measured):
    """The coordinator finds what one place finds, up to the noise on means and spreads."""
    parties, nodes = four
    result = align.solve(measured, parties[0].round)
    central = gq.align([(some, party.embedding) for some, party in zip(nodes, parties, strict=True)])
    assert result.alignment.edges.tolist() == central.edges.tolist()
    np.testing.assert_allclose(result.alignment.rotations, central.rotations, atol=1e-9)
    np.testing.assert_allclose(result.alignment.edge_errors, central.edge_errors, atol=0.01)
    for k, party in enumerate(parties):
        ids, X = align.apply(party, result.transforms[party.name])
        np.testing.assert_array_equal(ids, nodes[k])
        np.testing.assert_allclose(X, central.apply(k, party.embedding), atol=0.02 * party.embedding.std())


def test_the_noise_on_means_and_spreads_is_one_node(four, measured):
    (a, b, *_), _ = four
    both = np.isin(a.pseudonyms, b.pseudonyms), np.isin(b.pseudonyms, a.pseudonyms)
    sides = [(np.arange(rows.sum()), party.coordinates[rows]) for party, rows in zip((a, b), both, strict=True)]
    exact = gq.overlap_statistics(*sides)
    drawn = [gq.OverlapStatistics.from_arrays(measured[0].arrays)]
    drawn += [blur(exact, bytes([k] * 32)) for k in range(200)]
    n = int(exact.counts[0])
    one_node = exact.spreads[0] / np.sqrt(n * DIM) / n
    np.testing.assert_array_equal(drawn[0].products, exact.products)
    for side in range(2):
        errors = np.array([some.means[0, side] - exact.means[0, side] for some in drawn])
        assert np.sqrt(np.mean(errors**2)) == pytest.approx(one_node[side], rel=0.1)
        factors = np.array([some.spreads[0, side] ** 2 / exact.spreads[0, side] ** 2 - 1 for some in drawn])
        assert factors.std() == pytest.approx(1 / n, rel=0.2)


def test_either_party_measures_the_same(four):
    a, b, *_ = four[0]
    one, other = align.measure(b, align.reply(a, b.offer)), align.measure(a, align.reply(b, a.offer))
    assert one.facts["parties"] == other.facts["parties"] == ["bank-a", "bank-b"]
    for name in ("counts", "means", "spreads", "products"):
        np.testing.assert_allclose(one.arrays[name], other.arrays[name], rtol=1e-12)
    assert len(align.solve([one, other], a.round).pairs) == 1


def test_the_order_of_measurements_changes_nothing(four, measured):
    one, other = align.solve(measured, four[0][0].round), align.solve(measured[::-1], four[0][0].round)
    assert one.parties == other.parties
    np.testing.assert_array_equal(one.alignment.rotations, other.alignment.rotations)


def test_pseudonyms_are_hmacs_of_the_round_and_the_id():
    key, round_id = bytes(range(32)), "ab" * 32
    secret = hmac.new(key, b"graphquilt pseudonyms", hashlib.sha256).digest()
    expected = hmac.new(secret, bytes.fromhex(round_id) + b"17", hashlib.sha256).digest()
    numbers, texts = (align.pseudonyms(ids, key, round_id) for ids in (np.array([17, 4]), ["17", "4"]))
    assert numbers.tobytes() == texts.tobytes()
    assert numbers.tobytes()[:32] == expected
    assert align.pseudonyms(["17"], key, "cd" * 32).tobytes() != expected
    assert align.pseudonyms(["017"], key, round_id).tobytes() != expected


def test_letters_that_look_alike_are_one_id():
    composed, combined = "caf\u00e9", "cafe\u0301"
    assert federated.canonical_ids([composed]) == federated.canonical_ids([combined])
    with pytest.raises(gq.errors.InputError, match="stands for two nodes"):
        align.pseudonyms([composed, combined], bytes(32), "00" * 32)
    with pytest.raises(gq.errors.InputError, match="must be integers or text"):
        align.pseudonyms([0.5], bytes(32), "00" * 32)


def test_subkeys_differ():
    assert len({subkey(bytes(32), purpose) for purpose in ("pseudonyms", "authentication", "check")}) == 3


def test_the_offer_does_not_show_the_order_of_nodes(four):
    party = four[0][0]
    assert (np.diff(party.rows) < 0).any()
    assert (party.pseudonyms[1:] > party.pseudonyms[:-1]).all()
    assert set(party.offer.arrays) == {"pseudonyms"}


def test_noise_is_the_same_for_all_partners_and_in_the_statistics(blocks):
    parties, _ = offers(blocks, 3, gq.Propagation(DIM), noise=0.5)
    a, b, c = parties
    share = (a.coordinates - a.embedding[a.rows]).std() / a.embedding[a.rows].std(axis=0).mean()
    assert 0.4 < share < 0.6
    # A partner cannot average the noise away by asking twice, and two partners cannot by comparing.
    seen = {}
    for reply in (align.reply(a, b.offer), align.reply(a, b.offer), align.reply(a, c.offer)):
        for name, x in zip(reply.arrays["pseudonyms"].tolist(), reply.arrays["coordinates"].tolist(), strict=True):
            assert seen.setdefault(name, x) == x
    pair = align.solve([align.measure(b, align.reply(a, b.offer))], a.round).pairs[0]
    assert np.sqrt(0.5 / 2.5) - 0.1 < pair.error < 0.8


def test_noise_is_normal_and_of_one_key():
    ids, X = [str(k) for k in range(4000)], np.zeros((4000, 3))
    X[:, 0] = np.arange(4000) % 2 * 2 - 1.0
    drawn = noisy(X, ids, 1.0, bytes(32)) - X
    scaled = np.sort(drawn.ravel() / drawn.std())
    assert drawn.std() == pytest.approx(np.sqrt(1 / 3), rel=0.03)
    assert abs(scaled.mean()) < 0.03
    assert np.mean(np.abs(scaled) < 1) == pytest.approx(0.6827, abs=0.01)
    np.testing.assert_array_equal(noisy(X[:9], ids[:9], 0.0, bytes(32)), X[:9])
    # The row of a node depends on the key and its id, not on the other nodes.
    other = noisy(X[::-1], ids[::-1], 1.0, bytes(32))[::-1] - X
    np.testing.assert_allclose(other, drawn, atol=1e-12)
    assert not np.isclose(noisy(X, ids, 1.0, bytes(31) + b"1") - X, drawn).any()


def test_private_set_intersection_finds_what_pseudonyms_find(blocks, four):
    needs("private_set_intersection")
    parties, _ = offers(blocks, 4, gq.Propagation(DIM), psi=True)
    assert set(parties[0].offer.arrays) == {"request"}
    plain, private = (align.solve(measurements(some), some[0].round) for some in (four[0], parties))
    assert [pair.shared for pair in plain.pairs] == [pair.shared for pair in private.pairs]
    np.testing.assert_allclose(plain.alignment.rotations, private.alignment.rotations, atol=1e-9)
    # What a partner sees of the other's nodes in the exchange is in neither message as a pseudonym.
    a, b, *_ = parties
    answer = align.reply(a, b.offer)
    sent = b.offer.arrays["request"].tobytes() + answer.arrays["setup"].tobytes() + answer.arrays["response"].tobytes()
    names = [party.pseudonyms.tobytes()[k : k + 32] for party in (a, b) for k in range(0, 32 * len(party.rows), 32)]
    assert not any(name in sent or name.hex().encode() in sent for name in names)
    with pytest.raises(gq.errors.InputError, match="is for bank-b, and not for bank-c"):
        align.reply(parties[2], answer)


def test_nobody_is_accused_where_nothing_fits(blocks):
    parties, _ = offers(blocks, 4, gq.Propagation(4))
    rng = np.random.default_rng(0)

    def scramble(sender, message):
        X = message.arrays["coordinates"]
        return with_arrays(message, coordinates=X[rng.permutation(len(X))])

    result = align.solve(measurements(parties, change=scramble), parties[0].round)
    assert result.alignment.edge_errors.min() > 0.9
    assert result.verdict == "bad"
    assert not {"leave", "drop"} & set(result.summary().lower().split())


def test_values_survive_the_disk(four, measured, tmp_path):
    party = four[0][0]
    party.save(tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert {stat.S_IMODE((tmp_path / "a" / name).stat().st_mode) for name in ("key", "party", "offer")} == {0o600}
    again = align.Party.load(tmp_path / "a")
    assert (again.name, again.round, again.key, again.offer_id) == (party.name, party.round, party.key, party.offer_id)
    for name in ("ids", "embedding", "rows", "pseudonyms", "coordinates"):
        np.testing.assert_array_equal(getattr(again, name), getattr(party, name))
    measured[0].save(tmp_path / "m")
    loaded = align.Message.load(tmp_path / "m")
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
    guessed=st.booleans(),
    scale=st.booleans(),
)
def test_a_round_survives_the_disk_and_shows_any_change(tmp_path_factory, *, name, dim, parties, guessed, scale):
    made, _ = align.invite(name, dim, scale=scale, parties=sorted(parties), ids_can_be_guessed=guessed)
    path = tmp_path_factory.mktemp("round") / "round.json"
    made.save(path)
    assert align.Round.load(path) == made
    path.write_text(path.read_text(encoding="utf-8").replace(f'"dim": {dim}', f'"dim": {dim + 1}'), encoding="utf-8")
    with pytest.raises(gq.errors.FormatError, match="was changed"):
        align.Round.load(path)


def test_a_round_of_the_same_settings_is_another_round():
    one, key = align.invite("night-1", 4)
    other, _ = align.invite("night-1", 4)
    assert one.psi
    assert one.id != other.id
    assert one.has_key(key)
    assert not other.has_key(key)
