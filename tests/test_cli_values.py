"""Flags that become values: workers, embedders, cuttings, and what Dask workers must have."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

import graphquilt as gq
from extras import needs
from graphquilt.cli import app, flags, main
from graphquilt.cli.flags import CuttingFlags, EmbedderFlags, SourceFlags, StitchingFlags, Workers, job_settings
from graphquilt.errors import InputError
from graphquilt.jobs import JobSettings, Processes, Record, Source

LONG = "x" * 300


@pytest.mark.parametrize("text", ["GPU=x", "GPU=", "GPU"])
def test_a_resource_is_a_name_and_a_number(text):
    needs("distributed")
    workers = Workers(dask="tcp://127.0.0.1:1", dask_resource=(text,))
    with pytest.raises(InputError, match="takes a name and a number"), workers.executor(1):
        pass


def test_one_worker_is_a_plain_loop_and_more_are_processes(monkeypatch):
    monkeypatch.setattr(flags.os, "sched_getaffinity", lambda _: set(range(3)), raising=False)
    for n_workers, n_tasks, expected in ((None, 0, 1), (None, 1, 1), (None, 2, 2), (None, 9, 3), (1, 9, 1), (5, 1, 5)):
        workers = Workers(workers=n_workers)
        assert workers.count(n_tasks) == expected
        with workers.executor(n_tasks) as pool:
            assert (pool.n_workers if isinstance(pool, Processes) else 1) == expected


def embedder(word, *settings, dim=8, recipe=gq.Recipe(), current=gq.SVD(64)):
    flags = EmbedderFlags(embedder=word, dim=dim, set=settings)
    return flags.apply_to(JobSettings(embedder=current), recipe)


@pytest.mark.parametrize("setting", ["max_epochs=abc", "hidden=16.5", "lr", "init_seed=x", "lr=true", "lr="])
def test_settings_of_another_kind_are_refused_before_any_patch(setting):
    with pytest.raises(InputError, match=rf"{setting.partition('=')[0]} of vgae takes .* as in --set|NAME=VALUE"):
        embedder("vgae", setting)


def test_settings_are_read_as_they_are_meant():
    model = embedder("vgae", "init_seed=none", "hidden=16", "lr=1", "featureless=degree")
    assert (model.init_seed, model.hidden, model.lr, model.featureless) == (None, 16, 1, "degree")


def test_a_shared_start_is_no_setting():
    assert embedder("propagation", "steps=4", "clusters=64") == gq.Propagation(8, steps=4, clusters=64)
    with pytest.raises(
        InputError, match=r"'start' is not a setting of propagation; it has block, clusters, directed, far_field"
    ):
        embedder("propagation", "start=1")


def test_a_signal_is_set_by_its_name_or_by_its_parts():
    assert embedder("propagation", "signal=edges").signal == gq.Signal.edges()
    both = embedder("propagation", "signal=features", "signal.clusters=0.5")
    assert both.signal == replace(gq.Signal.features(), clusters=0.5)
    with pytest.raises(InputError, match="'2' is not a signal; choose one of default, features, edges"):
        embedder("propagation", "signal=2")
    with pytest.raises(InputError, match="'colour' is not a part of a signal; it has spread, raw"):
        embedder("propagation", "signal.colour=1")
    with pytest.raises(InputError, match="raw of a Signal is a number of at least 0"):
        embedder("propagation", "signal.raw=-1")


def test_settings_change_the_embedder_that_a_job_has():
    current = gq.VGAE(4, weight_decay=0.5)
    assert embedder(None, "lr=1", current=current) == gq.VGAE(8, weight_decay=0.5, lr=1)
    assert embedder(None, dim=None, current=current) == current
    assert embedder("vgae", dim=None, current=current) == gq.VGAE(4)
    with pytest.raises(InputError, match="cannot change 2 embedders"):
        embedder(None, current=(gq.SVD(4), gq.SVD(4)))


def test_flags_of_a_cutting_change_what_they_name_and_nothing_else():
    before = gq.Cutting(10, partitioner=gq.Fennel(10, seed=0, passes=3), degree=3, overlap=(20, 80))
    assert CuttingFlags().apply_to(before, 0) == before
    assert CuttingFlags(patches=10, seed=0).apply_to(before, 0) == before
    changed = CuttingFlags(seed=4).apply_to(before, 4)
    assert changed == gq.Cutting(10, partitioner=gq.Fennel(10, seed=4, passes=3), degree=3, overlap=(20, 80))
    changed = CuttingFlags(patches=5).apply_to(before, 0)
    assert (changed.partitioner.n_patches, changed.degree, changed.overlap) == (5, None, None)
    assert CuttingFlags(partition="louvain").apply_to(before, 7).partitioner == gq.Louvain(seed=7)


def test_flags_of_a_source_change_what_they_name_and_nothing_else():
    before = Source(path="a.csv", columns=(1, 0), features="x.npy", directed=True)
    assert SourceFlags().apply_to(before, Path("b.csv")) == Source(
        path="b.csv", columns=(1, 0), features="x.npy", directed=True
    )
    flags = SourceFlags(columns="u,v", features=Path("y.npy"), directed=False)
    assert flags.apply_to(before, Path("a.csv")) == Source(path="a.csv", columns=("u", "v"), features="y.npy")


def test_settings_come_from_the_job_and_then_from_the_flags():
    store = {}
    assert job_settings(store) == JobSettings(embedder=gq.Propagation(64), recipe=gq.Recipe.shared())
    stored = JobSettings(embedder=gq.SVD(3), cutting=gq.Cutting(4), recipe=gq.Recipe(robust=True), seed=9)
    store["settings"] = Record({}, stored.to_parameters())
    assert job_settings(store) == stored
    changed = job_settings(store, stitching=StitchingFlags(refine=2, scale=False))
    assert changed.recipe == gq.Recipe(robust=True, refine=2, motions=gq.Motions(scale=False))


@dataclass(frozen=True)
class Loose:
    """Comes from this file, which belongs to no package."""


def test_only_modules_of_one_file_are_sent_to_a_cluster():
    assert flags._loose_modules([gq.SVD(4), gq.VGAE(4)]) == []
    assert flags._loose_modules([Loose()]) == [__file__]


@pytest.mark.parametrize("arguments", [["embed", LONG, "--out", "j"], ["embed", "e.csv", "--out", LONG]])
def test_a_name_of_300_letters_is_one_sentence(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.csv").write_text("0,1\n1,2\n2,0\n")
    monkeypatch.setattr("sys.argv", ["graphquilt", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "letters) cannot be used: File name too long" in error or "does not exist." in error  # from Python 3.14 on
    assert error.count("\n") == 1


def commands(app, path=()):
    """Yield the words and the arguments of every command below ``app``."""
    for name in app:
        if not name.startswith("-"):
            below = list(commands(app[name], (*path, name)))
            yield from below or [((*path, name), app[name].assemble_argument_collection())]


def wrong_values(hint):
    """Return words that are not values of this kind."""
    kinds = set(get_args(hint) or (hint,)) - {type(None)}
    literal = any(get_origin(kind) is Literal for kind in kinds) or get_origin(hint) is Literal
    return ["1.5", "many"] if kinds == {int} else ["many"] if kinds == {float} or literal else []


def test_every_flag_refuses_values_of_the_wrong_kind(command):
    tried = 0
    for words, arguments in commands(app):
        needed = [word for a in arguments if a.required for word in ([a.name] * a.name.startswith("-") + ["3"])]
        for argument in arguments:
            for value in wrong_values(argument.hint) if argument.name.startswith("--") else ():
                code, _, err = command(*words, *needed, argument.name, value)
                assert (code, err.count("\n")) == (2, 1), (words, argument.name, err)
                assert err.startswith("graphquilt: ")
                assert argument.name in err or value in err, (words, argument.name, err)
                tried += 1
    assert tried > 60
