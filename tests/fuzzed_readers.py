"""Every reader of graphquilt, each with valid files to begin from.

``make(folder)`` writes valid files. ``read(folder, path)`` reads what is in the folder after the file at ``path`` has
been changed, and uses the result, because a map of a file is only read when it is used. An assertion that fails there
counts as an escape: the reader has accepted something that it should have refused.
"""

import bz2
import contextlib
import gzip
import hashlib
import io
import json
import pickle
import re
import shutil
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from unittest import mock

import numpy as np
import scipy.sparse as sp

from accepted import check_laws


@dataclass(frozen=True)
class Reader:
    """One way to read files. Of the inputs of a run, ``share`` parts are for this reader."""

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path, Path], object]
    share: float = 1.0
    seal: Callable[[dict[str, bytes]], None] | None = None  # makes checksums right again, as a forger would
    package: str | None = None  # an optional one that it needs


def _graph(n=24):
    from graphquilt import Graph

    rows = np.arange(n)
    A = sp.coo_array((np.ones(n), (rows, (rows + 1) % n)), shape=(n, n))
    features = np.arange(3.0 * n, dtype=np.float32).reshape(n, 3)
    return Graph((A + A.T).tocsr(), features, labels=rows % 3)


def _check_graph(graph):
    """Use all of a graph."""
    n = graph.n_nodes
    assert graph.indptr[0] == 0
    assert graph.indptr[-1] == len(graph.indices)
    assert (graph.degrees >= 0).all()
    assert graph.n_entries == 0 or (graph.indices.min() >= 0 and graph.indices.max() < n)
    assert graph.weights is None or (np.isfinite(graph.weights).all() and len(graph.weights) == graph.n_entries)
    assert graph.features is None or graph.features.shape[0] == n
    assert graph.labels is None or graph.labels.shape == (n,)
    assert graph.node_ids is None or (graph.node_ids.shape == (n,) and graph.node_ids.tolist() is not None)
    if n:
        part, nodes = graph.largest_component()
        assert part.n_nodes == len(nodes)
        graph.subgraph(np.arange(min(n, 3)))


# Edges


def _edge_lists():
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 20, (30, 2))
    rows = [(f"{u}", f"{v}", f"{w:.3f}") for (u, v), w in zip(ends, rng.random(30), strict=True)]
    named = [(f"host-{u}", f"näme {v}", w) for u, v, w in rows]
    return {
        "plain.txt": "\n".join(f"{u} {v}" for u, v, _ in rows * 10),  # more than are looked at first
        "commented.txt": "# edges\n" + "\n".join(f"{u}  {v}\t{w}" for u, v, w in rows) + "\n% end\n",
        "header.csv": "from,to,weight\n" + "\n".join(map(",".join, rows)) + "\n",
        "named.csv": "from,to,weight\n" + "\n".join(f'{u},"{v}",{w}' for u, v, w in named) + "\n",
        "plain.tsv": "\n".join(map("\t".join, rows)) + "\n",
        "bars.txt": "\r\n".join(map("|".join, named)),
    }


def _make_texts(folder):
    for name, text in _edge_lists().items():
        (folder / name).write_text(text, encoding="utf-8")


def _make_gzipped(folder):
    for name, text in _edge_lists().items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode(), 1, mtime=0))


def _read_text_edges(folder, path):
    from graphquilt import read_edges

    columns = (0, 1) if path.name.startswith(("plain.txt", "commented")) else (0, 1, 2)
    options = {"columns": columns, "directed": path.name.startswith("bars")}
    graph = read_edges(path, **options)
    _check_graph(graph)
    check_laws(path, graph, folder.parent / "laws", **options)


def _make_edge_arrays(folder):
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 20, (2, 40))
    np.save(folder / "edges.npy", edges)
    np.save(folder / "tall.npy", edges.T.astype(np.int32))
    X = _graph().adjacency
    np.savez(
        folder / "graph.npz",
        edge_index=edges,
        edge_weight=rng.random(40),
        x=rng.random((24, 3)),
        y=np.arange(24) % 3,
        node_id=np.array([f"node {k}" for k in range(24)]),
    )
    parts = {f"x_{part}": np.asarray(getattr(X, part)) for part in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "sparse.npz", edge_index=edges, **parts)
    sp.save_npz(folder / "adjacency.npz", X)


def _read_edge_array(folder, path):
    from graphquilt import read_edges

    _check_graph(read_edges(path))


def _make_vectors(folder):
    from test_align_files import make_files

    ids = np.array([f"wörd{k}" for k in range(12)])
    make_files(folder, ids, np.random.default_rng(0).standard_normal((12, 3)))


def _read_vectors(folder, path):
    from graphquilt.graph import read_vectors

    path = folder / "x.npy" if path.name == "x.ids.npy" else path
    ids, X = read_vectors(path)
    assert len(set(ids.tolist())) == len(X)
    assert np.asarray(X, dtype=np.float64).sum() is not None


