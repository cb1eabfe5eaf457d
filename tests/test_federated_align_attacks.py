"""Attacks on federated alignment: solve for rows and ids from everything that a role gets; the page names each test."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import graphquilt as gq
from extras import needs
from federation import secret_of, with_arrays, with_facts
from graphquilt.errors import FormatError, InputError, OverlapError
from graphquilt.federated import align
from graphquilt.federated.align.exchange import pseudonyms

DIM = 6
TRUTH = np.random.default_rng(0).normal(size=(1200, DIM))  # coordinates with a spread of 1
DIFFERENCE = 0.2 * np.sqrt(2)  # between the coordinates of two parties, after any alignment


def agree(dim=DIM, **options):
    return align.invite("night-1", dim, ids_can_be_guessed=True, **options)


def join(nodes, agreed, key, *, party, noise=0.0):
    """Offer nodes whose coordinates every party has in a frame of its own, with differences."""
    rng = np.random.default_rng(list(party.encode()))
    turn = np.linalg.qr(rng.normal(size=(agreed.dim, agreed.dim)))[0]
    X = (TRUTH[np.sort(nodes), : agreed.dim] + 0.2 * rng.normal(size=(len(nodes), agreed.dim))) @ turn
    names = np.array([f"patient-{node:04d}" for node in np.sort(nodes)])
    return align.offer(names, X, agreed, key=key, party=party, secret=secret_of(party), noise=noise)


def statistics_of(message):
    return gq.OverlapStatistics.from_arrays(message.arrays)


def rows_behind(party, names):
    """The true coordinates of a party under these pseudonyms."""
    return party.embedding[party.rows[np.searchsorted(party.pseudonyms, names)]]


def rms(errors):
    return float(np.sqrt(np.mean(np.square(errors))))


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_coordinator_cannot_subtract_two_overlaps(noise):
    """F1: the overlaps of b with a and with c differ by one node; n₂m₂ - n₁m₁ is its row up to the noise on means."""
    rng, errors = np.random.default_rng(1), []
    for _ in range(8):
        nodes = rng.permutation(1200)
        both, x, rest = nodes[:60], nodes[60], nodes[61:]
        agreed, key = agree()
        a = join(np.append(both, rest[:300]), agreed, key, party="a", noise=noise)
        b = join(np.append(both, [x, *rest[300:600]]), agreed, key, party="b", noise=noise)
        c = join(np.append(both, [x, *rest[600:]]), agreed, key, party="c", noise=noise)
        one = statistics_of(align.measure(b, align.reply(a, b.offer)))
        two = statistics_of(align.measure(c, align.reply(b, c.offer)))
        guess = two.counts[0] * two.means[0, 0] - one.counts[0] * one.means[0, 1]
        errors.append(guess - b.embedding[b.ids == f"patient-{x:04d}"][0])
    assert rms(errors) > 1  # the spread of all nodes: one does as well without the statistics


def solve_for_rows(reply, measured, side):
    """Return the rows with the least norm that explain what the coordinator knows of one side of a pair."""
    A = np.asarray(reply.arrays["coordinates"], dtype=np.float64)
    A, found = A - A.mean(axis=0), statistics_of(measured)
    products = found.products[0] if side == 1 else found.products[0].T
    return np.linalg.pinv(A.T) @ products * found.spreads[0].prod() + found.means[0, side]


def pair_of(n_shared, *, noise=0.0, seed=2):
    nodes, (agreed, key) = np.random.default_rng(seed).permutation(1200), agree()
    a = join(nodes[:600], agreed, key, party="a", noise=noise)
    return a, join(np.append(nodes[:n_shared], nodes[600:]), agreed, key, party="b", noise=noise)


def test_the_coordinator_and_an_honest_partner_learn_no_more_than_alignment_tells():
    """F2: A'B tells where b has its nodes as far as a has them there too; with the least overlap, most else is open."""
    noise, errors = 0.05, []
    for seed in range(5):
        a, b = pair_of(2 * DIM + 10, noise=noise, seed=seed)
        reply = align.reply(a, b.offer)
        guess = solve_for_rows(reply, align.measure(b, reply), 1)
        errors.append(guess - rows_behind(b, reply.arrays["pseudonyms"]))
    assert rms(errors) > max(noise, 0.5 * DIFFERENCE)


def test_replies_concentrated_on_few_nodes_are_refused():
    """F2 with coordinates that are 1 for one node and 0 for the others: A'B would be d chosen rows of B."""
    a, b = pair_of(200)
    reply, chosen = align.reply(a, b.offer), [3, 50, 77, 100, 150, 199]
    one_hot = np.zeros((200, DIM))
    one_hot[chosen, np.arange(DIM)] = 1.0
    for lie in (one_hot, 1e6 * one_hot, one_hot + 1e-3 * reply.arrays["coordinates"]):
        with pytest.raises(InputError, match="concentrated on few nodes"):
            align.measure(b, with_arrays(reply, a.key, coordinates=lie))


