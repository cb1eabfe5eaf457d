"""The page of a network over time in a real browser: every control, no error, no request."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from browser import chromium, opened
from graphquilt.temporal import Detection, Names, ScoringOptions, Window, score_windows, write_report
from graphquilt.temporal.records import merge_incidents, report_alerts

pytestmark = pytest.mark.browser

HOSTILE = "</script><img src=x onerror=\"document.title='run'\"><b>"
DAY = 86400.0


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    rng = np.random.default_rng(0)
    A = rng.random((40, 60)) < 0.15
    days = [sp.csr_array((A & (rng.random(A.shape) < 0.9)).astype(float)) for _ in range(45)]
    days[20] = sp.csr_array(([1.0], ([0], [0])), shape=(40, 60))
    flood = days[40].toarray()
    flood[0] = 1
    days[40] = sp.csr_array(flood)
    windows = [Window(19_723 + k, DAY * (19_723 + k), DAY * (19_724 + k), day, day.nnz) for k, day in enumerate(days)]
    names = {
        "source": Names([HOSTILE, *(f"host-{k}.example" for k in range(1, 40))]),
        "destination": Names([f"server-{k}.example" for k in range(60)]),
    }
    folder = tmp_path_factory.mktemp("anomaly")
    scores = score_windows(iter(windows), ScoringOptions(dim=3, lags=(1, 7), min_observations=5))
    alerts = report_alerts(scores, names, settings={})
    write_report(folder, Detection(scores, names, alerts, merge_incidents(alerts), {}), title="Flows of January")
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.mark.parametrize("width", [1280, 390])
def test_every_control_of_the_page(browser, page_file, width):
    with opened(browser, page_file, width=width) as seen:
        page = seen.page
        assert page.title() == "Flows of January · graphquilt"
        assert page.locator("#alert-detail table tbody tr").count() >= 5, "the components of the first alert"
        boxes = [box.bounding_box() for box in page.locator("#timeline-content svg > text[text-anchor=middle]").all()]
        assert len(boxes) >= 2
        for left, right in itertools.pairwise(boxes):
            assert left["x"] + left["width"] <= right["x"], "dates do not collide"
        ticks = page.locator("#timeline-content svg > text[text-anchor=end]").all_text_contents()
        assert all(float(tick.replace(",", "")).is_integer() for tick in ticks)
        page.locator("#timeline-content g.bar").nth(40).click()
        assert "2024-02-10" in page.locator("#alert-tools").inner_text()
        page.get_by_role("button", name="all windows").click()
        page.locator("#alert-tools input").fill("no such host")
        assert "0 of" in page.locator("#alert-tools").inner_text()
        page.locator("#alert-tools input").fill("")
        page.get_by_role("radio", name="destinations").click()
        page.locator("#alert-table tbody tr").first.click()
        assert "as destination" in page.locator("#alert-detail h3").inner_text()
        page.locator("#host-tools input").fill("host-39")
        page.keyboard.press("Enter")
        assert page.locator("#host-detail h3").inner_text() == "host-39.example"
        assert page.locator("#host-detail svg").count() == 1
        page.locator("#host-tools input").fill("onerror")
        page.keyboard.press("Enter")
        assert page.locator("#host-detail h3").inner_text() == HOSTILE
        assert page.locator("#left-out-content tbody tr").count() == 1
        assert "windows were judged" in page.locator("#judged-content").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (
            "nothing is wider than the page"
        )
        seen.picture(f"anomaly-{width}", full_page=True)
