"""Updates: rows and frame stay, what has not changed keeps its bits, and a killed update changes nothing."""

import shutil

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from graphquilt.errors import InputError
from graphquilt.jobs import DirectoryStore, Job, export_embedding, job_status, versions
from graphquilt.jobs.records import patch_key
from graphquilt.jobs.store import NEXT
from graphquilt.jobs.store import DirectoryStore as Folder

DIM = 8


@pytest.fixture(scope="module")
def whole():
    return gq.datasets.load_dataset("blocks")


@pytest.fixture(scope="module")
def yesterday(whole, tmp_path_factory):
    """A job of all but the last 20 nodes, in five patches."""
    folder = tmp_path_factory.mktemp("update") / "job"
    gq.embed(whole.subgraph(np.arange(1180)), DIM, n_patches=5, store=DirectoryStore(folder))
    return folder


@pytest.fixture
def job(yesterday, tmp_path):
    return Job.open(shutil.copytree(yesterday, tmp_path / "job"))


def digests(store, keys):
    return {key: store.digest(key) for key in keys}


def contents(job):
    files = (path for path in job.store.folder.rglob("*") if path.is_file() and "lock" not in path.name)
    return {path: path.read_bytes() for path in files}


def cosines(a, b):
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def without_edges(graph, edges):
    """The graph without some edges (k, 2)."""
    A = graph.adjacency.tolil()
    A[edges[:, 0], edges[:, 1]] = A[edges[:, 1], edges[:, 0]] = 0
    return gq.Graph(sp.csr_array(A), graph.features, labels=graph.labels, node_ids=graph.node_ids)


def edges_of(graph, nodes):
    A = sp.triu(graph.adjacency, 1).tocoo()
    inside = np.isin(A.row, nodes) & np.isin(A.col, nodes)
    return np.column_stack([A.row[inside], A.col[inside]])


def table(path, edges):
    np.savetxt(path, edges, fmt="%d", delimiter=",", header="source,target", comments="")
    return path


def test_an_update_that_changes_nothing_changes_no_bit(job, whole):
    before = contents(job)
    done = gq.update(job, whole.subgraph(np.arange(1180)))
    assert (done.version, done.redone, done.nodes_added) == (1, 0, 0)
    after = {
        path: path.read_bytes() for path in job.store.folder.rglob("*") if path.is_file() and "lock" not in path.name
    }
    assert before == after


def test_nodes_keep_rows_and_frame_and_the_history_says_what_was_done(job, whole):
    X = np.array(job.embedding)
    done = gq.update(job, whole)
    now = Job.open(job.name)
    assert now.embedding.shape == (1200, DIM)
    assert now.graph.node_ids[:1180].tolist() == list(range(1180))
    assert np.quantile(cosines(X, now.embedding[:1180]), 0.05) > 0.99
    assert (done.nodes_added, done.nodes_gone, done.version) == (20, 0, 2)
    assert done.found > 0.9
    assert abs(done.share - done.share_before) < 0.05
    assert "still serve" in done.verdict
    status = job_status(now, verify=True)
    assert status.damaged == []
    assert status.next == "nothing"
    assert [(entry["version"], entry["nodes_added"]) for entry in status.history] == [(2, 20)]
    now.run()  # finds everything done
    assert not (job.store.folder / NEXT).exists()


def test_patches_that_did_not_change_keep_their_bits(job, whole):
    today = whole.subgraph(np.arange(1180))
    home = job.store["labels"].arrays["labels"]
    inside = edges_of(today, np.flatnonzero(home == 2))[:40]
    keys = [patch_key(k, "embedding") for k in range(5)]
    before = digests(job.store, keys)
    done = gq.update(job, without_edges(today, inside))
    after = digests(Job.open(job.name).store, keys)
    assert done.edges_removed == 40
    assert 1 <= done.redone < 5
    changed = [key for key in keys if before[key] != after[key]]
    assert keys[2] in changed
    assert len(changed) == done.redone


def test_changes_below_the_tolerance_add_up(job, whole):
    """A patch that was spared by several small updates is embedded again in the end."""
    today = whole.subgraph(np.arange(1180))
    home = job.store["labels"].arrays["labels"]
    edges = edges_of(today, np.flatnonzero(home == 2))
    gq.update(job, without_edges(today, edges[:2]))
    first = np.asarray(Job.open(job.name).store["update"].arrays["changed"])
    gq.update(job.name, without_edges(today, edges[:4]))
    second = np.asarray(Job.open(job.name).store["update"].arrays["changed"])
    assert 0 < first[2] < second[2]
    assert gq.update(job.name, without_edges(today, edges[:30])).redone >= 1
    assert np.asarray(Job.open(job.name).store["update"].arrays["changed"])[2] == 0


