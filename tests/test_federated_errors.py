"""Bad input of federated alignment: one clear sentence, exit code 2, and nothing half-written."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import graphquilt as gq
from federation import measurements, offers, with_arrays, with_facts
from graphquilt import federated
from graphquilt.cli import main
from graphquilt.errors import DisconnectedError, FormatError, InputError, OverlapError
from graphquilt.federated import messages

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


@pytest.fixture
def federate(capsys, monkeypatch, tmp_path):
    """Run a command in this process, in a folder of its own; it must fail and leave the folder as it was."""
    monkeypatch.chdir(tmp_path)

    def contents():
        return {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()}

    def call(*words, code=2):
        before = contents()
        monkeypatch.setattr("sys.argv", ["graphquilt", "federate", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        _, err = capsys.readouterr()
        assert (end.value.code or 0) == code, err
        if code == 2:
            assert contents() == before
            assert not list(Path.cwd().rglob("*.part"))
            assert "Traceback" not in err
            assert err.count("\n") == 1
        return err

    return call


def test_an_offer_of_an_earlier_round(federate, four, earlier):
    four[0].save("a")
    earlier[1].offer.save("b-offer")
    error = federate("reply", "a", "b-offer", "--out", "a-to-b")
    assert "Files of other rounds, earlier ones included, are not taken" in error
    assert four[0].round.id[:8] in error


def test_a_reply_of_an_earlier_round(federate, four, earlier):
    four[1].save("b")
    federated.reply(earlier[0], earlier[1].offer).save("a-to-b")
    assert "Files of other rounds" in federate("measure", "b", "a-to-b", "--out", "stats")
    assert not Path("stats").exists()


def test_an_earlier_file_with_the_id_of_this_round(federate, four, earlier):
    four[0].save("a")
    replace(earlier[1].offer, round=four[0].round.id).save("b-offer")
    assert "was not written with the key of the round" in federate("reply", "a", "b-offer", "--out", "a-to-b")


def test_a_reply_to_an_earlier_offer_of_the_same_round(blocks, four):
    again = federated.offer(blocks, four[1].round, four[1].key, party="bank-b")
    with pytest.raises(InputError, match="was made for another offer of bank-b"):
        federated.measure(again, federated.reply(four[0], four[1].offer))
    stale = federated.align(measurements(four)).transforms["bank-b"]
    with pytest.raises(InputError, match="from another offer of bank-b"):
        federated.apply(again, stale)
    mixed = [*measurements(four), federated.measure(four[0], federated.reply(again, four[0].offer))]
    with pytest.raises(InputError, match="bank-b has made more than one offer"):
        federated.align(mixed)


def test_offers_of_other_dimensions(federate, blocks, four):
    other = offers(blocks, 4, gq.SVD(DIM + 1))[0]
    four[0].save("a")
    other[1].offer.save("b-offer")
    assert f"({other[0].round.id[:8]}, {DIM + 1} dimensions)" in federate("reply", "a", "b-offer", "--out", "a-to-b")
    with pytest.raises(InputError, match="has 9 dimensions"):
        federated.reply(four[0], replace(four[1].offer, dim=9).authenticated(four[0].key))


def test_a_newer_version_is_refused(four, tmp_path, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(messages, "VERSION", 2)
        four[1].offer.save(tmp_path / "offer")
    with pytest.raises(FormatError, match="has version 2 of the format, and this graphquilt reads version 1"):
        federated.Message.load(tmp_path / "offer")


def test_a_reply_with_nodes_that_were_not_offered(federate, four):
    a, b, *_ = four
    b.save("b")
    reply = federated.reply(a, b.offer)
    names = reply.arrays["pseudonyms"].copy()
    names[-1] = b"\xff" * 32
    with_arrays(reply, a.key, pseudonyms=names).save("a-to-b")
    assert "1 of them were not in the offer of bank-b" in federate("measure", "b", "a-to-b", "--out", "stats")


def test_a_file_for_somebody_else(federate, four):
    four[2].save("c")
    federated.reply(four[0], four[1].offer).save("a-to-b")
    assert "is for bank-b, and not for bank-c" in federate("measure", "c", "a-to-b", "--out", "stats")
    assert "is not a file for this step, which takes an offer" in federate("reply", "c", "a-to-b", "--out", "c-to-a")
    four[2].offer.save("own")
    assert "bank-c's own offer" in federate("reply", "c", "own", "--out", "c-to-c")


def test_a_damaged_file(federate, four):
    four[0].save("a")
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
    assert "not the folder of a party" in federate("reply", ".", "b-offer", "--out", "a-to-b")


def test_an_answer_in_a_round_without_private_set_intersection(four):
    a, b, *_ = four
    answer = replace(federated.reply(a, b.offer), kind="answer").authenticated(a.key)
    with pytest.raises(InputError, match="the answer of bank-a is not a file for this step"):
        federated.reply(b, answer)


def test_the_key_of_another_round(federate, four, earlier, blocks):
    four[0].round.save("round.toml")
    federated.save_key(earlier[0].key, "key", name="night-0")
    Path("edges.csv").write_text("a,b\nb,c\n")
    words = ["offer", "edges.csv", "--round", "round.toml", "--key", "key", "--party", "bank-a", "--out", "a"]
    assert "is the key of another round ('night-0')" in federate(*words)
    federated.save_key(four[0].key, "key", name="night-1")
    assert "would share at most 3 nodes with a partner" in federate(*words)
    assert "--share boundary needs --own FILE" in federate(*words, "--share", "boundary")
    Path("own.txt").write_text("zebra\n")
    assert "none of the 1 ids in own.txt is one of the 3 nodes" in federate(*words, "--own", "own.txt")
    assert "cannot be read as a list of ids" in federate(*words, "--share", "missing.txt")
    assert "cannot be the name of a party" in federate(*words, "--party", "../a")


def test_a_round_that_was_changed(federate, four):
    four[0].round.save("round.toml")
    text = Path("round.toml").read_text()
    Path("round.toml").write_text(text.replace("seed = 0", "seed = 1"))
    federated.save_key(four[0].key, "key", name="night-1")
    Path("edges.csv").write_text("a,b\nb,c\n")
    words = ["offer", "edges.csv", "--round", "round.toml", "--key", "key", "--party", "bank-a", "--out", "a"]
    assert "was changed after it was made" in federate(*words)


def test_a_round_has_at_least_two_parties():
    with pytest.raises(InputError, match="at least two parties, and bank-a is the only one named"):
        federated.invite("night-1", gq.SVD(DIM), parties=["bank-a"])


def test_too_few_shared_nodes(federate, blocks):
    made, key, _ = federated.invite("night-1", gq.SVD(DIM), least=50)
    a = federated.offer(blocks.subgraph(np.arange(600)), made, key, party="bank-a")
    b = federated.offer(blocks.subgraph(np.arange(588, 1200)), made, key, party="bank-b")
    a.save("a")
    b.offer.save("b-offer")
    error = federate("reply", "a", "b-offer", "--out", "a-to-b")
    assert "bank-a and bank-b share 12 nodes; the round 'night-1' in 4 dimensions needs at least 50" in error
    assert "agree on a round of at most 11 dimensions" in error
    with pytest.raises(InputError, match="at least 5 nodes to be compared in 4 dimensions"):
        federated.invite("night-1", gq.SVD(DIM), least=3)


def save_all(measured, folder="stats"):
    Path(folder).mkdir()
    for k, message in enumerate(measured):
        message.save(Path(folder, str(k)))


def test_statistics_that_contradict_each_other(federate, measured):
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
        save_all([replace(measured[0], arrays=forged.to_arrays()), *measured[1:]], f"stats{k}")
        error = federate("align", f"stats{k}", "--out", "transforms")
        assert words in error
        assert "bank-a and bank-b" in error
        assert not Path("transforms").exists()


def test_two_measurements_of_a_pair_that_differ(federate, four, measured):
    a, b, *_ = four
    reply = federated.reply(b, a.offer)
    X = reply.arrays["coordinates"].copy()
    X[0] += 1
    other = federated.measure(a, with_arrays(reply, b.key, coordinates=X))
    save_all([*measured, other])
    error = federate("align", "stats", "--out", "transforms")
    assert "bank-a and bank-b were measured twice, by bank-a and by bank-b" in error


def test_a_missing_pair_leaves_parties_unconnected(federate, four, measured):
    apart = [
        message for message in measured if message.facts["parties"] in (["bank-a", "bank-b"], ["bank-c", "bank-d"])
    ]
    save_all(apart)
    error = federate("align", "stats", "--out", "transforms")
    assert "no measurement connects these parties with bank-a, bank-b: bank-c, bank-d" in error
    with pytest.raises(DisconnectedError):
        federated.align(apart)
    # One pair that is missing is no obstacle as long as all parties are connected.
    assert len(federated.align(measured[1:]).transforms) == 4


def test_a_party_of_the_round_that_nobody_measured(blocks):
    made, key, _ = federated.invite("night-1", gq.SVD(DIM), parties=["bank-a", "bank-b", "bank-c"])
    a, b = (federated.offer(blocks, made, key, party=name) for name in ("bank-a", "bank-b"))
    measured = [federated.measure(b, federated.reply(a, b.offer))]
    with pytest.raises(DisconnectedError, match="bank-c"):
        federated.align(measured, of_round=made)
    assert federated.align(measured).parties == ("bank-a", "bank-b")
    with pytest.raises(InputError, match="bank-z takes no part"):
        federated.offer(blocks, made, key, party="bank-z")


def test_measurements_of_two_rounds(federate, measured, earlier, four):
    save_all([*measured, measurements(earlier)[0]])
    assert "are of 2 different rounds" in federate("align", "stats", "--out", "transforms")
    four[0].round.save("round.toml")
    error = federate("align", "stats", "--out", "transforms", "--round", "round.toml")
    assert "the measurement of bank-b belongs to the round 'night-1'" in error
    Path("empty").mkdir()
    assert "no measurements" in federate("align", "empty", "--out", "transforms")
    assert "is not a folder" in federate("align", "nowhere", "--out", "transforms")


def test_files_of_another_kind(federate, four, measured):
    save_all([*measured, four[0].offer])
    assert "is not a measurement" in federate("align", "stats", "--out", "transforms")


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"parties": ["bank-b", "bank-a"]}, "does not say what a measurement says"),
        ({"parties": ["bank-c", "bank-d"]}, "does not say what a measurement says"),
        ({"noise": {"bank-a": -1, "bank-b": 0}}, "does not say what a measurement says"),
        ({"motions": {"scale": 1}}, "does not say what a measurement says"),
        ({"least": 10**6}, "need"),
    ],
)
def test_headers_that_cannot_be(measured, facts, error):
    with pytest.raises((FormatError, OverlapError), match=error):
        federated.align([with_facts(measured[0], **facts), *measured[1:]])


def test_a_transform_that_is_no_motion(federate, four, measured):
    result = federated.align(measured)
    four[0].save("a")
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
    words = ["invite", "--dim", "4", "--name", "n", "--out", "round.toml", "--key", "key"]
    federate(*words, code=0)
    assert "round.toml and key exist already" in federate(*words)
    assert "--sample and --start go together" in federate(*words, "--start", "s")
    save_all(measured)
    Path("transforms").mkdir()
    shutil.copy("key", "transforms/key")
    assert "not empty" in federate("align", "stats", "--out", "transforms")
    assert "not empty" in federate(
        "offer", "e.csv", "--round", "round.toml", "--key", "key", "--party", "a", "--out", "transforms"
    )


def test_a_reader_that_may_not_write(federate, four, measured):
    save_all(measured)
    Path("file").write_text("x")
    assert "cannot write" in federate("align", "stats", "--out", "file/transforms")
