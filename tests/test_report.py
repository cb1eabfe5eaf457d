"""The report and the map of a job: what they contain, their size, and what bad input gets."""

import json
import re

import numpy as np
import pytest

import graphquilt as gq
from extras import needs
from graphquilt.errors import InputError, JobError
from graphquilt.report import MapOptions, job_page, node_map, render_page, write_job_report, write_map
from graphquilt.report.node_map import choose_colouring, nearest_rows, principal_plane


@pytest.fixture(scope="module")
def job(blocks, tmp_path_factory):
    settings = gq.JobSettings(
        embedder=gq.SVD(6), cutting=gq.Cutting(4, overlap=(40, 120)), recipe=gq.Recipe.paper(), seed=0
    )
    made = gq.Job.begin(gq.DirectoryStore(tmp_path_factory.mktemp("jobs") / "blocks"), settings, blocks)
    made.run()
    return made


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def colouring(drawn, name):
    return next(one for one in drawn.colourings if one.name == name)


def test_the_report_has_what_the_job_knows(job):
    page = job_page(job)
    data = data_of(page)
    assert data["fit"] == job.alignment.summary().splitlines()
    assert dict(data["facts"]) == {"nodes": 1200, "edges": 5933, "patches": 4, "overlaps": 6, "dimensions": 6}
    assert [stage["stage"].split()[0] for stage in data["stages"]] == ["cut", "embed", "align"]
    assert all(stage["seconds"] > 0 and stage["memory"] > 1e6 for stage in data["stages"])
    assert sum(data["patches"]["coverage"]["counts"]) == 1200
    assert ["cutting.n_patches", "4"] in data["settings"]
    assert len(data["quilt"]["views"]) == len(job.alignment.edges)
    assert "Jeub" in data["cite"][1]
    assert not re.search(r"(src|href)=[\"']?(https?:|//)", page)


def test_the_report_is_written_beside_the_job_and_does_not_disturb_it(job):
    path = write_job_report(job)
    assert path.name == "report.html"
    assert gq.Job.open(job.store).embedding.shape == (1200, 6)


def test_losses_are_kept_for_the_report(blocks, tmp_path):
    needs("torch")
    settings = gq.JobSettings(
        embedder=gq.VGAE(4, max_epochs=50), cutting=gq.Cutting(2, overlap=(40, 120)), recipe=gq.Recipe.paper()
    )
    job = gq.Job.begin(gq.DirectoryStore(tmp_path / "job"), settings, blocks)
    job.run()
    (first, second) = data_of(job_page(job))["curves"]
    assert (first["patch"], second["patch"]) == (0, 1)
    epochs = [epoch for epoch, _ in first["points"]]
    assert 2 <= len(epochs) <= 33
    assert epochs[0] == 1
    assert epochs == sorted(set(epochs))


def test_a_job_without_an_embedding_names_the_command(blocks, tmp_path):
    settings = gq.JobSettings(embedder=gq.SVD(4), cutting=gq.Cutting(4, overlap=(40, 120)))
    job = gq.Job.begin(gq.DirectoryStore(tmp_path / "job"), settings, blocks)
    assert data_of(job_page(job))["next"] == f"in Python: Job.open({job.name!r}).run()"
    job.cut()
    with pytest.raises(JobError, match="graphquilt embed-patches"):
        write_map(job, tmp_path / "map.html")
    job.embed(only=[2])
    data = data_of(job_page(job))
    assert (data["embedded"], data["wanted"]) == (1, 4)
    assert "map" not in data
    job.embed()
    with pytest.raises(JobError, match="graphquilt stitch"):
        write_map(job, tmp_path / "map.html")


def test_one_patch_has_no_overlaps_and_still_a_report(blocks, tmp_path):
    job = gq.Job.begin(
        gq.DirectoryStore(tmp_path / "job"), gq.JobSettings(embedder=gq.SVD(4), cutting=gq.Cutting(1)), blocks
    )
    job.run()
    data = data_of(job_page(job))
    assert len(data["map"]["colours"]) == 1  # the classes: one patch and no error are no colours
    assert "overlaps" not in data["patches"]


def test_runs_are_patches_of_the_report(blocks, tmp_path):
    recipe = gq.Recipe.paper().replace(runs=2)
    settings = gq.JobSettings(
        embedder=gq.FunctionEmbedder(_noisy, 4), cutting=gq.Cutting(3, overlap=(40, 120)), recipe=recipe
    )
    job = gq.Job.begin({}, settings, blocks)
    job.run()
    data = data_of(job_page(job))
    assert data["wanted"] == 6
    assert len(data["quilt"]["views"]) == len(job.alignment.edges)


def _noisy(graph, seed):
    return np.random.default_rng(seed).normal(size=(graph.n_nodes, 4))


