"""The report in a real browser. Needs the extra `browser` and an installed Chromium."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from report_runs import make_report_run
from view_pages import SCHEMES, SIZES, WIDE, check_layout, needs_browser

from train.report.write import write_several

pytestmark = needs_browser()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs `a` and `b` (seeds of one setting) and `c` (another one), and a page of all three."""
    folder = tmp_path_factory.mktemp("reports")
    runs = [
        make_report_run(folder / "a"),
        make_report_run(folder / "b", seed=1),
        make_report_run(folder / "c", lr=2e-5),
    ]
    data = [json.loads((run / "results.json").read_text()) for run in runs]
    write_several(dict(zip(runs, data, strict=True)))
    return folder


def followed(tab: Any, page: Path, row: str, column: int, table: str) -> str:
    """What the viewer counts behind the number in a row and column of a table."""
    tab.goto(page.as_uri())
    link = tab.locator(f"section#{table} tr", has=tab.locator(f"td:text-is('{row}')")).first
    link.locator("td").nth(column).locator("a").click()
    tab.wait_for_selector(".list", state="attached")
    return tab.inner_text(".count")


def test_a_number_opens_the_rollouts_behind_it(tab: Any, site: Path) -> None:
    page = site / "a" / "report.html"
    assert followed(tab, page, "rl", 2, "held-out-results").startswith("8 rollouts (8 of")
    gained = followed(tab, page, "sft → rl", 6, "what-each-stage-changed")
    assert gained == "4 tasks"
    lost = followed(tab, page, "sft → rl", 7, "what-each-stage-changed")
    assert lost == "1 task"
    assert followed(tab, page, "ok", 2, "how-answers-ended").startswith("4 rollouts")
    by_slice = followed(tab, page, "gold status = DROP", 3, "slices")
    assert by_slice.startswith("4 rollouts")


def test_every_count_is_the_number_of_rollouts_that_it_opens(tab: Any, site: Path) -> None:
    page = site / "a" / "report.html"
    tab.goto(page.as_uri())
    links = tab.locator("#how-answers-ended td a, #gold-against-answer td a")
    found = [(a.inner_text(), a.get_attribute("href")) for a in links.all()]
    assert len(found) > 12
    for text, address in found:
        tab.goto("about:blank")
        tab.goto(f"{page.parent.as_uri()}/{address}")
        tab.wait_for_selector(".list", state="attached")
        assert tab.inner_text(".count").split()[0] == text.split()[0], address


def test_a_point_of_a_curve_opens_its_step(tab: Any, site: Path) -> None:
    tab.goto((site / "a" / "report.html").as_uri())
    tab.locator("#training svg a").first.click()
    tab.wait_for_selector(".list", state="attached")
    assert tab.input_value("#pick-step") == "1"
    assert tab.inner_text(".count").startswith("16 rollouts")


def test_the_keyboard_reaches_links_and_folded_parts(tab: Any, site: Path) -> None:
    tab.goto((site / "a" / "report.html").as_uri())
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.getAttribute('href')") == "#held-out-results"
    tab.focus("#training summary")
    tab.keyboard.press("Enter")
    assert tab.is_visible("#training details table")
    tab.focus("#slices .scroll")  # a table that is wider than the screen is scrolled by keys


def test_runs_side_by_side_lead_to_each_runs_pages(tab: Any, site: Path) -> None:
    tab.goto((site / "runs.html").as_uri())
    said = tab.inner_text("main")
    assert "2 seeds pooled" in said and "rl.lr" in said
    tab.locator("#results tr", has_text="b").locator("a").first.click()
    tab.wait_for_selector(".list", state="attached")
    assert tab.url.startswith((site / "b" / "view.html").as_uri())


def test_print_is_black_on_white_without_contents(browser: Any, site: Path) -> None:
    context = browser.new_context(viewport=WIDE, color_scheme="dark")
    tab = context.new_page()
    tab.goto((site / "a" / "report.html").as_uri())
    tab.emulate_media(media="print")
    assert not tab.is_visible("nav") and tab.is_visible("#slices table")
    colours = (
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert tab.evaluate(colours) == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    context.close()


@SCHEMES
@SIZES
@pytest.mark.parametrize("page", ["a/report.html", "runs.html"])
def test_nothing_stands_over_the_edge_and_axe_finds_no_fault(
    browser: Any, site: Path, scheme: str, size: dict[str, int], page: str
) -> None:
    with closing(browser.new_context(viewport=size, color_scheme=scheme)) as context:
        tab = context.new_page()
        tab.goto((site / page).as_uri())
        check_layout(tab, f"{page.replace('/', '_')}-{scheme}-{size['width']}", full_page=True)
