"""The short form of ``make fuzz``: changed files end in a result or in one of graphquilt's own errors."""

from fuzzing import available, fuzz, table

# Readers that no input of long runs has escaped.
SOUND = ("edges in text", "edges in gzip", "edges in Parquet", "unfinished build", "configuration")


def test_no_changed_file_escapes_its_reader(tmp_path):
    tallies = fuzz(available(SOUND), inputs=1500, seed=0, keep=tmp_path)
    assert not any(tally.escapes for tally in tallies.values()), "\n".join(
        [table(tallies), *(escape for tally in tallies.values() for escape in tally.escapes[:2])]
    )
    assert all(tally.refused for tally in tallies.values())
    assert sum(tally.accepted for tally in tallies.values()) > 100
