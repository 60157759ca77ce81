"""The report in a real browser. Needs the extra `browser` and an installed Chromium."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from report_runs import make_report_run
from view_pages import SCHEMES, SIZES, check_layout, needs_browser

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


def test_runs_side_by_side_lead_to_each_runs_pages(tab: Any, site: Path) -> None:
    tab.goto((site / "runs.html").as_uri())
    said = tab.inner_text("main")
    assert "2 seeds pooled" in said and "rl.lr" in said
    tab.locator("#results tr", has_text="b").locator("a").first.click()
    tab.wait_for_selector(".list", state="attached")
    assert tab.url.startswith((site / "b" / "view.html").as_uri())


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
