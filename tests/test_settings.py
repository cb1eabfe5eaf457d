"""JobSettings: what a job writes about itself comes back as it was, and nothing that it names is imported."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

import graphquilt as gq
from extras import needs
from graphquilt import patches
from graphquilt.embedders import Signal
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.jobs import DirectoryStore, Job, JobSettings, Record, Source
from toy_embedders import Toy, job_of_patches, ring_of_patches

EMBEDDERS = {
    "SVD": gq.SVD(3, motions=gq.Motions(translate=False)),
    "VGAE": gq.VGAE(3, weight_decay=0.25, init_seed=2, max_epochs=7),
    "GAE": gq.GAE(3, lr=0.5),
    "DGI": gq.DGI(3, featureless="degree"),
    "Propagation": gq.Propagation(3, signal=Signal(raw=0.5, role=0), clusters=7),
    "several": (gq.SVD(3), gq.VGAE(3), gq.SVD(3, motions=gq.Motions(rotate=False))),
}
CUTTINGS = {
    "default": gq.Cutting(),
    "metis": gq.Cutting(5, partitioner=gq.Metis(5, seed=3), degree=3.5, overlap=(4, 9)),
    "fennel": gq.Cutting(5, partitioner=gq.Fennel(5), edge_weight=gq.Conductance()),
    "multilevel": gq.Cutting(5, partitioner=gq.Multilevel(5)),
    "limits": gq.Cutting(5, limits=gq.Limits(growth=3.0, degree=4)),
    "louvain": gq.Cutting(5, partitioner=gq.Louvain(), limits=gq.Limits.none()),
    "leiden": gq.Cutting(5, partitioner=gq.Leiden(), edge_weight=gq.Resistance()),
}
RECIPES = {
    "shared": gq.Recipe.shared(),
    "own": gq.Recipe("mine", start=False, robust=True, motions=gq.Motions(scale=True), branching=3),
}
SOURCE = Source(
    path="/data/edges.csv", columns=("from", 1), directed=True, checksums={"edges": "0" * 64}, graph="graph"
)


def through_json(settings):
    """Return the settings as another program would read and write them."""
    return json.loads(json.dumps(settings.to_parameters(), allow_nan=False))


@pytest.mark.parametrize("embedder", EMBEDDERS.values(), ids=EMBEDDERS)
@pytest.mark.parametrize("cutting", CUTTINGS.values(), ids=CUTTINGS)
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_settings_come_back_as_they_were(embedder, cutting, recipe):
    settings = JobSettings(embedder=embedder, cutting=cutting, recipe=recipe, seed=11, source=SOURCE)
    parameters = through_json(settings)
    again = JobSettings.from_parameters(parameters)
    assert again == settings
    assert through_json(again) == parameters
    assert (again.motions, again.stitching) == (settings.motions, settings.stitching)


def test_every_public_embedder_and_partitioner_is_tried_here():
    def public(package):
        return {name for name in package.__all__ if name in gq.__all__ and isinstance(getattr(package, name), type)}

    assert public(gq.embedders) == {*EMBEDDERS} - {"several"} | {
        "FunctionEmbedder",
        "Signal",
        "TransformerEmbedder",
    }
    partitioners = public(patches) - {"Conductance", "Limits", "Patch", "PatchGraph", "Resistance"}
    assert {name.lower() for name in partitioners} == {*CUTTINGS} - {"default", "limits"}


class Reducer:
    """What TransformerEmbedder takes, with a number of its own."""

    n_components = 3

    def fit_transform(self, X):
        return np.asarray(X.todense())[:, :3]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Toy(3),
        lambda: (gq.SVD(3), Toy(3)),
        lambda: gq.FunctionEmbedder(lambda A: A, dim=3),
        lambda: gq.TransformerEmbedder(Reducer()),
        lambda: gq.FunctionEmbedder(needs("torch").nn.Linear(4, 3), dim=3),
    ],
    ids=["class", "one of several", "function", "transformer", "network"],
)
def test_what_graphquilt_cannot_make_is_compared_and_not_made(make):
    embedder = make()
    settings = JobSettings(embedder=embedder, cutting=gq.Cutting(partitioner=Toy(2)))
    parameters = through_json(settings)
    again = JobSettings.from_parameters(parameters)
    assert through_json(again) == parameters == through_json(JobSettings.from_parameters(through_json(again)))
    assert (again.dim, again.motions) == (3, settings.motions)
    for unknown in (again.embedders[-1], again.cutting.partitioner):
        with pytest.raises(JobError, match=r"which graphquilt cannot recreate.* module:factory"):
            unknown(None, 0)


def test_a_finished_job_of_an_unknown_embedder_goes_on_without_it(tmp_path):
    store = DirectoryStore(tmp_path / "job")
    job = job_of_patches(store, *ring_of_patches(6), embedder=Toy(2), recipe=gq.Recipe(runs=2))
    job.embed()
    opened = Job.open(store)
    assert len(opened.embed()) == 12
    opened.stitch()
    more = opened.revise(replace(opened.settings, recipe=gq.Recipe(runs=3)))
    with pytest.raises(JobError, match=r"toy_embedders.Toy, which graphquilt cannot recreate"):
        more.embed()
    again = Job.begin(store, JobSettings(embedder=Toy(2), recipe=gq.Recipe(runs=3)), opened.graph)
    again.run()
    assert again.embedding.shape == (72, 2)


def test_nothing_that_a_job_names_is_imported(tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    store = DirectoryStore(tmp_path / "job")
    job_of_patches(store, *ring_of_patches(6), embedder=gq.SVD(2))
    parameters = dict(store["settings"].parameters)
    evil = {"name": "evil_module.Evil", "dim": 2}
    parameters["cutting"]["partitioner"] = evil
    for embedder in (
        evil,
        [evil, evil],
        {"name": "graphquilt.evil_module.Evil"},
        {"name": "graphquilt.FunctionEmbedder"} | evil,
    ):
        store["settings"] = Record({}, parameters | {"embedder": embedder})
        assert Job.open(store).settings.dim == 2
    assert "evil_module" not in sys.modules


@pytest.mark.parametrize(
    "change",
    [
        {"embedder": {"name": "graphquilt.Metis", "n_patches": 3}},
        {"embedder": {"name": "graphquilt.SVD"}},
        {"embedder": {"dim": 2}},
        {"embedder": "graphquilt.SVD"},
        {"cutting": {"n_patches": 0}},
        {"recipe": {"speed": 3}},
        {"motions": None},
        {"seed": "one"},
    ],
    ids=lambda change: str(*change),
)
def test_settings_that_cannot_be_read_are_refused(change):
    parameters = through_json(JobSettings(embedder=gq.SVD(2)))
    with pytest.raises(FormatError, match="settings of this job"):
        JobSettings.from_parameters(parameters | change)
    store = {"settings": Record({}, parameters | change)}
    graph, patch_graph = ring_of_patches(6)
    job_of_patches(store, graph, patch_graph, embedder=Toy(2))  # nothing was made with them, so they are replaced
    store["settings"] = Record({}, parameters | change)
    with pytest.raises(FormatError, match=r"settings of this job .* Run it with its edges and the flags"):
        Job.begin(store, JobSettings(embedder=Toy(2)))
    Job.begin(store, JobSettings(embedder=Toy(2)), graph)  # with the graph they are written again
    assert Job.open(store).settings.dim == 2


def test_wrong_settings_are_named():
    with pytest.raises(InputError, match=r"dims \[2, 3\]"):
        JobSettings(embedder=(gq.SVD(2), gq.SVD(3)))
    with pytest.raises(InputError, match="cutting of a job is a Cutting, not 5"):
        JobSettings(embedder=gq.SVD(2), cutting=5)
    with pytest.raises(InputError, match=r"not 'best': pass Recipe\.shared\(\)"):
        JobSettings(embedder=gq.SVD(2), recipe="best")
