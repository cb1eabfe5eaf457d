"""Splits that are given, in files or by years, and the command that trains perceptrons on them."""

import gzip
import json

import numpy as np
import pytest

import graphquilt as gq
from extras import needs
from graphquilt.errors import FormatError, InputError
from studies.fixed_splits import fixed_split, read_split, split_by_years

PARTS = {"train": np.array([4, 0, 2]), "valid": np.array([1, 3]), "test": np.array([5])}


def write_folder(folder, form):
    folder.mkdir()
    for name, nodes in PARTS.items():
        text = "".join(f"{node}\n" for node in nodes)
        if form == "npy":
            np.save(folder / f"{name}.npy", nodes)
        elif form == "csv.gz":
            (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"{name}.{form}").write_text(text)


@pytest.mark.parametrize("form", ["npy", "csv", "csv.gz", "txt", "npz", "pt"])
def test_every_form_of_a_split_gives_the_same_nodes(tmp_path, form):
    path = tmp_path / f"split.{form}"
    if form == "npz":
        np.savez(path, **PARTS)
    elif form == "pt":
        torch = needs("torch")
        torch.save({**PARTS, "test": torch.tensor([5])}, path)
    else:
        write_folder(path, form)
    assert {name: nodes.tolist() for name, nodes in read_split(path).items()} == {
        "train": [0, 2, 4],
        "valid": [1, 3],
        "test": [5],
    }


def test_what_is_no_split_is_refused_with_a_sentence(tmp_path):
    np.savez(tmp_path / "a.npz", train=np.arange(3))
    np.savez(tmp_path / "b.npz", train=np.arange(3.0), valid=np.arange(3))
    np.savez(tmp_path / "c.npz", train=np.arange(3), valid=np.array([-1]))
    write_folder(tmp_path / "d", "csv")
    (tmp_path / "d" / "valid.csv").write_text("1\ntwo\n")
    (tmp_path / "e").mkdir()
    for name, message in (
        ("a.npz", "holds train; a split has at least train and valid"),
        ("b.npz", "the part train is not a list of node numbers"),
        ("c.npz", "node numbers from -1 to -1"),
        ("d", r"valid\.csv, line 2: expected a node number, not 'two'"),
        ("e", "holds nothing"),
        ("f.npz", "does not exist"),
        ("f.txt", "is not a split"),
    ):
        with pytest.raises(FormatError, match=message):
            read_split(tmp_path / name)


def test_years_split_labelled_nodes_in_blocks_of_any_size(monkeypatch):
    rng = np.random.default_rng(0)
    years, labels = rng.integers(2015, 2022, 500), rng.integers(-1, 3, 500)
    whole = split_by_years(years, labels, (2018, 2019))
    assert np.array_equal(np.sort(np.concatenate(list(whole.values()))), np.flatnonzero(labels >= 0))
    assert years[whole["train"]].max() == 2018
    assert set(years[whole["valid"]]) == {2019}
    assert years[whole["test"]].min() == 2020
    monkeypatch.setattr("studies.fixed_splits._ROWS", 7)
    again = split_by_years(years.astype(np.int16), np.where(labels < 0, np.nan, labels), (2018, 2019))
    assert all(np.array_equal(whole[name], again[name]) for name in whole)
    with pytest.raises(InputError, match="second year is later"):
        split_by_years(years, labels, (2019, 2019))
    with pytest.raises(InputError, match="each node has one whole number"):
        split_by_years(years[1:], labels, (2018, 2019))


