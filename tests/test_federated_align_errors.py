"""Bad input of federated alignment: one clear sentence, exit code 2, and nothing half-written."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import graphquilt as gq
from federation import measurements, offer_of, offers, with_arrays, with_facts
from graphquilt.cli import main
from graphquilt.errors import DisconnectedError, FormatError, InputError
from graphquilt.federated import align, messages

DIM = 4


@pytest.fixture(scope="module")
def four(blocks):
    """Four parties of one round, and of another with the same names."""
    return offers(blocks, 4, gq.SVD(DIM))[0]


@pytest.fixture(scope="module")
def earlier(blocks):
    return offers(blocks, 4, gq.SVD(DIM))[0]


@pytest.fixture(scope="module")
def measured(four):
    return measurements(four)


def move_in(party, home):
    """Make the folder of a party, as offer does."""
    align.party_secret(Path(home))
    party.save(Path(home, party.round.folder))


@pytest.fixture
def federate(capsys, monkeypatch, tmp_path):
    """Run a command in this process, in a folder of its own; it must fail and leave the folder as it was."""
    monkeypatch.chdir(tmp_path)

    def contents():
        return {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()}

    def call(*words, code=2):
        before = contents()
        monkeypatch.setattr("sys.argv", ["graphquilt", "federate", "align", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        call.out, err = capsys.readouterr()
        assert (end.value.code or 0) == code, err
        if code == 2:
            assert contents() == before
            assert not list(Path.cwd().rglob("*.part"))
            assert "Traceback" not in err
            assert err.count("\n") == 1
        return err

    return call


def test_an_offer_of_an_earlier_round(federate, four, earlier):
    move_in(four[0], "a")
    earlier[1].offer.save("b-offer")
    error = federate("reply", "a", "b-offer", "--out", "a-to-b")
    assert f"belongs to the round 'night-1' ({earlier[0].round.id[:8]})" in error
    assert four[0].round.id[:8] in error
    with pytest.raises(InputError, match="Files of other rounds are not taken"):
        align.reply(four[0], earlier[1].offer)


def test_a_reply_of_an_earlier_round(federate, four, earlier):
    move_in(four[1], "b")
    align.reply(earlier[0], earlier[1].offer).save("a-to-b")
    assert "Ask for a file of one of them" in federate("measure", "b", "a-to-b", "--out", "stats")
    assert not Path("stats").exists()


def test_an_earlier_file_with_the_id_of_this_round(federate, four, earlier):
    move_in(four[0], "a")
    replace(earlier[1].offer, round=four[0].round.id).save("b-offer")
    assert "was not written with the key of the round" in federate("reply", "a", "b-offer", "--out", "a-to-b")


def test_a_reply_to_another_offer_of_the_same_round(blocks, four):
    again = offer_of(blocks, np.arange(600), four[1].round, four[1].key, party="bank-b", embedder=gq.SVD(DIM))
    with pytest.raises(InputError, match="was made for another offer of bank-b"):
        align.measure(again, align.reply(four[0], four[1].offer))
    stale = align.solve(measurements(four), four[0].round).transforms["bank-b"]
    with pytest.raises(InputError, match="from another offer of bank-b"):
        align.apply(again, stale)
    mixed = [*measurements(four), align.measure(four[0], align.reply(again, four[0].offer))]
    with pytest.raises(InputError, match="different offers of bank-b"):
        align.solve(mixed, four[0].round)


def test_a_party_offers_once_and_answers_one_offer_of_a_partner(federate, blocks, four):
    a, b, *_ = four
    a.round.save("round.json")
    align.save_key(a.key, "key")
    np.savez("x.npz", ids=a.ids, vectors=a.embedding)
    words = ["offer", "x.npz", "--round", "round.json", "--key", "key", "--party", "bank-a", "--home", "a"]
    federate(*words, code=0)
    assert "bank-a has made its offer in this round" in federate(*words, "--noise", "0.2")
    b.offer.save("b-offer")
    federate("reply", "a", "b-offer", "--out", "a-to-b", code=0)
    federate("reply", "a", "b-offer", "--out", "a-to-b", code=0)
    guesses = offer_of(blocks, np.arange(1200), b.round, b.key, party="bank-b", embedder=gq.SVD(DIM))
    guesses.offer.save("guesses")
    assert "bank-b has sent another offer before" in federate("reply", "a", "guesses", "--out", "again")


def test_offers_of_other_dimensions(federate, blocks, four):
    other = offers(blocks, 4, gq.SVD(DIM + 1))[0]
    move_in(four[0], "a")
    other[1].offer.save("b-offer")
    assert f"({other[0].round.id[:8]})" in federate("reply", "a", "b-offer", "--out", "a-to-b")


def test_a_newer_version_is_refused(four, tmp_path, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(messages, "VERSION", 5)
        four[1].offer.save(tmp_path / "offer")
    with pytest.raises(FormatError, match="has version 5 of the format, and this graphquilt reads version 4"):
        align.Message.load(tmp_path / "offer")


def test_a_reply_with_nodes_that_were_not_offered(federate, four):
    a, b, *_ = four
    move_in(b, "b")
    reply = align.reply(a, b.offer)
    names = reply.arrays["pseudonyms"].copy()
    names[-1] = b"\xff" * 32
    with_arrays(reply, a.key, pseudonyms=names).save("a-to-b")
    assert "1 of them were not in the offer of bank-b" in federate("measure", "b", "a-to-b", "--out", "stats")


def test_a_file_for_somebody_else(federate, four):
    move_in(four[2], "c")
    align.reply(four[0], four[1].offer).save("a-to-b")
    assert "is for bank-b, and not for bank-c" in federate("measure", "c", "a-to-b", "--out", "stats")
    assert "is not a file for this step, which takes this: offer" in federate("reply", "c", "a-to-b", "--out", "c-to-a")
    four[2].offer.save("own")
    assert "bank-c's own offer" in federate("reply", "c", "own", "--out", "c-to-c")


def test_a_damaged_file(federate, four):
    move_in(four[0], "a")
    four[1].offer.save("b-offer")
    content = bytearray(Path("b-offer").read_bytes())
    content[len(content) // 2] ^= 1
    Path("b-offer").write_bytes(content)
    assert "b-offer" in federate("reply", "a", "b-offer", "--out", "a-to-b")
    Path("b-offer").write_bytes(content[: len(content) // 2])
    assert "b-offer" in federate("reply", "a", "b-offer", "--out", "a-to-b")
    Path("b-offer").write_text("hello")
    assert "b-offer" in federate("reply", "a", "b-offer", "--out", "a-to-b")
    assert "cannot be read" in federate("reply", "a", "nothing", "--out", "a-to-b")
    four[1].offer.save("b-offer")
    assert "not the folder of a party" in federate("reply", ".", "b-offer", "--out", "a-to-b")


def test_an_answer_in_a_round_without_private_set_intersection(four):
    a, b, *_ = four
    answer = replace(align.reply(a, b.offer), kind="answer").authenticated(a.key)
    with pytest.raises(InputError, match="the answer of bank-a is not a file for this step"):
        align.reply(b, answer)


def test_the_key_of_another_round(federate, four, earlier):
    four[0].round.save("round.json")
    align.save_key(earlier[0].key, "key")
    Path("x.csv").write_text("id,x0,x1,x2,x3\na,1,2,3,4\nb,1,3,2,1\n")
    words = ["offer", "x.csv", "--round", "round.json", "--key", "key", "--party", "bank-a", "--home", "a"]
    assert "is not the key of the round" in federate(*words)
    Path("key").write_text("hello")
    assert "is not JSON" in federate(*words)
    align.save_key(four[0].key, "key")
    Path("a").mkdir()
    align.save_key(bytes(32), "a/secret")
    assert "would share at most 2 nodes with a partner" in federate(*words)
    Path("own.txt").write_text("zebra\n")
    assert "is one of the 2 nodes here" in federate(*words, "--share", "own.txt")
    assert "cannot be read" in federate(*words, "--share", "missing.txt")
    assert "cannot be the name of a party" in federate(*words, "--party", "../a")
    assert "noise must be finite" in federate(*words, "--noise", "-1")
    Path("x.csv").write_text("id,x0,x1\na,1,2\nb,1,3\n")
    assert "takes 4 finite coordinates for each of 2 nodes" in federate(*words)


def test_a_round_that_was_changed(federate, four):
    four[0].round.save("round.json")
    text = Path("round.json").read_text()
    Path("round.json").write_text(text.replace('"least": 18', '"least": 19'))
    words = ["offer", "x.csv", "--round", "round.json", "--key", "key", "--party", "bank-a", "--home", "a"]
    assert "it was changed" in federate(*words)


def test_a_round_has_at_least_two_parties():
    with pytest.raises(InputError, match="at least two parties, and this one names bank-a"):
        align.invite("night-1", DIM, parties=["bank-a"])


def test_too_few_shared_nodes(federate, blocks):
    made, key = align.invite("night-1", DIM, least=50, ids_can_be_guessed=True)
    a = offer_of(blocks, np.arange(600), made, key, party="bank-a", embedder=gq.SVD(DIM))
    b = offer_of(blocks, np.arange(588, 1200), made, key, party="bank-b", embedder=gq.SVD(DIM))
    move_in(a, "a")
    b.offer.save("b-offer")
    error = federate("reply", "a", "b-offer", "--out", "a-to-b")
    assert "bank-a and bank-b share 12 nodes; the round 'night-1' in 4 dimensions needs at least 50" in error
    with pytest.raises(InputError, match="at least 18 nodes"):
        align.invite("night-1", DIM, least=17)


def save_all(measured, of_round, folder="stats"):
    of_round.save("round.json")
    Path(folder).mkdir()
    for k, message in enumerate(measured):
        message.save(Path(folder, str(k)))


def test_statistics_that_contradict_each_other(federate, four, measured):
    arrays = measured[0].arrays
    statistics = gq.OverlapStatistics.from_arrays(arrays)
    bad = {
        "contradict each other": {"products": 3 * statistics.products},
        "must be finite": {"means": np.full_like(statistics.means, np.nan)},
        "product of an overlap must be finite": {"products": np.full_like(statistics.products, np.inf)},
        "not negative": {"spreads": -statistics.spreads},
        "at least one node": {"counts": -statistics.counts},
    }
    for k, (words, changed) in enumerate(bad.items()):
        forged = object.__new__(gq.OverlapStatistics)  # which a forger makes without the checks
        for name in ("counts", "sizes", "means", "spreads", "products"):
            object.__setattr__(forged, name, changed.get(name, getattr(statistics, name)))
        save_all([replace(measured[0], arrays=forged.to_arrays()), *measured[1:]], four[0].round, f"stats{k}")
        error = federate("solve", f"stats{k}", "--round", "round.json", "--out", "transforms")
        assert words in error
        assert "bank-a and bank-b" in error
        assert not Path("transforms").exists()


def test_two_measurements_of_a_pair_that_differ(federate, four, measured):
    a, b, *_ = four
    reply = align.reply(b, a.offer)
    X = reply.arrays["coordinates"].copy()
    X[:9] *= 2
    other = align.measure(a, with_arrays(reply, b.key, coordinates=X))
    save_all([*measured, other], a.round)
    error = federate("solve", "stats", "--round", "round.json", "--out", "transforms")
    assert "bank-a and bank-b were measured twice, by bank-a and by bank-b" in error


def test_a_missing_pair_leaves_parties_unconnected(federate, four, measured):
    apart = [
        message for message in measured if message.facts["parties"] in (["bank-a", "bank-b"], ["bank-c", "bank-d"])
    ]
    save_all(apart, four[0].round)
    error = federate("solve", "stats", "--round", "round.json", "--out", "transforms")
    assert "bank-c" in error
    assert "bank-a" in error
    with pytest.raises(DisconnectedError):
        align.solve(apart, four[0].round)
    # One pair that is missing is no obstacle as long as all parties are connected.
    assert len(align.solve(measured[1:], four[0].round).transforms) == 4


def test_a_party_of_the_round_that_nobody_measured(blocks):
    made, key = align.invite("night-1", DIM, parties=["bank-a", "bank-b", "bank-c"], ids_can_be_guessed=True)
    nodes = np.arange(1200)
    a, b = (offer_of(blocks, nodes, made, key, party=name, embedder=gq.SVD(DIM)) for name in ("bank-a", "bank-b"))
    measured = [align.measure(b, align.reply(a, b.offer))]
    with pytest.raises(DisconnectedError, match="bank-c"):
        align.solve(measured, made)
    with pytest.raises(InputError, match="bank-z is not invited"):
        offer_of(blocks, nodes, made, key, party="bank-z", embedder=gq.SVD(DIM))


def test_measurements_of_two_rounds(federate, measured, earlier, four):
    save_all([*measured, measurements(earlier)[0]], four[0].round)
    error = federate("solve", "stats", "--round", "round.json", "--out", "transforms")
    assert "the measurement of bank-b belongs to the round 'night-1'" in error
    Path("empty").mkdir()
    assert "no measurements" in federate("solve", "empty", "--round", "round.json", "--out", "transforms")
    assert "is not a folder" in federate("solve", "nowhere", "--round", "round.json", "--out", "transforms")


def test_files_of_another_kind(federate, four, measured):
    save_all([*measured, four[0].offer], four[0].round)
    assert "is not a file for this step, which takes this: measurement" in federate(
        "solve", "stats", "--round", "round.json", "--out", "transforms"
    )


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"parties": ["bank-b", "bank-a"]}, "does not say what a measurement says"),
        ({"parties": ["bank-c", "bank-d"]}, "does not say what a measurement says"),
        ({"nodes": {"bank-a": -1, "bank-b": 0}}, "does not say what a measurement says"),
        ({"nodes": {"bank-a": 5, "bank-b": 5}}, "their offers have 5 and 5"),
    ],
)
def test_headers_that_cannot_be(four, measured, facts, error):
    with pytest.raises(FormatError, match=error):
        align.solve([with_facts(measured[0], **facts), *measured[1:]], four[0].round)


def test_a_transform_that_is_no_motion(federate, four, measured):
    result = align.solve(measured, four[0].round)
    move_in(four[0], "a")
    good = result.transforms["bank-a"]
    for name, array in {
        "rotation": 2 * np.eye(DIM),
        "scale": np.array([3.0]),
        "translation": np.full(DIM, np.inf),
    }.items():
        with_arrays(good, **{name: array}).save("t")
        assert "transform" in federate("apply", "a", "t", "--out", "x.csv")
        assert not Path("x.csv").exists()
    result.transforms["bank-b"].save("t")
    assert "is for bank-b, and not for bank-a" in federate("apply", "a", "t", "--out", "x.csv")
    good.save("t")
    assert "not an export format" in federate("apply", "a", "t", "--out", "x.doc")
    federate("apply", "a", "t", "--out", "x.csv", code=0)
    assert len(Path("x.csv").read_text().splitlines()) == len(four[0].ids) + 1


def test_nothing_that_is_there_is_overwritten(federate, four, measured):
    words = ["invite", "--dim", "4", "--name", "n", "--out", "r.json", "--key", "key"]
    federate(*words, code=0)
    assert "r.json and key exist already" in federate(*words)
    save_all(measured, four[0].round)
    Path("transforms").mkdir()
    shutil.copy("key", "transforms/key")
    assert "not empty" in federate("solve", "stats", "--round", "round.json", "--out", "transforms")
    Path("taken").mkdir()
    Path("taken/x").write_text("x")
    with pytest.raises(InputError, match="not empty"):
        four[0].save("taken")


def test_a_bad_fit_is_not_sent(federate, four):
    rng = np.random.default_rng(0)

    def scramble(sender, message):
        X = message.arrays["coordinates"]
        return with_arrays(message, coordinates=X[rng.permutation(len(X))])

    save_all(measurements(four, change=scramble), four[0].round)
    error = federate("solve", "stats", "--round", "round.json", "--out", "transforms", code=3)
    assert "the fit is bad, and no transforms were written" in error
    assert not Path("transforms").exists()
    assert "Send" not in federate.out


def test_a_reader_that_may_not_write(federate, four, measured):
    save_all(measured, four[0].round)
    Path("file").write_text("x")
    assert "cannot write" in federate("solve", "stats", "--round", "round.json", "--out", "file/transforms")
