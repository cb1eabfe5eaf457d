"""The one reader of tables: the right columns or a question, ids by all rows, and node tables matched by id."""

import gzip
import itertools
import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import graphquilt as gq
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import read_vectors
from graphquilt.jobs import Source

HEADERS = {
    "txn_id,sender,receiver,amount": "sender,receiver",
    "date,payer_account,payee_account,eur": "payer_account,payee_account",
    "edge,u,v,w": "u,v",
    "row,user_id,item_id,rating": "user_id,item_id",
    "timestamp,src_ip,dst_ip,bytes": "src_ip,dst_ip",
    "type,Source Node,Target Node,strength": "Source Node,Target Node",
    '"Relation Kind","From, Synset",Zu Synset,Confidence (%)': '"From, Synset",Zu Synset',
}


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_unknown_headers_are_a_question_with_the_columns(header, kind, tmp_path):
    rows = [["t1", "ann", "bob", "1.5"], ["t2", "bob", "cem", "2"], ["t3", "cem", "ann", "7"]]
    (tmp_path / "e.csv").write_text("\n".join([header, *map(",".join, rows)]))
    edges = tmp_path / "e.csv"
    if kind != "csv":
        table = csv.read_csv(tmp_path / "e.csv")
        pq.write_table(table, tmp_path / "e.parquet")
        edges = table if kind == "frame" else tmp_path / "e.parquet"
    with pytest.raises(FormatError) as raised:
        gq.read_edges(edges)
    message = str(raised.value)
    assert "has 4 columns, and their names do not tell which two are the ends of an edge" in message
    assert "(t1, t2)" in message
    if "Relation" not in header:
        assert f"--columns '{HEADERS[header]}'" in message
    names = csv.read_csv(tmp_path / "e.csv").schema.names
    assert gq.read_edges(edges, columns=(names[1], names[2])).node_ids.tolist() == ["ann", "bob", "cem"]


@pytest.mark.parametrize("header", ["id,from,to,weight", "rel,subject,object,score", ",person,friend", "a,b,weight"])
def test_known_headers_are_read(header, tmp_path):
    cells = [f"x{k}" for k in range(3)]
    ends = (0, 1) if header.startswith("a,b") else (1, 2)
    lines = [header]
    for u, v in itertools.combinations(cells, 2):
        row = ["5"] * len(header.split(","))
        row[ends[0]], row[ends[1]] = u, v
        lines.append(",".join(row))
    (tmp_path / "e.csv").write_text("\n".join(lines))
    assert gq.read_edges(tmp_path / "e.csv").node_ids.tolist() == cells


def test_three_columns_of_text_are_a_question_or_a_warning(tmp_path, caplog):
    triples = ["ann,knows,bob", "bob,knows,cem", "cem,likes,ann"]
    (tmp_path / "e.csv").write_text("\n".join(["who,verb,whom", *triples]))
    with pytest.raises(FormatError, match=r"has 3 columns.*'who' \(ann, bob\), 'verb' \(knows, knows\), 'whom'"):
        gq.read_edges(tmp_path / "e.csv")
    (tmp_path / "e.csv").write_text("\n".join(triples))
    assert gq.read_edges(tmp_path / "e.csv", columns=(0, 2)).node_ids.tolist() == ["ann", "bob", "cem"]
    assert not caplog.records
    gq.read_edges(tmp_path / "e.csv")
    assert "has 3 columns without names; the first two were taken as the ends" in caplog.text


@pytest.mark.parametrize("first", ["n/a,7", "0x10,1", "1_000,2", "-,7", "alice,1", "１,２"])
def test_a_first_row_that_is_no_header_is_never_dropped(first, tmp_path):
    for k in range(4):
        rows = ["7,8", "8,9", "9,7", "7,10"]
        rows.insert(k, first)
        (tmp_path / "e.csv").write_text("\n".join(rows))
        with pytest.raises(FormatError, match=rf"line {k + 1}: the id .* is not an integer"):
            gq.read_edges(tmp_path / "e.csv")


def test_the_type_of_ids_is_decided_by_all_rows(tmp_path):
    rows = [f"{k},{k + 1}" for k in range(1, 500)]
    graphs = []
    for place in (0, 100, 300, 499):
        (tmp_path / "e.csv").write_text("\n".join([*rows[:place], "007,3", *rows[place:]]))
        graphs.append(gq.read_edges(tmp_path / "e.csv"))
    assert all({"007", "7"} < set(graph.node_ids.tolist()) for graph in graphs)
    assert all(np.array_equal(graph.indices, graphs[0].indices) for graph in graphs)