def _make_edge_parquet(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    u, v, w = rng.integers(0, 20, 40), rng.integers(0, 20, 40), rng.random(40)
    pq.write_table(pa.table({"source": u, "target": v, "weight": w}), folder / "numbers.parquet")
    names = [f"host {k}" for k in u]
    pq.write_table(pa.table({"u": names, "v": [f"ö{k}" for k in v], "w": w}), folder / "names.parquet")


def _read_edge_parquet(folder, path):
    from graphquilt import read_edges

    _check_graph(read_edges(path, columns=(0, 1, 2)))


@contextlib.contextmanager
def _emptied(path):
    shutil.rmtree(path, ignore_errors=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _make_out_of_core(folder):
    _make_edge_parquet(folder)
    _make_texts(folder)
    np.save(folder / "edges.npy", np.random.default_rng(0).integers(0, 20, (2, 40)))


def _read_out_of_core(folder, path):
    from graphquilt.graph import build_csr

    with _emptied(folder.parent / "out") as out:
        stated = 1000 if path.suffix == ".npy" or path.name == "numbers.parquet" else None
        columns = None if path.suffix == ".npy" else (0, 1)
        _check_graph(build_csr(path, out, n_nodes=stated, columns=columns, memory=1 << 24, bad_rows="skip"))


# Node attributes


def _make_features(folder):
    X = np.random.default_rng(0).random((24, 3)).astype(np.float32)
    np.save(folder / "dense.npy", X)
    sp.save_npz(folder / "sparse.npz", sp.csr_array(X))
    sp.save_npz(folder / "columns.npz", sp.csc_array(X))
    rows = "".join(f"{k},{a},{b}\n" for k, (a, b, _) in enumerate(X.tolist()))
    (folder / "table.csv").write_text(f"id,a,b\n{rows}", encoding="utf-8")
    (folder / "table.tsv").write_text(rows.replace(",", "\t"), encoding="utf-8")


def _read_features(folder, path):
    from graphquilt.graph.reading.node_tables import add_node_tables

    graph = add_node_tables(_graph(), path, None)
    _check_graph(graph)
    _check_numeric(graph.features)


def _check_numeric(X):
    part = X[:2]
    assert np.issubdtype(part.dtype, np.number) or part.dtype == bool, part.dtype
    assert X.ndim == 2


def _make_map_labels(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"node {k}" for k in range(24)]
    rows = "".join(f'"{name}",{k % 3}\n' for k, name in enumerate(names))
    (folder / "pairs.csv").write_text(f"id,class\n{rows}", encoding="utf-8")
    (folder / "column.txt").write_text("".join(f"group {k % 3}\n" for k in range(24)), encoding="utf-8")
    pq.write_table(pa.table({"id": names, "score": np.linspace(0, 1, 24)}), folder / "scores.parquet")
    np.save(folder / "classes.npy", np.arange(24) % 3)


def _read_map_labels(folder, path):
    from graphquilt.graph.reading.node_tables import read_labels
    from graphquilt.report.node_map import choose_colouring

    labels = read_labels(path, np.array([f"node {k}" for k in range(24)]))
    assert labels.values.shape == (24,)
    page = choose_colouring(labels.name, labels.values, absent="none").for_page()
    assert len(page["values"]) == 24


def _make_labels(folder):
    np.save(folder / "labels.npy", np.arange(24) % 3 - 1)
    np.save(folder / "floats.npy", np.arange(24.0) % 3)
    (folder / "labels.csv").write_text("".join(f"{k},{k % 3}\n" for k in range(24)), encoding="utf-8")


def _read_labels(folder, path):
    from graphquilt.graph.reading.node_tables import add_node_tables

    graph = add_node_tables(_graph(), None, path)
    _check_graph(graph)
    np.unique(graph.labels)


# Flows


def _flow_rows():
    rng = np.random.default_rng(0)
    ports = ("Port1", "80", "1", "2", "3", "4")
    ends = [(f"C{u}", f"D{v}", str(rng.choice([1, 6, 17]))) for u, v in rng.integers(0, 9, (120, 2))]
    return [(f"{86400 * (k // 20) + 60 * k}", "10", *pair, *ports) for k, pair in enumerate(ends)]


def _flow_texts():
    rows = _flow_rows()
    header = "time,duration,srcdevice,dstdevice,protocol,srcport,dstport,srcpackets,dstpackets,srcbytes,dstbytes\n"
    iso = [(f"2017-01-{1 + k // 20:02d}T00:{k % 60:02d}:00", *row[1:]) for k, row in enumerate(rows)]
    return {
        "plain.csv": "\n".join(map(",".join, rows)) + "\n",
        "header.csv": header + "\n".join(map(",".join, rows)) + "\n",
        "iso.csv": header + "\n".join(map(",".join, iso)),
    }


def _make_flow_texts(folder):
    for name, text in _flow_texts().items():
        (folder / name).write_text(text, encoding="utf-8")


def _make_flows_packed(folder):
    for name, text in _flow_texts().items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode(), 1, mtime=0))
    (folder / "plain.csv.bz2").write_bytes(bz2.compress(text.encode(), 1))


