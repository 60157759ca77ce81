"""The reader of published workloads, input modes, and evaluation from folder to tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import front
import pytest
from krama_data import KRAMA, needs_krama
from small_lake import CODE, PLAN, make_lake

from assay.task import Task, TaskError, read_tasks
from data_gen.krama.cli import build
from data_gen.krama.importer import Entry, cleaned, read_workload, resolve, view_files
from data_gen.krama.obscured import exchange, new_words
from rewards.krama.episode import subtask_credit
from rewards.krama.failure import category
from rewards.published import refuse_published

main = front.command("tasks", "krama")

ENTRY: dict[str, Any] = {
    "id": "small-easy-1",
    "query": "What is the mean rain in June in Amherst?",
    "answer": 1.5,
    "answer_type": "numeric_exact",
    "runtime": 1,
    "data_sources": ["RAIN_amherst.csv"],
    "subtasks": [
        {
            "id": "small-easy-1-1",
            "query": "Which file?",
            "answer": ["rain_amherst.csv"],
            "answer_type": "list_exact",
            "data_sources": "./",
            "step": "Load 'rain_amherst.csv'.",
        },
        {
            "id": "small-easy-1-1",
            "query": "How many years?",
            "answer": "30",
            "answer_type": "numeric_exact",
            "task": "Drop summary rows",
        },
    ],
}


def workload(tmp_path: Path, *entries: dict[str, Any]) -> Path:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(list(entries or (ENTRY,))), encoding="utf-8")
    return path


def built(tmp_path: Path, mode: str, *entries: dict[str, Any]) -> Path:
    make_lake(tmp_path / "lakes" / "small" / "input")
    out = tmp_path / mode
    build([workload(tmp_path, *entries)], tmp_path / "lakes", out, mode)  # type: ignore[arg-type]
    return out


def test_irregular_entries_are_read(tmp_path: Path) -> None:
    (entry,) = read_workload(workload(tmp_path))
    assert [s.id for s in entry.steps] == ["small-easy-1-1", "small-easy-1-1b"]
    assert [s.sources for s in entry.steps] == [("./",), ()]
    assert entry.steps[1].step == "Drop summary rows"
    assert cleaned("Expected answer: ['a', 'b']") == ["a", "b"]
    with pytest.raises(TaskError, match=r"small.json task 1: field 'answer' is missing"):
        read_workload(workload(tmp_path, {"id": "x", "query": "q"}))


def test_sources_are_found_in_any_spelling() -> None:
    files = ["a/State Theft data/Ohio.csv", "a/b/x_2001.csv", "a/b/x_2002.csv", "omni2.text"]
    assert resolve(["State Theft Data/*.csv"], files) == files[:1]
    assert resolve(["State THEFT data/"], files) == files[:1]
    assert resolve(["x_200?.csv"], files) == files[1:3]
    assert resolve(["omni2.txt", "./", "nothing.csv"], files) == ["omni2.text"]


def test_modes_show_what_they_should(tmp_path: Path) -> None:
    files = [f"f{i}" for i in range(30)]
    trimmed = view_files("trimmed", "t", ["f3"], files)
    assert len(trimmed) == 10
    assert "f3" in trimmed
    assert trimmed == view_files("trimmed", "t", ["f3"], files)
    assert trimmed != view_files("trimmed", "u", ["f3"], files)
    assert view_files("trimmed", "t", files[:20], files) == sorted(files[:20])
    assert view_files("oracle", "t", ["f3"], files) == ["f3"]
    out = built(tmp_path, "oracle")
    task = read_tasks(out / "tasks.jsonl")[0]
    assert task.files == {"lake": "views/oracle/small-easy-1"}
    shown = out / task.files["lake"]
    assert [p.name for p in shown.iterdir()] == ["rain_amherst.csv"]
    lake = tmp_path / "lakes/small/input/rain_amherst.csv"
    assert (shown / "rain_amherst.csv").stat().st_ino == lake.stat().st_ino  # a link, no copy


def test_oracle_star_shows_ten_gold_files_of_more(tmp_path: Path) -> None:
    files = [f"f{i:02}" for i in range(30)]
    shown = view_files("oracle*", "t", files[:20], files)
    assert len(shown) == 10
    assert set(shown) < set(files[:20])
    assert shown == view_files("oracle*", "t", files[19::-1], files)  # by the task alone
    assert shown != view_files("oracle*", "u", files[:20], files)
    assert view_files("oracle*", "t", files[:10], files) == files[:10]
    assert view_files("oracle*", "t", [], files) == files
    for number in range(12):
        make_lake(tmp_path / f"lakes/small/input/towns/{number:02}")
    many = {**ENTRY, "data_sources": ["towns/*/rain_amherst.csv"]}
    single = {"id": "small-easy-2", "subtasks": [], "data_sources": ["towns/03/sites.csv"]}
    built(tmp_path, "oracle*", many, {**ENTRY, **single})
    out = tmp_path / "oracle*"
    task, few = read_tasks(out / "tasks.jsonl")
    folder = out / task.files["lake"]
    there = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.csv"))
    assert (task.files["lake"], len(there)) == ("views/oracle-star/small-easy-1", 10)
    assert task.meta["gold_files"] == there
    assert (task.meta["mode"], task.meta["gold_files_hidden"]) == ("oracle*", 2)
    assert "gold_files_hidden" not in few.meta
    subs = read_tasks(out / "subtasks.jsonl")
    assert {s.meta["gold_files_hidden"] for s in subs} == {2}
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    assert manifest["gold_files_hidden"] == {"small-easy-1": 2}


def test_obscured_names_are_exchanged_everywhere_in_order(tmp_path: Path) -> None:
    question = {
        **ENTRY,
        "id": "small-easy-2",
        "query": "How many samples has Acton?",
        "answer": "Acton",
        "answer_type": "string_exact",
        "subtasks": [],
        "data_sources": ["sites.csv"],
    }
    out = built(tmp_path, "obscured", question)
    task = read_tasks(out / "tasks.jsonl")[0]
    assert "Acton" not in task.prompt[1]["content"]
    other = task.gold["answer"]
    text = (out / task.files["lake"] / "sites.csv").read_text("utf-8")
    assert "Acton" not in text
    assert text.count(f",{other},") == 20
    names = {"acton": "bika", "boston": "teru"}
    assert exchange("ACTON Acton acton actonx Boston", names) == "BIKA Bika bika actonx Teru"
    words = new_words(50, 1, frozenset())
    assert words == sorted(set(words))


def test_published_and_doubted_tasks_never_train(tmp_path: Path) -> None:
    doubtful = {**ENTRY, "id": "small-hard-2", "status": "not_reproduced"}
    out = built(tmp_path, "full", ENTRY, doubtful)
    tasks, doubted = read_tasks(out / "tasks.jsonl"), read_tasks(out / "doubted.jsonl")
    assert [t.id for t in tasks] == ["small-easy-1"]
    assert [t.id for t in doubted] == ["small-hard-2"]
    with pytest.raises(TaskError, match="published"):
        refuse_published(tasks, "x")
    free = Task.from_json({**doubted[0].to_json(), "meta": {}})
    with pytest.raises(TaskError, match="doubted"):
        refuse_published([free], "x")
    lakes = str(tmp_path / "lakes")
    command = ["--workload", str(tmp_path / "small.json"), "--lakes", lakes, "--out", lakes]
    assert main([*command, "--split", "train"]) == 2


def test_evaluation_of_a_canned_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate = front.command("eval")

    out = built(tmp_path, "full")
    replies = [
        {"match": "Answer only this part", "replies": [PLAN + "```python\nprint({})\n```"]},
        {"match": "", "replies": [PLAN + CODE]},
    ]
    canned = tmp_path / "canned.jsonl"
    canned.write_text("".join(json.dumps(r) + "\n" for r in replies), encoding="utf-8")
    command = ["--tasks", f"krama:{out}", "--model", f"canned:{canned}", "--out", str(tmp_path)]
    assert evaluate(command) == 0
    found = json.loads((tmp_path / "results.json").read_text("utf-8"))
    tables = found["benchmarks"]["krama"]["tables"]
    whole = tables["end-to-end"]["overall"]
    assert (whole["score"], whole["release"], whole["right"]) == (1.0, 1.0, 1)
    assert whole["subtask_credit"] == 0.5  # "30" was printed, the file name was not
    assert whole["tokens"] > 100
    assert tables["subtasks"]["small"]["tasks"] == 2
    assert tables["subtasks"]["overall"]["score"] == 0.0
    assert "| overall | 1 | 100.00 |" in capsys.readouterr().out
    assert evaluate(["--tasks", f"krama:{tmp_path}/no", *command[2:]]) == 2


def test_sub_task_credit() -> None:
    steps = [{"answer_type": "numeric_exact", "answer": n} for n in (3, 4)]
    assert subtask_credit(steps, [4, 4, 3.0]) == 1.0
    assert subtask_credit(steps, [4, 4, 4]) == 0.5
    assert (
        subtask_credit(steps, [*range(100, 200), 3, 4]) == 0.0
    )  # printing everything pays nothing


@pytest.mark.parametrize(
    ("answer", "outcome", "ended", "code", "want"),
    [
        (None, 0.0, "no_reply", "", "no_reply"),
        (None, 0.0, "no_code", "", "contract_broken"),
        (None, 0.0, "error", "", "code_fails"),
        (None, 0.0, "timeout", "", "time_limit"),
        (None, 0.0, "no_answer", "x", "ran_no_answer"),
        (1, None, "ran", "", "infrastructure"),
        (12.5, 1.0, "ran", "", "right"),
        (99, 0.0, "ran", "b.csv", "gold_file_never_opened"),
        ("x", 0.0, "ran", "open('a.csv')", "wrong_type"),
        (1250, 0.0, "ran", "a.csv", "scale_slip"),
        (12.52, 0.0, "ran", "a.csv", "rounding_slip"),
        (-12.5, 0.0, "ran", "a.csv", "scale_slip"),
        (99, 0.0, "ran", "a.csv", "other_wrong"),
    ],
)
def test_categories_of_failure(
    answer: Any, outcome: float | None, ended: str, code: str, want: str
) -> None:
    gold = {"answer_type": "numeric_exact", "answer": 12.5}
    assert category(gold, answer, outcome, ended, code, ["d/a.csv"]) == want


def test_an_answer_from_memory_is_called_recalled(tmp_path: Path) -> None:
    gold = {"answer_type": "list_exact", "answer": ["Bika", "Teru"]}
    plain = gold | {"plain_answer": ["Acton", "Boston"]}
    assert category(plain, "['boston', 'Acton']", 0.0, "ran", "", []) == "recalled"
    assert category(plain, ["Acton", "Teru"], 0.5, "ran", "", []) == "partly"
    assert category(gold, ["Acton", "Boston"], 0.0, "ran", "", []) == "other_wrong"
    part = {
        "id": "small-easy-2-1",
        "query": "Which town?",
        "answer": "Acton",
        "answer_type": "string_exact",
        "data_sources": "sites.csv",
    }
    question = {
        **ENTRY,
        "id": "small-easy-2",
        "query": "Where are the most samples?",
        "answer": ["Acton", 3],
        "answer_type": "list_exact",
        "subtasks": [part],
        "data_sources": ["sites.csv"],
    }
    out = built(tmp_path, "obscured", question)
    task, sub = read_tasks(out / "tasks.jsonl")[0], read_tasks(out / "subtasks.jsonl")[0]
    assert task.gold["plain_answer"] == ["Acton", 3] != task.gold["answer"]
    assert sub.gold["plain_answer"] == "Acton" != sub.gold["answer"]
    assert category(task.gold, ["Acton", 3], 0.5, "ran", "", []) == "recalled"
    whole = read_tasks(built(tmp_path / "f", "full", question) / "tasks.jsonl")[0]
    assert "plain_answer" not in whole.gold


@needs_krama
def test_every_visible_workload_is_read_and_its_files_found(tmp_path: Path) -> None:
    data = KRAMA / "data"
    entries: list[Entry] = []
    for name in ("verified", "other"):
        entries += read_workload(data / f"workload_{name}.json")
    assert len(entries) == 72
    assert sum(bool(e.doubt) for e in entries) == 26
    manifest = build([data / "workload_verified.json"], data / "lake", tmp_path / "k", "full")
    assert manifest["counts"] == {"tasks": 46, "subtasks": 279, "doubted": 0, "doubted_subtasks": 0}
    for task in read_tasks(tmp_path / "k" / "tasks.jsonl"):
        lake = tmp_path / "k" / task.files["lake"]
        assert task.meta["gold_files"]
        assert all((lake / name).is_file() for name in task.meta["gold_files"])


COUNT = """```python
import json, os
n = sum(len(files) for _, _, files in os.walk("data"))
print(json.dumps({"subtask-1": n, "main-task": n}))
```"""


@pytest.mark.slow
@needs_krama
def test_a_canned_ds_guru_runs_on_every_visible_lake(tmp_path: Path) -> None:
    evaluate = front.command("eval")

    rows = json.loads((KRAMA / "data/workload_verified.json").read_text("utf-8"))
    first = {row["domain"]: {**row, "answer": "?", "answer_type": "string_exact"} for row in rows}
    path = workload(tmp_path, *first.values())
    build([path], KRAMA / "data" / "lake", tmp_path / "k", "full")
    canned = tmp_path / "canned.jsonl"
    canned.write_text(json.dumps({"match": "", "replies": [PLAN + COUNT]}) + "\n", "utf-8")
    assert (
        evaluate(
            [
                "--tasks",
                f"krama:{tmp_path / 'k'}",
                "--model",
                f"canned:{canned}",
                "--out",
                str(tmp_path),
                "krama.settings=end-to-end",
            ]
        )
        == 0
    )
    found = json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"]
    counts = {row["more"]["domain"]: row["more"]["answer"] for row in found}
    lakes = {
        d: len([p for p in (tmp_path / "k/lakes" / d).rglob("*") if p.is_file()]) for d in first
    }
    assert len(lakes) == 6
    assert counts == lakes  # every pipeline saw its whole lake
    assert {row["more"]["notes"]["tries"] for row in found} == {1}
