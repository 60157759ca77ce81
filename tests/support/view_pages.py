"""Pages of `assay view` and `assay report`: read without a browser, and opened in a real one.

`browser` and `tab` are fixtures; `tests/train/conftest.py` makes them known.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
]
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
SIZES = pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])


class Elements(HTMLParser):
    """Every start tag with its attributes, as a browser's parser meets them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(page)
    return parser.found


def index_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="index">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def unpacked(text: str) -> list[Any]:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def items_of(page: str, kind: str) -> list[Any]:
    """All bodies of a kind, in order."""
    chunks = re.findall(rf'<script type="text/plain" id="{kind}-\d+">(.*?)</script>', page)
    return [item for chunk in chunks for item in unpacked(chunk)]


def needs_browser() -> list[pytest.MarkDecorator]:
    """The marks of a module of browser tests, which is skipped where playwright is missing."""
    pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
    return [
        pytest.mark.slow,
        pytest.mark.skipif(CHROMIUM is None, reason="needs an installed Chromium"),
    ]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A running browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as library:
        started = library.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield started
        started.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A page whose console must stay silent."""
    context = browser.new_context(viewport=WIDE)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    context.close()
    assert said == []


def check_layout(tab: Any, name: str, full_page: bool = False) -> None:
    """Nothing stands over the edge, and axe finds no fault. `$ASSAY_SHOTS` is a folder for
    pictures; `$ASSAY_AXE` is axe.min.js of the npm package axe-core, without which the test is
    skipped after the layout was checked."""
    assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    if folder := os.environ.get("ASSAY_SHOTS"):
        tab.screenshot(path=Path(folder) / f"{name}.png", full_page=full_page)
    axe = os.environ.get("ASSAY_AXE", "")
    if not axe:
        pytest.skip("ASSAY_AXE names no axe.min.js; the layout alone was checked")
    tab.evaluate(Path(axe).read_text(encoding="utf-8"))
    found = tab.evaluate("axe.run(document)")["violations"]
    assert [(v["id"], [n["html"][:120] for n in v["nodes"]][:3]) for v in found] == []
