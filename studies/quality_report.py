"""The study of quality as a page with one small table, a page with every cell, and raw numbers."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphquilt.errors import JobError
from studies.cells import Row, read_cells
from studies.figures import markdown_table
from studies.npz_graphs import NAMES
from studies.quality import CHOSEN, SIGNALS, quality_cells

__all__ = ["quality_page", "quality_rows", "quality_tables", "write_quality"]

SINGLE = ("features", "edges", "both", "raw")  # the signals that the default is compared with
MANY = (4, 10, 50)
LEAST = {4: (-0.5, -0.004), 10: (-0.5, -0.004), 50: (-0.9, -0.007)}  # points, and link AUC, of every cell
CELLS = 4 * len(NAMES)  # of each number of patches: two dimensions, with features and without
BGRL = {"amazon-photo": 93.2, "coauthor-cs": 93.3}
TABLES_HEAD = """\
# Quality: every cell

Every cell of the study of [quality](quality.md). "Signal" is what is spread, and "graph" says whether the graph kept
its features. A figure after ± is the standard deviation over seeds, or, beside a difference, the paired standard error.
"""
_KEY = ("dataset", "signal", "features", "far_field", "tenths", "dim", "n_patches")
_MEASURES = ("accuracies", "links", "roc_aucs")


def quality_rows(results: Iterable[Row]) -> list[Row]:
    """Average the seeds of each cell, and compare patches with one patch, split by split.

    Returns
    -------
    list of dict
        What decides the cell, the ``seeds``, ``grade`` and ``cost``; for each measure its mean (``accuracies`` …), in
        points but for links, and ``…_splits``. Where one patch was measured too there are ``…_difference`` and its
        paired standard error, ``…_error``; with several seeds ``…_spread`` is the standard deviation over these.
    """
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for result in results:
        groups[tuple(result["parameters"][name] for name in _KEY)].append(result)
    rows = {key: _average(dict(zip(_KEY, key, strict=True)), group) for key, group in groups.items()}
    for key, row in rows.items():
        one = rows.get((*key[:3], True, *key[4:-1], 1))
        if one is None or one is row:
            continue
        for measure in _MEASURES:
            if measure in row and measure in one:
                difference = np.subtract(row[f"{measure}_splits"], one[f"{measure}_splits"])
                row[f"{measure}_difference"] = float(difference.mean())
                row[f"{measure}_error"] = float(difference.std(ddof=1) / np.sqrt(len(difference)))
    names, signals = list(NAMES), [*SIGNALS, CHOSEN]
    return sorted(
        rows.values(),
        key=lambda row: (
            row["tenths"],
            names.index(row["dataset"]) if row["dataset"] in names else -1,
            signals.index(row["signal"]),
            not row["features"],
            not row["far_field"],
            row["dim"],
            row["n_patches"],
        ),
    )


def _average(row: Row, group: Sequence[Row]) -> Row:
    row["seeds"] = len(group)
    row["grade"] = ", ".join(sorted({result["grade"] for result in group}))
    row["cost"] = float(np.mean([result["cost"] for result in group]))
    for measure in _MEASURES:
        if measure in group[0]:
            values = np.array([result[measure] for result in group]) * (1 if measure == "links" else 100)
            row[measure] = float(values.mean())
            row[f"{measure}_splits"] = values.mean(axis=0).tolist()
            if len(group) > 1:
                row[f"{measure}_spread"] = float(values.mean(axis=1).std(ddof=1))
    return row


def _stitched(rows: Sequence[Row], n_patches: int) -> list[Row]:
    """Return the cells of the default that can be compared with one patch."""
    wanted = {"signal": "default", "far_field": True, "tenths": False, "n_patches": n_patches}
    return [row for row in _where(rows, **wanted) if "accuracies_difference" in row]


def _where(rows: Sequence[Row], **values: object) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def _misses(row: Row) -> bool:
    """Return whether patches lose more than they may, by more than twice the standard error."""
    return any(
        row[f"{measure}_difference"] < least - 2 * row[f"{measure}_error"]
        for measure, least in zip(("accuracies", "links"), LEAST[row["n_patches"]], strict=True)
    )


def _set_mean(rows: Sequence[Row], value: str) -> float:
    """Return the mean over data sets of the mean over the cells of each."""
    sets = {row["dataset"] for row in rows}
    return float(np.mean([np.mean([row[value] for row in rows if row["dataset"] == name]) for name in sets]))


def _title(row: Row) -> str:
    return str(NAMES.get(row["dataset"], row["dataset"]))


def _cell(row: Row) -> str:
    kind = "features" if row["features"] else "edges"
    return f"{_title(row)}, {kind}, d = {row['dim']}"


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _change(row: Row, measure: str) -> str:
    digits = 4 if measure == "links" else 2
    return f"{_signed(row[f'{measure}_difference'], digits)} ± {row[f'{measure}_error']:.{digits}f}"


def _worst(rows: Sequence[Row], measure: str) -> Row:
    return min(rows, key=lambda row: row[f"{measure}_difference"])


def stitched_table(rows: Sequence[Row]) -> str:
    """Return what patches lose against one patch: the mean over sets, and the worst cell of each measure."""
    lines = []
    for n_patches in MANY:
        own = _stitched(rows, n_patches)
        if not own:
            continue
        line = [str(n_patches), str(len(own))]
        for measure, digits in (("accuracies", 2), ("links", 4)):
            worst = _worst(own, measure)
            line += [f"**{_signed(_set_mean(own, f'{measure}_difference'), digits)}**"]
            line += [f"{_change(worst, measure)} ({_cell(worst)})"]
        lines.append([*line, str(sum(map(_misses, own)))])
    measures = ["accuracy, points: mean over sets", "worst cell", "link AUC: mean over sets", "worst cell"]
    return markdown_table(["patches", "cells", *measures, "cells that lose too much"], lines)


def worst_table(rows: Sequence[Row], count: int = 8) -> str:
    """Return the cells that lose most accuracy, and those that lose most link AUC."""
    own = [row for n_patches in MANY for row in _stitched(rows, n_patches)]
    ranked = [sorted(own, key=lambda row: row[f"{measure}_difference"])[:count] for measure in ("accuracies", "links")]
    chosen = list({id(row): row for part in ranked for row in part}.values())
    lines = [
        [
            _cell(row),
            str(row["n_patches"]),
            f"{row['accuracies']:.1f}",
            _change(row, "accuracies"),
            f"{row['links']:.3f}",
            _change(row, "links"),
            row["grade"],
            "**yes**" if _misses(row) else "no",
        ]
        for row in chosen
    ]
    head = ["cell", "patches", "accuracy", "against one patch", "link AUC", "against one patch", "grade", "too much"]
    return markdown_table(head, lines)


def _signals(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Return, for each data set, the row of each signal in one patch and 128 dimensions."""
    table: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in _where(rows, features=True, far_field=True, tenths=False, dim=128, n_patches=1):
        table[row["dataset"]][row["signal"]] = row
    return table


