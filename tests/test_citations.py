"""The synthetic citation graph: the files of MAG240M, with the properties that its description promises."""

import shutil

import numpy as np
import pytest
import scipy.sparse as sp

from extras import needs
from graphquilt.errors import FormatError, InputError, JobError
from studies import citations
from studies.citations import citation_graph
from studies.mag240m import mag240m_papers, read_mag240m
from studies.pickles import load_torch

N, M, CLASSES = 20_000, 160_000, 8


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("citations")
    return citation_graph(folder, N, M, n_features=48, n_classes=CLASSES, labelled=0.3, seed=3)


def paper(root, name):
    return np.load(root / "processed" / "paper" / f"node_{name}.npy")


def edges(root):
    return np.load(root / "processed" / "paper___cites___paper" / "edge_index.npy")


def test_the_files_are_those_of_mag240m(root):
    assert edges(root).shape == (2, M)
    assert edges(root).dtype == np.int64
    assert (edges(root).min(), edges(root).max()) >= (0, 0)
    assert edges(root).max() < N
    assert paper(root, "feat").dtype == np.float16
    assert paper(root, "feat").shape == (N, 48)
    assert paper(root, "year").dtype == np.int16
    assert load_torch(root / "meta.pt") == {"paper": N, "author": 0, "institution": 0, "num_classes": CLASSES}


def test_the_same_seed_gives_the_same_files_in_blocks_of_any_size(root, tmp_path, monkeypatch):
    monkeypatch.setattr(citations, "_BLOCK", 777)
    again = citation_graph(tmp_path, N, M, n_features=48, n_classes=CLASSES, labelled=0.3, seed=3)
    other = citation_graph(tmp_path / "other", N, M, n_features=48, n_classes=CLASSES, labelled=0.3, seed=4)
    assert np.array_equal(edges(root), edges(again))
    assert not np.array_equal(edges(root), edges(other))
    for name in ("feat", "year", "label"):
        assert np.array_equal(paper(root, name), paper(again, name), equal_nan=name == "label")
        assert not np.array_equal(paper(root, name), paper(other, name), equal_nan=name == "label")


def test_papers_cite_older_papers_and_ids_tell_nothing(root):
    years = paper(root, "year")
    sources, targets = edges(root)
    assert np.all(years[sources] >= years[targets])
    ids = np.arange(N)
    assert abs(np.corrcoef(ids, years)[0, 1]) < 0.05
    assert abs(np.corrcoef(sources, targets)[0, 1]) < 0.05


def test_the_split_is_by_years_and_covers_the_labelled_papers(root):
    split, years, labels = load_torch(root / "split_dict.pt"), paper(root, "year"), paper(root, "label")
    assert set(split) == {"train", "valid", "test-dev", "test-challenge"}
    assert years[split["train"]].max() <= 2018
    assert set(years[split["valid"]].tolist()) == {2019}
    assert set(years[np.r_[split["test-dev"], split["test-challenge"]]].tolist()) == {2020}
    together = np.concatenate(list(split.values()))
    assert np.array_equal(np.sort(together), np.flatnonzero(~np.isnan(labels)))
    assert abs(len(together) / N - 0.3) < 0.02
    assert set(np.unique(labels[together]).tolist()) == set(range(CLASSES))


def test_the_reader_takes_years_and_the_official_split_along(root):
    papers = mag240m_papers(root.parent)
    assert (papers.n_papers, papers.n_citations) == (N, M)
    assert np.array_equal(papers.years, paper(root, "year"))
    official = load_torch(root / "split_dict.pt")
    assert all(np.array_equal(papers.split[name], official[name]) for name in official)
    known = ~np.isnan(paper(root, "label"))
    assert np.array_equal(papers.labels >= 0, known)
    assert np.array_equal(papers.labels[known], paper(root, "label")[known])


def test_the_split_as_torch_writes_it_is_read_without_unpickling(root, tmp_path):
    torch = needs("torch")
    shutil.copytree(root, tmp_path / "copy")
    torch.save({"train": np.arange(5), "valid": torch.arange(5, 9)}, tmp_path / "copy" / "split_dict.pt")
    split = mag240m_papers(tmp_path / "copy").split
    assert {name: nodes.tolist() for name, nodes in split.items()} == {"train": [0, 1, 2, 3, 4], "valid": [5, 6, 7, 8]}
    torch.save({"train": shutil.rmtree, "valid": np.arange(3)}, tmp_path / "copy" / "split_dict.pt")
    with pytest.raises(FormatError, match=r"asks for 'shutil\.rmtree'"):
        mag240m_papers(tmp_path / "copy")
    for parts, message in (
        ({"train": np.arange(3)}, "it has no parts train and valid"),
        ({"train": np.arange(3), "valid": np.arange(3.0)}, "its part valid is no list of papers"),
        ({"train": np.arange(3), "valid": np.array([N])}, f"papers {N} to {N}, and there are {N} papers"),
    ):
        torch.save(parts, tmp_path / "copy" / "split_dict.pt")
        with pytest.raises(FormatError, match=message):
            mag240m_papers(tmp_path / "copy")


