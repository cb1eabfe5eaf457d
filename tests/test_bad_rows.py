"""Bad rows, duplicates and self loops: counted by one philosophy, in files and in tables."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import graphquilt as gq
from extras import needs
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import build_csr

TEXT = """source,target,weight
a,b,1
b,,2
c,d,heavy
d,e
,a,3
e,f,-1
f,"g,1
g,a,2
"""


def test_bad_rows_are_counted_with_each_cause_and_its_first_line(tmp_path, caplog):
    path = tmp_path / "e.csv"
    path.write_text(TEXT)
    with pytest.raises(FormatError) as error:
        gq.read_edges(path)
    message = str(error.value)
    for words in (
        "line 3: an id is missing (2 rows)",
        "line 4: the weight 'heavy' is not a number (two",
        "line 5: 2 columns where the first row has 3",
        "line 7: the weight '-1' must be finite and not negative",
        "line 8: a quote is not closed",
        "6 of 8 rows are bad, the first in lines 3, 4, 5",
        "--bad-rows skip",
    ):
        assert words in message
    graph = gq.read_edges(path, bad_rows="skip")
    assert graph.node_ids.tolist() == ["a", "b", "g"]
    assert graph.adjacency.sum() == 6
    assert "They were left out" in caplog.text
    with pytest.raises(InputError, match="bad_rows is stop or skip"):
        gq.read_edges(path, bad_rows="maybe")


def test_missing_values_in_tables_are_counted(tmp_path, caplog):
    pd = needs("pandas")
    frame = pd.DataFrame({"source": ["a", None, "c", "d"], "target": ["b", "c", None, "a"], "weight": [1.0, 2, 3, -4]})
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "e.parquet")
    for source in (frame, tmp_path / "e.parquet"):
        with pytest.raises(
            FormatError, match=r"row 1: an id or weight is missing \(2 rows\); row 3: the weight '-4.0'"
        ):
            gq.read_edges(source)
        assert gq.read_edges(source, bad_rows="skip").node_ids.tolist() == ["a", "b"]
    assert "3 of 4 rows are bad, the first in rows 1, 2, 3. They were left out." in caplog.text


def test_a_word_among_integers_can_be_left_out(tmp_path):
    (tmp_path / "e.csv").write_text("7,8\nn/a,7\n8,9\n")
    with pytest.raises(
        FormatError, match=r"line 2: the id 'n/a' is not an integer.*or leave it out with --bad-rows skip"
    ):
        gq.read_edges(tmp_path / "e.csv")
    assert gq.read_edges(tmp_path / "e.csv", bad_rows="skip").node_ids.tolist() == [7, 8, 9]
    (tmp_path / "plus.csv").write_text("+7,8\n8,09\n")
    assert gq.read_edges(tmp_path / "plus.csv", ids="integer").node_ids.tolist() == [7, 8, 9]


PAYMENTS = "source,target,weight\na,b,2\na,b,3\nb,a,1\nb,b,9\nb,c,4\n"


@pytest.mark.parametrize(
    ("duplicates", "weights"), [("max", [3, 4]), ("sum", [6, 4]), ("last", [1, 4]), ("count", [3, 1])]
)
def test_duplicates_become_one_edge_by_the_stated_rule(tmp_path, duplicates, weights):
    (tmp_path / "e.csv").write_text(PAYMENTS)
    table = needs("pandas").read_csv(tmp_path / "e.csv")
    rows = [tuple(row) for row in table.itertuples(index=False)]
    for source in (tmp_path / "e.csv", table, rows):
        A = gq.read_edges(source, duplicates=duplicates).adjacency.toarray()
        assert A.tolist() == [[0, weights[0], 0], [weights[0], 0, weights[1]], [0, weights[1], 0]]
    u, v = (table[name].map({"a": 0, "b": 1, "c": 2}) for name in ("source", "target"))
    pq.write_table(pa.table({"source": u, "target": v, "weight": table["weight"]}), tmp_path / "e.parquet")
    built = build_csr(tmp_path / "e.parquet", tmp_path / "g", duplicates=duplicates)
    assert built.adjacency.toarray().tolist() == A.tolist()


def test_sums_are_the_same_in_both_directions_to_the_bit():
    rng = np.random.default_rng(0)
    rows = list(zip(*rng.integers(0, 4, (2, 3000)).tolist(), rng.random(3000).tolist(), strict=True))
    A = gq.read_edges(rows, duplicates="sum").adjacency.toarray()
    assert np.array_equal(A, A.T)
    with pytest.raises(InputError, match="duplicates is one of max, sum, last, count"):
        gq.read_edges(rows, duplicates="mean")


def test_loops_and_duplicates_that_change_the_graph_are_told(tmp_path, caplog):
    (tmp_path / "e.csv").write_text(PAYMENTS)
    gq.read_edges(tmp_path / "e.csv")
    assert "5 edges read: 1 self loops removed, 2 duplicates merged (the largest weight kept" in caplog.text
    assert "for another: --duplicates sum" in caplog.text
    caplog.clear()
    gq.read_edges([("a", "b", 2.0), ("b", "a", 2.0)])  # both directions of one edge: nothing is lost
    assert not caplog.records


def test_a_header_of_unknown_words_above_numbers_is_told(tmp_path, caplog):
    (tmp_path / "e.csv").write_text("person,friend\n1,2\n2,3\n")
    assert gq.read_edges(tmp_path / "e.csv").n_edges == 2
    assert "the first row, 'person' and 'friend', was taken as a header" in caplog.text
    caplog.clear()
    (tmp_path / "e.csv").write_text("user,item\n1,2\n2,3\n")
    gq.read_edges(tmp_path / "e.csv")
    assert not caplog.records


def test_a_column_named_weight_has_the_weights_wherever_its_first_number_stands(tmp_path):
    """The same rows in another order are the same graph, or the same error."""
    rows = [f"a{k},b{k}," for k in range(300)] + [f"c{k},d{k},2" for k in range(10)]
    for lines in (rows, rows[::-1]):
        (tmp_path / "e.csv").write_text("\n".join(["source,target,weight", *lines]))
        with pytest.raises(FormatError, match=r"the weight '' is not a number .*\(300 rows\)"):
            gq.read_edges(tmp_path / "e.csv")
        assert gq.read_edges(tmp_path / "e.csv", bad_rows="skip").weights.tolist() == [2.0] * 20


def test_numbers_that_are_not_used_are_told_wherever_they_stand(tmp_path, caplog):
    (tmp_path / "e.csv").write_text("rel,subject,object,score\nr,a,b,2.5\nr,b,c,1.5\n")
    gq.read_edges(tmp_path / "e.csv")
    assert "the column 'score' has numbers, which were not used" in caplog.text
    assert "--columns 'subject,object,score'" in caplog.text


@pytest.mark.parametrize("form", ["csv", "parquet", "frame"])
def test_the_guess_of_unknown_columns_is_two_that_share_values(tmp_path, form):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"Kind": [f"k{k}" for k in range(30)], "From, Synset": [f"n{k}" for k in range(30)]}
    columns |= {"Zu Synset": [f"n{k + 3}" for k in range(30)], "Confidence (%)": [str(k) for k in range(30)]}
    table = pa.table(columns)
    source = table if form == "frame" else tmp_path / f"e.{form}"
    if form == "parquet":
        pq.write_table(table, source)
    if form == "csv":
        lines = [",".join(row) for row in zip(*columns.values(), strict=True)]
        source.write_text("\n".join(['Kind,"From, Synset",Zu Synset,Confidence (%)', *lines]))
    with pytest.raises(FormatError, match="""--columns '"From, Synset",Zu Synset' """):
        gq.read_edges(source)


def test_a_number_in_another_spelling_does_not_hide_behind_missing_ones(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text('source,target,weight\na,b,N/A\nb,c,"1,200.00"\nc,a,1\n')
    with pytest.raises(
        FormatError, match=r"line 2: the weight 'N/A' .*; line 3: the weight '1,200.00' is not a number like"
    ):
        gq.read_edges(path)