def test_edges_to_add_and_remove_do_what_the_whole_graph_does(job, whole, tmp_path, caplog):
    today = whole.subgraph(np.arange(1180))
    gone = edges_of(today, np.arange(60))[:5]
    came = np.array([[0, 1000], [1, 1180], [2, 1180]])
    A = without_edges(today, gone).adjacency
    A.resize((1181, 1181))
    rows, columns = np.r_[came[:, 0], came[:, 1]], np.r_[came[:, 1], came[:, 0]]
    A = sp.csr_array(A.maximum(sp.csr_array((np.ones(6), (rows, columns)), shape=A.shape)))
    other = shutil.copytree(job.name, tmp_path / "other")
    gq.update(job, gq.Graph(A))
    absent = np.vstack([gone, [[0, 1179]]])
    done = gq.update(other, add=table(tmp_path / "add.csv", came), remove=table(tmp_path / "remove.csv", absent))
    assert (done.missing, done.edges_removed, done.edges_added, done.nodes_added) == (1, 5, 3, 1)
    assert np.array_equal(Job.open(job.name).embedding, Job.open(other).embedding)
    with pytest.raises(InputError, match=r"node 5000 does not exist.*nearest are"):
        gq.update(other, remove=np.array([[5000, 1]]))


def test_nodes_that_had_no_edges_join_their_neighbours(whole, tmp_path):
    """They leave the patches they were in, whose other rows keep their bits unless they are embedded again."""
    lonely = np.arange(0, 1200, 300)
    A = whole.adjacency.tolil()
    A[lonely] = A[:, lonely] = 0
    gq.embed(gq.Graph(sp.csr_array(A), whole.features), DIM, n_patches=5, store=DirectoryStore(tmp_path / "job"))
    before = Job.open(tmp_path / "job")
    sets, rows = before.patch_graph.node_sets, [np.array(patch.coordinates) for patch in before.patches]
    home = before.store["labels"].arrays["labels"]
    done = gq.update(tmp_path / "job", whole)
    now = Job.open(tmp_path / "job")
    assert done.redone < 5
    moved = now.store["labels"].arrays["labels"][lonely] != home[lonely]
    assert moved.any()
    for k, (old, new) in enumerate(zip(sets, now.patch_graph.node_sets, strict=True)):
        assert not np.isin(lonely[moved & (home[lonely] == k)], new).any()
        stayed = np.intersect1d(old, new)
        if f"patches/{k:05d}/embedding" in versions.taken_over(now.store):
            assert np.array_equal(now.patches[k].coordinates, rows[k][np.isin(old, stayed)])
    X = np.asarray(now.embedding)
    near = [cosines(X[[node] * 5], X[whole.indices[whole.indptr[node] :][:5]]).mean() for node in lonely]
    assert min(near) > 0.5
    assert job_status(now, verify=True).damaged == []


def test_averages_that_are_renewed_walk_on_through_those_of_the_other_clusters(whole):
    from graphquilt.embedders.survey import FarTables
    from graphquilt.embedders.walks import degrees_with_loops

    rng = np.random.default_rng(0)
    far = FarTables(gq.patches.coarse_graph(whole, rng.integers(6, size=1200)), *degrees_with_loops(whole))
    M = rng.random((6, 3), dtype=np.float32)
    tables = far.tables(M, np.float32, restart=0.1, steps=4, block=64)
    everywhere, somewhere = np.ones(6, dtype=bool), np.arange(6) == 2
    assert np.allclose(far.renewed(np.zeros_like(tables), M, everywhere, restart=0.1), tables, rtol=1e-5)
    assert np.allclose(far.renewed(tables, M, somewhere, restart=0.1), tables, rtol=1e-5)
    other = far.renewed(tables, 2 * M, somewhere, restart=0.1)
    assert np.array_equal(other[:, ~somewhere], tables[:, ~somewhere])
    assert (other[:, somewhere] > tables[:, somewhere]).all()


def test_gone_nodes_are_left_out_and_new_when_they_come_back(job, whole, tmp_path):
    today = whole.subgraph(np.arange(1180))
    done = gq.update(job, whole.subgraph(np.arange(10, 1180)))
    now = Job.open(job.name)
    assert (done.nodes_gone, done.nodes_added) == (10, 0)
    assert now.embedding.shape == (1180, DIM)
    assert not np.any(now.embedding[:10])
    near = gq.neighbours(now, 500, k=1169)
    assert near.rows.min() >= 10
    assert len(near.rows) == 1169
    with pytest.raises(InputError, match="node 3 is gone"):
        gq.neighbours(now, 3)
    path = export_embedding(now, tmp_path / "x.npy")
    assert np.load(path).shape == (1170, DIM)
    assert np.load(tmp_path / "x.ids.npy").tolist() == list(range(10, 1180))
    best = gq.links(now, top=20)
    assert best.rows.min() >= 10
    with pytest.raises(InputError, match="is gone"):
        gq.links(now, 3)
    back = gq.update(now, today)
    assert (back.nodes_gone, back.nodes_added) == (0, 10)
    X = np.asarray(Job.open(job.name).embedding)
    assert np.any(X[:10], axis=1).all()


