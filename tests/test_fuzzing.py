"""The short form of ``make fuzz``: changed files end in a result or in one of graphquilt's own errors."""

from fuzzing import available, fuzz, table


def test_no_changed_file_escapes_its_reader(tmp_path):
    tallies = fuzz(available(), inputs=700, seed=0, keep=tmp_path)
    assert not any(tally.escapes for tally in tallies.values()), "\n".join(
        [table(tallies), *(escape for tally in tallies.values() for escape in tally.escapes[:2])]
    )
    assert all(tally.refused for tally in tallies.values()), table(tallies)
    assert sum(tally.accepted for tally in tallies.values()) > 100
