"""The traffic generator: its shape, its truth, and that it is read back as it was drawn."""

import numpy as np
import pytest
import scipy.sparse as sp

from graphquilt.errors import InputError
from graphquilt.temporal import read_flows, snapshots
from graphquilt.temporal.traffic import BEHAVIOURS, netflow


@pytest.fixture(scope="module")
def network():
    return netflow(400, 4000, 30, campaigns=3, seed=2)


def test_days_are_drawn_alike_in_any_order(network):
    again = netflow(400, 4000, 30, campaigns=3, seed=2)
    later = again.matrix(17)
    assert (later != network.matrix(17)).nnz == 0
    assert (network.matrix(3) != network.matrix(4)).nnz > 0
    assert (netflow(400, 4000, 30, seed=3).matrix(17) != later).nnz > 0


def test_it_has_the_size_the_rhythm_and_the_tail(network):
    sizes = np.array([len(network.pairs(day)[0]) for day in range(28)])
    weekend = np.arange(28) % 7 >= 5
    assert sizes.mean() == pytest.approx(network.pairs_per_day, rel=0.15)
    assert sizes[weekend].max() < 0.4 * sizes[~weekend].min()
    degrees = np.diff(network.matrix(0).indptr)
    assert np.max(degrees) > 6 * np.median(degrees[degrees > 0])
    popular = np.bincount(network.pairs(0)[1])
    assert np.max(popular) > 50 * np.median(popular[popular > 0])


def test_most_of_a_hosts_neighbours_come_back(network):
    a, b = network.matrix(7), network.matrix(14)
    share = a.multiply(b).sum() / a.sum()
    assert 0.3 < share < 0.9


def test_the_truth_is_in_the_traffic_and_only_late(network):
    truth = network.truth
    assert set(truth.behaviour.tolist()) == set(range(len(BEHAVIOURS)))
    assert truth.day.min() >= network.first_red_day
    for day in np.unique(truth.day):
        rows = truth.day == day
        assert network.matrix(int(day))[truth.source[rows], truth.destination[rows]].all()


def test_each_behaviour_is_what_it_says(network):
    truth = network.truth
    days = [network.matrix(day) for day in range(network.first_red_day)]
    past = sum(days[1:], sp.csr_array(days[0]))

    def rows(name):
        selected = truth.behaviour == BEHAVIOURS.index(name)
        return truth.day[selected], truth.source[selected], truth.destination[selected]

    _, source, home = rows("beaconing")
    assert past[:, np.unique(home)].nnz == 0, "nobody called there before"
    assert len(np.unique(home)) <= 6
    assert len(np.unique(source)) <= 3
    day, source, target = rows("scanning")
    assert len(np.unique(day * 1000 + source)) == 3, "one machine, one day"
    assert len(target) >= 3 * 19
    _, source, target = rows("lateral movement")
    assert target.max() < 400, "internal hosts only"
    assert past[source, target].mean() < 0.1
    days_of, source, _ = rows("role change")
    host, first = int(source[0]), int(days_of[0])
    assert network.truth.nodes("source", 400, 30, "role change")[host, first]


def test_it_is_read_back_as_it_was_drawn(network, tmp_path):
    paths = network.write(tmp_path, days=range(2))
    flows = read_flows(paths, protocol="tcp")
    days = snapshots(flows)
    for number, A in enumerate(days):
        drawn = set(zip(*(part.tolist() for part in network.pairs(number)), strict=True))
        rows, columns = A.nonzero()
        read = {
            (int(days.sources[i][4:]), int(days.destinations[j].lstrip("CompIP")))
            for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
        }
        assert read == drawn
    assert flows.counts.filtered > 0, "name look-ups by UDP were there"
    assert (tmp_path / "truth.csv").read_text().startswith('"day","source"')


def test_impossible_sizes():
    with pytest.raises(InputError, match="at least 50 sources"):
        netflow(10)
    with pytest.raises(InputError, match="do not hold the 400 internal hosts"):
        netflow(400, 400)
