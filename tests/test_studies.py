"""Studies: cells that survive a kill, the same numbers from every executor, and the small study from end to end."""

import functools
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

import graphquilt as gq
from extras import needs
from graphquilt.pipeline import Record
from studies.cells import cell_seed, cell_store, read_cells, run_cells


@dataclass(frozen=True)
class Square:
    number: int
    limit: int = 99
    exponent: int = 2

    @property
    def name(self):
        return f"square{self.number}"

    @property
    def group(self):
        return f"of {self.number % 2}"

    @property
    def parameters(self):
        return {"number": self.number, "exponent": self.exponent}

    def run(self, folder):
        if self.number >= self.limit:
            raise KeyboardInterrupt
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "log", "a") as log:
            log.write(f"{self.number} ")
        random = np.random.default_rng(cell_seed(self.number)).random(2)
        return Record({"pair": random}, {"value": self.number**self.exponent, "random": random[0]})


def values(results):
    return {result["name"]: (result["value"], result["random"]) for result in results}


def test_a_killed_study_goes_on_where_it_was(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_cells([Square(k, limit=3) for k in range(5)], tmp_path)
    assert [result["value"] for result in read_cells(tmp_path)] == [0, 1, 4]
    results = run_cells([Square(k) for k in range(5)], tmp_path)
    assert [result["value"] for result in results] == [0, 1, 4, 9, 16]
    assert (tmp_path / "trainings" / "log").read_text() == "0 1 2 3 4 "  # none was computed twice
    assert cell_store(tmp_path)["square2"].arrays["pair"][0] == results[2]["random"]
    assert results[0]["machine"]["graphquilt"] == gq.__version__


def test_every_executor_gives_the_same_numbers(tmp_path):
    cells = [Square(k) for k in range(4)]
    alone = values(run_cells(cells, tmp_path / "a"))
    with ThreadPoolExecutor(2) as pool:
        assert values(run_cells(cells, tmp_path / "b", executor=pool)) == alone
    with gq.Processes(1) as pool:
        assert values(run_cells(cells, tmp_path / "c", executor=pool)) == alone
    events = []
    run_cells(cells, tmp_path / "b", progress=events.append)
    assert [(event.done, event.total) for event in events] == [(4, 4)]
    assert (tmp_path / "c" / "trainings" / "log").read_text() in ("0 2 1 3 ", "1 3 0 2 ")  # group by group


def test_results_of_other_parameters_are_not_mixed_in(tmp_path):
    run_cells([Square(2)], tmp_path)
    with pytest.raises(
        gq.errors.JobError, match=r"other values of exponent: \{'exponent': 2\} instead of \{'exponent': 3\}"
    ):
        run_cells([Square(2, exponent=3)], tmp_path)


def test_seeds_depend_on_every_part():
    parts = [(0, "cora", 2), (1, "cora", 2), (0, "pubmed", 2), (0, "cora", 4)]
    assert len({cell_seed(*each) for each in parts}) == 4


@pytest.fixture(scope="module")
def _few_epochs():
    """The studies test how trainings are kept and compared, not how good they are."""
    needs("torch")
    from studies.trainings import MODELS

    with pytest.MonkeyPatch.context() as patch:
        for name, kind in dict(MODELS).items():
            patch.setitem(MODELS, name, functools.partial(kind, max_epochs=8))
        yield


@pytest.fixture(scope="module")
def small(tmp_path_factory, _few_epochs):
    from studies.small_scale import small_cells
    from studies.small_scale_report import write_report

    out = tmp_path_factory.mktemp("small")
    cells = small_cells(["blocks"], ["vgae", "dgi"], [2], 2, splits=3)
    run_cells(cells, out)
    return out, write_report(out, data=cells[0].data, maps=False)


def test_the_small_study_leaves_tables_figures_and_raw_numbers(small):
    out, rows = small
    assert {(r["model"], r["dim"], r["route"]) for r in rows} == {
        (model, dim, route)
        for model in ("vgae", "dgi")
        for dim in (2,)
        for route in ("full", "l2g", "no-trans", "rotation-only")
    }
    assert all(r["runs"] == 2 and r["auc"] == r["auc_max"] >= r["auc_min"] for r in rows)
    raw = json.loads((out / "results.json").read_text())
    assert len(raw["cells"]) == 4
    assert raw["cells"][0]["stages"]["full"] > 0
    text = (out / "tables.md").read_text()
    assert text.startswith("## Accuracy of l2g minus accuracy of full, in points")
    assert "| route | d = 2 |" in text
    for model in ("vgae", "dgi"):
        assert (out / f"{model}-curves.png").stat().st_size > 10_000
        assert (out / f"{model}-curves.svg").read_text().startswith("<?xml")
    arrays = cell_store(out)["blocks-vgae-d002-run0"].arrays
    assert {name: array.shape for name, array in arrays.items()} == dict.fromkeys(
        ("full", "l2g", "no-trans", "rotation-only"), (1200, 2)
    )


def test_the_kept_run_is_the_one_with_the_best_auc():
    from studies.small_scale_report import summarise

    def cell(run, auc, accuracy):
        route = {"auc": auc, "accuracy": accuracy, "accuracy_std": 0.0}
        where = {"dataset": "cora", "model": "vgae", "dim": 2, "run_number": run}
        return {"parameters": where, "routes": {"full": route}}

    (row,) = summarise([cell(0, 0.8, 0.9), cell(1, 0.9, 0.5)])
    assert (row["auc"], row["accuracy"], row["run"], row["runs"]) == (0.9, 0.5, 1, 2)
    assert row["accuracy_mean"] == pytest.approx(0.7)


def test_expectations_are_compared_with_the_numbers():
    from studies.small_scale_checks import check_study, checks_table

    names = ("dataset", "model", "dim", "route", "auc", "accuracy", "accuracy_std")
    numbers = [
        ("cora", "vgae", 32, "full", 0.992, 0.75, 0.01),
        ("cora", "vgae", 32, "l2g", 0.98, 0.74, 0.01),
        ("cora", "vgae", 32, "no-trans", 0.97, 0.75, 0.01),
        ("pubmed", "vgae", 128, "l2g", 0.95, 0.7, 0.01),
        ("pubmed", "vgae", 128, "no-trans", 0.94, 0.7, 0.01),
        ("pubmed", "vgae", 128, "full", 0.97, 0.7, 0.01),
        ("pubmed", "dgi", 128, "l2g", 0.97, 0.71, 0.01),
        ("pubmed", "dgi", 128, "no-trans", 0.97, 0.7, 0.01),
    ]
    rows = [dict(zip(names, values, strict=True)) for values in numbers]
    found = {check.claim: check for check in check_study(rows)}
    assert found["VGAE, full, Cora, d = 32: auc ≥ 0.99"].holds is True
    assert found["VGAE, full, Cora, d = 32: accuracy ≥ 0.76"].holds is False
    assert found["VGAE, full, Cora, d = 128: auc ≥ 0.995"].holds is None
    assert found["VGAE, cora, every d ≥ 8: auc of l2g ≥ no-trans"].holds is True
    assert found["VGAE, cora, every d ≥ 8: accuracy of l2g ≥ no-trans"].evidence == "d = 32: -0.0100"
    assert found["VGAE, pubmed, d = 128: AUC of l2g within .01 of full"].holds is False
    assert found["DGI, pubmed, d = 128: accuracy of l2g above no-trans"].holds is True
    assert found["VGAE, Cora, d = 32: accuracy not below the authors' code"].evidence.endswith("below: full")
    assert "| **no** | 0.7500 |" in checks_table(list(found.values()))


def test_unknown_names_are_refused_before_anything_runs():
    from studies.small_scale import small_cells

    with pytest.raises(gq.errors.InputError, match="no data set 'core'; it knows cora"):
        small_cells(["core"], ["vgae"], [2], 1)
    with pytest.raises(gq.errors.InputError, match="no model 'gcn'"):
        small_cells(["cora"], ["gcn"], [2], 1)
    with pytest.raises(gq.errors.InputError, match="runs is 0"):
        small_cells(["cora"], ["vgae"], [2], 0)


def test_a_report_needs_a_finished_cell(tmp_path):
    from studies.small_scale_report import write_report

    with pytest.raises(gq.errors.JobError, match="no cell is finished"):
        write_report(tmp_path)


@pytest.fixture(scope="module")
def quality(tmp_path_factory, _few_epochs):
    from studies.quality import quality_cells
    from studies.quality_report import write_quality

    out = tmp_path_factory.mktemp("quality")
    cells = quality_cells(["blocks"], ["propagation", "structure", "svd", "vgae"], [2], repetitions=1, splits=2)
    cells += quality_cells(["blocks"], ["dgi"], [2], ["full", "shared"], repetitions=2, splits=2)
    run_cells(cells, out)
    return out, cells, write_quality(out)


def test_the_study_of_quality_leaves_a_table_a_figure_and_raw_numbers(quality):
    out, cells, rows = quality
    from studies.quality import WAYS
    from studies.quality_report import quality_tables

    text = quality_tables(rows)
    assert (out / "quality.md").read_text() == text
    for way in WAYS:
        assert f"| {way} |" in text
    assert "comparisons hold" in text
    worse = [{**row, "accuracy": 0.0} if row["way"] == "shared" else row for row in rows]
    assert "shared: accuracy ≥ full − 0.008" in quality_tables(worse)
    raw = json.loads((out / "quality.json").read_text())
    assert len(raw["cells"]) == len(cells) == 18
    assert {row["repetitions"] for row in raw["summary"] if row["model"] == "dgi"} == {2}
    assert all(0 <= row["link_cosine"] <= 1 and 0 <= row["link_inner_product"] <= 1 for row in raw["summary"])
    assert (out / "quality.png").stat().st_size > 10_000


def test_the_study_of_federated_alignment_leaves_tables_a_figure_and_raw_numbers(tmp_path):
    needs("matplotlib")
    from studies.federated import federated_cells
    from studies.federated_report import federated_tables, write_federated

    cells = federated_cells(["blocks"], ["propagation"], [4], dim=4, splits=2)
    wanted = {None, "scrambled"}
    cells = [cell for cell in cells if cell.noise in (0, 2) and cell.cap in (None, 24) and cell.lie in wanted]
    run_cells(cells, tmp_path)
    rows = {row["name"].rpartition("d004-")[2]: row for row in write_federated(tmp_path)}
    assert rows["federated-plain"]["difference"] < 1e-9
    assert rows["federated-plain"]["accuracy"] > rows["federated-plain"]["unaligned_accuracy"]
    assert rows["federated-cap24"]["shared"] == 24
    assert rows["federated-noise2"]["edge_error"] > rows["federated-plain"]["edge_error"]
    lies = rows["federated-scrambled"]["lies"]
    assert [one["found"] for one in lies] == [True] * 4
    assert sum(len(one["accused"]) for one in lies) == 0
    assert {path.name for path in tmp_path.iterdir()} >= {"federated.json", "federated.md", "federated.png"}
    before = [path.stat().st_mtime_ns for path in sorted((tmp_path / "cells").iterdir())]
    run_cells(cells, tmp_path)
    assert federated_tables(write_federated(tmp_path)) == (tmp_path / "federated.md").read_text()
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "cells").iterdir())] == before