def test_only_labelled_nodes_are_used_and_validation_gives_tests_where_there_are_none():
    labels = np.arange(100) % 4 - 1
    parts = {"train": np.arange(40), "valid": np.arange(40, 70), "test": np.arange(70, 100)}
    split = fixed_split(parts, labels, seed=0)
    assert np.array_equal(split.test, 70 + np.flatnonzero(labels[70:] >= 0))
    hidden = np.where(np.arange(100) >= 70, -1, labels)
    for given in (parts, {name: parts[name] for name in ("train", "valid")}):
        held = fixed_split(given, hidden, seed=0, validation=5)
        assert len(held.validation) == 5
        assert np.array_equal(np.sort(np.r_[held.validation, held.test]), 40 + np.flatnonzero(labels[40:70] >= 0))
    with pytest.raises(InputError, match=r"node 99 in its part test, and there are 80 nodes"):
        fixed_split(parts, labels[:80], seed=0)
    with pytest.raises(InputError, match="3 nodes are in train and in valid of the split, the first is 37"):
        fixed_split(parts | {"valid": np.arange(36, 70)}, labels, seed=0)


GRID = ("--hidden", "16", "--layers", "2", "--dropout", "0", "--learning-rate", "0.01", "--max-epochs", "60")


def test_the_command_on_an_embedding_in_a_file(study, tmp_path):
    needs("torch")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    np.save(tmp_path / "x.npy", (np.eye(3)[y] + 0.1 * rng.normal(size=(600, 3))).astype(np.float16))
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "split.npz", train=np.arange(300), valid=np.arange(300, 600))
    words = ("classify", tmp_path / "x.npy", "--labels", tmp_path / "y.npy", *GRID)
    code, out, _ = study(*words, "--split", tmp_path / "split.npz", "--json")
    answer = json.loads(out)
    assert (code, answer["accuracy"] > 0.9, answer["perceptrons"]) == (0, True, 1)
    assert answer["perceptron"] == {"hidden": 16, "layers": 2, "dropout": 0.0, "learning_rate": 0.01}
    np.save(tmp_path / "years.npy", 2017 + np.arange(600) // 200)
    by_years = ("--years", tmp_path / "years.npy", "--until", "2017,2018")
    assert json.loads(study(*words, *by_years, "--json")[1])["accuracy"] > 0.9
    assert json.loads(study(*words, "--splits", 3, "--json")[1])["accuracy"] > 0.9  # by Adam, over random splits
    for wrong, message in (
        ((*words, *by_years, "--split", tmp_path / "split.npz"), "give either --split or --years"),
        (("classify", tmp_path / "x.npy"), "is an embedding without labels"),
        ((*words, *by_years[:2], "--until", "2018"), "--until takes two years separated by a comma"),
        ((*words, *by_years, "--hidden", "many"), "--hidden takes numbers separated by commas"),
    ):
        code, out, err = study(*wrong)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert message in err


def test_the_command_on_a_job_keeps_its_result_and_knows_ids(command, study, tmp_path, blocks):
    needs("torch")
    # The ids of the nodes are not their rows.
    graph = blocks.with_attributes(node_ids=3 * np.arange(blocks.n_nodes) + 1)
    store = gq.DirectoryStore(tmp_path / "job")
    gq.embed(graph, dim=8, n_patches=3, store=store)
    ids = np.random.default_rng(0).permutation(graph.node_ids)
    np.savez(tmp_path / "split.npz", train=ids[:600], valid=ids[600:800], test=ids[800:])
    code, out, _ = study("classify", store.folder, "--split", tmp_path / "split.npz", *GRID, "--json")
    answer = json.loads(out)
    assert (code, answer["accuracy"] > 0.5, 0.5 < answer["auc"] <= 1) == (0, True, True)
    kept = json.loads((store.folder / "evaluation.json").read_text())["parameters"]
    assert kept["mlp"]["accuracy"] == answer["accuracy"]
    assert (store.folder / "perceptrons.grid").exists()
    assert command("inspect", store.folder, "--verify")[0] == 0
    years = np.full(int(graph.node_ids.max()) + 1, 2000)
    years[ids[:600]], years[ids[600:800]], years[ids[800:]] = 2018, 2019, 2020
    np.save(tmp_path / "years.npy", years)
    by_years = json.loads(study("classify", store.folder, "--years", tmp_path / "years.npy", *GRID, "--json")[1])
    assert by_years["accuracy"] == answer["accuracy"]
