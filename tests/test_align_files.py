"""Embeddings that exist already: files, dicts and names, stitched by one function and one command."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import graphquilt as gq
from graphquilt.errors import DisconnectedError, FormatError, InputError, JobError
from graphquilt.graph import read_vectors
from graphquilt.jobs import Job, job_status

N, D = 90, 3
NAMES = np.array([f"wörd {k:03d}" if k % 9 == 0 else f"w{k:03d}" for k in range(N)])
PARTS = (np.arange(0, 40), np.arange(25, 70), np.arange(55, 90))


@pytest.fixture(scope="module")
def space():
    """The places of all words, and the same in three frames with other scales, rotations and origins."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    turns = [np.linalg.qr(rng.standard_normal((D, D)))[0] for _ in PARTS]
    return X, [(k + 1) * X[part] @ turns[k] + 5 * k for k, part in enumerate(PARTS)]


def dicts(frames):
    return [dict(zip(NAMES[part].tolist(), X.tolist(), strict=True)) for part, X in zip(PARTS, frames, strict=True)]


def text(ids, X, *, head):
    lines = [f"{len(X)} {D}"] if head else []
    return "\n".join([*lines, *(f"{i} " + " ".join(map(repr, row)) for i, row in zip(ids, X.tolist(), strict=True))])


