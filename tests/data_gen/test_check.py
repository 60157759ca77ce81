"""`assay tasks check` compares what each family says two splits must not share."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from own_families import family_file

from assay import main
from rewards import families
from rewards.task import Task, write_jsonl


@pytest.fixture(autouse=True)
def no_other_family(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(families, "_added", {})
    yield
    os.environ.pop(families.VARIABLE, None)


TRUTH = "row_id,y\n" + "".join(f"{i},{i * 37 % 11 / 7:.4f}\n" for i in range(1, 25))
TABLE: dict[str, Any] = {"task_type": "reg-MM", "truth_csv": TRUTH, "key_columns": ["row_id"]}
LAKE: dict[str, Any] = {"answer_type": "numeric_exact", "answer": 3}


def task(name: str, family: str, gold: dict[str, Any], asked: str, **meta: Any) -> Task:
    return Task(name, family, "t", "s", [{"role": "user", "content": asked}], gold, meta=meta)


def check(folder: Path, one: Task, two: Task, *words: str) -> int:
    for name, row in (("one", one), ("two", two)):
        write_jsonl(folder / f"{name}.jsonl", [row.to_json()])
    files = [str(folder / "one.jsonl"), "--against", str(folder / "two.jsonl")]
    return main(["tasks", "check", *files, *words])


QUESTION = "How many of the stations along the river reported rain in June of that year"
CASES = [
    (task("a", "table", TABLE, "x"), task("b", "table", TABLE, "y"), 1, 0),
    (
        task("a", "table", TABLE, "x"),
        task("b", "table", TABLE | {"truth_csv": "row_id,y\n1,2\n"}, "x"),
        0,
        0,
    ),
    (task("a", "answer", LAKE, QUESTION), task("b", "answer", LAKE, f"{QUESTION}  "), 1, 1),
    (
        task("a", "answer", LAKE, f"{QUESTION} and the next one and the one after it"),
        task("b", "answer", LAKE, f"{QUESTION} and the next one and the one after it or so"),
        0,
        1,
    ),
    (
        task("a", "answer", LAKE, "What?", tables=["digest"]),
        task("b", "answer", LAKE, "Which?", tables=["digest"]),
        1,
        0,
    ),
    (task("a", "answer", LAKE, "What?"), task("b", "answer", LAKE, "Which?"), 0, 0),
]


@pytest.mark.parametrize(("one", "two", "exact", "near"), CASES)
def test_every_family_is_compared_by_its_content(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    one: Task,
    two: Task,
    exact: int,
    near: int,
) -> None:
    assert check(tmp_path, one, two, "--json") == int(exact + near > 0)
    found = json.loads(capsys.readouterr().out)["contents"]
    assert found["exact"] == exact
    assert (found["near"] >= 1) == (near == 1) or one.family == "table"
    if exact:
        assert found["examples"][0][:2] == ["a", "b"]


def test_own_families_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = task("a", "reverse", {"text": "x"}, "Reverse: x")
    same = replace(own, id="b")
    assert check(tmp_path, own, same) == 2
    assert "add yours with --family FILE.py" in capsys.readouterr().err
    path = str(family_file(tmp_path))
    assert check(tmp_path, own, same, "--family", path, "--out", str(tmp_path / "c.json")) == 1
    assert "contents: 1 of 1 exact" in capsys.readouterr().out
    assert json.loads((tmp_path / "c.json").read_text())["ok"] is False
    other = task("b", "reverse", {"text": "x"}, "Reverse: y")
    assert check(tmp_path, own, other, "--family", path) == 0
