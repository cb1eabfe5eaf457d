"""The built documentation in a real browser: every page, light and dark, wide and narrow, its links, and its search."""

import functools
import http.server
import os
import threading
from pathlib import Path
from urllib.parse import unquote

import pytest

from browser import chromium

pytestmark = pytest.mark.browser
SITE = Path(os.environ.get("GRAPHQUILT_SITE") or Path(__file__).parents[1] / "build" / "site")
FIRST = {  # the page that each word of a newcomer must find first
    "start.html": ["install", "resume", "weights", "node ids", "csv", "parquet", "neighbours"],
    "embedders.html": ["GPU", "directed"],
    "how-to/larger-than-memory.html": ["memory"],
    "how-to/links.html": ["link prediction"],
    "how-to/clusters.html": ["dask", "slurm"],
    "how-to/new-nodes.html": ["new nodes"],
    "how-it-works/federated-privacy.html": ["privacy"],
    "anomaly.html": ["anomaly", "zeek"],
    "federated.html": ["federated"],
    "evaluation.html": ["evaluate"],
    "index.html": ["cite"],
}
LOOK = """() => ({
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  scheme: document.body.dataset.mdColorScheme,
  ids: [...document.querySelectorAll("[id]")].map(e => e.id),
  links: [...document.querySelectorAll("[href], [src]")].map(e => e.href || e.src),
})"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    if not (SITE / "index.html").is_file():
        pytest.skip("the documentation is not built; make docs builds it, or GRAPHQUILT_SITE says where it is")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)])
def test_every_page_is_quiet_fits_and_links_to_what_exists(address, scheme, width):
    wrong, seen = [], {}
    with chromium() as browser:
        page = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
        page.on("console", lambda message: wrong.append(f"{page.url}: {message.text}"))  # a 404 is said there too
        page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
        page.on("request", lambda r: None if r.url.startswith((address, "data:", "blob:")) else wrong.append(r.url))
        for path in sorted(SITE.rglob("*.html")):
            page.goto(address + path.relative_to(SITE).as_posix())
            seen[path] = page.evaluate(LOOK)
    for path, look in seen.items():
        assert (look["overflow"], look["scheme"]) == (0, {"light": "default", "dark": "slate"}[scheme]), path
        for link in (link for link in look["links"] if link.startswith(address)):
            name, _, anchor = unquote(link.removeprefix(address)).partition("#")
            target = SITE / (name.partition("?")[0] or "index.html")
            if not target.exists() or (anchor and anchor not in seen[target]["ids"]):
                wrong.append(f"{path}: {link}")
    assert wrong == []


def test_the_search_helps_with_what_newcomers_type(address):
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for expected, words in FIRST.items():
            for word in words:
                page.goto(f"{address}index.html?q={word}")
                first = page.locator(".md-search-result__link").first.get_attribute("href")
                assert first.removeprefix(address).partition("?")[0].partition("#")[0] == expected, (word, first)
