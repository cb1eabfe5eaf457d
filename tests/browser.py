"""Open a page in Debian's chromium through Playwright, and record all that it says and asks for."""

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_REMEDY = "make test-browser installs it where it can (Debian: apt-get install chromium)"


@contextlib.contextmanager
def chromium():
    """Yield a running browser; skip, with one line that says what is missing, where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason=f"the browser tests need playwright; {_REMEDY}")
    program = os.environ.get("GRAPHQUILT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip(f"the browser tests need chromium; {_REMEDY}")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Opened:
    """A page that is open: what it wrote to the console, its errors, and the addresses that it asked for."""

    page: object
    console: list = field(default_factory=list)
    requests: list = field(default_factory=list)

    def picture(self, name, **options):
        """Keep a screenshot where GRAPHQUILT_SCREENSHOTS says; nobody looks at it elsewhere."""
        folder = os.environ.get("GRAPHQUILT_SCREENSHOTS")
        picture = self.page.screenshot(**options)
        assert len(picture) > 5000  # a page that stays empty is smaller
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            Path(folder, f"{name}.png").write_bytes(picture)


@contextlib.contextmanager
def opened(browser, path, *, width=1280, height=900, scheme="light"):
    """Open a file; when the block ends, nothing must be in the console, and only the file was asked for."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    result = Opened(context.new_page())
    page, address = result.page, Path(path).absolute().as_uri()
    page.on("console", lambda message: result.console.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: result.console.append(f"error: {error}"))
    page.on("request", lambda request: result.requests.append(request.url))
    page.on("dialog", lambda dialog: (result.console.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    try:
        page.goto(address)
        page.wait_for_timeout(150)  # for the pictures, which are drawn once their width is known
        yield result
        assert result.console == []
        assert {url.partition("#")[0] for url in result.requests} == {address}
    finally:
        context.close()


def under(page, canvas, text):
    """Move the pointer over a canvas until the tooltip has this text; return the place."""
    box = page.locator(canvas).bounding_box()
    for row in range(2, 39):
        for column in range(2, 39):
            x, y = box["x"] + box["width"] * column / 40, box["y"] + box["height"] * row / 40
            page.mouse.move(x, y)
            tooltip = page.locator("#tooltip")
            if tooltip.count() and tooltip.is_visible() and text in tooltip.inner_text():
                return x, y
    raise AssertionError(f"no place of {canvas} has a tooltip with {text!r}")