def test_twenty_small_updates_end_where_one_large_update_and_a_fresh_job_do(whole, tmp_path):
    store, n = DirectoryStore(tmp_path / "job"), whole.n_nodes
    gq.embed(whole.subgraph(np.arange(n - 60)), DIM, n_patches=4, store=store)
    other = shutil.copytree(tmp_path / "job", tmp_path / "other")
    for k in range(20):
        gq.update(tmp_path / "job", whole.subgraph(np.arange(n - 60 + 3 * (k + 1))))
    gq.update(other, whole)
    job = Job.open(tmp_path / "job")
    X, fresh = np.asarray(job.embedding), gq.embed(whole, DIM, n_patches=4).embedding
    assert len(job_status(job).history) == 20
    assert np.quantile(cosines(X, Job.open(other).embedding), 0.01) > 0.99
    U, _, V = np.linalg.svd(X.T @ fresh)
    assert np.median(cosines(X @ U @ V, fresh)) > 0.95
    options = gq.evaluate.EvaluationOptions(splits=5)
    ours, theirs = (gq.evaluate.quality(Z, whole, options=options) for Z in (X, fresh))
    assert ours.accuracy > theirs.accuracy - 0.005
    assert ours.auc > theirs.auc - 0.05  # of random blocks, where more than .75 is chance that directions fit


def test_new_directions_are_turned_onto_the_old_ones(job, whole):
    X = np.array(job.embedding)
    done = gq.update(job, whole, refresh=True)
    now = Job.open(job.name)
    assert done.redone == 5
    assert done.unlike < 0.2
    assert np.median(cosines(X, now.embedding[:1180])) > 0.95
    assert "turned onto" in done.verdict
    assert now.alignment.moves_nothing
    now.run()
    again = gq.update(now, whole.subgraph(np.arange(1190)))  # and updates after it stay in that frame
    assert np.median(cosines(X, Job.open(job.name).embedding[:1180])) > 0.95
    assert again.version == 3


