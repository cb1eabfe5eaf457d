"""What a reader of edges accepted: laws that hold for every file, and the work of error paths at n and 2n."""

import csv
import gzip
import random
import shutil
import time

import numpy as np


def edge_set(graph):
    """Return the edges of a graph with ids and weights."""
    names = np.arange(graph.n_nodes) if graph.node_ids is None else graph.node_ids
    A = graph.adjacency.tocoo()
    return sorted((str(names[i]), str(names[j]), float(w)) for i, j, w in zip(A.row, A.col, A.data, strict=True))


def check_laws(path, graph, place, **options):
    """Raise AssertionError unless the rows of a text file give this graph in other orders, formats and readers.

    A reader may refuse a file that another accepts, but two may not accept different graphs.
    """
    from graphquilt import read_edges
    from graphquilt.errors import InputError
    from graphquilt.graph import build_csr

    expected = edge_set(graph)
    content = path.read_bytes()
    unpacked = gzip.decompress(content) if path.suffix == ".gz" else content
    name = path.name.removesuffix(".gz")
    first, *others = unpacked.split(b"\n")
    random.Random(len(others)).shuffle(others)
    variants = {f"again-{name}": unpacked, f"again-{name}.gz": gzip.compress(unpacked, 1)}
    if not first.lstrip().startswith((b"#", b"%", b"//", b"\xef")) and b"\r" not in unpacked:
        variants[f"shuffled-{name}"] = b"\n".join([first, *others])
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    try:
        for variant, text in variants.items():
            (place / variant).write_bytes(text)
            _compare(variant, expected, lambda v=variant: read_edges(place / v, **options), refusal=InputError)
        build = {key: value for key, value in options.items() if key in ("columns", "directed")}
        _compare("out of core", expected, lambda: build_csr(path, place / "g", memory=1 << 24, **build), refusal=None)
        for file in _rewritten(graph, place):
            stated = {"ids": "text"} if file.suffix in (".csv", ".tsv") and _has_text_ids(graph) else {}
            back = {"columns": (0, 1, 2), "directed": graph.directed, "n_nodes": _stated(graph, file), **stated}
            _compare(file.name, expected, lambda f=file, o=back: read_edges(f, **o), refusal=None)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _compare(what, expected, read, refusal):
    try:
        graph = read()
    except Exception as error:
        if refusal is not None and isinstance(error, refusal):
            return
        raise
    assert edge_set(graph) == expected, f"{what}: another graph"


def _has_text_ids(graph):
    return graph.node_ids is not None and graph.node_ids.dtype.kind == "U"


def _stated(graph, file):
    return graph.n_nodes if graph.node_ids is None and graph.n_nodes else None


def _rewritten(graph, place):
    """Write the edges of a graph as CSV, TSV and Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    A = graph.adjacency.tocoo()
    if not A.nnz:
        return []
    names = np.arange(graph.n_nodes) if graph.node_ids is None else graph.node_ids
    rows = list(zip(names[A.row].tolist(), names[A.col].tolist(), A.data.astype(float).tolist(), strict=True))
    for ending, mark in (("csv", ","), ("tsv", "\t")):
        with (place / f"back.{ending}").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter=mark, quoting=csv.QUOTE_ALL, lineterminator="\n")
            writer.writerows([("source", "target", "weight"), *rows])
    table = pa.table(dict(zip(("source", "target", "weight"), zip(*rows, strict=True), strict=True)))
    pq.write_table(table, place / "back.parquet")
    return [place / f"back.{ending}" for ending in ("csv", "tsv", "parquet")]


# Error paths, whose work may only grow with the size of the file


def _edges(lines):
    def read(path):
        from graphquilt import read_edges

        read_edges(path)

    return "e.csv", lines, read


def _vectors(lines):
    def read(path):
        from graphquilt.graph import read_vectors

        read_vectors(path)

    return "x.csv", lines, read


def _labels(lines):
    def read(path):
        from graphquilt.graph.reading.node_tables import read_labels

        read_labels(path, np.arange(50))

    return "y.csv", lines, read


def _parties(lines):
    def read(path):
        from graphquilt.federated.align.exchange import pseudonyms

        pseudonyms(path.read_text(encoding="utf-8").split("\n")[:-1], bytes(32), "00" * 32)

    return "ids.txt", lines, read


PATHS = {
    "a word after all integers": _edges(lambda n: [*(f"{k},{k + 1}" for k in range(n)), "n/a,7"]),
    "a cell too many in every row": _edges(lambda n: ["a,b", *(f"{k},{k + 1},9" for k in range(n))]),
    "a bad weight in every third row": _edges(
        lambda n: ["source,target,weight", *(f"{k},{k},{'1x'[k % 3 == 2]}" for k in range(n))]
    ),
    "an id with a NUL at the end": _edges(lambda n: [*(f"a{k},a{k + 1}" for k in range(n)), "a\0,b"]),
    "a quote that is not closed": _edges(lambda n: [*(f"a{k},a{k + 1}" for k in range(n)), 'a,"b']),
    "lines that may be comments": _edges(lambda n: ["a,b", *(f"#a{k},b" for k in range(n))]),
    "a vector that is there twice": _vectors(lambda n: ["id,x", *(f"a{k},1" for k in range(n)), "a1,2"]),
    "a word among numbers": _vectors(lambda n: ["id,x", *(f"a{k},1" for k in range(n)), "b,x"]),
    "labels of other nodes": _labels(lambda n: ["id,label", *(f"a{k},1" for k in range(n))]),
    "an id of a party that is there twice": _parties(lambda n: [*(f"a{k}" for k in range(n)), f"a{n - 1}"]),
    "a node with two labels": _labels(lambda n: ["id,label", *(f"{k % 50},1" for k in range(n))]),
}


def growth(folder, n=20_000):
    """Return for each error path how much longer it takes for a file that is twice as long: the least of three."""
    factors = {}
    for name, (file, lines, read) in PATHS.items():
        times = []
        for size in (n, 2 * n):
            (folder / file).write_text("\n".join(lines(size)) + "\n", encoding="utf-8")
            times.append(min(_seconds(read, folder / file) for _ in range(3)))
        factors[name] = times[1] / times[0]
    return factors


def _seconds(read, path):
    from graphquilt.errors import QuiltError

    start = time.process_time()
    try:
        read(path)
    except QuiltError:
        return time.process_time() - start
    raise AssertionError(f"{path} was accepted")
