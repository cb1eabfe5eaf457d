"""Labels of nodes from files: which column, which rows, and what is said about the rest."""

import numpy as np
import pytest

from graphquilt.errors import FormatError, InputError
from graphquilt.graph.reading.node_tables import read_labels
from graphquilt.report.node_map import choose_colouring


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("two.csv", "a,red\nc,blue\nb,\n"),
        ("heading.csv", "name,colour\na,red\nc,blue\n"),
        ("tabs.tsv", "c\tblue\na\tred\n"),
        ("one.txt", 'red\n""\nblue\n'),
        ("one-heading.csv", 'colour\nred\n""\nblue\n'),
    ],
)
def test_labels_of_a_text_file(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_labels(tmp_path / name, np.array(["a", "b", "c"])).values.tolist() == ["red", "", "blue"]


def test_labels_of_other_files(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [7, 9], "label": [1.5, 2.5]}), tmp_path / "labels.parquet")
    assert read_labels(tmp_path / "labels.parquet", np.array([9, 8, 7])).values.tolist() == ["2.5", "", "1.5"]
    np.save(tmp_path / "labels.npy", np.array([2, -1, 5], dtype=np.int16))
    assert choose_colouring("x", read_labels(tmp_path / "labels.npy", np.arange(3)).values, absent="").names == (
        "2",
        "5",
    )


def test_bad_labels_get_one_sentence(tmp_path):
    ids, path = np.array(["a", "b", "c"]), tmp_path / "labels.csv"
    for text, sentence in {
        "red\nblue\n": "has 2 labels and there are 3 nodes",
        "node,team\nx,red\ny,blue\n": r"none of the 2 ids in .* is one of the 3 ids of the graph, the first is 'x'; is",
        "a,red\na,blue\n": "has 2 labels for the id 'a'",
        "id,team\na,red\nb,blue,green\n": "line 3: 3 columns where the first row has 2",
    }.items():
        path.write_text(text)
        with pytest.raises(InputError, match=sentence):
            read_labels(path, ids)
    for content in (b"", b"a,red\nb\n", b"\xff\xfe\x00a,\x00b\n"):
        path.write_bytes(content)
        with pytest.raises(InputError):
            read_labels(path, ids)
    with pytest.raises(InputError, match="does not exist"):
        read_labels(tmp_path / "none.csv", ids)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(FormatError, match="cannot be read as labels"):
        read_labels(tmp_path / "bad.parquet", ids)
    np.save(tmp_path / "flat.npy", np.ones((3, 2)))
    with pytest.raises(InputError, match="one number or word"):
        read_labels(tmp_path / "flat.npy", ids)


@pytest.mark.parametrize(
    ("text", "name", "notice"),
    [
        ("id,age,label\na,30,red\nb,40,blue\n", "label", "taken from 'label', and 'age' is not used"),
        ("id,Class,age\na,red,30\nb,blue,40\n", "Class", "taken from 'Class', and 'age' is not used"),
        ("id,team,town\na,red,x\nb,blue,y\n", "team", "taken from 'team', and 'town' is not used"),
        ("a,red,30\nb,blue,40\n", "label", "from 'column 2', and 'column 3' is not used"),
        ("id,team\na,red\nb,blue\n", "team", ""),
    ],
)
def test_the_column_of_labels_is_found_by_its_name(tmp_path, caplog, text, name, notice):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    labels = read_labels(path, np.array(["a", "b"]))
    assert (labels.name, labels.values.tolist()) == (name, ["red", "blue"])
    assert notice in caplog.text
    assert bool(caplog.text) == bool(notice)


def test_the_column_of_labels_of_a_parquet_file_is_found_by_its_name(tmp_path, caplog):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"id": [7, 9], "age": [3, 4], "label": ["x", "y"]}), tmp_path / "labels.parquet")
    labels = read_labels(tmp_path / "labels.parquet", np.array([9, 7]))
    assert (labels.name, labels.values.tolist()) == ("label", ["y", "x"])
    assert "'age' is not used" in caplog.text


def test_labels_of_ids_that_the_job_does_not_have_are_announced_and_not_used(tmp_path, caplog):
    ids, path = np.array(["anna", "bob", "cleo"]), tmp_path / "labels.csv"
    path.write_text("id,team\nana,red\nbob,blue\nzoe,red\ncleo,red\n")
    assert read_labels(path, ids).values.tolist() == ["", "blue", "red"]
    assert "labels for 2 ids that the graph does not have, such as 'ana'" in caplog.text
    assert "the nearest id without is 'anna'" in caplog.text
    caplog.clear()
    path.write_text("ana,red\nanna,red\nbob,blue\ncleo,red\n")  # the first row is no heading: red comes again
    assert read_labels(path, ids).values.tolist() == ["red", "blue", "red"]
    assert "labels for 1 id that" in caplog.text
    assert "nearest" not in caplog.text