def _make_flow_parquet(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    time, _, source, destination, protocol, *_ = zip(*_flow_rows(), strict=True)
    table = {"time": list(map(float, time)), "srcdevice": source, "dstdevice": destination}
    pq.write_table(pa.table(table | {"protocol": list(map(int, protocol))}), folder / "numbers.parquet")
    stamps = pa.array([int(float(t) * 1e6) for t in time], pa.timestamp("us"))
    pq.write_table(pa.table(table | {"time": stamps, "protocol": protocol}), folder / "stamps.parquet")


def _read_flows(folder, path):
    from graphquilt.temporal import read_flows, snapshots

    strict = len(path.read_bytes()) % 2 == 1
    for window in islice(snapshots(read_flows(path, protocol="tcp", strict=strict), "1d").windows(), 100):
        assert window.matrix.nnz <= 200


def _make_logs(folder):
    rows = [(1_700_000_000 + 600 * k, f"10.0.0.{k % 7}", f"10.0.1.{k % 11}", 80 + k % 3) for k in range(60)]
    fields = ["ts", "uid", "id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p", "proto", "conn_state"]
    header = "#separator \\x09\n#unset_field\t-\n#path\tconn\n" + "\t".join(["#fields", *fields]) + "\n"
    zeek = "".join(f"{t}.5\tC{t}\t{a}\t5000\t{b}\t{port}\ttcp\tSF\n" for t, a, b, port in rows)
    (folder / "conn.log").write_text(header + zeek + "#close\t2024\n")
    flow = {"event_type": "flow", "timestamp": "2024-01-01T00:00:00.5+0000", "proto": "TCP"}
    eve = [flow | {"src_ip": a, "dest_ip": b, "dest_port": port, "flow": {"age": t}} for t, a, b, port in rows]
    (folder / "eve.json").write_text("".join(json.dumps(event) + "\n" for event in eve))
    ends = {"src_port": "1", "l4protocol": "6", "direction": "outbound"}
    event = {"object": "FLOW", "action": "START", "hostname": "h", "id": "i", "timestamp": "2024-01-01T00:00:00-04:00"}
    ecar = [
        event | {"properties": ends | {"src_ip": a, "dest_ip": b, "dest_port": str(port)}} for _, a, b, port in rows
    ]
    (folder / "ecar.json").write_text("".join(json.dumps(record) + "\n" for record in ecar))
    argus = "".join(f"2024/01/01 00:00:{k % 60:02d}.5,tcp,{a},->,{b},{p}\n" for k, (_, a, b, p) in enumerate(rows))
    (folder / "day.binetflow").write_text("StartTime,Proto,SrcAddr,Dir,DstAddr,Dport\n" + argus)
    nfdump = "".join(f"2024-01-01 00:00:{k % 60:02d},{a},{b},{p},TCP\n" for k, (_, a, b, p) in enumerate(rows))
    (folder / "nfdump.csv").write_text(
        "ts,sa,da,dp,pr\n" + nfdump + "Summary\nflows,bytes,packets,a,b,c\n1,2,3,4,5,6\n"
    )
    (folder / "darpa.csv").write_text("".join(f"1.2.3.4,{b},06/01/1998-07:{p % 60},-\n" for *_, b, p in rows))
    (folder / "auth.txt").write_text("".join(f"{t},U@D,U@D,{a},{b},?,?,LogOn,Success\n" for t, a, b, _ in rows))
    with zipfile.ZipFile(folder / "logs.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conn.log", header + zeek)


def _read_logs(folder, path):
    from graphquilt.temporal import read_flows

    size = len(path.read_bytes())
    flows = read_flows(path, strict=size % 2 == 1, labels={"i": "attack"}, block_bytes=1 << 10)
    for batch in flows:
        batch.validate(full=True)
        assert np.isfinite(batch.column("time").to_numpy()).all()
    assert flows.counts.kept + flows.counts.other + flows.counts.bad == flows.counts.rows


def _make_events(folder):
    header = (
        "timestamp,processId,parentProcessId,userId,processName,hostName,eventId,eventName,argsNum,returnValue,args"
    )
    arguments = (
        "[{'name': 'pathname', 'type': 'const char*', 'value': '/proc/384/cgroup'}, {'name': 'fd', 'value': -1.5}]"
    )
    beth = "".join(f'{k}.5,1,0,0,sh,host-{k % 3},3,openat,2,0,"{arguments}"\n' for k in range(30))
    (folder / "beth.csv").write_text(header + "\n" + beth)
    event = {"object": "FILE", "action": "WRITE", "hostname": "h", "timestamp": 1_569_346_760_500}
    ecar = [event | {"properties": {"image_path": f"C:\\\\{k}.exe", "dest_port": "445"}} for k in range(30)]
    (folder / "ecar.json").write_text("".join(json.dumps(record) + "\n" for record in ecar))
    (folder / "proc.txt").write_text("".join(f"{k},U1@DOM1,C{k % 4},P{k},Start\n" for k in range(30)))


def _read_events(folder, path):
    from graphquilt.temporal import read_events

    events = read_events(path, strict=len(path.read_bytes()) % 2 == 1, block_bytes=1 << 10)
    for batch in events:
        batch.validate(full=True)
        assert all(len(token) <= 100 for token in batch.column("token").dictionary.to_pylist())
    assert events.counts.kept + events.counts.bad == events.counts.rows


def _make_word_maps(folder):
    (folder / "hosts.json").write_text(json.dumps({f"10.0.0.{k}": f"host-{k}" for k in range(9)}))
    (folder / "allow.txt").write_text("# hosts\nscan-*\n10.1.0.0/16\nfe80::/10\nmail # own\n")
    (folder / "labels.csv").write_text("id,description,label\n" + "".join(f"id-{k},text,attack\n" for k in range(9)))


def _read_word_map(folder, path):
    from graphquilt.temporal.logs.columns import read_host_list, read_words

    if path.suffix == ".txt":
        hosts = read_host_list(path)
        assert [host in hosts for host in ("mail", "10.1.2.3", "scan-1")]
        return
    words = read_words(path, key="id", value="label")
    assert all(isinstance(word, str) for pair in words.items() for word in pair)


# The command line


# Folders


def _make_graph_folder(folder):
    graph = _graph()
    graph.save(folder / "dense")
    sparse = graph.from_arrays(
        graph.indptr,
        graph.indices,
        np.ones(graph.n_entries),
        features=sp.csr_array(graph.features),
        node_ids=np.array([f"node {k}" for k in range(24)]),
        directed=True,
    )
    sparse.save(folder / "sparse")


def _read_graph_folder(folder, path):
    from graphquilt import Graph

    _check_graph(Graph.open(folder / path.relative_to(folder).parts[0]))


def _make_job(folder):
    import graphquilt as gq

    cutting = gq.Cutting(n_patches=3, overlap=(5, 10))
    gq.embed(_graph(36), 3, cutting=cutting, store=gq.DirectoryStore(folder))
    _forget_the_run(folder)


def _forget_the_run(folder):
    """Give a job the same bytes in every process: no seconds, and no lock with the number of the process."""
    from graphquilt.files.checksums import sealed_text

    (folder / "lock").unlink()
    for path in folder.glob("patches/*/*.json"):
        marker = json.loads(path.read_text(encoding="utf-8"))
        marker["parameters"].pop("seconds", None)
        path.write_text(sealed_text(marker), encoding="utf-8")


def _seal_folder(files):
    """Make right again what markers and descriptions say about data files, and then their own checksums."""
    from graphquilt.files.checksums import array_checksum, seal

    documents = {}
    for name in files:
        if name.endswith(".json"):
            with contextlib.suppress(ValueError, RecursionError):
                documents[name] = json.loads(files[name])
    before = {name: json.dumps(document) for name, document in documents.items()}
    for name in files:
        if not name.endswith((".npy", ".npz")):
            continue
        folder, stem = str(Path(name).parent), Path(name).stem
        # A document that is broken stays as it is, and an array that NumPy cannot read keeps what was said of it.
        with contextlib.suppress(KeyError, TypeError, AttributeError, ValueError):
            marker = documents[f"{name[:-4]}.json"]
            marker |= {"sha256": hashlib.sha256(files[name]).hexdigest(), "bytes": len(files[name])}
            for array, values in _arrays_in(files[name], marker["arrays"]).items():
                marker["arrays"][array] |= {"shape": list(values.shape), "dtype": values.dtype.str}
        with contextlib.suppress(KeyError, TypeError, AttributeError, ValueError):
            description = documents[str(Path(folder, "graph.json"))]
            entry = description["arrays"][stem]
            values = _arrays_in(files[name], [stem])[stem]
            size = {"indptr": {"n_nodes": len(values) - 1}, "indices": {"n_edges": len(values)}}.get(stem, {})
            description |= size if entry["shape"] != list(values.shape) else {}
            entry |= {"shape": list(values.shape), "dtype": values.dtype.str, "sha256": array_checksum(values)}
    for name, document in documents.items():
        with contextlib.suppress(ValueError, RecursionError, AttributeError, TypeError):
            sealed = seal(document)
            if json.dumps(sealed) != before[name]:
                files[name] = json.dumps(sealed).encode()


def _arrays_in(content, names):
    """Return the arrays of a file that NumPy can read."""
    arrays = {}
    with contextlib.suppress(Exception):
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return dict.fromkeys(names, loaded)
        for name in names:
            with contextlib.suppress(Exception):
                arrays[name] = loaded[name]
    return arrays


def _read_job(folder, path):
    from graphquilt.jobs import Job, export_embedding, job_status

    job = Job.open(folder)
    status = job_status(job, verify=True)
    json.dumps(status.settings)
    with _emptied(folder.parent / "out") as out:
        out.mkdir()
        export_embedding(job, out / "embedding.csv")


def _make_patches(folder):
    _make_job(folder)
    for name in ("alignment.npz", "alignment.json", "embedding.npy", "embedding.json"):
        (folder / name).unlink()


def _read_patches(folder, path):
    from graphquilt.jobs import Job

    copy = folder.parent / "copy"
    with _emptied(copy):
        shutil.copytree(folder, copy)
        job = Job.open(copy)
        job.stitch()
        assert np.isfinite(job.embedding).all()


STAGES = (
    "clusters",
    "survey",
    "graph",
    "kept0",
    "0",
    "embedding",
)  # what the records of a shared start and after it are made from


def _make_started(folder):
    import graphquilt as gq

    cutting = gq.Cutting(n_patches=3, overlap=(5, 10))
    embedder = gq.Propagation(2, clusters=6)
    gq.embed(_graph(36), 2, embedder=embedder, cutting=cutting, store=gq.DirectoryStore(folder))
    _forget_the_run(folder)
    for name in ("alignment.npz", "alignment.json", "embedding.npy", "embedding.json"):
        (folder / name).unlink()


def _read_started(folder, path):
    """Go on with a job in which everything is missing that was made from the changed file."""
    from graphquilt.errors import PatchesFailedError
    from graphquilt.jobs import Job

    copy = folder.parent / "copy"
    with _emptied(copy):
        shutil.copytree(folder, copy)
        stage = STAGES.index(path.stem) if path.stem in STAGES else len(STAGES)
        for later in (*copy.glob("survey.*"), *copy.glob("patches/*/*"), *copy.glob("starts/0/*")):
            if STAGES.index(later.stem) > stage:
                later.unlink()
        job = Job.open(copy)
        try:
            job.embed()
        except PatchesFailedError as error:
            unknown = [cause for cause in error.failures.values() if _is_unknown(cause)]
            if unknown:
                raise RuntimeError(unknown[0]) from error
            raise
        job.stitch()
        assert np.isfinite(job.embedding).all()


def _is_unknown(cause):
    """Return whether a patch failed for a cause that graphquilt does not know: it begins with the name of an error."""
    return re.match(r"(?!FormatError: |KeyError: 'patches/)\w+: ", cause) is not None


def _watch(folder, rows):
    from graphquilt.temporal import ScoringOptions, Tracker, read_flows, snapshots
    from graphquilt.temporal.watching import WatchState, watch_windows

    tracker = Tracker(ScoringOptions(dim=2, lags=(1, 2), min_observations=3), history=4)
    text = "\n".join(map(",".join, _flow_rows()[:rows]))
    windows = snapshots(read_flows(io.BytesIO(text.encode())), "1d")
    with WatchState(folder, tracker) as state:
        for scores in watch_windows(windows, state):
            scores.alerts(3)
    return state


def _make_watch_state(folder):
    _watch(folder, 80)
    (folder / "lock").unlink()


def _seal_watch_state(files):
    """Put the checksum of the file in the place of its comment, after a comment has been added where there is none."""
    for name, content in files.items():
        file = io.BytesIO(content)
        with contextlib.suppress(Exception), zipfile.ZipFile(file, "a") as archive:
            archive.comment = bytes(32)
        body = file.getvalue()[:-32]
        files[name] = body + hashlib.sha256(body).digest()


def _read_watch_state(folder, path):
    from graphquilt.errors import InputError

    copy = folder.parent / "copy"
    with _emptied(copy):
        shutil.copytree(folder, copy)
        state = _watch(copy, 120)
        for side in ("source", "destination"):
            with contextlib.suppress(InputError):
                state.tracker.explain(state.last, side, 0)


# Data sets


def _make_planetoid(folder):
    X = sp.csr_matrix(np.ones((24, 5), dtype=np.float32))
    one_hot = np.eye(3, dtype=np.int32)[np.arange(24) % 3]
    neighbours = defaultdict(list, {k: [(k + 1) % 24, (k - 1) % 24] for k in range(24)})
    parts = {"x": X[:6], "tx": X[18:], "allx": X[:18], "y": one_hot[:6], "ty": one_hot[18:], "ally": one_hot[:18]}
    for name, value in {**parts, "graph": neighbours}.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / "ind.cora.test.index").write_text("\n".join(map(str, range(18, 24))) + "\n", encoding="utf-8")


