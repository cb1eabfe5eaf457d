"""Embedders made of other people's methods, and the check that anybody can run."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from extras import needs
from graphquilt.embedders import Survey, checked_fit, free_motions
from graphquilt.testing import check_embedder


def two_columns(graph, seed):
    rng = np.random.default_rng(seed)
    return np.column_stack([graph.degrees, rng.standard_normal(graph.n_nodes)])


def wrong_shape(graph, seed):
    return np.zeros((graph.n_nodes + 1, 2))


def not_finite(graph, seed):
    X = np.zeros((graph.n_nodes, 2))
    X[3] = np.nan
    return X


def complex_numbers(graph, seed):
    return np.zeros((graph.n_nodes, 2), dtype=complex)


CALLS = itertools.count()


def forgetful(graph, seed):
    return np.full((graph.n_nodes, 2), float(next(CALLS)))


def careless(graph, seed):
    graph.features[0] += 1
    return np.zeros((graph.n_nodes, 2))


def brittle(graph, seed):
    return graph.features[:, :2] + 0.0


@pytest.mark.parametrize(
    "embedder",
    [
        gq.SVD(3),
        gq.VGAE(3, max_epochs=4),
        gq.GAE(3, max_epochs=4),
        gq.DGI(3, max_epochs=4),
        gq.DGI(3, max_epochs=4, featureless="identity"),
        gq.FunctionEmbedder(two_columns, 2),
    ],
    ids=["SVD", "VGAE", "GAE", "DGI", "DGI without features", "function"],
)
def test_built_in_embedders_conform(embedder):
    if hasattr(embedder, "max_epochs"):
        needs("torch")
    check_embedder(embedder)
    assert isinstance(embedder, gq.embedders.Embedder)
    assert isinstance(free_motions(embedder), gq.Motions)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (wrong_shape, r"shape \(41, 2\) for a connected graph"),
        (not_finite, "not finite"),
        (complex_numbers, "an embedding is an array of floats"),
        (forgetful, "the same seed gave another embedding. Take all random numbers from the seed"),
        (forgetful, "have the same position, so nothing can be aligned"),
        (careless, "the embedder has changed the graph"),
        (brittle, "a graph without features raised TypeError instead of InputError"),
        (lambda graph, seed: np.zeros((graph.n_nodes, 2)), "cannot be pickled"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_check_embedder_says_what_is_wrong(function, message):
    with pytest.raises(AssertionError, match=message):
        check_embedder(gq.FunctionEmbedder(function, 2))


def test_check_embedder_looks_at_dim_and_motions():
    with pytest.raises(AssertionError, match="dim is None"):
        check_embedder(two_columns)
    with pytest.raises(AssertionError, match=r"motions of .* must be Motions"):
        check_embedder(gq.FunctionEmbedder(two_columns, 2, frozenset({"shear"})))


def test_a_wrong_answer_names_the_patch_and_the_embedder():
    graph = gq.Graph(sp.csr_array((6, 6)))
    with pytest.raises(
        gq.errors.InputError, match=r"wrong_shape.* returned an array of shape \(7, 2\) for patch 17, which has 6"
    ):
        checked_fit(gq.FunctionEmbedder(wrong_shape, 2), graph, 0, where="patch 17")
    with pytest.raises(gq.errors.InputError, match=r"not finite for patch 4: 1 of 6 rows, the first is row 3"):
        checked_fit(gq.FunctionEmbedder(not_finite, 2), graph, 0, where="patch 4")


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_scikit_learn_object_is_an_embedder():
    decomposition = needs("sklearn.decomposition")
    embedder = gq.TransformerEmbedder(decomposition.TruncatedSVD(3))
    assert embedder.dim == 3
    assert embedder.transformer.random_state is None
    check_embedder(embedder)
    with pytest.raises(gq.errors.InputError, match="dict has no fit_transform"):
        gq.TransformerEmbedder({})


def test_a_torch_module_is_refused_because_nothing_says_how_to_train_it():
    torch = needs("torch")
    with pytest.raises(gq.errors.InputError, match=r"a function of a graph and a seed.*not Linear"):
        gq.embedders.as_embedder(torch.nn.Linear(3, 2), dim=2)


@dataclass(frozen=True)
class Axes:
    """Principal axes of the features: those of each patch, or those of all patches together."""

    dim: int = 2
    start: Mapping[str, np.ndarray] | None = None
    motions: gq.Motions = gq.Motions()

    @property
    def complete(self):
        return self.start is not None

    @property
    def motions_started(self):
        return gq.Motions(rotate=False, translate=False)

    def starts_on(self, graph):
        return graph.features is not None

    def survey(self, graph, seed, *, clusters=None, cut=True):
        return Survey()

    def prepare(self, graph, seed, *, far=None):
        return {"rows": graph.features}

    def contribute(self, kept):
        rows = np.asarray(kept["rows"], dtype=np.float64)
        return {"moment": rows.T @ rows}

    def add(self, total, arrays):
        return arrays if total is None else {"moment": total["moment"] + arrays["moment"]}

    def combine(self, total, seed):
        return replace(self, start={"axes": np.linalg.eigh(total["moment"])[1][:, : self.dim]})

    def finish(self, kept):
        return None

    def fit(self, graph, seed, progress=None, *, far=None, kept=None):
        if graph.features is None:
            raise gq.errors.InputError("there are no features.")
        X = np.asarray(graph.features, dtype=np.float64)
        axes = np.linalg.svd(X - X.mean(axis=0))[2][: self.dim].T if self.start is None else self.start["axes"]
        return gq.embedders.Fit(X @ axes, np.empty(0))

    def __call__(self, graph, seed):
        return self.fit(graph, seed).embedding


class RandomRows(Axes):
    def prepare(self, graph, seed, *, far=None):
        return {"rows": np.random.default_rng().random((4, 12))}


class ListOfRows(Axes):
    def prepare(self, graph, seed, *, far=None):
        return {"rows": [1.0, 2.0]}


class ShortSurvey(Axes):
    def survey(self, graph, seed, *, clusters=None, cut=True):
        return Survey({"degree": np.ones(3)})


class Endless(Axes):
    complete = False


class NoStart(Axes):
    def combine(self, total, seed):
        return self


class OtherDim(Axes):
    def combine(self, total, seed):
        return replace(super().combine(total, seed), dim=self.dim + 1)


def random_places(graph, seed):
    return np.random.default_rng(seed).normal(size=(graph.n_nodes, 2))


def same_place(graph, seed):
    return np.ones((graph.n_nodes, 2))


def test_check_embedder_reports_whether_patches_can_be_stitched():
    bad = check_embedder(gq.FunctionEmbedder(random_places, 2))
    assert isinstance(bad, gq.testing.EmbedderReport)
    assert bad.aligned > 0.8
    assert "each patch chooses its own frame" in str(bad)
    assert "docs/embedders.md" in str(bad)
    assert check_embedder(gq.FunctionEmbedder(same_place, 2)).aligned is None
    assert "same position" in str(check_embedder(gq.FunctionEmbedder(same_place, 2)))


@pytest.mark.parametrize(
    "motions", [gq.Motions(), gq.Motions(scale=True), gq.Motions(translate=False), gq.Motions(scale=True, rotate=False)]
)
def test_halves_that_differ_by_a_declared_motion_agree(motions):
    report = check_embedder(gq.FunctionEmbedder(partial(moved_features, motions=motions), 3, motions))
    assert report.aligned < 1e-6
    assert "0% of the spread is left" in str(report)
    assert "patches of this embedder can be stitched." in str(report)
    undone = gq.Motions(rotate=False, translate=False)
    assert check_embedder(gq.FunctionEmbedder(partial(moved_features, motions=motions), 3, undone)).aligned > 0.1


def moved_features(graph, seed, motions):
    """The first three features, moved by motions that the seed chooses."""
    rng = np.random.default_rng(seed + 10)
    if graph.features is None:
        raise gq.errors.InputError("there are no features.")
    X = np.asarray(graph.features[:, :3], dtype=np.float64)
    if motions.rotate:
        X = X @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    X = X * rng.uniform(0.2, 5) if motions.scale else X
    return X + rng.normal(size=3) if motions.translate else X


def test_check_embedder_tries_the_shared_start():
    report = check_embedder(Axes(2))
    assert report.aligned > 0.01
    assert report.started < 1e-6
    assert "From a shared start 0% of the spread is left without any alignment." in str(report)


@pytest.mark.parametrize(
    ("embedder", "message"),
    [
        (RandomRows(), "the same seed prepared something else"),
        (ListOfRows(), "prepare has list under 'rows', not an array"),
        (ShortSurvey(), "survey has 3 rows in 'degree' for"),
        (Endless(), "not complete after 100 rounds"),
        (NoStart(), "without a start"),
        (OtherDim(), "an embedder of dim 3, not 2"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_check_embedder_says_what_is_wrong_with_a_shared_start(embedder, message):
    with pytest.raises(AssertionError, match=message):
        check_embedder(embedder)


def test_the_checks_are_public_names_of_the_package():
    gq.testing.check_embedder(gq.SVD(2))
    gq.testing.check_partitioner(gq.Metis(3), n_patches=3)
    gq.testing.check_store(dict)
