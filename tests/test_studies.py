"""Studies: cells that survive a kill, the same numbers from every executor, and the small study from end to end."""

import dataclasses
import functools
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

import graphquilt as gq
from extras import needs
from graphquilt.jobs import Record
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
def quality(tmp_path_factory):
    from studies.quality import QualityCell, quality_cells
    from studies.quality_report import write_quality

    out = tmp_path_factory.mktemp("quality")
    cells = [cell for cell in quality_cells(["blocks"], ["stitched", "signals", "chosen"]) if cell.dim == 128]
    cells += [QualityCell("blocks", 128, tenths=True), QualityCell("blocks", 128, 4, far_field=False)]
    cells = [dataclasses.replace(cell, dim=cell.dim // 8) for cell in cells]
    run_cells(cells, out)
    return out, cells, write_quality(out)


@pytest.mark.slow
def test_the_study_of_quality_leaves_a_page_a_table_and_raw_numbers(quality):
    out, cells, rows = quality
    from studies.quality_report import quality_page, quality_tables

    assert (out / "quality.md").read_text() == quality_page(rows)
    assert (out / "quality-tables.md").read_text() == quality_tables(rows)
    assert "{" not in quality_page(rows)
    raw = json.loads((out / "quality.json").read_text())
    assert len(raw) == len(cells)
    (ten,) = (row for row in rows if row["n_patches"] == 10 and row["features"])
    assert ten["seeds"] == 3
    assert len(ten["accuracies_splits"]) == len(ten["links_splits"]) == 20
    assert abs(ten["accuracies_difference"]) < 3
    assert 0 <= ten["accuracies_error"] < 1
    (chosen,) = (row for row in rows if row["signal"] == "chosen")
    single = [row for row in rows if row["signal"] in ("default", "edges") and row["n_patches"] == 1]
    assert chosen["accuracies"] > min(row["accuracies"] for row in single) - 1
    (tenths,) = (row for row in rows if row["tenths"])
    assert "links" not in tenths
    assert tenths["accuracies"] > 50
    before = [path.stat().st_mtime_ns for path in sorted((out / "cells").iterdir())]
    run_cells(cells, out)
    assert [path.stat().st_mtime_ns for path in sorted((out / "cells").iterdir())] == before


def test_a_paired_standard_error_decides_which_cells_lose_too_much():
    from studies.quality_report import quality_page, quality_rows, targets

    def cell(n_patches, accuracies, links, dataset="cora"):
        where = {"dataset": dataset, "signal": "default", "features": True, "far_field": True, "tenths": False}
        where |= {"dim": 32, "n_patches": n_patches}
        return {"parameters": where, "accuracies": accuracies, "links": links, "grade": "good", "cost": 1.0}

    one = cell(1, [0.6, 0.8], [0.9, 0.9])
    rows = quality_rows([one, cell(4, [0.59, 0.79], [0.9, 0.9]), cell(10, [0.59, 0.80], [0.9, 0.9])])
    four, ten = rows[1:]
    assert four["accuracies_difference"] == pytest.approx(-1)
    assert four["accuracies_error"] == pytest.approx(0)
    assert (ten["accuracies_difference"], ten["accuracies_error"]) == pytest.approx((-0.5, 0.5))
    held = {target.text: target.held for target in targets(rows)}
    assert held["4 patches against one: no cell below −0.5 points or −0.004 link AUC, by 2 s.e."] is False
    assert held["10 patches against one: no cell below −0.5 points or −0.004 link AUC, by 2 s.e."] is True
    assert held["50 patches against one: no cell below −0.9 points or −0.007 link AUC, by 2 s.e."] is None
    order = [target.held for target in targets(rows)]
    assert order == sorted(order, key=[False, None, True].index)
    page = quality_page(rows)
    assert "| 4 | 1 | **−1.00** | −1.00 ± 0.00 (Cora, features, d = 32) |" in page
    assert "that were planned were not: " in page
    links = quality_rows([one, cell(4, [0.6, 0.8], [0.88, 0.88])])
    assert "0 of 1 cells. Not: Cora, features, d = 32" in quality_page(links)


def test_the_study_of_quality_reads_graphs_that_the_library_does_not_know(tmp_path):
    from studies.npz_graphs import official_splits, open_graph
    from studies.quality import quality_cells

    folder = tmp_path / "gd-acm"
    folder.mkdir()
    X = np.eye(4, 3, dtype=np.float32)
    arrays = {"x_data": np.ones(3, np.float32), "x_indices": np.arange(3), "x_indptr": np.array([0, 1, 2, 3, 3])}
    arrays |= {"x_shape": np.array(X.shape), "y": np.array([0, 1, 0, -1])}
    masks = {f"{part}_masks": np.eye(4, dtype=bool)[[k]] for k, part in enumerate(("train", "val", "test"))}
    np.savez(folder / "gd-acm.npz", edge_index=np.array([[0, 1, 1, 2], [1, 0, 2, 1]]), **arrays, **masks)
    graph = open_graph("gd-acm", tmp_path)
    assert (graph.n_nodes, graph.n_edges, graph.labels.tolist()) == (3, 2, [0, 1, 0])
    assert graph.features.toarray().tolist() == X[:3].tolist()
    assert open_graph("gd-acm", tmp_path, largest_component=False).n_nodes == 4
    (split,) = official_splits("gd-acm", tmp_path)
    assert (split.train.tolist(), split.validation.tolist(), split.test.tolist()) == ([0], [1], [2])
    with pytest.raises(gq.errors.InputError, match=r"'gd-flickr' is not in .*expected .*gd-flickr.npz"):
        open_graph("gd-flickr", tmp_path)
    with pytest.raises(gq.errors.InputError, match="no part 'peers'; it knows stitched"):
        quality_cells(["cora"], ["peers"])
    with pytest.raises(gq.errors.InputError, match="no data set 'core'"):
        quality_cells(["core"])


def test_the_study_of_sums_over_parties_leaves_tables_and_raw_numbers(tmp_path, monkeypatch):
    needs("cryptography")
    from studies import federated
    from studies.federated_report import federated_tables, write_federated

    monkeypatch.setattr(federated, "BUCKETS", 200)
    cells = federated.federated_cells(["blocks"], [3], dims=[3, 6], cuts=2, splits=2)
    assert {cell.way for cell in cells} == {*federated.WAYS, *federated.PRIVATE}
    cells += [federated.FederatedCell("blocks", "edges", 3, 0, "links", dims=(3, 6))]
    run_cells(cells, tmp_path)
    rows = {row["name"]: row for row in write_federated(tmp_path)}
    sums, full = rows["blocks-features-03-sums-cut0"], rows["blocks-features-00-full-cut0"]
    assert sums["d6"]["accuracy"] > full["d6"]["accuracy"] - 0.1
    assert sums["steps"] == 1
    shares = [rows[f"blocks-edges-03-{way}-cut0"]["d6"]["shares"][1] for way in ("sums", "garbage")]
    assert shares[1] < shares[0]
    assert rows["blocks-edges-03-guarded-cut0"]["buckets"] == 200
    assert 0 < rows["blocks-edges-03-links-cut0"]["d6"]["sums_across"] <= 1
    assert federated_tables(write_federated(tmp_path)) == (tmp_path / "federated.md").read_text()
    assert (tmp_path / "federated.md").read_text().count("| blocks |") > 10


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
