"""The pages of `assay view` and `assay report` in a real browser. Needs the extra `browser` and an
installed Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from report_runs import make_report_run
from small_run import EVIL, make_run

from train.view.book import bind, open_runs
from train.view.page import write_page

playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
SIZES = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs an installed Chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A running browser."""
    with playwright.sync_playwright() as library:
        started = library.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A page whose console must stay silent."""
    context = browser.new_context(viewport=SIZES[0])
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    context.close()
    assert said == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`one.html` of a run, `folder/` of the same, and the report of a run in `report/`."""
    folder = tmp_path_factory.mktemp("site")
    make_run(folder / "run", tasks=12)
    for out in ("one.html", "folder"):
        (run,) = open_runs([folder / "run"])
        run.refresh()
        write_page(bind([run], out), folder / out)
    make_report_run(folder / "report")
    return folder


def opened(tab: Any, path: Path, fragment: str = "") -> Any:
    tab.goto(path.as_uri() + (f"#{fragment}" if fragment else ""))
    tab.wait_for_selector(".list", state="attached")
    return tab


def test_a_link_opens_exactly_its_rollout_and_texts_stay_text(tab: Any, site: Path) -> None:
    opened(tab, site / "one.html")
    assert tab.inner_text(".count") == "144 rollouts"
    tab.wait_for_selector("text=Went wrong at step 2: clean_email_mapper")  # the first failure
    opened(tab, site / "one.html", f"/training/3/{quote('t/11', safe='')}/2")
    tab.wait_for_selector("h2 >> text=t/11")
    assert "step 3 · sample 2" in tab.inner_text(".detail header")
    assert tab.inner_text(".line.on .name") == "t/11 #2"
    opened(tab, site / "folder" / "index.html", f"/training/2/{quote('t/5', safe='')}/1")
    tab.wait_for_selector("text=Went wrong at step 2: clean_email_mapper")
    tab.evaluate("location.hash = '/training/9/none/0'")
    tab.wait_for_selector("text=This page has no rollout")
    opened(tab, site / "one.html", f"/training/1/{quote('t/0', safe='')}/3")
    tab.wait_for_selector("text=No step can be named")
    assert tab.title() == "one.html" and EVIL in tab.inner_text(".detail")
    assert tab.evaluate("document.querySelectorAll('.detail img, .detail script').length") == 0


PAGES = {"one.html#/training/1/t%2F0/1": ".detail .tag", "report/report.html": "main"}


def test_nothing_stands_over_the_edge_and_axe_finds_no_fault(browser: Any, site: Path) -> None:
    """`$ASSAY_AXE` is axe.min.js of the npm package axe-core, without which the layout alone is
    looked at."""
    axe = Path(os.environ.get("ASSAY_AXE", ""))
    for page, size, scheme in product(PAGES, SIZES, ("light", "dark")):
        with closing(browser.new_context(viewport=size, color_scheme=scheme)) as context:
            tab = context.new_page()
            tab.goto(f"{site.as_uri()}/{page}")
            tab.wait_for_selector(PAGES[page])
            assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            if axe.is_file():
                tab.evaluate(axe.read_text(encoding="utf-8"))
                found = tab.evaluate("axe.run(document)")["violations"]
                assert [(v["id"], v["nodes"][0]["html"][:120]) for v in found] == []
