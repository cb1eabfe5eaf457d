"""Attacks on a round of sums: each fails, or gets exactly what the privacy page says is given away."""

import hmac
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import graphquilt as gq
from extras import needs
from graphquilt import federated
from graphquilt.errors import InputError
from graphquilt.federated.round import mask, new_signing_key
from sums import agreed_round, complete, contributions, networks

needs("cryptography")
NAMES = ("a", "b", "c", "d")
TERMS = federated.Terms(buckets=60)


@pytest.fixture(scope="module")
def parts():
    graph = gq.datasets.load_dataset("blocks")
    return networks(gq.Graph(graph.adjacency), NAMES)


@pytest.fixture(scope="module")
def honest(parts):
    return agreed_round(parts, dim=4, buckets=60)


def homes(tmp_path, parts, invitation, key):
    """Return the home and the card of each party."""
    made = {name: federated.Home(tmp_path / name) for name in invitation.parties}
    cards = {name: home.join(parts[name], invitation, key, party=name)[0].card for name, home in made.items()}
    return made, cards


def unmasked(agreed, made, members, whose):
    """Return what those who have the exchange keys of ``members`` make of the contribution of another party."""
    values = made.values
    for name, member in members.items():
        shared = mask(member.exchange, agreed.card(whose).exchange, bytes.fromhex(made.context), len(values))
        values = values - shared if whose < name else values + shared
    return values


