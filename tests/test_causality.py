"""The short form of ``make causality``: scores come from the past only, in a batch and in a stream."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from causality import check


def test_features_are_the_same_from_a_log_that_ends_at_their_window(tmp_path):
    compared, differ, control = check(60, 7, 50_000, tmp_path)
    assert compared["batch"] >= 50_000
    assert compared["stream"] > 10_000
    assert differ == {"batch": 0, "stream": 0}
    assert control > 1000