def test_degrees_have_a_heavy_tail_and_neighbours_share_classes(root, tmp_path):
    graph = read_mag240m(root, tmp_path / "graph")
    assert graph.degrees.max() > 20 * np.median(graph.degrees)
    assert graph.n_edges > M * 0.85
    rows = np.repeat(np.arange(N), graph.degrees)
    both = (graph.labels[rows] >= 0) & (graph.labels[graph.indices] >= 0)
    same = (graph.labels[rows] == graph.labels[graph.indices])[both].mean()
    assert same > 2 * np.sum((np.bincount(graph.labels[graph.labels >= 0]) / (graph.labels >= 0).sum()) ** 2)


def test_features_have_low_rank_and_tell_something_about_the_class(root):
    X, labels = paper(root, "feat").astype(np.float64), paper(root, "label")
    values = np.linalg.svd(X, compute_uv=False)
    assert values[32] < 1e-2 * values[31]  # what half precision adds
    centred = X - X.mean(axis=0)
    means = np.array([centred[labels == c].mean(axis=0) for c in range(CLASSES)])
    known = ~np.isnan(labels)
    nearest = np.argmin(((centred[known, None] - means) ** 2).sum(axis=2), axis=1)
    assert np.mean(nearest == labels[known]) > 2 / CLASSES


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_nodes": 50}, "at least 100 papers"),
        ({"n_classes": 30}, "1 to 25 classes, not 30"),
        ({"labelled": 1.5}, "between 0 and 1"),
    ],
)
def test_sizes_that_cannot_be(tmp_path, change, message):
    sizes = {"n_nodes": 500, "n_edges": 1000} | change
    with pytest.raises(InputError, match=message):
        citation_graph(tmp_path / "graph", **{"n_classes": 5} | sizes)
    assert not (tmp_path / "graph").exists()


def test_too_little_disk_is_said_before_anything_is_written(tmp_path):
    with pytest.raises(JobError, match=r"needs 1\.6e\+10 GB .*disk has .* GB left\. Free .* GB"):
        citation_graph(tmp_path / "graph", 10**9, 10**18)
    assert not (tmp_path / "graph").exists()


def test_a_folder_that_is_not_whole_is_said_before_anything_is_built(root, tmp_path):
    with pytest.raises(FormatError, match=r"is not a folder of OGB-LSC MAG240M: .*edge_index\.npy is missing"):
        read_mag240m(tmp_path, tmp_path / "graph")
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    labels, features = (copy / "processed" / "paper" / f"node_{name}.npy" for name in ("label", "feat"))
    whole = labels.read_bytes()
    np.save(labels, np.load(labels)[:-1])
    with pytest.raises(FormatError, match=f"not one class for each of {N} papers"):
        read_mag240m(copy, tmp_path / "graph")
    labels.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match="cut short"):
        read_mag240m(copy, tmp_path / "graph")
    labels.write_bytes(whole)
    years = copy / "processed" / "paper" / "node_year.npy"
    whole = years.read_bytes()
    np.save(years, np.load(years)[1:])
    with pytest.raises(FormatError, match=f"not one year for each of {N} papers"):
        read_mag240m(copy, tmp_path / "graph")
    years.write_bytes(whole)
    edges = copy / "processed" / "paper___cites___paper" / "edge_index.npy"
    whole = edges.read_bytes()
    np.save(edges, np.load(edges).T)
    with pytest.raises(FormatError, match="not two rows of paper numbers"):
        read_mag240m(copy, tmp_path / "graph")
    edges.write_bytes(whole[:-8])
    with pytest.raises(FormatError, match="cut short"):
        read_mag240m(copy, tmp_path / "graph")
    edges.write_bytes(whole)
    with pytest.raises(InputError, match="too little to work in"):
        read_mag240m(copy, tmp_path / "graph", memory=1000)
    np.save(features, np.load(features)[: N // 2])
    with pytest.raises(FormatError, match=f"not one class for each of {N // 2} papers"):
        read_mag240m(copy, tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_too_little_disk_for_the_graph_is_said_before_edges_are_distributed(root, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 1000))
    events = []
    with pytest.raises(JobError, match=r"building this graph needs 0\.00\d+ GB .* and its disk has 1e-06 GB left"):
        read_mag240m(root, tmp_path / "graph", progress=events.append)
    assert {event.stage for event in events} == {"counting edges"}


def test_the_mag240m_folder(tmp_path):
    rng = np.random.default_rng(0)
    root = tmp_path / "mag240m_kddcup2021"
    for folder in ("paper___cites___paper", "paper"):
        (root / "processed" / folder).mkdir(parents=True)
    edges = rng.integers(0, 50, (2, 200))
    labels = np.where(rng.random(50) < 0.5, np.nan, 3.0)
    np.save(root / "processed" / "paper___cites___paper" / "edge_index.npy", edges)
    np.save(root / "processed" / "paper" / "node_feat.npy", rng.normal(size=(50, 8)).astype(np.float16))
    np.save(root / "processed" / "paper" / "node_label.npy", labels)
    graph = read_mag240m(tmp_path, tmp_path / "csr")
    expected = sp.coo_array((np.ones(200), edges), shape=(50, 50)).toarray()
    np.fill_diagonal(expected, 0)
    assert np.array_equal(graph.adjacency.toarray(), (expected + expected.T > 0))
    assert isinstance(graph.features, np.memmap)
    assert set(graph.labels.tolist()) == {-1, 3}
    assert read_mag240m(root, tmp_path / "csr").n_edges == graph.n_edges
    with pytest.raises(FormatError, match=r"edge_index\.npy is missing"):
        read_mag240m(tmp_path / "csr", tmp_path / "other")