def _read_dataset(name):
    def read(folder, path):
        from studies.raw_datasets import load_raw_dataset

        _check_graph(load_raw_dataset(name, data=folder))

    return read


def _make_npz_dataset(folder):
    graph = _graph()
    X = sp.csr_array(graph.features)
    edges = np.stack([np.repeat(np.arange(24), graph.degrees), graph.indices])
    parts = {f"x_{part}": np.asarray(getattr(X, part)) for part in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "cora.npz", edge_index=edges, y=graph.labels, **parts)
    A = graph.adjacency
    parts = {
        f"{name}_{part}": np.asarray(getattr(matrix, part))
        for name, matrix in (("adj", A), ("attr", X))
        for part in ("data", "indices", "indptr", "shape")
    }
    np.savez(folder / "amazon-photo.npz", **parts, labels=graph.labels)


def _make_pickled_dataset(folder):
    graph = _graph()
    pickled = {"adj_matrix": sp.csr_matrix(graph.adjacency), "node_attr": sp.csr_matrix(graph.features)}
    objects = {name: np.array(value, dtype=object) for name, value in pickled.items()}
    np.savez(folder / "coauthor-cs.npz", **objects, node_label=graph.labels)


def _read_npz_dataset(folder, path):
    from graphquilt.datasets import load_dataset

    _check_graph(load_dataset(path.stem, data=folder))