def test_the_error_of_a_node_is_how_far_its_patches_disagree():
    X = np.random.default_rng(0).normal(size=(60, 3))
    sets = [np.arange(40), np.arange(20, 60)]
    store, quilt = {}, gq.PatchGraph.from_patches(sets)
    settings = gq.JobSettings(embedder=gq.FunctionEmbedder(_noisy, 3), recipe=gq.Recipe.paper())
    moved = [X[sets[0]], 2 - X[sets[1]]]
    moved[1][5] += 9.0
    for k, coordinates in enumerate(moved):
        store[f"patches/{k:05d}/embedding"] = _record({"embedding": coordinates})
    store["patch_graph"] = _record(quilt.to_arrays())
    job = gq.Job.begin(store, settings)
    job.stitch()
    drawn = node_map(job)
    errors = colouring(drawn, "alignment error").numbers
    assert np.isnan(errors[:20]).all()
    assert np.isnan(errors[40:]).all()
    assert errors[20:40].argmax() == 5
    assert drawn.copies.tolist() == [1] * 20 + [2] * 20 + [1] * 20


def _record(arrays):
    from graphquilt.jobs.store import Record

    return Record(arrays, {})


def test_a_map_of_many_nodes_is_a_sample_and_says_so(job, tmp_path):
    drawn = write_map(job, tmp_path / "map.html", options=MapOptions(limit=100))
    assert drawn.is_sample
    assert len(drawn.rows) == 100
    assert drawn.about.startswith("A random sample of 100 of the 1,200 nodes is drawn")
    assert drawn.density.sum() > 1000  # all nodes, but for those outside of the square
    again = node_map(job, MapOptions(limit=100))
    assert again.rows.tolist() == drawn.rows.tolist()
    assert data_of((tmp_path / "map.html").read_text())["map"]["rows"]


def test_a_map_as_a_picture(job, tmp_path):
    needs("matplotlib")
    labels = tmp_path / "labels.npy"
    np.save(labels, np.linspace(0, 1, 1200))
    for name, options in {
        "a.png": MapOptions(),
        "b.svg": MapOptions(colour=labels),
        "c.png": MapOptions(limit=50),
    }.items():
        write_map(job, tmp_path / name, options=options)
        assert (tmp_path / name).stat().st_size > 5000
    with pytest.raises(InputError, match=r"does not end with \.html, \.png, \.svg or \.pdf"):
        write_map(job, tmp_path / "map.gif")


@pytest.mark.slow
def test_a_map_by_umap(job, tmp_path):
    needs("umap")
    drawn = write_map(job, tmp_path / "map.html", options=MapOptions(umap=True, limit=80))
    assert "UMAP" in drawn.method
    assert drawn.density is None


def test_many_numbers_are_a_scale_and_few_are_classes():
    assert choose_colouring("x", np.array(["1", "2", "1"]), absent="").names == ("1", "2")
    assert choose_colouring("x", np.arange(100).astype(str), absent="").numbers is not None
    assert choose_colouring("x", np.array(["0.5", "2"]), absent="").numbers is not None
    assert choose_colouring("x", np.array(["b", "c", "c"]), absent="").names == ("c", "b")


@pytest.mark.parametrize(("n", "k"), [(2, 1), (7, 5), (300, 5), (1000, 3)])
def test_nearest_rows_are_those_of_all_cosines(n, k):
    X = np.random.default_rng(n).normal(size=(n, 4))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    expected = np.sort(cosines, axis=1)[:, ::-1][:, :k]
    rows = nearest_rows(X, k)
    assert np.allclose(np.take_along_axis(cosines, rows, axis=1), expected, atol=1e-5)


def test_the_plane_shows_the_two_widest_directions():
    X = np.random.default_rng(0).normal(size=(500, 5)) * [1, 9, 0.1, 4, 0.1]
    plane = principal_plane(X)
    assert np.allclose(np.abs(plane.axes[[1, 3], [0, 1]]), 1, atol=0.05)
    assert plane.share > 0.98
    assert principal_plane(np.ones((4, 1)))(np.ones((4, 1))).tolist() == [[0, 0]] * 4


def test_a_page_holds_arrays_and_hostile_text():
    data = {"a": np.arange(3, dtype=np.uint16), "b": "</script>\u2028\ud800", "c": [np.nan, np.float32(1.5)]}
    page = render_page("map_page", title="</title><b>", data=data, parts=["scatter.js"])
    assert "</title><b>" not in page
    read = data_of(page)
    assert read["a"] == {"$array": ["u2", "AAABAAIA"]}
    assert read["b"] == "</script>\u2028?"
    assert read["c"] == [None, 1.5]
    assert page.encode("utf-8")
