"""The report of a job and the map, used in a real browser: every control, no error, no request."""

import itertools

import numpy as np
import pytest

import graphquilt as gq
from browser import chromium, opened, under
from extras import needs
from graphquilt.evaluate import EvaluationOptions
from graphquilt.report import MapOptions, write_job_report, write_map

pytestmark = pytest.mark.browser

HOSTILE = "</script><img src=x onerror=\"document.title='run'\"><b>"


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def job(blocks, tmp_path_factory):
    needs("torch")
    ids = np.array([f"host-{k:04d}.example" for k in range(blocks.n_nodes)], dtype=object)
    ids[0] = HOSTILE
    graph = gq.Graph(blocks.adjacency, blocks.features, labels=blocks.labels, node_ids=ids.astype(str))
    settings = gq.JobSettings(
        embedder=gq.VGAE(8, max_epochs=20), cutting=gq.Cutting(6, overlap=(40, 120)), recipe=gq.Recipe.paper()
    )
    made = gq.Job.begin(gq.DirectoryStore(tmp_path_factory.mktemp("jobs") / "blocks"), settings, graph)
    made.run()
    gq.compare(made, full=False, options=EvaluationOptions(splits=2))
    return made


@pytest.fixture(scope="module")
def report(job):
    return write_job_report(job)


def canvas_bits(page, selector):
    page.wait_for_timeout(60)
    return page.locator(selector).evaluate("canvas => canvas.toDataURL()")


def test_the_page_has_everything_and_an_id_cannot_run_a_script(browser, job, report):
    with opened(browser, report) as result:
        page = result.page
        assert page.locator("h1").inner_text() == "blocks"
        links = page.locator(".top nav a").all_inner_texts()
        assert links[:3] == ["Verdict", "Map", "Patch graph"]
        assert {"Patches", "Training", "Evaluation", "Time and memory", "Settings", "Cite"} <= set(links)
        assert page.locator("#words .word").inner_text().split(":")[0] in ("Good", "Fair", "Doubtful", "Bad")
        assert page.locator("#words .copy pre").all_inner_texts() == []
        assert page.locator("#evaluation table").inner_text().count("aligned") == 2
        assert page.locator("#cost tbody tr").count() == 3
        assert page.locator("#training path").count() == 12  # six patches, each with a line and what is pointed at
        page.locator("#map input").fill("</script>")
        assert page.locator("#map [role=option]").first.inner_text() == HOSTILE
        page.keyboard.press("Enter")
        assert HOSTILE in page.locator("#map .note").inner_text()
        assert page.title() == "blocks · graphquilt"
        assert page.locator("img").count() == 0
        result.picture("report-light")


def test_the_map_is_coloured_searched_moved_and_pointed_at(browser, report):
    with opened(browser, report) as result:
        page, canvas = result.page, "#map canvas"
        bits = [canvas_bits(page, canvas)]
        page.get_by_role("radio", name="patch").click()
        bits.append(canvas_bits(page, canvas))
        assert "patch 5" in page.locator("#map .legend").inner_text()
        page.keyboard.press("ArrowRight")
        bits.append(canvas_bits(page, canvas))
        assert page.get_by_role("radio", name="alignment error").get_attribute("aria-checked") == "true"
        page.get_by_role("radio", name="class").click()
        page.locator("#map .legend button").first.click()  # only this class
        bits.append(canvas_bits(page, canvas))
        page.locator("#map .legend button").first.click()
        page.locator("#map input").fill("host-0042")
        page.keyboard.press("Enter")
        assert page.locator("#map .note").inner_text().startswith("host-0042.example")
        assert page.locator("#map .neighbour").count() == 5
        bits.append(canvas_bits(page, canvas))
        result.picture("report-search", clip=page.locator("#map").bounding_box(), full_page=True)
        other = page.locator("#map .neighbour").first.inner_text()
        page.locator("#map .neighbour").first.click()
        assert page.locator("#map .note").inner_text().startswith(other)
        page.locator("#map input").fill("no such id")
        assert "Nothing has this name." in page.locator("#map .search ul").inner_text()
        page.get_by_role("button", name="Show everything").click()
        bits.append(canvas_bits(page, canvas))
        x, y = under(page, canvas, ".example")
        page.mouse.click(x, y)
        assert page.locator("#map .neighbour").count() == 5
        page.mouse.wheel(0, -400)
        bits.append(canvas_bits(page, canvas))
        page.mouse.down()
        page.mouse.move(x + 60, y + 30, steps=3)
        page.mouse.up()
        bits.append(canvas_bits(page, canvas))
        page.locator(canvas).focus()
        for key in ("+", "ArrowLeft", "-", "0"):
            page.keyboard.press(key)
            bits.append(canvas_bits(page, canvas))
        assert all(before != after for before, after in itertools.pairwise(bits))