def _make_pyg(folder):
    import torch

    graph = _graph()
    edges = np.stack([np.repeat(np.arange(24), graph.degrees), graph.indices]).astype(np.int64)
    data = {"edge_index": torch.from_numpy(edges), "x": torch.from_numpy(graph.features), "y": torch.arange(24) % 3}
    torch.save(({"_store": data}, None), folder / "data.pt")


def _make_mag240m(folder):
    processed = folder / "processed"
    for name, array in {
        "paper___cites___paper/edge_index.npy": np.random.default_rng(0).integers(0, 24, (2, 60)),
        "paper/node_feat.npy": np.ones((24, 3), dtype=np.float16),
        "paper/node_label.npy": np.where(np.arange(24) % 2, np.nan, 3.0),
        "paper/node_year.npy": (2000 + np.arange(24)).astype(np.int16),
    }.items():
        (processed / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(processed / name, array)
    _write_torch(folder / "split_dict.pt")


def _write_torch(path):
    """Write a split as torch does, without torch."""
    parts = {"train": np.arange(0, 12), "valid": np.arange(12, 20), "test-dev": np.arange(20, 24)}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(parts, protocol=2))
        archive.writestr("archive/version", b"3\n")


def _read_mag240m(folder, path):
    from studies.mag240m import mag240m_papers, read_mag240m

    papers = mag240m_papers(folder)
    assert papers.years is None or len(papers.years) == papers.n_papers
    assert all(len(nodes) == 0 or nodes.max() < papers.n_papers for nodes in papers.split.values())
    with _emptied(folder.parent / "out") as out:
        _check_graph(read_mag240m(folder, out, memory=1 << 24))