IDS = ["a", "b c", 'd"e', "f,g", "ü", " lead", "trail ", "007", "7", "#x", "x;y|z"]


def edges_of(ids):
    return [(u, v) for k, u in enumerate(ids) for v in ids[k + 1 : k + 3]]


def write_text(path, rows, delimiter):
    quoted = [[f'"{cell}"'.replace('"e', '""e') if not cell.isalnum() else cell for cell in row] for row in rows]
    path.write_text("source" + delimiter + "target\n" + "\n".join(delimiter.join(row) for row in quoted))


def test_rows_in_any_order_and_any_format_give_the_same_graph(tmp_path):
    rng = np.random.default_rng(0)
    rows = edges_of(IDS)
    graphs = []
    for _ in range(4):
        rows = [rows[k] for k in rng.permutation(len(rows))]
        table = pa.table({"source": [u for u, _ in rows], "target": [v for _, v in rows]})
        pq.write_table(table, tmp_path / "e.parquet")
        write_text(tmp_path / "e.csv", rows, ",")
        write_text(tmp_path / "e.tsv", rows, "\t")
        write_text(tmp_path / "e.txt", rows, ";")
        (tmp_path / "e.csv.gz").write_bytes(gzip.compress((tmp_path / "e.csv").read_bytes()))
        names = ("e.parquet", "e.csv", "e.tsv", "e.txt", "e.csv.gz")
        graphs += [gq.read_edges(tmp_path / name) for name in names] + [gq.read_edges(table), gq.read_edges(rows)]
    for graph in graphs:
        assert graph.node_ids.tolist() == sorted(IDS)
        assert np.array_equal(graph.indices, graphs[0].indices)


def test_vectors_are_the_same_in_any_format(tmp_path):
    X = np.random.default_rng(0).standard_normal((len(IDS), 3))
    pq.write_table(pa.table({"node_id": IDS, "x0": X[:, 0], "x1": X[:, 1], "x2": X[:, 2]}), tmp_path / "x.parquet")
    cells = ['"' + i.replace('"', '""') + '"' for i in IDS]
    for name, mark, header in (("x.csv", ",", True), ("x.tsv", "\t", False), ("x.txt", ";", True)):
        lines = [mark.join([cell, *map(repr, row)]) for cell, row in zip(cells, X.tolist(), strict=True)]
        head = [mark.join(["node_id", "x0", "x1", "x2"])] if header else []
        (tmp_path / name).write_text("\n".join(head + lines))
    for path in tmp_path.iterdir():
        ids, coordinates = read_vectors(path)
        assert ids.tolist() == IDS, path
        assert np.array_equal(coordinates, X), path
    (tmp_path / "word.vec").write_text("word 0.1 0.2\nfoo 1 2\n")
    assert read_vectors(tmp_path / "word.vec")[0].tolist() == ["word", "foo"]
    (tmp_path / "word.csv").write_text("word,0.1,0.2\nfoo,1,2\n")
    assert read_vectors(tmp_path / "word.csv")[0].tolist() == ["word", "foo"]
    (tmp_path / "counted.csv").write_text("id,0,1\n7,1,2\n10,3,4\n")
    assert read_vectors(tmp_path / "counted.csv")[0].tolist() == [7, 10]


NODES = [f"n{k}" for k in range(12)]  # in text order n10 and n11 come before n2
FEATURES = np.arange(24.0).reshape(12, 2)


def ring(path):
    path.write_text("\n".join(["from,to", *(f"n{k},n{(k + 1) % 12}" for k in range(12))]))
    return path


def node_tables(folder):
    """Features of n0 to n11 in every form with ids, in another order than the nodes."""
    order = np.random.default_rng(1).permutation(12)
    ids, X = [NODES[k] for k in order], FEATURES[order]
    table = pa.table({"x": X[:, 0], "id": ids, "y": X[:, 1].astype(np.int64)})
    pq.write_table(table, folder / "x.parquet")
    csv.write_csv(table.select(["id", "x", "y"]), folder / "x.csv")
    (folder / "x.tsv").write_text("\n".join(f"{i}\t{a}\t{b}" for i, (a, b) in zip(ids, X.tolist(), strict=True)))
    np.savez(folder / "x.npz", ids=ids, X=X)
    np.save(folder / "named.npy", X)
    np.save(folder / "named.ids.npy", ids)
    frames = [table]
    pandas = pytest.importorskip("pandas")
    frames += [table.to_pandas(), pandas.DataFrame(X, index=ids)]
    return [*frames, *(folder / name for name in ("x.parquet", "x.csv", "x.tsv", "x.npz", "named.npy"))]