@pytest.fixture(scope="module")
def files(space, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    (a, A), (b, B), (c, C) = ((NAMES[part], X) for part, X in zip(PARTS, space[1], strict=True))
    (folder / "a.vec").write_text(text(a, A, head=True), encoding="utf-8")
    pq.write_table(pa.table({"x": B[:, 0], "y": B[:, 1], "name": b, "z": B[:, 2]}), folder / "b.parquet")
    np.savez(folder / "c.npz", ids=c, X=C)
    return [folder / name for name in ("a.vec", "b.parquet", "c.npz")]


def like(space, result):
    """Whether the result has the places of all words, up to one similarity."""
    order = np.argsort(NAMES)
    assert result.node_ids.tolist() == NAMES[order].tolist()
    X, Y = space[0][order], np.asarray(result.embedding)
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    distances = np.linalg.norm(X[:, None] - X, axis=2), np.linalg.norm(Y[:, None] - Y, axis=2)
    return np.allclose(distances[0] / distances[0].max(), distances[1] / distances[1].max(), atol=1e-5)


def test_files_dicts_and_names_give_the_same(space, files):
    named = [(NAMES[part], X) for part, X in zip(PARTS, space[1], strict=True)]
    for patches in (files, dicts(space[1]), named, dict(zip("abc", dicts(space[1]), strict=True))):
        assert like(space, gq.align_files(patches))
    options = {"scale": True}
    for patches in (files, dicts(space[1]), named):
        alignment = gq.align(patches, **options)
        assert alignment.edge_errors.max() < 1e-5
        assert gq.centroid(patches, alignment).shape == (N, D)


def test_numbers_and_the_same_numbers_as_text_are_the_same_ids():
    X = np.random.default_rng(0).standard_normal((8, 2))
    result = gq.align_files([(np.arange(100, 108), X), {str(k): X[k - 100] + 1 for k in range(102, 108)}])
    assert result.node_ids.tolist() == [str(k) for k in range(100, 108)]
    with_gaps = gq.align_files([(10 * np.arange(8), X), (10 * np.arange(8), X)])
    assert with_gaps.node_ids.tolist() == [0, 10, 20, 30, 40, 50, 60, 70]


def make_files(folder, ids, X):
    """Every way of writing ids and vectors that is read."""
    (folder / "bare.txt").write_text(text(ids, X, head=False))
    (folder / "packed.vec.gz").write_bytes(gzip.compress(text(ids, X, head=True).encode()))
    rows = [f"{i},{','.join(map(repr, row))}" for i, row in zip(ids, X.tolist(), strict=True)]
    (folder / "x.csv").write_text("\n".join(["node_id,x0,x1,x2", *rows]))
    (folder / "x.tsv").write_text("\n".join(rows).replace(",", "\t"))
    pq.write_table(pa.table({"word": ids, "vector": X.tolist()}), folder / "lists.parquet")
    fixed = pa.FixedSizeListArray.from_arrays(X.ravel(), 3)
    pq.write_table(pa.table({"id": pa.array(ids).dictionary_encode(), "v": fixed}), folder / "fixed.parquet")
    np.savez_compressed(folder / "x.npz", vectors=X, words=np.char.encode(ids, "utf-8"))
    np.save(folder / "x.npy", X)
    np.save(folder / "x.ids.npy", ids)


def test_every_kind_of_file_is_read(tmp_path):
    ids, X = np.array(["ann", "#bob", "c"]), np.random.default_rng(0).standard_normal((3, 3))
    make_files(tmp_path, ids, X)
    for path in sorted(tmp_path.iterdir()):
        if path.name != "x.ids.npy":
            found, coordinates = read_vectors(path)
            assert found.tolist() == ids.tolist(), path
            assert np.allclose(coordinates, X, atol=1e-6), path
    np.save(tmp_path / "alone.npy", X)  # row numbers are no ids: those of two files would name different things
    with pytest.raises(FormatError, match=r'has 3 rows and no ids: .*alone\.ids\.npy does not exist.*np\.save\("alone'):
        read_vectors(tmp_path / "alone.npy")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.vec", "", "is empty"),
        ("a.vec", "5 2\n", "holds a first line and no vectors"),
        ("a.vec", "2 2\nann 1 2\nbob 1\n", "line 3: expected an id and 2 numbers: 'bob 1'"),
        ("a.vec", "ann 1 2\nbob 1 x\n", "line 2: expected an id and 2 numbers"),
        ("a.vec", "ann 1 nan\n", "line 1: expected an id and 2 numbers"),
        ("a.vec", "ann 1 2\nann 3 4\n", "1 ids occur more than once, the first is ann"),
        ("a.vec", "7 99999999999999999999\nann 1\n", "dimensions are more than a line can hold"),
        ("a.vec", "ann\n", "expected an id and 0 numbers"),
        ("a.parquet", "ann", "is not a complete Parquet file"),
        ("a.npz", "ann", "a.npz"),
        ("gone.vec", None, "does not exist"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(FormatError, match=message):
        read_vectors(tmp_path / name)


def test_ids_of_pandas_are_to_be_saved_as_text(tmp_path):
    np.savez(tmp_path / "a.npz", ids=np.array(["ann", "bob"], dtype=object), X=np.eye(2))
    with pytest.raises(FormatError, match=r"a\.npz: ids holds Python objects.*: ids\.astype\(str\)") as raised:
        read_vectors(tmp_path / "a.npz")
    assert "damaged" not in str(raised.value)


@pytest.mark.parametrize(
    ("patches", "message"),
    [
        ([], "there are no patches"),
        ({"ann": [1.0, 2.0], "bob": [2.0, 3.0]}, "A dict of names to vectors is one patch: give a list"),
        ([{"ann": [1.0, 2.0]}, {"bob": [1.0]}], "patch 1 has vectors of 1 number and patch 0 of 2; only"),
        ([{"ann": [1.0, 2.0], "bob": [1.0]}], "patch 0 is not a pair of ids and coordinates"),
        ([(["ann", "bob"], [[1.0]])], "patch 0 has 2 ids and 1 rows of coordinates"),
        ([(["ann", None], [[1.0], [2.0]])], "ids are whole numbers or text"),
        ([{"ann": [1.0], "bob": [np.nan]}], "patch 0: 1 of 2 rows of coordinates are not finite, .* that of bob. Rep"),
    ],
)
def test_wrong_patches_are_named(patches, message):
    with pytest.raises(InputError, match=message):
        gq.align_files(patches)


def test_a_missing_overlap_says_the_largest_there_is(files):
    with pytest.raises(
        DisconnectedError, match=r"\{.*a\.vec\}; \{.*c\.npz\}.* need at least 4, and no two groups have any"
    ):
        gq.align_files([files[0], files[2]])
    X = np.random.default_rng(0).standard_normal((30, 9))
    apart = [(np.arange(12), X[:12]), (np.arange(8, 20), X[8:20]), (np.arange(17, 30), X[17:])]
    message = (
        "Two patches in 9 dimensions need at least 10, and of two groups, patch 0 and patch 1 have the most: 4. Give "
        "patches with more ids in common, embed in at most 3 dimensions, or"
    )
    with pytest.raises(DisconnectedError, match=message):
        gq.align_files(apart)
    with pytest.raises(DisconnectedError, match="0 and 1 have the most: 4"):
        gq.align(apart)


def test_the_command_makes_a_job_like_any_other(space, files, command, tmp_path):
    out = tmp_path / "job"
    code, printed, err = command("align", *files, "--out", out, "--workers", 1, "--json")
    assert code == 0, err
    assert (json.loads(printed)["nodes"], json.loads(printed)["patches"]) == (N, 3)
    job = Job.open(out)
    assert job_status(job, verify=True).next == "nothing"
    assert job_status(job, verify=True).damaged == []
    store = gq.DirectoryStore(tmp_path / "python")
    assert np.array_equal(gq.align_files(files, store=store).embedding, job.embedding)
    assert command("align", *files, "--out", out, "--workers", 1)[0] == 0
    assert "none: the job was made from embedded patches" in command("inspect", out)[1]
    code, printed, _ = command("neighbours", out, NAMES[9], "-k", 2, "--json")
    assert (code, len(json.loads(printed)["neighbours"])) == (0, 2)
    assert command("export", out, tmp_path / "x.parquet")[0] == 0
    assert np.allclose(read_vectors(tmp_path / "x.parquet")[1], job.embedding, atol=1e-5)
    assert command("stitch", out, "--no-scale", "--workers", 1)[0] == 0
    assert not np.array_equal(Job.open(out).embedding, gq.align_files(files).embedding)
    code, _, err = command("align", *files[:2], "--out", out)
    assert (code, "were cut with patches" in err) == (2, True)
    code, _, err = command("align", "--out", out)
    assert (code, "FILES are missing" in err) == (2, True)


def test_other_coordinates_do_not_replace_those_of_a_job(space, tmp_path):
    store = gq.DirectoryStore(tmp_path / "job")
    gq.align_files(dicts(space[1]), store=store)
    changed = [space[1][0], space[1][1] + 1, space[1][2]]
    with pytest.raises(JobError, match="has other coordinates for patch 1"):
        gq.align_files(dicts(changed), store=store)