def test_an_overlap_is_chosen_on_the_patch_graph_and_in_the_table(browser, report):
    with opened(browser, report, height=2400) as result:
        page = result.page
        assert page.locator("#quilt svg.side").count() == 2
        first = page.locator("#quilt h3").first.inner_text()
        rows = page.locator("#quilt tbody tr")
        rows.nth(0).focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        second = page.locator("#quilt h3").first.inner_text()
        assert second != first
        x, y = under(page, "#quilt canvas", "patches ")
        named = page.locator("#tooltip b").inner_text()
        page.mouse.click(x, y)
        assert page.locator("#quilt h3").first.inner_text().lower() == named
        page.get_by_role("button", name="shared nodes").click()
        shared = [int(text.replace(",", "")) for text in page.locator("#quilt tbody td:nth-child(2)").all_inner_texts()]
        assert shared == sorted(shared, reverse=True)
        page.locator("#quilt svg.side circle").first.hover(force=True)
        assert "in patch" in page.locator("#tooltip").inner_text()
        result.picture("report-overlap", clip=page.locator("#quilt").bounding_box(), full_page=True)
        x, y = under(page, "#quilt canvas", "nodes\nembedded")
        page.mouse.click(x, y)
        assert page.get_by_role("radio", name="patch").get_attribute("aria-checked") == "true"
        assert page.locator("#map .legend button[aria-pressed=true]").count() == 1


def test_theme_settings_and_copying(browser, report):
    with opened(browser, report, scheme="dark") as result:
        page = result.page
        assert page.locator("html").get_attribute("data-theme") == "dark"
        result.picture("report-dark", full_page=True)
        dark = canvas_bits(page, "#quilt canvas")
        page.locator("#theme").click()
        assert page.locator("html").get_attribute("data-theme") == "light"
        assert canvas_bits(page, "#quilt canvas") != dark  # its discs have the colours of the theme
        page.reload()
        assert page.locator("html").get_attribute("data-theme") == "light"
        page.get_by_label("filter settings").fill("cutting.n_patches")
        assert page.locator("#settings tbody tr").count() == 1
        page.locator("#cite .copy button").first.click()
        page.wait_for_function("document.querySelector('#cite .copy button').textContent !== 'Copy'")
        page.locator("#patches rect").first.hover()
        assert "patches" in page.locator("#tooltip").inner_text()
        page.keyboard.press("Escape")
        assert not page.locator("#tooltip").is_visible()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement !== document.body")


def test_nothing_is_wider_than_a_phone(browser, report):
    with opened(browser, report, width=390, height=844) as result:
        page = result.page
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        wide = page.evaluate(
            "[...document.querySelectorAll('section, .tools > *, canvas, svg, .copy, p, ul.facts li')]"
            ".filter(e => e.getBoundingClientRect().right > 390.5).map(e => e.outerHTML.slice(0, 80))"
        )
        assert wide == []
        result.picture("report-phone", full_page=True)


def test_a_job_that_is_still_running_shows_what_is_there(browser, blocks, tmp_path):
    settings = gq.JobSettings(embedder=gq.SVD(4), cutting=gq.Cutting(4, overlap=(40, 120)))
    job = gq.Job.begin(gq.DirectoryStore(tmp_path / "job"), settings, blocks)
    job.cut()
    job.embed(only=[0, 1])
    with opened(browser, write_job_report(job)) as result:
        words = result.page.locator("#words").inner_text()
        assert "Not finished yet" in words
        assert "2 of 4 patches are embedded" in words
        assert f"graphquilt embed-patches {job.name}" in words
        assert result.page.locator("#quilt canvas").count() == 1
        assert result.page.locator("#map canvas").count() == 0
        result.picture("report-running")


def test_a_job_that_is_not_cut_names_the_runs_that_go_on(browser, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rings = [f"{c}{k},{c}{(k + step) % 60}" for c in "ab" for k in range(60) for step in (1, 2)]
    (tmp_path / "rings.csv").write_text("\n".join(rings))
    assert command("embed", "rings.csv", "-e", "svd", "--dim", 2, "--patches", 4, "--out", "job")[0] == 2
    with opened(browser, write_job_report(gq.Job.open("job"))) as result:
        words = result.page.locator("#words").inner_text()
        assert "Align each of the 2 components alone:" in words
        assert "--largest-component --out job" in words
        result.picture("report-not-cut")


def test_the_map_alone_is_a_page_with_the_labels_of_a_file(browser, job, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("id,team\n" + "".join(f"host-{k:04d}.example,<i>team {k % 3}\n" for k in range(1, 200)))
    drawn = write_map(job, tmp_path / "map.html", options=MapOptions(colour=labels))
    assert not drawn.is_sample
    with opened(browser, tmp_path / "map.html") as result:
        legend = result.page.locator(".legend").inner_text()
        assert "<i>team 0" in legend
        assert "no team" in legend
        under(result.page, "canvas", "team")
        result.picture("map")


def test_a_sample_of_a_large_map_has_shades_behind_it(browser, job, tmp_path):
    drawn = write_map(job, tmp_path / "map.html", options=MapOptions(limit=60))
    assert drawn.density is not None
    with opened(browser, tmp_path / "map.html") as result:
        assert "A random sample of 60 of the" in result.page.locator("#map .note").inner_text()
        result.picture("map-sample")
