"""Published workloads: read with their irregularities, shown as modes say, each task once,
what a copy lacks left out and said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import front
import pytest
from krama_checkout import make_checkout, task
from krama_data import KRAMA, needs_krama
from places import tables
from small_lake import make_lake

from assay.task import Task, TaskError, read_tasks
from data_gen.krama.cli import build
from data_gen.krama.importer import (
    Entry,
    cleaned,
    entry_of,
    find_copy,
    gathered,
    resolve,
    view_files,
    workload_rows,
)
from rewards.krama.answer import category
from rewards.krama.episode import subtask_credit
from rewards.published import refuse_published

main = front.command("tasks", "krama")
CATEGORIES = tables("krama_build")["categories_of_failure"]
PART = {"query": "Which file?", "answer": ["rain_amherst.csv"], "answer_type": "list_exact"}
ENTRY: dict[str, Any] = {
    **task("small-easy-1", "What is the mean rain in June in Amherst?", 1.5),
    "data_sources": ["RAIN_amherst.csv"],
    "subtasks": [
        PART | {"id": "small-easy-1-1", "data_sources": "./", "step": "Load 'rain_amherst.csv'."},
        PART | {"id": "small-easy-1-1", "task": "Drop summary rows"},
    ],
}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def built(top: Path, mode: Any, *entries: dict[str, Any]) -> Path:
    make_lake(top / "lakes" / "small" / "input")
    build([write(top / "small.json", *(entries or (ENTRY,)))], top / "lakes", top / mode, mode)
    return top / mode


def read_workload(path: Path) -> list[Entry]:
    return [entry_of(row, path, number) for number, row in enumerate(workload_rows(path), 1)]


def test_irregular_entries_are_read(tmp_path: Path) -> None:
    (entry,) = read_workload(write(tmp_path / "small.json", ENTRY))
    assert [s.id for s in entry.steps] == ["small-easy-1-1", "small-easy-1-1b"]
    assert [s.sources for s in entry.steps] == [("./",), ()]
    assert entry.steps[1].step == "Drop summary rows"
    assert cleaned("Expected answer: ['a', 'b']") == ["a", "b"]
    with pytest.raises(TaskError, match=r"small.json task 1: field 'answer' is missing"):
        read_workload(write(tmp_path / "small.json", {"id": "x", "query": "q"}))


def test_sources_are_found_in_any_spelling() -> None:
    files = ["a/State Theft data/Ohio.csv", "a/b/x_2001.csv", "a/b/x_2002.csv", "omni2.text"]
    for sources, found in (
        (["State Theft Data/*.csv"], files[:1]),
        (["State THEFT data/"], files[:1]),
        (["x_200?.csv"], files[1:3]),
        (["omni2.txt", "./", "nothing.csv"], ["omni2.text"]),
    ):
        assert resolve(sources, files) == found, sources


def test_modes_show_what_they_should() -> None:
    files = [f"f{i:02}" for i in range(30)]
    one, many = ["f03"], files[:20]
    trimmed, star = view_files("trimmed", "t", one, files), view_files("oracle*", "t", many, files)
    assert len(trimmed) == 10 and "f03" in trimmed
    assert len(star) == 10 and set(star) < set(many)
    assert star == view_files("oracle*", "t", many[::-1], files)  # by the task alone
    assert star != view_files("oracle*", "u", many, files)
    assert view_files("trimmed", "t", many, files) == many
    assert view_files("oracle", "t", one, files) == one
    assert view_files("oracle*", "t", [], files) == view_files("full", "t", one, files) == files


def test_views_are_links(tmp_path: Path) -> None:
    out = built(tmp_path, "oracle")
    (made,) = read_tasks(out / "tasks.jsonl")
    assert made.files == {"lake": "views/oracle/small-easy-1"}
    (shown,) = (out / made.files["lake"]).iterdir()
    lake = tmp_path / "lakes/small/input/rain_amherst.csv"
    assert shown.name == lake.name and shown.stat().st_ino == lake.stat().st_ino


def test_obscured_names_are_exchanged_everywhere_and_memory_is_called_recalled(
    tmp_path: Path,
) -> None:
    asks = PART | {"id": "p", "query": "Which?", "answer": "Acton", "answer_type": "string_exact"}
    asked = {"id": "small-easy-2", "query": "How many samples has Acton?", "answer": ["Acton", 3]}
    more = {"answer_type": "list_exact", "subtasks": [asks], "data_sources": ["sites.csv"]}
    question = ENTRY | asked | more
    out = built(tmp_path, "obscured", question)
    (made,), (part,) = (read_tasks(out / f"{name}.jsonl") for name in ("tasks", "subtasks"))
    text = (out / made.files["lake"] / "sites.csv").read_text("utf-8")
    assert "Acton" not in made.prompt[1]["content"] + text
    assert text.count(f",{made.gold['answer'][0]},") == 20
    assert made.gold["plain_answer"] == ["Acton", 3] != made.gold["answer"]
    assert part.gold["plain_answer"] == "Acton" != part.gold["answer"]
    assert category(made.gold, ["Acton", 3], 0.5, "ran", "", []) == "recalled"
    assert category(made.gold, ["Acton", 4], 0.0, "ran", "", []) == "other_wrong"
    assert category(made.gold, ["x", 3], 0.5, "ran", "", []) == "partly"


def test_published_and_doubted_tasks_never_train(tmp_path: Path) -> None:
    doubtful = {**ENTRY, "id": "small-hard-2", "status": "not_reproduced"}
    out = built(tmp_path, "full", ENTRY, doubtful)
    tasks, doubted = read_tasks(out / "tasks.jsonl"), read_tasks(out / "doubted.jsonl")
    assert [t.id for t in (*tasks, *doubted)] == ["small-easy-1", "small-hard-2"]
    with pytest.raises(TaskError, match="published"):
        refuse_published(tasks, "x")
    with pytest.raises(TaskError, match="doubted"):
        refuse_published([Task.from_json({**doubted[0].to_json(), "meta": {}})], "x")
    lakes = str(tmp_path / "lakes")
    command = ["--workload", str(tmp_path / "small.json"), "--lakes", lakes, "--out", lakes]
    assert main([*command, "--split", "train"]) == 2


def test_printing_every_number_earns_no_sub_task_credit() -> None:
    steps = [{"answer_type": "numeric_exact", "answer": n} for n in (3, 4)]
    printed = ([4, 4, 3.0], [4, 4, 4], [*range(100, 200), 3, 4])
    assert [subtask_credit(steps, one) for one in printed] == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(("answer", "outcome", "ended", "code", "want"), CATEGORIES)
def test_categories_of_failure(
    answer: Any, outcome: float | None, ended: str, code: str, want: str
) -> None:
    gold = {"answer_type": "numeric_exact", "answer": 12.5}
    assert category(gold, answer, outcome, ended, code, ["d/a.csv"]) == want


@needs_krama
def test_every_visible_workload_is_read_and_its_files_found(tmp_path: Path) -> None:
    data = KRAMA / "data"
    entries = [e for n in ("verified", "other") for e in read_workload(data / f"workload_{n}.json")]
    assert (len(entries), sum(bool(e.doubt) for e in entries)) == (72, 26)
    manifest = build([data / "workload_verified.json"], data / "lake", tmp_path / "k", "full")
    assert manifest["counts"] == {"tasks": 46, "subtasks": 279, "doubted": 0, "doubted_subtasks": 0}
    for made in read_tasks(tmp_path / "k" / "tasks.jsonl"):
        lake = tmp_path / "k" / made.files["lake"]
        assert made.meta["gold_files"]
        assert all((lake / name).is_file() for name in made.meta["gold_files"])


# --- a copy of the release


def test_a_checkout_is_imported_with_its_lakes_left_in_place(tmp_path: Path) -> None:
    """The release's workload folder also has files for a first try: the domains' own files
    decide. Sub-tasks may be shown other files than their task."""
    place, out = make_checkout(tmp_path / "release"), tmp_path / "k"
    words = ["--import", str(place), "--out", str(out), "--strict", "--subtask-mode", "oracle"]
    assert main(words) == 0
    tasks, part = read_tasks(out / "tasks.jsonl"), read_tasks(out / "subtasks.jsonl")[0]
    right = {"environment-easy-1": 2.5, "legal-easy-3": 1.5}
    assert {t.id: t.gold["answer"] for t in tasks} == right
    assert [t.id for t in read_tasks(out / "doubted.jsonl")] == ["legal-hard-1"]
    assert (out / tasks[0].files["lake"]).resolve() == place / "data/environment/input"
    assert (tasks[0].meta["mode"], part.meta["mode"]) == ("full", "oracle")
    assert [p.name for p in (out / part.files["lake"]).iterdir()] == ["rain_amherst.csv"]
    with pytest.raises(TaskError, match="no lakes are beside"):
        find_copy(write(tmp_path / "w.json"))


def test_a_task_in_two_files_is_one_where_neither_says_anything_else(tmp_path: Path) -> None:
    whole = task("east-easy-1", "How many?", 3)
    less = {k: v for k, v in whole.items() if k != "subtasks"}
    one, other = write(tmp_path / "a.json", less), write(tmp_path / "b.json", whole)
    entries, _ = gathered([one, other, other])
    assert [(e.id, len(e.steps)) for e in entries] == [("east-easy-1", 1)]
    third = write(tmp_path / "c.json", whole | {"answer": 4})
    with pytest.raises(TaskError, match=r"is in .*a.json and, with another 'answer', in .*c.json"):
        gathered([one, third])


def test_what_a_copy_lacks_is_left_out_and_said_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, out = make_checkout(tmp_path / "release"), tmp_path / "k"
    (place / "data/environment").rename(place / "data/wildfire")
    known = ["rain_boston.csv", "ZHVI.csv"]  # the release itself lacks the second
    write(place / "workload/wildfire.json", task("wildfire-hard-21", "x?", 1, data_sources=known))
    workload = place / "workload" / "legal.json"
    rows = json.loads(workload.read_text("utf-8"))
    write(workload, *rows, task("legal-easy-4", "x?", 1, data_sources=["rain_boston.csv"]))
    (place / "data/legal/input/rain_amherst.csv").unlink()
    words = ["--import", str(place), "--out", str(out)]
    assert main([*words, "--strict"]) == 2
    assert not out.exists()
    assert main(words) == 0
    assert "legal-easy-3 (rain_amherst.csv)" in capsys.readouterr().out
    kept = [t.id for t in read_tasks(out / "tasks.jsonl")]
    assert sorted(kept) == ["legal-easy-4", "wildfire-hard-21"]
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    assert sorted(manifest["left_out"]) == ["environment-easy-1", "legal-easy-3", "legal-hard-1"]
