"""The short form of ``make chaos``: a few kills, after which nothing is lost and no bit differs."""

import sys

import pytest

from chaos import CASES, MODULES, Zygote, kill, table, try_circumstances

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills are counted through /proc")
SHORT = [name for name, case in CASES.items() if case.short]


@pytest.fixture(scope="module")
def zygote():
    process = Zygote(MODULES)
    yield process
    process.stop()


def test_kills_at_random_operations_and_times_lose_nothing(zygote):
    tallies = kill(SHORT, kills=7, seed=0, zygote=zygote)
    assert not any(tally.failures for tally in tallies.values()), "\n".join(
        [table(tallies), *(failure for tally in tallies.values() for failure in tally.failures)]
    )
    assert all(tally.held for tally in tallies.values())


def test_times_in_the_future_change_nothing(zygote):
    tally = try_circumstances(["times in the future"], seed=0, zygote=zygote, times=1)["times in the future"]
    assert (tally.tried, tally.failures) == (3, [])