def _make_splits(folder):
    parts = {"train": np.arange(12), "valid": np.arange(12, 20), "test": np.arange(20, 24)}
    np.savez(folder / "split.npz", **parts)
    _write_torch(folder / "split.pt")
    for name, nodes in parts.items():
        text = "".join(f"{node}\n" for node in nodes)
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode(), 1, mtime=0))


def _read_split(folder, path):
    from studies.fixed_splits import fixed_split, read_split

    parts = read_split(folder if path.name.endswith(".gz") else path)
    split = fixed_split(parts, np.arange(24) % 3, seed=0)
    assert len(np.intersect1d(split.train, split.test)) == 0


def _make_trials(folder):
    from studies.perceptrons import Perceptron, _keep_trials

    trial = {"validation_loss": 0.5, "validation_accuracy": 0.9, "epochs": 7, "test_accuracy": 0.8}
    _keep_trials(folder / "trials.json", "a" * 64, {Perceptron(16, 2, 0.0, 0.01): trial})


def _read_trials(folder, path):
    from graphquilt.errors import FormatError
    from studies.perceptrons import _finished

    trials = _finished(path, "a" * 64)
    for trial in trials.values():
        assert trial["validation_loss"] + trial["epochs"] + trial.get("test_accuracy", 0) is not None
    if not trials:
        raise FormatError("a file that cannot be used counts as if it was not there")


def _make_references(folder):
    from graphquilt.graph import attach

    np.save(folder / "x.npy", np.random.default_rng(0).random((24, 3)).astype(np.float16))
    _graph().save(folder / "graph")
    attach(folder / "graph", features=folder / "x.npy")


def _read_reference(folder, path):
    """Open a graph whose features lie elsewhere; the file of the features is where this copy has it."""
    from graphquilt.files.checksums import seal
    from graphquilt.graph import Graph

    description = folder / "graph" / "graph.json"
    before = description.read_bytes()
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        content = json.loads(before)
        content["arrays"]["features"]["path"] = str(folder / "x.npy")
        description.write_text(json.dumps(seal(content)))
    try:
        _check_graph(Graph.open(folder / "graph"))
    finally:
        description.write_bytes(before)


# Results