def test_a_killed_training_goes_on_and_another_one_is_refused(tmp_path, blocks, blocks_quilt):
    needs("torch")
    from studies.trainings import trained, training_fact

    folder, options = tmp_path / "one", {"seed": 0, "recipe": gq.Recipe(runs=2, start=False)}
    job = trained(folder, blocks, blocks_quilt, gq.VGAE(2, max_epochs=2), **options)
    assert training_fact(job, "epochs") == 2 * 2 * blocks_quilt.n_patches
    embeddings = [np.array(patch.coordinates) for patch in job.patches]
    first = folder / "patches" / "00000" / "embedding.json"
    written = first.stat().st_mtime_ns
    for path in folder.glob("patches/*[123]/embedding.*"):
        path.unlink()
    job = trained(folder, blocks, blocks_quilt, gq.VGAE(2, max_epochs=2), **options)
    assert first.stat().st_mtime_ns == written
    for patch, before in zip(job.patches, embeddings, strict=True):
        assert np.allclose(patch.coordinates, before, atol=1e-5)
    with pytest.raises(gq.errors.JobError, match=r"max epochs 2 \(now 3\)"):
        trained(folder, blocks, blocks_quilt, gq.VGAE(2, max_epochs=3), **options)


@pytest.mark.slow
def test_pictures_of_the_largest_dimension(small):
    needs("umap")
    from studies.small_scale_report import write_report

    out, _ = small
    write_report(out)
    assert (out / "vgae-umap.png").stat().st_size > 10_000