def _behind(signals: dict[str, Row], name: str = "default") -> float:
    """Return the accuracy of a signal minus that of the best single one on the same splits, in points."""
    own = signals[name]["accuracies_splits"]
    best = max(np.mean(signals[single]["accuracies_splits"][: len(own)]) for single in SINGLE)
    return float(np.mean(own) - best)


def _complete(rows: Sequence[Row], names: Sequence[str]) -> dict[str, dict[str, Row]]:
    return {name: signals for name, signals in _signals(rows).items() if set(names) <= set(signals)}


def signals_table(rows: Sequence[Row]) -> str:
    """Return accuracy and link AUC of each signal, in one patch and 128 dimensions, and what labels choose."""
    lines = []
    for name, signals in _signals(rows).items():
        both = [f"{row['accuracies']:.1f} / {row['links']:.3f}" if row else "–" for row in map(signals.get, SIGNALS)]
        chosen = f"{signals[CHOSEN]['accuracies']:.1f}" if CHOSEN in signals else "–"
        behind = [
            _signed(_behind(signals, signal), 1) if {signal, *SINGLE} <= set(signals) else "–"
            for signal in ("default", CHOSEN)
        ]
        lines.append([NAMES.get(name, name), *both, chosen, *behind])
    complete = _complete(rows, tuple(SIGNALS)).values()
    if complete:
        means = [
            [np.mean([each[signal][key] for each in complete]) for key in ("accuracies", "links")] for signal in SIGNALS
        ]
        lines.append([f"mean of {len(complete)} sets", *(f"**{a:.1f} / {b:.3f}**" for a, b in means), "", "", ""])
    head = ["d = 128, one patch", *SIGNALS, "chosen by labels", "default − best", "chosen − best"]
    return markdown_table(head, lines)