def _make_encoder(folder):
    from graphquilt.embedders import Encoder

    rng = np.random.default_rng(0)
    shapes = {"weight0": (3, 4), "bias0": (4,), "weight1": (4, 4), "bias1": (4,)}
    weights = {name: rng.random(shape).astype(np.float32) for name, shape in shapes.items()}
    path = folder / "encoder.safetensors"
    Encoder("VGAE", 2, weights).save(path)
    # The metadata are in another order in every process, and blanks fill the header up to its length.
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True, separators=(",", ":"))
    path.write_bytes(content[:8] + header.encode().ljust(length) + content[8 + length :])


def _read_encoder(folder, path):
    from graphquilt.embedders import Encoder

    encoder = Encoder.load(path)
    assert repr(encoder)
    assert encoder(_graph()).shape[0] == 24


def _make_basis(folder):
    import graphquilt as gq

    features = gq.embedders.Signal.features()
    gq.Propagation(2, steps=3, signal=features).fit(_graph(), 0).encoder.save(folder / "features.npz")
    gq.Propagation(2, clusters=6).fit(_graph(), 0).encoder.save(folder / "clusters.npz")


def _read_basis(folder, path):
    from graphquilt.embedders import BasisEncoder

    encoder = BasisEncoder.load(path)
    assert repr(encoder)
    X = encoder(_graph())
    assert X.shape == (24, encoder.dim)
    assert np.isfinite(X).all()


def _make_alignment(folder):
    import graphquilt as gq

    X = np.random.default_rng(0).random((24, 2))
    gq.align([(np.arange(12), X[:12]), (np.arange(6, 18), X[6:18]), (np.arange(12, 24), X[12:])]).save(
        folder / "alignment.npz"
    )


def _read_alignment(folder, path):
    from graphquilt import Alignment

    alignment = Alignment.load(path)
    assert repr(alignment)
    assert alignment.summary()
    for k in range(alignment.n_patches):
        assert np.isfinite(alignment.apply(k, np.ones((2, alignment.dim)))).all()


def _make_statistics(folder):
    import graphquilt as gq

    X = np.random.default_rng(0).random((18, 2))
    gq.overlap_statistics((np.arange(12), X[:12]), (np.arange(6, 18), X[6:])).save(folder / "overlap.npz")


def _read_statistics(folder, path):
    import graphquilt as gq

    statistics = gq.OverlapStatistics.load(path)
    assert repr(statistics)
    ring = np.stack([np.arange(len(statistics)), np.arange(1, len(statistics) + 1)], axis=1)
    alignment = gq.align_statistics(statistics, ring)
    assert np.isfinite(alignment.edge_errors).all()


def _seal_statistics(files):
    """Put the right checksum into each file whose arrays can be read."""
    from graphquilt.alignment.statistics import checksum

    for name, content in files.items():
        with contextlib.suppress(Exception), np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = dict(archive)
            file = io.BytesIO()
            np.savez(file, **(arrays | {"checksum": np.asarray(checksum(arrays))}))
            files[name] = file.getvalue()


# Federated alignment


def _fixed_secrets():
    """Make keys and numbers the same in every process."""
    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch("secrets.token_bytes", lambda n: bytes(range(n))))
    stack.enter_context(mock.patch("secrets.token_hex", lambda n: bytes(range(n)).hex()))
    return stack


def _parties(*, psi=False):
    from graphquilt.federated import align

    with _fixed_secrets():
        made, key = align.invite("night-1", 2, ids_can_be_guessed=not psi)
        X = np.random.default_rng(0).normal(size=(40, 2))
        parts = zip("ab", (np.arange(30), np.arange(8, 40)), strict=True)
        return [align.offer(ids, X[ids], made, key=key, party=name, secret=bytes(32)) for name, ids in parts]


def _make_round(folder):
    from graphquilt.federated import align

    party = _parties()[0]
    with _fixed_secrets():
        party.round.save(folder / "round.json")
        align.save_key(party.key, folder / "key")


def _read_round(folder, path):
    from graphquilt.federated import align

    made = align.Round.load(folder / "round.json")
    made.check_key(align.load_key(folder / "key"))
    assert made.least >= 2 * made.dim + 10


def _make_messages(folder):
    from graphquilt.federated import align

    a, b = _parties()
    reply = align.reply(a, b.offer)
    measurement = align.measure(b, reply)
    transform = align.solve([measurement], a.round).transforms["a"]
    for name, message in {"offer": b.offer, "reply": reply, "stats": measurement, "transform": transform}.items():
        message.save(folder / f"{name}.npz")


def _read_message(folder, path):
    """Do what the one who gets this file does with it."""
    from graphquilt.federated import align
    from graphquilt.federated.align import Message

    if not hasattr(_read_message, "parties"):
        _read_message.parties = _parties()
    a, b = _read_message.parties
    message = Message.load(path)
    if path.stem == "offer":
        assert len(align.reply(a, message).arrays["pseudonyms"]) <= 30
    elif path.stem == "reply":
        align.measure(b, message)
    elif path.stem == "stats":
        assert np.isfinite(align.solve([message], a.round).alignment.rotations).all()
    else:
        assert np.isfinite(align.apply(a, message)[1]).all()


