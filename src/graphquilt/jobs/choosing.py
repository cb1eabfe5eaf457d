"""Choose among embeddings, and among the signals of a job, by cross-validation on the labelled nodes alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import FloatArray, Int64Array
from graphquilt.embedders import Embedder, Propagation, Signal
from graphquilt.errors import InputError, JobError
from graphquilt.evaluate import InvariantLogistic, Split
from graphquilt.evaluate.positions import checked_labels
from graphquilt.graph import Graph
from graphquilt.jobs.records import describe, differences, graph_fingerprint, patch_key
from graphquilt.jobs.store import Record, Store, fingerprint, store_name, stored_record

KEY = "choice"
FOLDS, REPEATS = 5, 2
MARGIN = 0.5  # standard errors by which another embedding must be better than the first to be chosen
FEWEST = 5  # labelled nodes per class; classes with fewer are left out


@dataclass(frozen=True)
class Choice:
    """The name of the chosen embedding, the cross-validated accuracy of each, and the number of labelled nodes used."""

    name: str
    accuracies: Mapping[str, float]
    n_labelled: int


def choose_by_labels(embeddings: Mapping[str, FloatArray], labels: npt.ArrayLike, *, seed: int = 0) -> Choice:
    """Choose the embedding that classifies best in cross-validation among the labelled nodes.

    The first embedding ``(n, d)`` is the default: another is chosen only if it is better by half a standard error of
    the paired difference. ``labels (n,)`` are classes, -1 for none; ``seed`` is that of the folds.

    Raises
    ------
    InputError
        Fewer than two classes have five labelled nodes.

    Examples
    --------
    >>> y = np.repeat([0, 1], 30)
    >>> noise = np.random.default_rng(0).normal(size=(60, 2))
    >>> choose_by_labels({"noise": noise, "classes": noise + 4 * y[:, None]}, y).name
    'classes'
    """
    given = np.asarray(labels)
    classes, counts = np.unique(given[given >= 0], return_counts=True)
    nodes = np.flatnonzero(np.isin(given, classes[counts >= FEWEST]))
    y = np.unique(given[nodes], return_inverse=True)[1].astype(np.int64)
    if len(nodes) == 0 or y.max() == 0:
        enough = int((counts >= FEWEST).sum())
        raise InputError(f"classes with at least {FEWEST} labels: {enough}; choosing by labels needs two.")
    splits = list(_folds(y, seed))
    rows = {name: np.asarray(np.asarray(X)[nodes], dtype=np.float64) for name, X in embeddings.items()}
    accuracies = {name: InvariantLogistic()(X, y, splits) for name, X in rows.items()}
    default = next(iter(accuracies))
    best = max(accuracies, key=lambda name: float(accuracies[name].mean()))
    gain = accuracies[best] - accuracies[default]
    if gain.mean() <= MARGIN * gain.std() / np.sqrt(FOLDS):
        best = default
    return Choice(best, {name: round(float(each.mean()), 4) for name, each in accuracies.items()}, len(nodes))


def _folds(y: Int64Array, seed: int) -> Iterator[Split]:
    """Yield splits in which each node is tested once per repeat; the next fold is for validation."""
    rng = np.random.default_rng(seed)
    for _ in range(REPEATS):
        fold = np.empty(len(y), dtype=np.int64)
        for c in np.unique(y):
            members = rng.permutation(np.flatnonzero(y == c))
            fold[members] = np.arange(len(members)) % FOLDS
        for k in range(FOLDS):
            validation = (k + 1) % FOLDS
            train = np.flatnonzero((fold != k) & (fold != validation))
            yield Split(train, np.flatnonzero(fold == validation), np.flatnonzero(fold == k))


def _candidates() -> dict[str, Signal]:
    """Return the signals to choose among; the first is the default."""
    near = Signal(spread=0.25, raw=1, near=1, clusters=0, doubt=0, role=0, power=1.5)
    return {"default": Signal(), "edges": replace(Signal.edges(), role=0.003), "near": near}


def choose_signal(
    store: Store, graph: Graph, embedder: Embedder | tuple[Embedder, ...], labels: npt.ArrayLike, *, seed: int
) -> Propagation:
    """Return the embedder with the signal that classifies best in cross-validation among the labelled nodes."""
    if isinstance(embedder, tuple):
        raise InputError("labels choose the signal of one embedder for all patches; here each patch has one.")
    if not isinstance(embedder, Propagation) or not (KEY in store or embedder.signal == Signal()):
        raise InputError(
            "labels choose among the signals of Propagation, and here the embedder is another, or its signal is given "
            "(--set, --for). Leave out one of the two."
        )
    classes, default = checked_labels(labels, graph.n_nodes), replace(embedder, signal=Signal())
    made_from = {"labels": fingerprint(classes), "graph": graph_fingerprint(graph), "seed": seed}
    made_from |= {"embedder": describe(default)}
    candidates = _candidates() if graph.features is not None else {"default": Signal()}
    record = stored_record(store, KEY, made_from)
    if record is None:
        other = stored_record(store, KEY)
        if other is not None and patch_key(0, "embedding") in store:
            changes = differences({name: other.parameters.get(name) for name in made_from}, made_from)
            raise JobError(f"the signal of {store_name(store)} was chosen with {changes}. Use another folder.")
        embeddings = {name: replace(default, signal=signal)(graph, seed) for name, signal in candidates.items()}
        choice = choose_by_labels(embeddings, classes, seed=seed)
        facts = {"signal": choice.name, "accuracies": dict(choice.accuracies), "labelled": choice.n_labelled}
        record = Record({"used": classes >= 0}, {**made_from, **facts})
        store[KEY] = record
    return replace(embedder, signal=candidates[str(record.parameters["signal"])])


def signal_in_words(store: Store, embedder: object, graph: Graph | None) -> str | None:
    """Describe which signal a job uses and why; None if its embedder has none."""
    if not isinstance(embedder, Propagation) or graph is None:
        return None
    survey, choice = stored_record(store, "survey"), stored_record(store, KEY)
    share = 1.0 if survey is None else float(np.asarray(survey.arrays.get("shared_feature_share", 1.0)))
    words = embedder.signal.in_words(features=graph.features is not None, share=share)
    if choice is None or _candidates().get(str(choice.parameters.get("signal"))) != embedder.signal:
        return words
    return f"{choice.parameters['signal']}, chosen by {choice.parameters.get('labelled')} labels: {words}"
