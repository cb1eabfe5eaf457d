"""Classification over many splits: the batch equals one after the other, and the splits are what they say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from extras import needs
from graphquilt.evaluate import InvariantLogistic, Split, random_splits
from studies.adam import AdamLogistic, _Batch


def clouds(n, n_classes, dim, spread, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    return rng.normal(size=(n_classes, dim))[y] + spread * rng.normal(size=(n, dim)), y


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 5), st.integers(1, 20), st.integers(0, 99))
def test_a_split_is_disjoint_and_holds_as_many_of_each_class(n_classes, per_class, seed):
    y = np.random.default_rng(seed).permutation(np.arange(700) % n_classes)
    first, second = random_splits(y, per_class=per_class, splits=2, seed=seed)
    for split in (first, second):
        together = np.concatenate([split.train, split.validation, split.test])
        assert np.array_equal(np.sort(together), np.arange(700))
        assert np.bincount(y[split.train]).tolist() == [per_class] * n_classes
        assert len(split.validation) == 500
    assert not np.array_equal(np.sort(first.train), np.sort(second.train))


def test_the_batch_gives_what_one_split_after_the_other_gives():
    X, y = clouds(900, 4, 6, 0.8, 0)
    splits = random_splits(y, per_class=20, splits=6, seed=1)
    together = AdamLogistic()(X, y, splits)
    alone = np.concatenate([AdamLogistic()(X, y, [split]) for split in splits])
    np.testing.assert_allclose(together, alone, atol=2e-3)


def turned(dim, rng):
    return np.linalg.qr(rng.normal(size=(dim, dim)))[0]


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 4), st.integers(1, 30), st.floats(-3, 3), st.integers(0, 99))
def test_a_rotation_a_shift_and_a_scale_do_not_change_the_accuracy(n_classes, dim, exponent, seed):
    X, y = clouds(400, n_classes, dim, 1.0, seed)
    rng = np.random.default_rng(seed)
    X *= 10.0 ** rng.uniform(-2, 1, dim)  # axes of different lengths, as those of a principal component analysis
    moved = 10.0**exponent * (X @ turned(dim, rng) + rng.normal(size=dim) * np.abs(X).max())
    first, second = (gq.evaluate.classification_accuracy(Z, y, per_class=10, splits=3, seed=seed) for Z in (X, moved))
    np.testing.assert_allclose(first, second, atol=0.006)  # rounding may move a node that lies on a border


def test_the_paper_s_classifier_depends_on_the_axes_and_the_default_does_not():
    # Two directions separate the classes; the others are noise, in an axis of its own each.
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1500)
    X = np.hstack([np.eye(3)[y][:, :2], np.zeros((1500, 62))]) + 0.25 * rng.normal(size=(1500, 64))
    X[:, 2:] *= 0.2
    R = turned(64, rng)

    def change(classifier):
        means = [
            gq.evaluate.classification_accuracy(Z, y, splits=5, seed=0, classifier=classifier).mean()
            for Z in (X, X @ R)
        ]
        return abs(means[0] - means[1])

    assert change(None) < 1e-3
    assert change(AdamLogistic()) > 1e-3


def test_the_weights_are_those_of_scikit_learn_for_the_same_penalty():
    linear_model = needs("sklearn.linear_model")
    for dim in (4, 90):  # fewer and more dimensions than training nodes
        X, y = clouds(300, 3, dim, 1.0, 1)
        Z = X - X.mean(axis=0)
        Z /= np.sqrt(np.mean(np.sum(Z * Z, axis=1)))
        splits = random_splits(y, per_class=20, splits=2, seed=0)
        W = InvariantLogistic(penalties=(0.01,), tol=1e-7).fit(X, y, splits)
        for k, split in enumerate(splits):
            model = linear_model.LogisticRegression(C=1 / (0.01 * 60), tol=1e-9, max_iter=5000)
            model.fit(Z[split.train], y[split.train])
            np.testing.assert_allclose(W[k, :, :-1], model.coef_, atol=1e-4)
            bias = model.intercept_ - model.intercept_.mean()
            np.testing.assert_allclose(W[k, :, -1] - W[k, :, -1].mean(), bias, atol=1e-4)


def test_the_validation_nodes_choose_the_penalty():
    X, y = clouds(900, 4, 40, 4.0, 0)
    splits = random_splits(y, per_class=20, splits=5, seed=1)
    penalties = tuple(4.0**-k for k in range(1, 8))
    chosen = InvariantLogistic(penalties, tol=1e-6).fit(X, y, splits)
    alone = np.stack([InvariantLogistic((penalty,), tol=1e-6).fit(X, y, splits) for penalty in penalties])
    Z = X - X.mean(axis=0)
    Z = np.hstack([Z / np.sqrt(np.mean(np.sum(Z * Z, axis=1))), np.ones((900, 1))])
    for k, split in enumerate(splits):
        shares = [np.mean((Z[split.validation] @ W.T).argmax(axis=1) == y[split.validation]) for W in alone[:, k]]
        own = np.mean((Z[split.validation] @ chosen[k].T).argmax(axis=1) == y[split.validation])
        assert own >= max(shares) - 0.005
        assert np.abs(alone[:, k] - chosen[k]).max(axis=(1, 2)).min() < 0.05  # it is one of them


def test_the_invariant_batch_gives_what_one_split_after_the_other_gives():
    X, y = clouds(900, 4, 6, 0.8, 0)
    splits = random_splits(y, per_class=20, splits=6, seed=1)
    together = InvariantLogistic()(X, y, splits)
    alone = np.concatenate([InvariantLogistic()(X, y, [split]) for split in splits])
    np.testing.assert_allclose(together, alone, atol=5e-3)


def test_points_that_coincide_have_the_accuracy_of_a_guess():
    y = np.arange(90) % 3
    accuracy = gq.evaluate.classification_accuracy(np.ones((90, 4)), y, splits=2, seed=0)
    assert np.all(accuracy < 0.6)


def test_wrong_penalties_and_missing_validation_nodes_are_named():
    for penalties in ((), (0.1, 0.2), (0.1, 0.0)):
        with pytest.raises(gq.errors.InputError, match="positive and in descending order"):
            InvariantLogistic(penalties)
    X, y = clouds(100, 2, 3, 0.5, 0)
    part = Split(np.arange(60), np.arange(0), np.arange(60, 100))
    with pytest.raises(gq.errors.InputError, match="no validation nodes, which choose one of 9 penalties"):
        InvariantLogistic()(X, y, [part])
    assert InvariantLogistic((0.01,))(X, y, [part]).shape == (1,)
    with pytest.raises(gq.errors.ConvergenceError, match="a gradient of"):
        InvariantLogistic((0.01,), tol=1e-30)(X, y, [part])


def test_a_step_of_adam_is_that_of_torch():
    torch = needs("torch")
    X, y = clouds(300, 3, 5, 0.5, 0)
    X = X.astype(np.float32)
    split = random_splits(y, per_class=20, splits=1, seed=1)[0]
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)
    start = np.hstack([model.weight.detach().numpy(), model.bias.detach().numpy()[:, None]])
    batch = _Batch.of(X, y, [split], start)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(1, 31):
        batch.step(epoch, 0.01)
        optimiser.zero_grad()
        cost = torch.nn.functional.cross_entropy(model(torch.tensor(X[split.train])), torch.tensor(y[split.train]))
        cost.backward()
        optimiser.step()
    weights = np.hstack([model.weight.detach().numpy(), model.bias.detach().numpy()[:, None]])
    np.testing.assert_allclose(batch.W[0], weights, atol=2e-5)
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(
            model(torch.tensor(X[split.validation])), torch.tensor(y[split.validation])
        )
    assert batch.validation_loss()[0] == pytest.approx(float(expected), abs=1e-5)


def test_a_classifier_of_scikit_learn_and_the_default_agree_on_what_is_easy():
    linear_model = needs("sklearn.linear_model")

    def classify(X, y, splits):
        models = [linear_model.LogisticRegression().fit(X[split.train], y[split.train]) for split in splits]
        return np.array([m.score(X[s.test], y[s.test]) for m, s in zip(models, splits, strict=True)])

    X, y = clouds(800, 3, 8, 1.0, 2)
    ours = gq.evaluate.classification_accuracy(X, y, splits=5, seed=0)
    theirs = gq.evaluate.classification_accuracy(X, y, splits=5, seed=0, classifier=classify)
    assert ours.shape == theirs.shape == (5,)
    assert abs(ours.mean() - theirs.mean()) < 0.02
    assert ours.std() > 0  # the splits differ


def test_unlabelled_nodes_take_no_part():
    X, y = clouds(900, 3, 4, 0.3, 3)
    hidden = y.copy()
    hidden[::3] = -1
    spoilt = X.copy()
    spoilt[::3] = 1e3  # would ruin the answer if it were seen
    accuracy = gq.evaluate.classification_accuracy(spoilt, hidden, splits=4, seed=0)
    np.testing.assert_array_equal(accuracy, gq.evaluate.classification_accuracy(X, hidden, splits=4, seed=0))
    names = np.where(hidden < 0, np.nan, hidden)  # NaN is another way to say "no label"
    np.testing.assert_array_equal(accuracy, gq.evaluate.classification_accuracy(X, names, splits=4, seed=0))


def test_a_seed_gives_the_same_numbers_and_another_gives_others():
    X, y = clouds(700, 3, 4, 1.0, 4)
    first = gq.evaluate.classification_accuracy(X, y, splits=4, seed=0)
    np.testing.assert_array_equal(first, gq.evaluate.classification_accuracy(X, y, splits=4, seed=0))
    assert not np.array_equal(first, gq.evaluate.classification_accuracy(X, y, splits=4, seed=1))


def test_the_names_of_classes_do_not_matter():
    X, y = clouds(700, 3, 4, 1.0, 4)
    kept = gq.evaluate.classification_accuracy(X, y, splits=3, seed=0)
    np.testing.assert_array_equal(
        kept, gq.evaluate.classification_accuracy(X, np.array([5, 70, 900])[y], splits=3, seed=0)
    )


def test_wrong_labels_are_named():
    X, y = clouds(200, 2, 3, 0.5, 5)
    with pytest.raises(gq.errors.InputError, match=r"shape \(200,\).*not \(199,\).*largest component"):
        gq.evaluate.classification_accuracy(X, y[:-1], seed=0)
    with pytest.raises(gq.errors.InputError, match="fractions"):
        gq.evaluate.classification_accuracy(X, y + 0.5, seed=0)
    with pytest.raises(gq.errors.InputError, match="not <U1"):
        gq.evaluate.classification_accuracy(X, np.array(["a", "b"])[y], seed=0)
    with pytest.raises(gq.errors.InputError, match="at least two"):
        gq.evaluate.classification_accuracy(X, np.zeros(200, dtype=int), seed=0)
    few = y.copy()
    few[:12] = 7
    with pytest.raises(gq.errors.InputError, match=r"class 7 has 12.*skip_small"):
        gq.evaluate.classification_accuracy(X, few, seed=0)
    assert gq.evaluate.classification_accuracy(X, few, seed=0, splits=2, skip_small=True).shape == (2,)
    with pytest.raises(gq.errors.InputError, match="splits is 0"):
        gq.evaluate.classification_accuracy(X, y, splits=0, seed=0)
    X[5] = np.inf
    with pytest.raises(gq.errors.InputError, match="1 of 200 rows"):
        gq.evaluate.classification_accuracy(X, y, seed=0)


def test_splits_may_have_training_sets_of_unequal_size():
    """Classes of 14 and 13 nodes do not divide into five equal folds."""
    y = np.repeat([0, 1, 2], [14, 13, 13])
    X = np.eye(3)[y]
    splits = [Split(np.arange(k, 40, 3), np.arange(0, 40, 4), np.arange(40)) for k in range(3)]
    assert len({len(split.train) for split in splits}) == 2
    np.testing.assert_array_equal(InvariantLogistic()(X, y, splits), 1)
    assert gq.jobs.choose_by_labels({"only": X}, y).accuracies == {"only": 1.0}
