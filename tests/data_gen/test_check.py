"""`assay tasks check` compares what each family says two splits must not share."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from own_families import family_file
from table_copies import homes

from assay import main
from assay.task import Task, write_jsonl

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


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


# --- tables and lakes, whose content stands in files ------------------------------------------


def table_task(folder: Path, frame: Any, name: str = "train.csv", **how: Any) -> Path:
    """A tasks file with one table task, whose data lies beside it."""
    (folder / "data").mkdir(parents=True)
    frame.to_csv(folder / "data" / name, index=False, **how)
    own = task(f"{folder.name}:MM", "table", TABLE, "Predict the price.")
    own = replace(own, files={name: f"data/{name}"})
    write_jsonl(folder / "tasks.jsonl", [own.to_json()])
    return folder / "tasks.jsonl"


def lake_task(folder: Path, frame: Any, asked: str, name: str) -> Path:
    """A tasks file with one question over a lake of one table."""
    (folder / "lake").mkdir(parents=True)
    frame.to_csv(folder / "lake" / name, index=False)
    own = task(f"{folder.name}-1", "answer", LAKE, asked, gold_files=[name])
    write_jsonl(
        folder / "tasks.jsonl",
        [replace(own, files={"lake": str(folder / "lake")}).to_json()],
    )
    return folder / "tasks.jsonl"


def compare(capsys: pytest.CaptureFixture[str], one: Path, two: Path, *more: str) -> dict[str, Any]:
    capsys.readouterr()
    code = main(["tasks", "check", str(one), "--against", str(two), "--json", *more])
    found = json.loads(capsys.readouterr().out)
    assert code == int(not found["ok"])
    return found


@pytest.mark.parametrize(
    "sort",
    [
        "identical",
        "sorted",
        "reordered",
        "renamed",
        "reformatted",
        "sampled",
        "another file name",
        "relabelled",
    ],
)
def test_copies_of_table_tasks_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sort: str
) -> None:
    frame = homes(1)
    one = table_task(tmp_path / "one", frame)
    made: dict[str, tuple[Any, dict[str, Any]]] = {
        "identical": (frame, {}),
        "sorted": (frame.sort_values("Price"), {}),
        "reordered": (frame[frame.columns[::-1]], {}),
        "renamed": (frame.rename(columns={"Area": "a", "Price": "b"}), {}),
        "reformatted": (frame, {"sep": ";", "decimal": ","}),
        "sampled": (frame.sample(frac=0.8, random_state=1), {}),
        "another file name": (frame, {"name": "x.csv"}),
        "relabelled": (
            frame.assign(
                Street=pd.factorize(frame["Street"])[0],
                Sold=pd.factorize(frame["Sold"])[0],
                Price=frame["Price"] / 1000,
            ).sample(frac=0.9, random_state=2),
            {},
        ),
    }
    copy, how = made[sort]
    found = compare(capsys, one, table_task(tmp_path / "two", copy, **how))
    assert found["tables"] == {"shared": 1, "examples": [["one:MM", "two:MM", 1.0]]}
    other = compare(capsys, one, table_task(tmp_path / "other", homes(2)))
    assert other["ok"] and other["tables"]["shared"] == 0  # the same file name, question and truth


def test_copies_of_lakes_and_near_questions_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = lake_task(tmp_path / "one", homes(1), "How many?", "homes.csv")
    copy = lake_task(tmp_path / "two", homes(1).sort_values("Area"), "Which one?", "villas.csv")
    found = compare(capsys, one, copy)
    assert found["tables"]["shared"] == 1 and found["contents"]["exact"] == 0
    asked = "What is the mean price of the houses that were sold in the streets of the old town"
    one = lake_task(tmp_path / "three", homes(3), asked, "homes.csv")
    near = lake_task(tmp_path / "four", homes(4), f"{asked} then", "homes.csv")
    found = compare(capsys, one, near)
    assert found["tables"]["shared"] == 0 and found["contents"]["near"] == 1


def texts(folder: Path, name: str, numbers: range) -> Path:
    """Refinement tasks, each over a text of its own."""
    rows: list[Task] = []
    for i in numbers:
        draw = random.Random(i)
        words = [f"w{draw.randrange(10**6)}" for _ in range(40)]
        gold = {"input_text": " ".join(words), "status": "KEEP", "text": " ".join(words[1:])}
        rows.append(task(f"{name}{i}", "refinement", gold, "x", document=f"d{i}"))
    path = folder / f"{name}.jsonl"
    write_jsonl(path, (row.to_json() for row in rows))
    return path


def test_pieces_and_processes_give_the_same_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from data_gen import check as module

    one, two = texts(tmp_path, "a", range(700)), texts(tmp_path, "b", range(500, 1300))
    whole = compare(capsys, one, two)
    assert whole["contents"]["exact"] == whole["inputs"]["exact"] == 200
    assert whole["shared_documents"] == 200 and whole["against"] == 800
    pieces = compare(capsys, one, two, "--memory", "0.0001")  # about 100 KB: several passes
    assert pieces == whole
    monkeypatch.setattr(module, "LARGE", 0)
    assert compare(capsys, one, two, "--workers", "2") == whole


def test_a_row_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = texts(tmp_path, "a", range(3))
    (tmp_path / "b.jsonl").write_text(one.read_text() + "{nonsense\n")
    assert main(["tasks", "check", str(one), "--against", str(tmp_path / "b.jsonl")]) == 2
    assert "b.jsonl line 4: not valid JSON" in capsys.readouterr().err