@dataclass(frozen=True)
class Target:
    """What the study should show, what was reached, and whether that is enough; None where it was not measured."""

    text: str
    reached: str
    held: bool | None
    complete: bool = True  # whether all cells that it is about were measured


def targets(rows: Sequence[Row]) -> list[Target]:
    """Return all targets, those that were missed first."""
    every = [*_stitched_targets(rows), *_flickr_targets(rows), *_signal_targets(rows), *_other_targets(rows)]
    return sorted(every, key=lambda target: (target.held is not False, target.held is not None))


def _stitched_targets(rows: Sequence[Row]) -> Iterator[Target]:
    for n_patches in MANY:
        own = _stitched(rows, n_patches)
        points, links = LEAST[n_patches]
        words = f"{n_patches} patches against one: no cell below −{-points:g} points or −{-links:g} link AUC, by 2 s.e."
        if not own:
            yield Target(words, "not measured", None)
            continue
        mean, missed = _set_mean(own, "accuracies_difference"), [row for row in own if _misses(row)]
        listed = "; ".join(f"{_cell(row)}: {_change(row, 'accuracies')}, {_change(row, 'links')}" for row in missed)
        sets, complete = len({row["dataset"] for row in own}), len(own) == CELLS
        measured = "" if complete else f" ({len(own)} of {CELLS} cells, {sets} of {len(NAMES)} sets)"
        words_mean = f"{n_patches} patches against one: mean over sets ≥ −0.2 points"
        yield Target(words_mean, _signed(mean, 2) + measured, mean >= -0.2, complete)
        reached = f"{len(own) - len(missed)} of {len(own)} cells" + (f". Not: {listed}" if missed else "")
        yield Target(words, reached, not missed, complete)


def _least(words: str, row: Row | None, measure: str, least: float, note: str = "") -> Target:
    if row is None or measure not in row:
        return Target(f"{words} ≥ {least:g}", "not measured", None)
    return Target(f"{words} ≥ {least:g}", f"{row[measure]:.1f}{note}", row[measure] >= least)


def _one(rows: Sequence[Row], **values: object) -> Row | None:
    return next(iter(_where(rows, **values)), None)


def _flickr_targets(rows: Sequence[Row]) -> Iterator[Target]:
    flickr = {"dataset": "gd-flickr", "signal": "features", "dim": 32, "tenths": False}
    for n_patches, least in ((1, 79.5), (10, 78.5)):
        row = _one(rows, **flickr, far_field=True, n_patches=n_patches)
        yield _least(
            f"Flickr, features alone, d = 32, {n_patches} patch{'es' * (n_patches > 1)}: accuracy",
            row,
            "accuracies",
            least,
        )
    alone = _one(rows, **flickr, far_field=False, n_patches=10)
    words = "Flickr in ten patches without the far field: the certificate does not say good"
    if alone is None:
        yield Target(words, "not measured", None)
    else:
        yield Target(words, f"{alone['grade']}, accuracy {alone['accuracies']:.1f}", "good" not in alone["grade"])
    cora = [row for row in _stitched(rows, 50) if row["dataset"] == "cora"]
    words = "Cora in 50 patches: the certificate is not worse than fair"
    grades = ", ".join(sorted({row["grade"] for row in cora}))
    yield Target(words, grades or "not measured", {row["grade"] for row in cora} <= {"good", "fair"} if cora else None)


