"""Choose the signal of a job by labels, and keep which labels were used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import BoolArray, Int64Array
from graphquilt.embedders import Propagation, Signal
from graphquilt.embedders.contract import Embedder
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.evaluate.choosing import choose_by_labels
from graphquilt.graph import Graph
from graphquilt.jobs.description import fingerprint
from graphquilt.jobs.records import graph_fingerprint
from graphquilt.jobs.store import Record, Store, store_name

__all__ = ["choose_signal", "labels_used", "signal_in_words"]

KEY = "choice"


def _candidates() -> dict[str, Signal]:
    """Return the signals to choose among; the first is kept unless another is better."""
    near = Signal(spread=0.25, raw=1, near=1, clusters=0, doubt=0, role=0, power=1.5)
    return {"default": Signal(), "edges": replace(Signal.edges(), role=0.003), "near": near}


def choose_signal(store: Store, graph: Graph, embedder: Embedder, labels: npt.ArrayLike, *, seed: int) -> Propagation:
    """Return the embedder with the signal that classifies best in cross-validation among the labelled nodes.

    The whole graph is embedded once with each signal. The store keeps the choice, and which nodes have labels; where it
    has one already that was made with the same labels, that is used.

    Raises
    ------
    InputError
        The embedder is not a Propagation with its default signal, or there are too few labels.
    JobError
        The store has a choice that was made by other labels.
    """
    chosen = KEY in store
    if not isinstance(embedder, Propagation) or not (chosen or embedder.signal == Signal()):
        raise InputError(
            "labels choose among the signals of Propagation; they cannot for another embedder, or where its signal is "
            "given already (--set, --for). Leave out one of the two."
        )
    classes = _checked(labels, graph)
    made = {"labels": fingerprint(classes), "graph": graph_fingerprint(graph), "dim": embedder.dim}
    candidates = _candidates() if graph.features is not None else {"default": Signal()}
    try:
        record = store[KEY]
    except (KeyError, FormatError):
        record = None
    if record is not None and {name: record.parameters.get(name) for name in made} != made:
        raise JobError(
            f"the signal of {store_name(store)} was chosen by other labels, or for another graph. Use another folder, "
            "or the same labels."
        )
    if record is None:
        embeddings = {name: replace(embedder, signal=signal)(graph, seed) for name, signal in candidates.items()}
        choice = choose_by_labels(embeddings, classes, seed=seed)
        facts = {**made, "signal": choice.name, "accuracies": dict(choice.accuracies), "labelled": choice.n_labelled}
        record = Record({"used": classes >= 0}, facts)
        store[KEY] = record
    return replace(embedder, signal=candidates[str(record.parameters["signal"])])


def signal_in_words(store: Store, embedder: object, graph: Graph | None) -> str | None:
    """Say which signal a job uses and why; None where its embedder has none."""
    if not isinstance(embedder, Propagation) or graph is None:
        return None
    try:
        share = float(np.asarray(store["survey"].arrays.get("shared_feature_share", 1.0)))
    except (KeyError, FormatError):
        share = 1.0
    words = embedder.signal.in_words(features=graph.features is not None, share=share)
    try:
        facts = store[KEY].parameters
    except (KeyError, FormatError):
        return words
    return f"{facts.get('signal')}, chosen by {facts.get('labelled')} labels: {words}"


def labels_used(store: Store, n_nodes: int) -> BoolArray | None:
    """Return which nodes have labels that chose the signal of a job, (n,); None where it was not chosen by labels."""
    if KEY not in store:
        return None
    used = np.asarray(store[KEY].arrays.get("used", np.empty(0)))
    if used.shape != (n_nodes,) or used.dtype != bool:
        raise FormatError(f"the record '{KEY}' of {store_name(store)} does not have one entry per node ({n_nodes}).")
    return used


def _checked(labels: npt.ArrayLike, graph: Graph) -> Int64Array:
    classes = np.asarray(labels)
    if classes.shape != (graph.n_nodes,) or classes.dtype.kind not in "iu":
        raise InputError(
            f"labels to choose by are one whole number per node, -1 for none: shape ({graph.n_nodes},), not "
            f"{classes.dtype} {classes.shape}."
        )
    return classes.astype(np.int64)
