"""Words of the command line that become values: executors, and what Dask workers must have."""

import pytest

from extras import needs
from graphquilt import Recipe
from graphquilt.cli import choices
from graphquilt.errors import InputError
from graphquilt.jobs import Processes


@pytest.mark.parametrize("text", ["GPU=x", "GPU=", "GPU"])
def test_a_resource_is_a_name_and_a_number(text):
    needs("distributed")
    with pytest.raises(InputError, match="as GPU=1"), choices.hands(1, "tcp://127.0.0.1:1", [text]):
        pass


def test_one_worker_is_a_plain_loop_and_more_are_processes(monkeypatch):
    monkeypatch.setattr(choices.os, "sched_getaffinity", lambda _: set(range(3)), raising=False)
    for workers, n_tasks, expected in ((None, 1, 1), (None, 2, 2), (None, 9, 3), (0, 1, 1), (1, 9, 1), (5, 1, 5)):
        assert choices.cores(workers, n_tasks) == expected
        with choices.hands(workers, None, None, n_tasks) as pool:
            assert (pool.n_workers if isinstance(pool, Processes) else 1) == expected


@pytest.mark.parametrize("setting", ["max_epochs=abc", "hidden=16.5", "dropout", "init_seed=x", "lr=true", "dropout="])
def test_settings_of_another_kind_are_refused_before_any_patch(setting):
    with pytest.raises(InputError, match=f"{setting.partition('=')[0]} of vgae takes .* as --set"):
        choices.embedder("vgae", 8, [setting], Recipe())


def test_settings_are_read_as_they_are_meant():
    made = choices.embedder("vgae", 8, ["init_seed=none", "hidden=16", "lr=1", "featureless=degree"], Recipe())
    assert (made.init_seed, made.hidden, made.lr, made.featureless) == (None, 16, 1, "degree")