def _signal_targets(rows: Sequence[Row]) -> Iterator[Target]:
    complete = _complete(rows, ("default", *SINGLE))
    sets = f" ({len(complete)} of {len(NAMES)} sets)" if len(complete) < len(NAMES) else ""
    if not complete:
        yield Target("default against features, edges, both, raw", "not measured", None)
        return
    means = {
        name: float(np.mean([each[name]["accuracies"] for each in complete.values()])) for name in ("default", *SINGLE)
    }
    listed = ", ".join(f"{name} {mean:.1f}" for name, mean in means.items())
    links = {name: np.mean([each[name]["links"] for each in complete.values()]) for name in means}
    listed += "; link AUC, no target: " + ", ".join(f"{name} {mean:.3f}" for name, mean in links.items())
    best = max(means[name] for name in SINGLE)
    words = "default: mean over sets above each of features, edges, both, raw"
    yield Target(words, listed + sets, means["default"] > best, not sets)
    behind = {name: _behind(each) for name, each in complete.items()}
    worst = min(behind, key=lambda name: behind[name])
    words = "default: no set more than 3 points below its best"
    reached = f"worst {_signed(behind[worst], 1)} on {NAMES.get(worst, worst)}{sets}"
    yield Target(words, reached, behind[worst] >= -3, not sets)
    words = "chosen by the training labels of each split: no set more than 0.7 points below its best"
    chosen = {name: _behind(each, CHOSEN) for name, each in complete.items() if CHOSEN in each}
    if not chosen:
        yield Target(words, "not measured", None)
        return
    below = ", ".join(
        f"{_signed(value, 1)} on {NAMES.get(name, name)}" for name, value in chosen.items() if value < -0.7
    )
    reached = f"{below or f'worst {_signed(min(chosen.values()), 1)}'} ({len(chosen)} of {len(NAMES)} sets)"
    yield Target(words, reached, not below, len(chosen) == len(NAMES))


def _other_targets(rows: Sequence[Row]) -> Iterator[Target]:
    tolokers = _one(rows, dataset="het-tolokers", signal="default", features=True, dim=128, n_patches=1)
    yield _least("Tolokers, official splits, d = 128: ROC AUC", tolokers, "roc_aucs", 81)
    for name, bgrl in BGRL.items():
        own = _where(rows, dataset=name, tenths=True, signal="default")
        best = max(own, key=lambda row: row["accuracies"], default=None)
        note = "" if best is None else f" with d = {best['dim']}, {best['cost']:.1f} CPU s"
        yield _least(
            f"{NAMES[name]}, 20 splits 10/10/80, d ≤ 512 (BGRL {bgrl}): accuracy", best, "accuracies", bgrl - 1, note
        )


def targets_table(rows: Sequence[Row]) -> str:
    """Return the targets as a table, misses first."""
    words = {False: "**no**", None: "not measured", True: "yes"}
    lines = [
        [t.text, words[t.held] if t.complete or not t.held else "as far as measured", t.reached] for t in targets(rows)
    ]
    return markdown_table(["target", "held", "reached"], lines)


def networks_table() -> str:
    """Return the figures of trained networks, which were measured with 0.5.3."""
    rows = json.loads(Path(__file__).with_name("networks_0_5_3.json").read_text(encoding="utf-8"))
    ways = ("full", "paper", "shared", "reconstruction")
    cases: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        cases[row["dataset"], row["model"]][row["way"]] = row
    lines = [
        [
            NAMES[dataset],
            model.upper(),
            *(
                "–" if row is None else f"{100 * row['accuracy']:.1f} / {row['link_auc']:.3f}"
                for row in map(case.get, ways)
            ),
            " / ".join("–" if row is None else f"{row['cost']:.0f}" for row in map(case.get, ways)),
        ]
        for (dataset, model), case in cases.items()
    ]
    return markdown_table(["0.5.3, d = 32", "", *ways, "CPU s"], lines)


def tenths_table(rows: Sequence[Row]) -> str:
    """Return accuracy and cost of the frozen embedding with random splits of 10, 10 and 80 %."""
    lines = [
        [
            _title(row),
            row["signal"],
            str(row["dim"]),
            f"{row['accuracies']:.2f} ± {np.std(row['accuracies_splits'], ddof=1):.2f}",
            f"{row['cost']:.1f}",
            str(BGRL.get(row["dataset"], "")),
        ]
        for row in _where(rows, tenths=True)
    ]
    return markdown_table(["10/10/80", "signal", "d", "accuracy ± deviation over splits", "CPU s", "BGRL"], lines)