def test_features_of_a_table_are_matched_by_id(tmp_path, caplog):
    edges = ring(tmp_path / "e.csv")
    for features in node_tables(tmp_path):
        graph = gq.read_edges(edges, features=features)
        assert np.array_equal(graph.features, FEATURES[[NODES.index(i) for i in graph.node_ids]])
        assert np.array_equal(
            gq.read_edges(graph.with_attributes(node_ids=graph.node_ids), features=features).features, graph.features
        )
    assert not caplog.records


def test_labels_of_a_table_are_matched_by_id(tmp_path, caplog):
    edges = ring(tmp_path / "e.csv")
    (tmp_path / "y.csv").write_text("label,id\n" + "\n".join(f"{k % 11},n{k}" for k in range(2, 12)))
    (tmp_path / "words.tsv").write_text("\n".join(f"n{k}\t{'even' if k % 2 == 0 else 'odd'}" for k in range(12)))
    frame = pa.table({"id": NODES, "class": [k % 2 for k in range(12)]})
    places = [NODES.index(i) for i in gq.read_edges(edges).node_ids]
    expected = [-1 if k < 2 else k % 11 for k in places]
    assert gq.read_edges(edges, labels=tmp_path / "y.csv").labels.tolist() == expected
    for labels in (tmp_path / "words.tsv", frame):
        assert gq.read_edges(edges, labels=labels).labels.tolist() == [k % 2 for k in places]
    assert not caplog.records


def test_rows_without_ids_warn_where_text_order_is_not_natural(tmp_path, caplog):
    np.save(tmp_path / "x.npy", FEATURES)
    np.save(tmp_path / "y.npy", np.arange(12))
    edges = ring(tmp_path / "e.csv")
    for options in ({"features": tmp_path / "x.npy"}, {"features": FEATURES}, {"labels": tmp_path / "y.npy"}):
        caplog.clear()
        gq.read_edges(edges, **options)
        assert "in text order (n0, n1, n10, n11, …), not in natural order (n0, n1, n2, n3, …)" in caplog.text
        assert "Give a table with an id column instead" in caplog.text
    caplog.clear()
    padded = tmp_path / "padded.csv"
    padded.write_text("\n".join(f"n{k:02},n{(k + 1) % 12:02}" for k in range(12)))
    gq.read_edges(padded, features=FEATURES)
    (tmp_path / "numbers.csv").write_text("\n".join(f"{k},{(k + 1) % 12}" for k in range(12)))
    gq.read_edges(tmp_path / "numbers.csv", features=FEATURES)
    assert not caplog.records


def test_features_that_are_missing_or_too_many(tmp_path, caplog):
    edges = ring(tmp_path / "e.csv")
    (tmp_path / "x.csv").write_text("id,x\n" + "\n".join(f"n{k},{k}" for k in range(14)))
    with caplog.at_level(logging.WARNING):
        graph = gq.read_edges(edges, features=tmp_path / "x.csv")
    assert graph.features.ravel().tolist() == [float(i[1:]) for i in graph.node_ids]
    assert "features for 2 ids that the graph does not have, such as 'n12', and they are not used" in caplog.text
    for text, message in {
        "id,x\n" + "\n".join(f"n{k},{k}" for k in range(10)): "no features for 2 nodes of 12, the first is 'n10'",
        "id,x\nn1,2\nn1,3\n": "1 ids occur more than once, the first is n1",
        "id,x\nm1,2\nm2,3\n": "none of the 2 ids in .* is one of the 12 ids of the graph, the first is 'm1'",
        "id,x\nn1,2\nn2,\n": "line 3: expected an id and 1 numbers",
        "id,x\nn1,2\nn2,tall\n": "line 3: expected an id and 1 numbers",
        "id,x\nn1,2\nn2,inf\n": "1 of 2 rows of coordinates are not finite, the first is that of n2",
        "id,x\n": "holds a header and no vectors",
    }.items():
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(InputError, match=message):
            gq.read_edges(edges, features=tmp_path / "x.csv")


def test_a_job_takes_tables_for_features_and_labels(tmp_path):
    edges = ring(tmp_path / "e.csv")
    node_tables(tmp_path)
    (tmp_path / "y.csv").write_text("\n".join(f"n{k},{k % 2}" for k in range(12)))
    graph = Source(path=str(edges), features=str(tmp_path / "x.csv"), labels=str(tmp_path / "y.csv")).read()
    places = [NODES.index(i) for i in graph.node_ids]
    assert np.array_equal(graph.features, FEATURES[places])
    assert graph.labels.tolist() == [k % 2 for k in places]