def test_the_coordinator_and_a_lying_partner_learn_rows_with_an_error_of_a_third():
    """F2 with coordinates as concentrated as is allowed: the error is at least sqrt(1 - 0.9) of the spread."""
    errors, rng = [], np.random.default_rng(3)
    for seed in range(5):
        a, b = pair_of(200, seed=seed)
        reply, chosen = align.reply(a, b.offer), rng.choice(200, DIM, replace=False)
        others = np.linalg.qr(rng.normal(size=(200, DIM)))[0]
        lie = np.sqrt(0.13) * others
        lie[chosen, np.arange(DIM)] += np.sqrt(0.85)
        reply = with_arrays(reply, a.key, coordinates=lie)
        guess = solve_for_rows(reply, align.measure(b, reply), 1)
        errors.append((guess - rows_behind(b, reply.arrays["pseudonyms"]))[chosen])
    assert rms(errors) > 0.3


def test_a_second_reply_is_not_measured(tmp_path):
    """F2 with many replies: each would add d equations, so one is measured in a round."""
    a, b = pair_of(200)
    reply = align.reply(a, b.offer)
    for _ in range(2):
        align.accept_once(tmp_path, reply)
    other = with_arrays(reply, a.key, coordinates=reply.arrays["coordinates"][::-1])
    with pytest.raises(InputError, match="a has sent another reply before"):
        align.accept_once(tmp_path, other)


def test_the_coordinator_and_two_lying_partners_get_rows_with_their_noise():
    """Given away: two replies, e_i + e_j and e_i - e_j, determine both rows of b, and the noise is what is left."""
    noise, errors = 0.2, []
    agreed, key = agree()
    parties = [join(np.arange(400), agreed, key, party=name, noise=noise) for name in "abc"]
    b, sums = parties[1], []
    for sign, partner in ((1, parties[0]), (-1, parties[2])):
        reply = align.reply(partner, b.offer)
        lie = np.zeros((400, DIM))
        lie[np.arange(DIM), np.arange(DIM)], lie[np.arange(DIM, 2 * DIM), np.arange(DIM)] = 1, sign
        measured = statistics_of(align.measure(b, with_arrays(reply, partner.key, coordinates=lie)))
        side = int(partner.name < "b")
        products = measured.products[0] if side == 1 else measured.products[0].T
        sums.append(products * measured.spreads[0].prod() + measured.means[0, side] * lie.sum(axis=0)[:, np.newaxis])
    first = (sums[0] + sums[1]) / 2
    errors = first - rows_behind(b, reply.arrays["pseudonyms"][:DIM])
    assert 0.5 * noise < rms(errors) < 2 * noise


def test_a_partner_gets_rows_with_their_noise():
    """Given away: coordinates of shared nodes with noise go to the partner, and nothing but the noise protects them."""
    a, b = pair_of(300, noise=0.1)
    reply = align.reply(a, b.offer)
    errors = reply.arrays["coordinates"] - rows_behind(a, reply.arrays["pseudonyms"])
    assert rms(errors) == pytest.approx(0.1, rel=0.1)


def test_in_one_dimension_two_nodes_are_too_few():
    """F3: with two shared nodes, mean ± spread/√2 are both coordinates."""
    assert agree(1)[0].least == 12
    with pytest.raises(InputError, match="at least 12 nodes"):
        agree(1, least=2)
    nodes, (agreed, key) = np.random.default_rng(4).permutation(1200), agree(1)
    a, b = (join(some, agreed, key, party=name) for name, some in (("a", nodes[:502]), ("b", nodes[500:])))
    with pytest.raises(OverlapError, match="a and b share 2 nodes"):
        align.reply(a, b.offer)


@pytest.fixture(scope="module")
def triangle():
    agreed, key = agree()
    nodes = np.random.default_rng(5).permutation(1200)
    parts = [nodes[:700], nodes[400:1100], np.append(nodes[:300], nodes[800:])]
    parties = [join(some, agreed, key, party=name, noise=0.05) for name, some in zip("abc", parts, strict=True)]
    return parties, [align.measure(b, align.reply(a, b.offer)) for a, b in combinations(parties, 2)]


def forged(message, **changes):
    """A measurement with other numbers, as its sender can make it."""
    found = statistics_of(message)
    arrays = {name: getattr(found, name) for name in ("counts", "sizes", "means", "spreads", "products")}
    return with_arrays(message, **gq.OverlapStatistics(**(arrays | changes)).to_arrays())


def test_a_liar_cannot_claim_more_nodes_than_were_offered(triangle):
    """F4: counts of 1e15, and sizes of 1e12 times the counts."""
    parties, (first, *others) = triangle
    agreed, found = parties[0].round, statistics_of(first)
    huge = np.array([10**15])
    for lie in (
        forged(first, counts=huge, sizes=huge.astype(float)),
        forged(first, sizes=found.sizes * 1e12),
        forged(first, sizes=found.sizes / 2),
    ):
        with pytest.raises(FormatError, match="Each node weighs 1, and their offers have 700 and 700"):
            align.solve([lie, *others], agreed)
    lie = with_facts(forged(first, counts=huge, sizes=huge.astype(float)), nodes={"a": 10**15, "b": 10**15})
    with pytest.raises(InputError, match="different offers of a"):
        align.solve([lie, *others], agreed)