def details(rows: Sequence[Row]) -> str:
    """Return every measure of every cell."""
    lines = [
        [
            _title(row),
            _spread(row),
            "features" if row["features"] else "edges",
            str(row["dim"]),
            str(row["n_patches"]),
            str(row["seeds"]),
            *_figures(row, "accuracies", 2),
            *_figures(row, "links", 4),
            f"{row['roc_aucs']:.1f}" if "roc_aucs" in row else "",
            row["grade"],
            f"{row['cost']:.1f}",
        ]
        for row in rows
        if not row["tenths"]
    ]
    change = "against one patch ± s.e."
    measures = ["accuracy", change, "link AUC", change, "ROC AUC", "grade", "CPU s"]
    return markdown_table(["data", "signal", "graph", "d", "patches", "seeds", *measures], lines)


def _figures(row: Row, measure: str, digits: int) -> list[str]:
    if measure not in row:
        return ["", ""]
    spread = f" ± {row[f'{measure}_spread']:.{digits}f}" if f"{measure}_spread" in row else ""
    change = _change(row, measure) if f"{measure}_difference" in row else ""
    return [f"{row[measure]:.{digits}f}{spread}", change]


def _missing(rows: Sequence[Row]) -> list[Row]:
    """Return what decides each cell of the study that is not there."""
    measured = {tuple(row[name] for name in _KEY) for row in rows}
    wanted = dict.fromkeys(tuple(getattr(cell, name) for name in _KEY) for cell in quality_cells())
    return [dict(zip(_KEY, key, strict=True)) for key in wanted if key not in measured]


def progress(rows: Sequence[Row]) -> str:
    """Say how many cells were measured, and on which sets some are missing."""
    missing = _missing(rows)
    counts = Counter(_title(row) for row in missing)
    text = f"{len(rows)} cells were measured"
    listed = ", ".join(f"{name} {count}" for name, count in counts.items())
    return (
        f"{text}, and {len(missing)} that were planned were not: {listed}."
        if missing
        else f"{text}, all that were planned."
    )


def seeds(rows: Sequence[Row]) -> str:
    """Say how many seeds the cells have."""
    several = [row for row in rows if row["seeds"] > 1]
    if not several:
        return "Nothing but the cut is random, and every cell has one seed."
    return (
        f"Nothing but the cut is random. {len(several)} cells of ten patches at d = 128 have "
        f"{max(row['seeds'] for row in several)} seeds; all others have one."
    )


def quality_page(rows: Sequence[Row]) -> str:
    """Return the page of the study as Markdown."""
    page = Path(__file__).with_name("quality_page.md").read_text(encoding="utf-8")
    tables: dict[str, Callable[[Sequence[Row]], str]] = {
        "STITCHED": stitched_table,
        "WORST": worst_table,
        "SIGNALS": signals_table,
        "TARGETS": targets_table,
        "TENTHS": tenths_table,
        "PROGRESS": progress,
        "SEEDS": seeds,
        "NETWORKS": lambda _: networks_table(),
    }
    for name, table in tables.items():
        page = page.replace(f"{{{name}}}", table(rows).rstrip())
    return page


def quality_tables(rows: Sequence[Row]) -> str:
    """Return the page with every cell as Markdown."""
    missing = [
        [_cell(row), _spread(row), str(row["n_patches"]), "10/10/80" if row["tenths"] else ""] for row in _missing(rows)
    ]
    table = (
        f"\n## Not measured\n\n{markdown_table(['cell', 'signal', 'patches', 'splits'], missing)}" if missing else ""
    )
    return f"{TABLES_HEAD}\n{details(rows)}{table}"


def _spread(row: Row) -> str:
    return str(row["signal"]) + ("" if row["far_field"] else ", no far field")


def write_quality(out: Path) -> list[Row]:
    """Write ``quality.md``, ``quality-tables.md`` and ``quality.json`` from the finished cells; return the rows."""
    results = [result for result in read_cells(out) if "accuracies" in result]
    if not results:
        raise JobError(f"no cell is finished in {out / 'cells'}; run the study first.")
    rows = quality_rows(results)
    texts = {
        "quality.md": quality_page(rows),
        "quality-tables.md": quality_tables(rows),
        "quality.json": json.dumps(results, indent=None, separators=(",", ":")).replace('},{"name"', '},\n{"name"')
        + "\n",
    }
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    return rows