def _make_party(folder):
    party = _parties()[0]
    with _fixed_secrets():
        party.save(folder / "home")


def _read_party(folder, path):
    from graphquilt.federated.align import Party

    party = Party.load(folder / "home")
    assert party.embedding.shape == (len(party.ids), party.round.dim)
    assert party.rows.size == 0 or party.ids[party.rows].shape == party.pseudonyms.shape


def _make_request(folder):
    with mock.patch("graphquilt.federated.align.exchange.new_psi_key", return_value=b"\1" * 32):
        _parties(psi=True)[1].offer.save(folder / "offer.npz")


def _read_request(folder, path):
    from graphquilt.federated import align
    from graphquilt.federated.align import Message

    if not hasattr(_read_request, "party"):
        _read_request.party = _parties(psi=True)[0]
    assert set(align.reply(_read_request.party, Message.load(path)).arrays) == {"setup", "response"}


def _seal_messages(files):
    """Make checksums and authentication of messages right again, as a party that lies does."""
    from graphquilt.federated.align import Message

    for name, content in files.items():
        with contextlib.suppress(Exception):
            arrays = dict(np.load(io.BytesIO(content), allow_pickle=False))
            header = json.loads(arrays.pop("header").tobytes())
            if "checksum" in arrays:
                arrays["checksum"] = np.asarray(_statistics_checksum(arrays))
            fields = ("kind", "round", "round_name", "sender", "facts")
            message = Message(*(header[field] for field in fields), arrays)
            with tempfile.TemporaryDirectory() as place:
                message.authenticated(bytes(range(32))).save(Path(place, "m"))
                files[name] = Path(place, "m").read_bytes()


def _statistics_checksum(arrays):
    from graphquilt.alignment.statistics import checksum

    return checksum(arrays)


def _seal_round(files):
    from graphquilt.files.checksums import seal

    with contextlib.suppress(Exception):
        files["round.json"] = json.dumps(seal(json.loads(files["round.json"]))).encode()


READERS = {
    reader.name: reader
    for reader in (
        Reader("edges in text", _make_texts, _read_text_edges, 3),
        Reader("edges in gzip", _make_gzipped, _read_text_edges, 3),
        Reader("edges in npy and npz", _make_edge_arrays, _read_edge_array, 2),
        Reader("edges in Parquet", _make_edge_parquet, _read_edge_parquet, 2),
        Reader("edges out of core", _make_out_of_core, _read_out_of_core),
        Reader("features", _make_features, _read_features, 2),
        Reader("labels", _make_labels, _read_labels),
        Reader("labels of a map", _make_map_labels, _read_map_labels),
        Reader("flows in text", _make_flow_texts, _read_flows),
        Reader("flows in gzip and bzip2", _make_flows_packed, _read_flows),
        Reader("flows in Parquet", _make_flow_parquet, _read_flows),
        Reader("flows in logs of every kind", _make_logs, _read_logs),
        Reader("events of hosts", _make_events, _read_events),
        Reader("addresses, labels and lists of hosts", _make_word_maps, _read_word_map),
        Reader("graph folder", _make_graph_folder, _read_graph_folder, 2, _seal_folder),
        Reader("job folder", _make_job, _read_job, 0.5, _seal_folder),
        Reader("patches of others", _make_patches, _read_patches, 0.4, _seal_folder),
        Reader("shared start", _make_started, _read_started, 0.5, _seal_folder),
        Reader("watch state", _make_watch_state, _read_watch_state, 0.3, _seal_watch_state),
        Reader("planetoid", _make_planetoid, _read_dataset("cora"), 2),
        Reader("npz data sets", _make_npz_dataset, _read_npz_dataset, 2),
        Reader("pickled npz data sets", _make_pickled_dataset, _read_dataset("coauthor-cs"), 1),
        Reader("PyG data sets", _make_pyg, _read_dataset("cora"), 1, None, "torch"),
        Reader("MAG240M", _make_mag240m, _read_mag240m, 0.5),
        Reader("splits", _make_splits, _read_split, 2),
        Reader("trained perceptrons", _make_trials, _read_trials, 1, _seal_folder),
        Reader("features elsewhere", _make_references, _read_reference, 2, _seal_folder),
        Reader("encoder", _make_encoder, _read_encoder, 1, None, "torch"),
        Reader("basis", _make_basis, _read_basis),
        Reader("vectors with ids", _make_vectors, _read_vectors, 3),
        Reader("alignment", _make_alignment, _read_alignment, 2),
        Reader("round and key", _make_round, _read_round, 0.5, _seal_round),
        Reader("party folder", _make_party, _read_party, 0.5),
        Reader(
            "request for intersection", _make_request, _read_request, 0.3, _seal_messages, "private_set_intersection"
        ),
        Reader("messages of parties", _make_messages, _read_message, 2, _seal_messages),
        Reader("overlap statistics", _make_statistics, _read_statistics, 2, _seal_statistics),
    )
}