def test_embedders_without_a_shared_start_keep_their_frame(whole, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    today = whole.subgraph(np.arange(1180))
    X = np.array(gq.embed(today, embedder=gq.SVD(DIM), n_patches=3, store=store).embedding)
    gq.update(tmp_path / "job", whole)
    Y = np.asarray(Job.open(tmp_path / "job").embedding)
    assert np.linalg.norm(Y[:1180] - X) < 0.3 * np.linalg.norm(X)
    U, _, V = np.linalg.svd(Y[:1180].T @ X)
    assert np.allclose(U @ V, np.eye(DIM), atol=1e-6)
    gq.update(tmp_path / "job", today)  # and a second time
    Z = np.asarray(Job.open(tmp_path / "job").embedding)
    assert np.linalg.norm(Z[:1180] - X) < 0.3 * np.linalg.norm(X)


class KilledError(BaseException):
    """Stands for kill -9: no handler of the library catches it."""


@pytest.mark.parametrize("refresh", [False, True])
def test_a_killed_update_is_resumed_with_the_same_bits_and_the_old_version_is_readable(
    job, whole, tmp_path, monkeypatch, refresh
):
    expected = shutil.copytree(job.name, tmp_path / "expected")
    gq.update(expected, whole, refresh=refresh)
    expected = np.array(Job.open(expected).embedding)
    old, count = np.array(job.embedding), {"left": 0}
    write, move = Folder.__setitem__, versions.os.replace

    def counted(function):
        def call(*arguments):
            count["left"] -= 1
            if count["left"] < 0:
                raise KilledError
            return function(*arguments)

        return call

    whole_version = False
    for k in range(60):
        monkeypatch.setattr(Folder, "__setitem__", counted(write))
        monkeypatch.setattr(versions.os, "replace", counted(move))
        count["left"] = 4 * k + 3
        try:
            gq.update(job.name, whole, refresh=refresh)
        except KilledError:
            whole_version = (job.store.folder / NEXT / "version.json").exists()
        else:
            break
        finally:
            monkeypatch.undo()
        X = np.asarray(Job.open(job.name).embedding)
        assert np.array_equal(X, expected if whole_version else old)
        if whole_version:
            break
    assert np.array_equal(np.asarray(Job.open(job.name).embedding), expected)


def test_workers_give_the_same_bits(job, whole, tmp_path):
    other = shutil.copytree(job.name, tmp_path / "other")
    gq.update(job, whole)
    with gq.Processes(2) as pool:
        gq.update(other, whole, executor=pool)
    assert np.array_equal(Job.open(job.name).embedding, Job.open(other).embedding)


def test_features_of_new_nodes_come_from_a_table(whole, tmp_path):
    rng = np.random.default_rng(0)
    X = np.eye(6)[whole.labels] + rng.normal(scale=0.1, size=(1200, 6))
    graph = gq.Graph(whole.adjacency, X)
    gq.embed(graph.subgraph(np.arange(1190)), 4, n_patches=3, store=DirectoryStore(tmp_path / "job"))
    plain = shutil.copytree(tmp_path / "job", tmp_path / "plain")
    names = [f"x{k}" for k in range(6)]
    rows = [",".join([str(1190 + k), *map(repr, X[1190 + k].tolist())]) for k in range(10)]
    (tmp_path / "x.csv").write_text("\n".join([",".join(["id", *names]), *rows]))
    edges = gq.Graph(whole.adjacency)
    gq.update(tmp_path / "job", edges, features=tmp_path / "x.csv")
    gq.update(plain, edges)
    assert np.allclose(Job.open(tmp_path / "job").graph.features, X)
    assert not np.any(Job.open(plain).graph.features[1190:])
    with pytest.raises(InputError, match="features of 6 columns, and the new ones have 3"):
        gq.update(plain, gq.Graph(whole.adjacency, X[:, :3]))
    with pytest.raises(InputError, match="need ids"):
        gq.update(plain, edges, features=X)


def test_another_graph_is_a_question(job, whole):
    other = gq.Graph(whole.adjacency, node_ids=np.arange(1200) + 5000)
    with pytest.raises(InputError, match=r"only 0 of the 1200 ids .*Is this the same network\?.*--anyway"):
        gq.update(job, other)
    with pytest.raises(InputError, match=r"has \d+ edges, and the graph of this job \d+\. .* give them with --add"):
        gq.update(job, whole.subgraph(np.arange(400)))  # a file of new edges alone would empty the job
    with pytest.raises(InputError, match="not both"):
        gq.update(job)
    with pytest.raises(InputError, match="not both"):
        gq.update(job, whole, add=[[0, 1]])


def test_the_command_updates_and_inspect_tells(job, whole, tmp_path, command):
    today = table(tmp_path / "today.csv", edges_of(whole, np.arange(1200)))
    code, out, _ = command("update", job.name, today, "--workers", 1)
    assert code == 0
    assert "20" in out
    assert "still serve" in out
    assert "version 2" in command("inspect", job.name)[1]


def test_a_map_like_an_earlier_one_stays_put(job, whole, tmp_path, command):
    from graphquilt.report import MapOptions, node_map, write_map

    yesterday = shutil.copytree(job.name, tmp_path / "yesterday")
    before = write_map(job, tmp_path / "map.html")
    gq.update(job, whole.subgraph(np.arange(5, 1200)))
    now = Job.open(job.name)
    for like in (job.name, yesterday):  # the map that the job keeps, and a copy of the job without one
        after = node_map(now, MapOptions(like=like))
        assert after.rows.tolist() == list(range(5, 1200))
        moved = np.linalg.norm(after.points[:1175] - before.points[5:], axis=1)
        assert np.median(moved) < 0.1 * before.points.std()
    with pytest.raises(InputError, match="no such map yet"):
        node_map(now, MapOptions(like=job.name, umap=True))
    other = tmp_path / "other"
    gq.embed(whole, 4, n_patches=1, store=DirectoryStore(other))
    code, _, error = command("map", job.name, "--like", other, "--out", tmp_path / "m.html")
    assert code == 2
    assert "4 dimensions" in error


def test_umap_begins_where_nodes_were(job, whole, tmp_path):
    pytest.importorskip("umap")
    from graphquilt.report import MapOptions, node_map, write_map

    before = write_map(job, tmp_path / "map.html", options=MapOptions(umap=True, limit=200))
    gq.update(job, whole)
    after = node_map(Job.open(job.name), MapOptions(umap=True, limit=220, like=job.name))
    assert np.isin(before.rows, after.rows).all()
    places = after.points[np.searchsorted(after.rows, before.rows)]
    side = np.ptp(before.points, axis=0).max()
    moved = np.median(np.linalg.norm(places - before.points, axis=1))
    assert moved < 0.3 * side  # UMAP moves all of them together, by about a fifth
