"""The pages of `assay view` and `assay report` in a real browser. Needs the extra `browser` and an
installed Chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from report_runs import make_report_run
from small_run import EVIL, evaluation_rows, line, make_evaluation, make_run, refinement

from assay.task import json_line, write_jsonl
from train.report.write import write_several
from train.view.book import bind, open_runs
from train.view.page import Followed, Server, write_page

playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
]
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs an installed Chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A running browser."""
    with playwright.sync_playwright() as library:
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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`one.html` of a run, `two.html` of two evaluations, `folder/`; in
    `reports/` runs, two of them seeds of one setting, and their page."""
    folder = tmp_path_factory.mktemp("site")
    tasks = make_run(folder / "run", tasks=12)
    make_evaluation(folder / "a", tasks, which=0)
    make_evaluation(folder / "b", tasks, which=0)
    rows = evaluation_rows(tasks, 0)[:10] + evaluation_rows(tasks, 1)[10:]
    write_jsonl(folder / "b" / "rows.jsonl", rows)
    for out, names in (("one.html", ["run"]), ("two.html", ["a", "b", "run"]), ("folder", ["run"])):
        runs = open_runs([folder / name for name in names])
        for run in runs:
            run.refresh()
        write_page(bind(runs, out), folder / out)
    reports = [
        make_report_run(folder / "reports" / "a"),
        make_report_run(folder / "reports" / "b", seed=1),
        make_report_run(folder / "reports" / "c", lr=2e-5),
    ]
    data = [json.loads((run / "results.json").read_text()) for run in reports]
    write_several(dict(zip(reports, data, strict=True)))
    return folder


def opened(tab: Any, path: Path, fragment: str = "") -> Any:
    tab.goto(path.as_uri() + (f"#{fragment}" if fragment else ""))
    tab.wait_for_selector(".list", state="attached")
    return tab


def count(tab: Any) -> str:
    return tab.inner_text(".count")


def test_a_page_from_a_file_opens_and_the_keyboard_walks_through_it(tab: Any, site: Path) -> None:
    opened(tab, site / "one.html")
    assert count(tab) == "144 rollouts"
    tab.wait_for_selector("text=Went wrong at step 2: clean_email_mapper")
    assert tab.evaluate("location.hash") == "#/training/1/t%2F0/1"  # the first failure
    tab.keyboard.press("k")
    tab.wait_for_selector("text=Status and text are those of gold.")
    tab.keyboard.press("j")
    tab.wait_for_selector("text=Went wrong at step 2: clean_email_mapper")
    tab.keyboard.press("k")
    tab.wait_for_selector("text=Status and text are those of gold.")
    tab.keyboard.press("?")
    assert tab.is_visible("#help")
    tab.keyboard.press("Escape")
    assert not tab.is_visible("#help")
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "search"
    tab.keyboard.press("Escape")
    assert tab.evaluate("document.activeElement.id") != "search"


def test_a_link_opens_exactly_its_rollout(tab: Any, site: Path) -> None:
    opened(tab, site / "one.html", f"/training/3/{quote('t/11', safe='')}/2")
    tab.wait_for_selector("h2 >> text=t/11")
    assert "step 3 · sample 2" in tab.inner_text(".detail header")
    assert tab.inner_text(".line.on .name") == "t/11 #2"
    opened(tab, site / "folder" / "index.html", f"/training/2/{quote('t/5', safe='')}/1")
    tab.wait_for_selector("text=Went wrong at step 2: clean_email_mapper")
    tab.evaluate("location.hash = '/training/9/none/0'")
    tab.wait_for_selector("text=This page has no rollout")


def test_texts_of_models_stay_text(tab: Any, site: Path) -> None:
    opened(tab, site / "one.html", f"/training/1/{quote('t/0', safe='')}/3")
    tab.wait_for_selector("text=No step can be named")
    assert tab.title() == "one.html"
    assert tab.evaluate("document.querySelectorAll('.detail img, .detail script').length") == 0
    assert EVIL in tab.inner_text(".detail")


def test_a_served_run_goes_on_before_the_readers_eyes(
    tab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("train.view.page._PAUSE", 0.0)
    make_run(tmp_path / "run", steps=1)
    with Server(Followed(open_runs([tmp_path / "run"]), "live")) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            tab.goto(server.url)
            tab.wait_for_selector(".line")
            tab.keyboard.press("j")
            tab.wait_for_selector(".detail h2")
            address = tab.url
            path = tmp_path / "run" / "rollouts" / "step_000002.jsonl"
            path.write_bytes(json_line(line(refinement(0), 0, "new")))
            tab.wait_for_selector("text=17 rollouts", timeout=20_000)
            assert tab.url == address and tab.query_selector(".line.on") is not None
            tab.goto("about:blank")  # no more questions
        finally:
            server.shutdown()
            thread.join()


def test_every_count_is_the_number_of_rollouts_that_it_opens(tab: Any, site: Path) -> None:
    page = site / "reports" / "a" / "report.html"
    tab.goto(page.as_uri())
    links = tab.locator("#how-answers-ended td a, #gold-against-answer td a")
    found = [(a.inner_text(), a.get_attribute("href")) for a in links.all()]
    assert len(found) > 12
    for text, address in found:
        tab.goto("about:blank")
        tab.goto(f"{page.parent.as_uri()}/{address}")
        tab.wait_for_selector(".list", state="attached")
        assert tab.inner_text(".count").split()[0] == text.split()[0], address


def test_runs_side_by_side_lead_to_each_runs_pages(tab: Any, site: Path) -> None:
    tab.goto((site / "reports" / "runs.html").as_uri())
    said = tab.inner_text("main")
    assert "2 seeds pooled" in said and "rl.lr" in said
    tab.locator("#results tr", has_text="b").locator("a").first.click()
    tab.wait_for_selector(".list", state="attached")
    assert tab.url.startswith((site / "reports" / "b" / "view.html").as_uri())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("one.html", ".line"),
        ("one.html#/training/1/t%2F0/1", ".detail .tag"),
        ("two.html#~/t%2F10", ".detail .tag"),
        ("reports/a/report.html", "main"),
        ("reports/runs.html", "main"),
    ],
)
def test_nothing_stands_over_the_edge_and_axe_finds_no_fault(
    browser: Any, site: Path, scheme: str, size: dict[str, int], page: str, shown: str
) -> None:
    """`$ASSAY_SHOTS` is a folder for pictures; `$ASSAY_AXE` is axe.min.js of the npm package
    axe-core, without which the test is skipped after the layout was checked."""
    with closing(browser.new_context(viewport=size, color_scheme=scheme)) as context:
        tab = context.new_page()
        tab.goto(f"{site.as_uri()}/{page}")
        tab.wait_for_selector(shown)
        assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        if folder := os.environ.get("ASSAY_SHOTS"):
            name = f"{re.sub('[^a-z0-9.]', '_', page)}-{scheme}-{size['width']}.png"
            tab.screenshot(path=Path(folder) / name, full_page=shown == "main")
        axe = os.environ.get("ASSAY_AXE", "")
        if not axe:
            pytest.skip("ASSAY_AXE names no axe.min.js; the layout alone was checked")
        tab.evaluate(Path(axe).read_text(encoding="utf-8"))
        found = tab.evaluate("axe.run(document)")["violations"]
        assert [(v["id"], [n["html"][:120] for n in v["nodes"]][:3]) for v in found] == []