def test_a_false_measurement_does_not_outweigh_the_others_and_accuses_nobody(triangle):
    """F4: b measures (a, b) falsely, with the largest count that is accepted."""
    parties, (first, *others) = triangle
    agreed, found = parties[0].round, statistics_of(first)
    honest = align.solve([first, *others], agreed)
    assert honest.verdict in ("good", "fair")
    counts = np.array([700])
    lie = forged(first, counts=counts, sizes=counts.astype(float), products=found.products[:, ::-1].copy())
    result = align.solve([lie, *others], agreed)
    weights = result.alignment.edge_weights
    assert weights[0] <= weights[1:].sum() * (1 + 1e-9)
    assert not {"leave", "drop"} & set(result.summary().lower().split())
    assert result.verdict != "good"


def test_a_wrong_rotation_is_applied_and_shows_only_to_partners_who_compare(triangle):
    """Given away: the coordinator sends b a motion that is none of the alignment's."""
    (a, b, _), measured = triangle
    true = align.solve(measured, a.round).transforms
    turned = with_arrays(true["b"], rotation=true["b"].arrays["rotation"] @ np.linalg.qr(np.eye(DIM)[::-1] + 0.5)[0])

    def apart(transform):
        (ids, X), (others, Y) = align.apply(a, true["a"]), align.apply(b, transform)
        _, own, other = np.intersect1d(ids, others, return_indices=True)
        return rms(X[own] - Y[other]) / X[own].std()

    assert apart(turned) > 3 * apart(true["b"])


def test_an_honest_party_that_fits_least_is_not_accused():
    """One party of five has noise; it fits least, and nobody is told to leave it out."""
    agreed, key = agree()
    noises = {"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0, "e": 0.8}
    parties = [join(np.arange(400), agreed, key, party=name, noise=noise) for name, noise in noises.items()]
    measured = [align.measure(b, align.reply(a, b.offer)) for a, b in combinations(parties, 2)]
    result = align.solve(measured, agreed)
    worst = max(result.pairs, key=lambda pair: pair.error)
    assert "e" in worst.parties
    assert not {"leave", "drop"} & set(result.summary().lower().split())


def test_asking_again_does_not_average_the_noise_away():
    """F5: a hundred offers in one round have the same noise."""
    agreed, key = agree()
    made = [join(np.arange(300), agreed, key, party="b", noise=0.5) for _ in range(100)]
    mean = np.mean([party.coordinates for party in made], axis=0)
    assert rms(mean - made[0].embedding[made[0].rows]) == pytest.approx(0.5, rel=0.1)


def test_rounds_average_the_noise_away():
    """Given away: in k rounds of the same coordinates, the mean of what was sent has 1/√k of the noise."""
    sent = []
    for _ in range(25):
        agreed, key = agree()
        party = join(np.arange(300), agreed, key, party="b", noise=0.5)
        sent.append(party.coordinates[np.argsort(party.rows)])
    assert rms(np.mean(sent, axis=0) - party.embedding) == pytest.approx(0.1, rel=0.1)


def test_an_id_that_stands_for_two_nodes_is_found_in_one_pass():
    """F6: the search was quadratic, and 16 000 ids took 5 s; these are 200 000, and would take a quarter of an hour."""
    names = [f"n{k}" for k in range(200_000)]
    with pytest.raises(InputError, match="stands for two nodes"):
        pseudonyms([*names, "caf\u00e9", "cafe\u0301"], bytes(32), "00" * 32)


def test_set_intersection_shows_no_ids_to_guess():
    """A party with the key looks for the pseudonyms of all ids that there are in everything that it gets."""
    needs("private_set_intersection")
    nodes, (agreed, key) = np.random.default_rng(6).permutation(1200), align.invite("night-1", DIM)
    a, b = (join(some, agreed, key, party=name) for name, some in (("a", nodes[:700]), ("b", nodes[600:])))
    names = pseudonyms(np.array([f"patient-{k:04d}" for k in range(1200)]), key, agreed.id)
    guesses = [names.tobytes()[k : k + 32] for k in range(0, 32 * 1200, 32)]

    def named(message):
        content = b"".join(array.tobytes() for array in message.arrays.values())
        return sum(guess in content or guess.hex().encode() in content for guess in guesses)

    answer = align.reply(a, b.offer)
    reply = align.reply(b, answer)
    assert (named(b.offer), named(answer), named(reply)) == (0, 0, 100)


def test_pseudonyms_show_every_id_that_can_be_guessed():
    """Given away where the round says so: whoever has the key names every node of an offer."""
    agreed, key = agree()
    b = join(np.arange(300, 1000), agreed, key, party="b")
    guesses = pseudonyms(np.array([f"patient-{k:04d}" for k in range(1200)]), key, agreed.id)
    assert np.isin(guesses, b.offer.arrays["pseudonyms"]).sum() == 700


def test_the_page_names_these_tests():
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "federated-alignment.md").read_text(encoding="utf-8")
    tests = {name for name in globals() if name.startswith("test_")} - {"test_the_page_names_these_tests"}
    assert not {name for name in tests if name not in page}