def test_one_contribution_and_any_sum_but_that_of_all_is_noise(parts, honest):
    agreed, members = honest
    made = contributions(parts, agreed, members)
    for count in (1, 2, 3):
        values = sum((one.values for one in made[:count]), np.uint64(0))
        bits = np.unpackbits(values.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 6 / np.sqrt(4 * len(bits))
        low, high = values & np.uint64(0xFFFFFFFF), values >> np.uint64(32)
        assert abs(np.corrcoef(low, high)[0, 1]) < 6 / np.sqrt(len(values))


def test_all_parties_but_one_and_the_coordinator_see_the_total_of_that_one(parts, honest):
    """Given away, and said so: masks protect against fewer."""
    agreed, members = honest
    made = federated.contribute(parts["a"], agreed, members["a"])
    truth = federated.plain_sum(parts["a"], agreed, members["a"])[1]
    others = {name: members[name] for name in NAMES[1:]}
    assert np.array_equal(unmasked(agreed, made, others, "a"), truth)
    last_two = {name: members[name] for name in NAMES[2:]}
    fewer = unmasked(agreed, made, last_two, "a")
    assert np.unpackbits((fewer - truth).view(np.uint8)).mean() == pytest.approx(0.5, abs=0.01)
    other = unmasked(agreed, federated.contribute(parts["b"], agreed, members["b"]), last_two, "b")
    both = truth + federated.plain_sum(parts["b"], agreed, members["b"])[1]
    assert np.array_equal(fewer + other, both)  # all but two see the total of these two


def moment(values, agreed):
    """Return the sum H'H that has these values."""
    width = agreed.signal.features + agreed.signal.buckets
    M = np.zeros((width, width))
    M[np.triu(np.ones((width, width), dtype=bool))] = values.view(np.int64)[:-1] / 2.0 ** agreed.bits("moment")
    return M + np.triu(M, 1).T


@pytest.mark.parametrize("count", [2, 3])
def test_all_parties_but_one_learn_part_of_the_total_of_that_one(count):
    """Given away: V'(A + B)V is diagonal, so who knows A knows V'BV off the diagonal, and its trace from the share."""
    graph = gq.datasets.load_dataset("blocks")
    parts = networks(gq.Graph(graph.adjacency), NAMES[:count])
    agreed, members = agreed_round(parts, dim=4, buckets=60, two_parties=count == 2)
    answer = complete(parts, agreed, members)
    sums = [moment(federated.plain_sum(parts[name], agreed, members[name])[1], agreed) for name in NAMES[:count]]
    V = answer.arrays["directions"].astype(np.float64)
    A, B = (V.T @ M @ V for M in (sum(sums[:-1]), sums[-1]))
    between = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(B[between], -A[between], atol=1e-3)
    assert np.abs(B[between]).max() > 0.1
    trace = agreed.n_nodes  # no row is empty here
    assert answer.share * trace - np.trace(A) == pytest.approx(np.trace(B), abs=0.01)
    assert (answer.arrays["scale"] == 1).all()  # parties do not get the eigenvalues, which would be all of V'BV


def test_the_coordinator_and_one_party_see_links_of_others_between_ids_that_it_guesses():
    """Given away: the columns of the total get names; a guard of four nodes per column blurs them."""
    graph = gq.Graph(gq.datasets.load_dataset("blocks").subgraph(np.arange(300)).adjacency)
    parts = networks(graph, NAMES)
    held = np.unique(np.concatenate([np.asarray(n.graph.node_ids)[n.border] for n in parts.values()]))
    strange = np.setdiff1d(held, np.asarray(parts["a"].graph.node_ids))
    linked = graph.adjacency[strange][:, strange].toarray() > 0
    pairs = np.triu_indices(len(strange), 1)

    def guess(per_bucket):
        agreed, members = agreed_round(parts, dim=16, buckets=1500, per_bucket=per_bucket)
        M = sum(moment(federated.plain_sum(parts[name], agreed, members[name])[1], agreed) for name in NAMES)
        secret = agreed.invitation.bucket_key(members["a"].key)
        digests = [hmac.digest(secret, str(node).encode(), "sha256")[:8] for node in strange.tolist()]
        columns = np.array([int.from_bytes(digest, "little") % len(M) for digest in digests])
        scores = M[np.ix_(columns, columns)] / np.sqrt(np.outer(M[columns, columns], M[columns, columns]) + 1e-12)
        return gq.evaluate.roc_auc(scores[pairs][linked[pairs]], scores[pairs][~linked[pairs]])

    assert guess(0) > 0.85
    assert guess(4) < 0.75


def test_files_have_what_the_page_says_and_nothing_else(parts, tmp_path):
    """Names of features as a digest, counts on the card, directions and one share for the parties."""
    graph, names = gq.datasets.load_dataset("blocks"), [f"feature-{k}" for k in range(120)]
    parts = {name: replace(part, names=names) for name, part in networks(graph, NAMES[:3]).items()}
    agreed, members = agreed_round(parts, dim=3, features=names)
    made = contributions(parts, agreed, members)
    answer = federated.combine(agreed, made)
    agreed.invitation.save(tmp_path / "invitation")
    assert b"feature-" not in (tmp_path / "invitation").read_bytes()
    assert set(agreed.cards[0].content) == {"invitation", "party", "nodes", "border", "ids", "signing", "exchange"}
    assert {card.ids for card in agreed.cards} == {""}  # where no ids are compared
    assert set(made[0].content) == {"round", "step", "party", "context", "arrays"}
    assert set(made[0].arrays) == {"values"}
    assert {len(one.values) for one in made} == {120 * 121 // 2 + 1}
    assert (set(answer.arrays), set(answer.state)) == ({"directions", "scale"}, set())
    assert set(answer.header) == {"round", "step", "share"}


def test_data_that_has_changed_is_contributed_again_and_the_same_data_is_not(parts, honest, tmp_path):
    """Given away: the difference of two nights is the change, summed over all parties; nothing refuses this."""
    made, cards = homes(tmp_path, parts, honest[0].invitation, honest[1]["a"].key)
    first = federated.Round.of(honest[0].invitation, cards.values())
    made["a"].contribute(parts["a"], first, confirmed=first.code)
    later, key = federated.invite("night-2", 4, NAMES, terms=TERMS, key=b"another key for the second night")
    cards = {name: home.join(parts[name], later, key, party=name)[0].card for name, home in made.items()}
    second = federated.Round.of(later, cards.values())
    with pytest.raises(InputError, match="differ from these by 0"):
        made["a"].contribute(parts["a"], second)
    graph = parts["a"].graph
    heavier = gq.Graph(2 * graph.adjacency, node_ids=graph.node_ids)
    assert made["a"].contribute(replace(parts["a"], graph=heavier), second).step == 0


def test_a_forged_card_is_seen_by_its_key_or_by_the_code(parts, honest, tmp_path):
    """The coordinator shows a cards of its own making: it would know all masks of a."""
    agreed, members = honest
    key = members["a"].key
    made, cards = homes(tmp_path, parts, agreed.invitation, key)
    forged = {
        name: federated.join(parts[name], agreed.invitation, key, party=name, signing=new_signing_key())
        for name in NAMES[1:]
    }
    true = federated.Round.of(agreed.invitation, cards.values())
    false = federated.Round.of(agreed.invitation, [cards["a"], *(member.card for member in forged.values())])
    with pytest.raises(InputError, match="signing keys are new here"):
        made["a"].contribute(parts["a"], false)
    assert true.code != false.code
    with pytest.raises(InputError, match="different cards"):
        made["a"].contribute(parts["a"], false, confirmed=true.code)  # the code that the others read out
    changed = [replace(card, exchange=forged["b"].card.exchange) if card.party == "b" else card for card in true.cards]
    with pytest.raises(InputError, match="not signed by its key"):
        federated.Round.of(agreed.invitation, changed)
    # Given away: who confirms a code without comparing it shows its sum to the forger.
    sent = made["a"].contribute(parts["a"], false, confirmed=false.code)
    truth = federated.plain_sum(parts["a"], false, made["a"].member())[1]
    assert np.array_equal(unmasked(false, sent, forged, "a"), truth)


def test_a_key_that_was_confirmed_once_is_remembered_and_another_is_not_believed(parts, honest, tmp_path):
    key = honest[1]["a"].key
    made, cards = homes(tmp_path, parts, honest[0].invitation, key)
    first = federated.Round.of(honest[0].invitation, cards.values())
    made["a"].contribute(parts["a"], first, confirmed=first.code)
    later, key = federated.invite("night-2", 4, NAMES, terms=TERMS, key=b"another key for the second night")
    cards = {name: home.join(parts[name], later, key, party=name)[0].card for name, home in made.items()}
    second = federated.Round.of(later, cards.values())
    made["a"].contribute(parts["a"], second, again=True)  # nothing to confirm
    third, key = federated.invite("night-3", 4, NAMES, terms=TERMS, key=b"another key for a third night...")
    cards = {name: home.join(parts[name], third, key, party=name)[0].card for name, home in made.items()}
    cards["b"] = federated.join(parts["b"], third, key, party="b").card
    with pytest.raises(InputError, match=f"new here: b {cards['b'].fingerprint}"):
        made["a"].contribute(parts["a"], federated.Round.of(third, cards.values()), again=True)


def test_one_organisation_under_two_names_is_refused(parts, honest):
    agreed, members = honest
    key = members["a"].key
    twice = federated.join(parts["b"], agreed.invitation, key, party="b", signing=members["a"].signing).card
    with pytest.raises(InputError, match="two cards of the round 'night-1' have the same key"):
        federated.Round.of(agreed.invitation, [twice if card.party == "b" else card for card in agreed.cards])


def test_a_false_dropout_gets_no_second_contribution(parts, honest, tmp_path):
    """The coordinator says that d has dropped out, to see the difference of two totals: what d contributed."""
    key = honest[1]["a"].key
    made, cards = homes(tmp_path, parts, honest[0].invitation, key)
    agreed = federated.Round.of(honest[0].invitation, cards.values())
    made["a"].contribute(parts["a"], agreed, confirmed=agreed.code)
    # in the same round, with other cards
    other = federated.join(parts["d"], agreed.invitation, key, party="d").card
    changed = federated.Round.of(agreed.invitation, [*agreed.cards[:3], other])
    with pytest.raises(InputError, match="A second contribution would show the first"):
        made["a"].contribute(parts["a"], changed, confirmed=changed.code)
    # in a new round without d
    small, key = federated.invite("night-2", 4, NAMES[:3], terms=TERMS, key=b"another key for the second night")
    _, notes = made["a"].join(parts["a"], small, key, party="a")
    assert any("difference of two totals" in note for note in notes)
    cards = [made[name].join(parts[name], small, key, party=name)[0].card for name in NAMES[:3]]
    without = federated.Round.of(small, cards)
    with pytest.raises(InputError, match="differ from these by 1"):
        made["a"].contribute(parts["a"], without, confirmed=without.code)
    assert made["a"].sent() == []
    made["a"].contribute(parts["a"], without, confirmed=without.code, again=True)


def test_the_difference_of_two_rounds_is_what_the_missing_party_contributed(parts):
    """Given away with --again, and said so."""
    whole, members = agreed_round(parts, dim=4, buckets=60)
    plain = {name: federated.plain_sum(parts[name], whole, members[name])[1] for name in NAMES}
    total = sum(plain.values(), np.uint64(0))
    assert np.array_equal(total - sum((plain[name] for name in NAMES[:3]), np.uint64(0)), plain["d"])


def test_masks_are_used_once(parts, honest, tmp_path):
    key = honest[1]["a"].key
    made, cards = homes(tmp_path, parts, honest[0].invitation, key)
    agreed = federated.Round.of(honest[0].invitation, cards.values())
    home = made["a"]
    first = home.contribute(parts["a"], agreed, confirmed=agreed.code)
    assert home.sent() == [0]
    graph = parts["a"].graph
    A = graph.adjacency.tolil()
    own = np.flatnonzero(parts["a"].own)
    inside = np.setdiff1d(own, parts["a"].border)
    A[inside[0], inside[1]] = A[inside[1], inside[0]] = 1 - A[inside[0], inside[1]]
    changed = federated.Network.of(gq.Graph(A.tocsr(), node_ids=graph.node_ids), own)
    assert (changed.n_own, changed.n_border) == (parts["a"].n_own, parts["a"].n_border)
    again = home.contribute(changed, agreed, confirmed=agreed.code)  # the same bytes, whatever the network is now
    assert np.array_equal(again.values, first.values)
    member = home.member()
    fresh = federated.contribute(changed, agreed, member)  # what the home refuses would show the difference
    difference = (fresh.values - first.values).view(np.int64)
    assert np.abs(difference).max() < 2**36 * parts["a"].n_own
    home.end()
    assert home.member() is None
    with pytest.raises(InputError, match="no open round"):
        home.contribute(parts["a"], agreed)
    with pytest.raises(InputError, match="has ended here"):
        home.join(parts["a"], agreed.invitation, key, party="a")


def test_a_later_step_has_the_cards_of_the_first(parts, honest, tmp_path):
    """In rounds of several steps the coordinator cannot leave a party out after the first."""
    key = honest[1]["a"].key
    made, cards = homes(tmp_path, parts, honest[0].invitation, key)
    agreed = federated.Round.of(honest[0].invitation, cards.values())
    made["a"].contribute(parts["a"], agreed, confirmed=agreed.code)
    other = federated.join(parts["d"], agreed.invitation, key, party="d").card
    changed = federated.Round.of(agreed.invitation, [*agreed.cards[:3], other])
    later = federated.Directions(changed.id, 1, {"basis": np.eye(60, dtype=np.float32)})
    with pytest.raises(InputError, match="steps before 1 with these cards"):
        made["a"].contribute(parts["a"], changed, received=later, confirmed=changed.code)


def test_a_message_that_cannot_be_written_is_not_lost_and_not_changed(parts, honest, tmp_path, monkeypatch):
    """The step is marked as used before anybody can have seen the message."""
    key = honest[1]["a"].key
    made, cards = homes(tmp_path, parts, honest[0].invitation, key)
    agreed = federated.Round.of(honest[0].invitation, cards.values())
    written = []
    save = federated.Contribution.save

    def failing(self, path):
        written.append(path)
        if path.parent != made["a"].folder:
            raise OSError("no space")
        save(self, path)

    monkeypatch.setattr(federated.Contribution, "save", failing)
    sent = made["a"].contribute(parts["a"], agreed, confirmed=agreed.code)
    with pytest.raises(OSError, match="no space"):
        sent.save(tmp_path / "out")
    assert written[0] == made["a"].folder / "sent-0"
    assert np.array_equal(made["a"].contribute(parts["a"], agreed).values, sent.values)


def test_different_directions_for_different_parties_do_not_add_up(monkeypatch):
    """In rounds: the coordinator asks one party for another product, to learn more of it alone."""
    graph = gq.datasets.load_dataset("blocks")
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(size=(graph.n_nodes, 300))).astype(np.float32)
    parts = networks(gq.Graph(graph.adjacency, X), NAMES[:3])
    monkeypatch.setattr("graphquilt.federated.signal.WIDEST", 280)
    agreed, members = agreed_round(parts, dim=3, features=300)
    first = federated.combine(agreed, contributions(parts, agreed, members))
    assert "blocks" in first.arrays
    other = replace(first, arrays={**first.arrays, "blocks": np.eye(*first.arrays["blocks"].shape, dtype=np.float32)})
    made = contributions(parts, agreed, members, received=first)
    lied = federated.contribute(parts["a"], agreed, members["a"], received=other)
    with pytest.raises(InputError, match="did not get the same directions"):
        federated.combine(agreed, [lied, *made[1:]], before=first)
    hidden = replace(lied, context=made[0].context).signed(members["a"].signing)  # even if it says nothing
    with pytest.raises(InputError, match="the total"):
        federated.combine(agreed, [hidden, *made[1:]], before=first)


def test_different_last_directions_have_different_codes(parts, honest):
    """Given away: embeddings of two parties would not lie in one frame. ``embed`` prints the code to compare."""
    agreed, members = honest
    answer = complete(parts, agreed, members)
    turned = replace(answer, arrays={**answer.arrays, "directions": answer.arrays["directions"][:, ::-1].copy()})
    assert turned.code != answer.code
    federated.embed(parts["a"], agreed, members["a"], turned)


def test_directions_of_another_shape_are_refused(parts, honest, tmp_path):
    agreed, members = honest
    answer = complete(parts, agreed, members)
    V, scale = answer.arrays["directions"], answer.arrays["scale"]
    for arrays in (
        {"directions": V[1:], "scale": scale},
        {"directions": V[:, 1:], "scale": scale[1:]},
        {"directions": V},
    ):
        false = replace(answer, arrays=arrays)
        with pytest.raises(InputError):
            federated.embed(parts["a"], agreed, members["a"], false)
    for arrays in (
        {"directions": V},
        {"blocks": V},
        {"basis": V, "other": V},
        {"directions": V, "scale": scale * np.nan},
    ):
        replace(answer, arrays=arrays).save(tmp_path / "directions")
        with pytest.raises(gq.errors.FormatError, match="does not hold sound directions"):
            federated.Directions.load(tmp_path / "directions")


def test_ids_in_the_directions_are_found_by_parties_only_and_hidden_by_guards():
    """Given away: who has the parties' key can look up whether anybody has a node that it guesses."""

    graph = gq.Graph(gq.datasets.load_dataset("blocks").subgraph(np.arange(300)).adjacency)
    parts = networks(graph, NAMES)
    held = np.unique(np.concatenate([np.asarray(n.graph.node_ids)[n.border] for n in parts.values()]))
    invented = np.arange(10**6, 10**6 + len(held))

    def lookup(per_bucket, key=None):
        agreed, members = agreed_round(parts, dim=16, buckets=1500, per_bucket=per_bucket)
        strength = np.linalg.norm(complete(parts, agreed, members).arrays["directions"], axis=1)
        secret = agreed.invitation.bucket_key(key or members["a"].key)

        def column(node):
            return int.from_bytes(hmac.digest(secret, str(node).encode(), "sha256")[:8], "little") % len(strength)

        found, other = ([strength[column(node)] for node in nodes.tolist()] for nodes in (held, invented))
        return gq.evaluate.roc_auc(found, other)

    assert lookup(0) > 0.85  # a party, without a guard: a column of its own is filled or empty
    assert lookup(4) < 0.65  # a party, with four nodes per column on average
    assert abs(lookup(0, b"a coordinator that has no key...") - 0.5) < 0.1


def test_replayed_and_doubled_contributions_are_refused(parts, honest):
    agreed, members = honest
    made = contributions(parts, agreed, members)
    later, others = agreed_round(parts, dim=4, buckets=60, name="night-2")
    new = contributions(parts, later, others)
    with pytest.raises(InputError, match="contribution of a is of another round"):
        federated.combine(later, [made[0], *new[1:]])
    with pytest.raises(InputError, match="not signed by its key"):
        federated.combine(agreed, [replace(made[0], party="b"), made[0], *made[2:]])
    with pytest.raises(InputError, match="a contributed twice"):
        federated.combine(agreed, [made[0], *made])
    with pytest.raises(InputError, match="contributions of c, d are missing"):
        federated.combine(agreed, made[:2])
    with pytest.raises(InputError, match="is for step 1"):
        federated.combine(agreed, [replace(made[0], step=1).signed(members["a"].signing), *made[1:]])
    answer = federated.combine(agreed, made)
    with pytest.raises(InputError, match="of another round"):
        federated.embed(parts["a"], later, others["a"], answer)
    with pytest.raises(InputError, match="round is complete"):
        federated.contribute(parts["a"], agreed, members["a"], received=answer)


@pytest.mark.parametrize("lie", ["twice as large", "negative", "another width", "one wrong mask", "an entry"])
def test_what_cannot_be_a_sum_of_squares_is_refused_and_nobody_can_say_whose_it_was(parts, honest, lie):
    agreed, members = honest
    made = contributions(parts, agreed, members)
    truth = federated.plain_sum(parts["a"], agreed, members["a"])[1]
    false = {
        "twice as large": truth * np.uint64(2),
        "negative": np.uint64(0) - truth,
        "another width": truth[:-60],
        "one wrong mask": truth + mask(members["a"].exchange, agreed.card("b").exchange, b"other", len(truth)),
        "an entry": np.r_[truth[:1], np.uint64(1 << 60), truth[2:]],
    }[lie]
    size = len(false)
    made[0] = replace(made[0], values=(made[0].values - truth)[:size] + false).signed(members["a"].signing)
    expected = "of another signal, or damaged" if lie == "another width" else "Masks hide who sent what is wrong"
    with pytest.raises(InputError, match=expected):
        federated.combine(agreed, made)


def test_a_total_with_a_negative_eigenvalue_is_refused(parts, honest):
    agreed, members = honest
    made = contributions(parts, agreed, members)
    width = agreed.signal.buckets
    false = np.zeros((width, width))
    false[0, 1] = false[1, 0] = sum(card.nodes for card in agreed.cards) * 0.9
    upper = np.append((false[np.triu(np.ones((width, width), dtype=bool))] * 2.0**36).astype(np.int64), 0)
    made[0] = replace(made[0], values=made[0].values + upper.view(np.uint64)).signed(members["a"].signing)
    with pytest.raises(InputError, match="negative eigenvalue"):
        federated.combine(agreed, made)


def test_garbage_of_the_right_size_is_not_refused_but_seen_at_home(parts, honest):
    agreed, members = honest
    before = federated.embed(parts["b"], agreed, members["b"], complete(parts, agreed, members)).share
    made = contributions(parts, agreed, members)
    truth = federated.plain_sum(parts["a"], agreed, members["a"])[1]
    width, n = agreed.signal.buckets, parts["a"].n_own
    row = np.linalg.qr(np.random.default_rng(0).normal(size=(width, 3)))[0]
    upper = (n / 3 * row @ row.T)[np.triu(np.ones((width, width), dtype=bool))]
    false = np.append(np.rint(upper * 2.0**36).astype(np.int64), 0).view(np.uint64)
    made[0] = replace(made[0], values=made[0].values - truth + false).signed(members["a"].signing)
    answer = federated.combine(agreed, made)
    after = federated.embed(parts["b"], agreed, members["b"], answer)
    assert after.share < before - 0.01
    assert "They suit your network" in after.verdict
    assert "That is low" in replace(after, share=0.7 * after.best).verdict


def test_another_key_other_features_and_other_networks_are_refused():
    graph = gq.datasets.load_dataset("blocks")
    names = [f"feature-{k}" for k in range(graph.features.shape[1])]
    parts = {name: replace(part, names=names) for name, part in networks(graph, NAMES[:3]).items()}
    agreed, members = agreed_round(parts, dim=3, features=names)
    contribute = federated.contribute
    for reading in (
        contribute,
        lambda *words: federated.join(words[0], agreed.invitation, members["a"].key, party="a"),
    ):
        with pytest.raises(InputError, match="checks the names"):
            reading(replace(parts["a"], names=None), agreed, members["a"])
        with pytest.raises(InputError, match="or are in another order"):
            reading(replace(parts["a"], names=names[::-1]), agreed, members["a"])
    with pytest.raises(InputError, match="not the key"):
        contribute(parts["a"], agreed, replace(members["a"], key=bytes(32)))
    with pytest.raises(InputError, match="Contribute the network that you joined with"):
        contribute(federated.Network.of(parts["a"].graph, np.arange(9), names=names), agreed, members["a"])
    other = federated.join(parts["a"], agreed.invitation, members["a"].key, party="a")
    with pytest.raises(InputError, match="is not its own"):
        contribute(parts["a"], agreed, other)
    fewer = gq.Graph(graph.adjacency, graph.features[:, :-1])
    narrow = networks(fewer, NAMES[:3])
    with pytest.raises(InputError, match="features, and this network has 119"):
        contribute(replace(narrow["a"], names=names), agreed, members["a"])
    assert contribute(parts["a"], agreed, members["a"]).party == "a"


def test_who_may_take_part(parts):
    invite = federated.invite
    with pytest.raises(InputError, match="two parties shows the other's total"):
        invite("n", 4, ["a", "b"], terms=TERMS)
    assert invite("n", 4, ["a", "b"], terms=replace(TERMS, two_parties=True))[0].parties == ("a", "b")
    with pytest.raises(InputError, match="at least three parties"):
        invite("n", 4, ["a"])
    with pytest.raises(InputError, match="different names"):
        invite("n", 4, ["a", "b", "b"])
    invitation, key = invite("n", 4, NAMES)
    with pytest.raises(InputError, match="is not invited"):
        federated.join(parts["a"], invitation, key, party="e")
    with pytest.raises(InputError, match="not the key"):
        federated.join(parts["a"], invitation, bytes(32), party="a")
    inside = federated.Network.of(parts["a"].graph, np.arange(parts["a"].graph.n_nodes))
    with pytest.raises(InputError, match="Read the edges that lead to others too"):
        federated.join(inside, invitation, key, party="a")
    with pytest.raises(InputError, match="cards of b, c, d are missing"):
        federated.Round.of(invitation, [federated.join(parts["a"], invitation, key, party="a").card])


def test_the_page_names_these_tests():
    page = (Path(__file__).parents[1] / "docs" / "how-it-works" / "federated-privacy.md").read_text(encoding="utf-8")
    tests = {name for name in globals() if name.startswith("test_")} - {"test_the_page_names_these_tests"}
    assert not {name for name in tests if name not in page}
