"""The page in a real browser. Needs the extra `browser` and an installed Chromium."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from small_run import EVIL, answers, evaluation_rows, line, make_evaluation, make_run, refinement
from view_pages import SCHEMES, SIZES, check_layout, needs_browser

from assay.task import json_line, write_jsonl
from train.view import serve
from train.view.book import bind, open_runs
from train.view.page import write_page
from train.view.serve import Followed, Server

pytestmark = needs_browser()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`one.html` of a run, `two.html` of two evaluations, `folder/`."""
    folder = tmp_path_factory.mktemp("site")
    tasks = make_run(folder / "run", tasks=12)
    make_evaluation(folder / "a", tasks, which=0)
    make_evaluation(folder / "b", tasks, which=0)
    rows = evaluation_rows(tasks, 0)[:10] + evaluation_rows(tasks, 1)[10:]
    write_jsonl(folder / "b" / "rows.jsonl", rows)
    for out, names in (
        ("one.html", ["run"]),
        ("two.html", ["a", "b", "run"]),
        ("folder", ["run"]),
    ):
        runs = open_runs([folder / name for name in names])
        for run in runs:
            run.refresh()
        write_page(bind(runs, out), folder / out)
    return folder


def tool_row() -> dict[str, Any]:
    task = refinement(0)
    call = (
        '<tool_call>\n{"name": "python", "arguments": {"code": "x = 1\\nprint(x)"}}\n</tool_call>'
    )
    messages = [
        *task.prompt,
        {"role": "assistant", "content": f"I look.\n{call}"},
        {"role": "tool", "name": "python", "content": '{"Error": "no module"}'},
        {"role": "assistant", "content": answers(task)[0]},
    ]
    record = {"name": "python", "kind": "run_error", "seconds": 0.25, "turn": 0}
    return line(task, 0, answers(task)[0], messages=messages) | {"tool_calls": [record]}


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
    monkeypatch.setattr(serve, "_PAUSE", 0.0)
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


@SCHEMES
@SIZES
@pytest.mark.parametrize(
    ("page", "fragment"),
    [
        ("one.html", ""),
        ("one.html", "/training/1/t%2F0/1"),
        ("two.html", "~/t%2F10"),
    ],
)
def test_nothing_stands_over_the_edge_and_axe_finds_no_fault(
    browser: Any, site: Path, scheme: str, size: dict[str, int], page: str, fragment: str
) -> None:
    with closing(browser.new_context(viewport=size, color_scheme=scheme)) as context:
        tab = opened(context.new_page(), site / page, fragment)
        if fragment:
            tab.wait_for_selector(".detail .tag")
            tab.wait_for_selector(".detail pre", state="attached")
        else:
            tab.wait_for_selector(".line")
        check_layout(tab, f"{page}{fragment.replace('/', '_')}-{scheme}-{size['width']}")
