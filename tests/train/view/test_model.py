"""The page's own functions, run by node on an index: filters, order, groups, pairs and links."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest
from places import ROOT
from small_run import make_evaluation, make_run

from train.view.book import Book, bind, open_runs
from train.view.sources import fragment, list_fragment

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")
ASSETS = ROOT / "train" / "view" / "assets"


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("runs")
    tasks = make_run(folder / "a")
    make_evaluation(folder / "b", tasks[:3], which=0)
    make_evaluation(folder / "c", tasks, which=1)
    runs = open_runs([folder / name for name in "abc"])
    for run in runs:
        run.refresh()
    return bind(runs, "test")


def js(book: Book, expression: str, **given: Any) -> Any:
    """The value of an expression over `ix`, in node."""
    script = (ASSETS / "model.js").read_text(encoding="utf-8")
    values = json.dumps({"ix": book.index, **given})
    script += f"\nconst {{ {', '.join(['ix', *given])} }} = {values};"
    script += f"\nprocess.stdout.write(JSON.stringify({expression}));"
    done = subprocess.run(
        [str(NODE), "-"], input=script, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def picked(book: Book, **filters: Any) -> list[int]:
    whole = {"pick": {}, "part": "", "partIs": "", "text": "", **filters}
    return js(book, "filterRows(ix, f, {row: [], task: []})", f=whole)


def test_filters_find_the_rows_that_python_finds(book: Book) -> None:
    rows = book.rollouts
    for field in ("why", "stop", "wrong"):
        for value in {getattr(r, field) for r in rows}:
            wanted = [i for i, r in enumerate(rows) if getattr(r, field) == value]
            assert picked(book, pick={field: value or "\0none"}) == wanted
    assert picked(book, pick={"step": "2"}) == [i for i, r in enumerate(rows) if r.step == 2]
    right = [i for i, r in enumerate(rows) if r.outcome == 1.0]
    assert picked(book, pick={"outcome": "right"}) == right
    mail = [i for i, r in enumerate(rows) if r.task[0] in ("t/1", "t/3")]
    assert picked(book, pick={"slice:domain": "mail", "why": ""}) == mail
    assert picked(book, text="t/1") == [i for i, r in enumerate(rows) if r.task[0] == "t/1"]
    low = [i for i, r in enumerate(rows) if r.parts.get("rs", 1.0) < 0.5]
    assert picked(book, part="rs", partIs="low") == low


def test_the_first_failure_is_wrong_or_partly_right_or_without_an_outcome(book: Book) -> None:
    def first(*outcomes: float | None) -> int | None:
        some = {**book.index, "rows": {**book.index["rows"], "outcome": list(outcomes)}}
        return js(Book([], [], some), "firstFailure(ix, ix.rows.outcome.map((_, i) => i)) ?? null")

    assert [first(1, 0.5, 0), first(1, None, 0), first(1, None), first(1, 1)] == [1, 2, 1, None]


def test_pairs_are_tasks_that_both_sets_answer(book: Book) -> None:
    assert [s["key"] for s in book.index["sets"]] == ["a:training", "b:evaluation", "c:evaluation"]
    pairs = js(book, "pairTasks(ix, 1, 2)")
    assert [(p["id"], p["outcomes"], p["moved"]) for p in pairs] == [
        (f"t/{n}", [1, 0], "down") for n in range(3)
    ]
    assert pairs[0]["differs"] == {"outcome": True, "reward": True, "answer": True}
    assert {p["moved"] for p in js(book, "pairTasks(ix, 2, 1)")} == {"up"}


def test_the_trend_follows_the_filter_and_the_log(book: Book) -> None:
    lines = js(book, "trend(ix, ix.rows.task.map((_, i) => i), false)")
    points = lines[0]["points"]
    assert [p["step"] for p in points] == [1, 2, 3, 4]
    assert points[3] == {"step": 4, "count": 0, "reward": 0.4, "outcome": 0.2}
    rows = [r for r in book.rollouts if r.step == 1]
    assert points[0]["outcome"] == pytest.approx(sum(r.outcome or 0 for r in rows) / len(rows))
    only = js(book, "trend(ix, rows, true)", rows=picked(book, pick={"why": "ok"}))
    assert [p["outcome"] for p in only[0]["points"]] == [1, 1, 1]


def test_every_rollout_has_a_link_of_its_own_and_pythons_is_the_same(book: Book) -> None:
    found = js(book, "links(ix)")
    assert len(set(found)) == len(found)
    for link, rollout, number in zip(found, book.rollouts, book.index["rows"]["set"], strict=True):
        key = book.index["sets"][number]["key"]
        assert link == fragment(key, rollout.step, rollout.task[0], rollout.sample)
    odd = "a b/ü'(!)*~\ud83d\ude00 \ud800#?%"
    name = odd.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert js(book, "quoted(odd)", odd=odd) == fragment(name, None, "t", 0).split("/")[1]


def test_no_script_writes_markup() -> None:
    for path in ASSETS.iterdir():
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in path.read_text("utf-8"), f"{path.name} uses {word}"


def test_an_address_names_a_list_and_is_read_as_it_was_written(book: Book) -> None:
    address = list_fragment({"why": "wrong_text", "slice:domain": "mail & <b>"})
    script = (ASSETS / "address.js").read_text(encoding="utf-8")
    read = f"(() => {{ {script}\n return listOf(ix, address); }})()"
    found = js(book, read, address=address.removeprefix("?"))
    assert found["filter"]["pick"] == {"why": "wrong_text", "slice:domain": "mail & <b>"}
    assert (found["mode"], found["sides"]) == ("rollouts", None)
    keys = [s["key"] for s in book.index["sets"]]
    pairs = js(book, read, address=f"left={keys[1]}&right={keys[2]}&differ=down")
    assert (pairs["mode"], pairs["sides"], pairs["differ"]) == ("pairs", [1, 2], "down")
