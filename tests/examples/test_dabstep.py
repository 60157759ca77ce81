"""examples/dabstep.py: DABstep's published layout and its published rule, on files made here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from assay_command import here, rows, run
from places import ROOT, tables

from assay.family import Answer, Task, load_family

FILE = ROOT / "examples" / "dabstep.py"
FAMILY = load_family(str(FILE))


def folder(tmp_path: Path) -> Path:
    """A dataset of two tasks in the published layout."""
    top = tmp_path / "data"
    (top / "tasks").mkdir(parents=True)
    (top / "context").mkdir()
    (top / "context" / "payments.csv").write_text("country,eur\nNL,3\nBE,1\nNL,2\n")
    made = [
        {"task_id": 5, "question": "Which country pays most?", "answer": "NL", "level": "easy"},
        {"task_id": 9, "question": "Mean of BE, in EUR?", "answer": "-1.25", "level": "hard"},
        {"task_id": 11, "question": "Hidden?", "answer": "", "level": "hard"},
    ]
    lines = [json.dumps({**row, "guidelines": "Short."}) + "\n" for row in made]
    (top / "tasks" / "dev.jsonl").write_text("".join(lines))
    return top


CASES = tables("dabstep")
LONG = [("NL", "Answer: " + "[" * 9000, 0, 0), ("0.5", "Answer: " + "9" * 9000, 0, 0)]


@pytest.mark.parametrize(("gold", "said", "outcome", "reward"), CASES + LONG)
def test_answers_are_compared_by_the_published_rule(
    gold: str, said: str, outcome: float, reward: float
) -> None:
    prompt = [{"role": "user", "content": "?"}]
    task = Task("t", "dabstep", "easy", "eval", prompt, {"answer": gold})
    found = FAMILY.score(task, Answer(said))
    assert (found.outcome, found.reward) == (outcome, reward)


@pytest.mark.usefixtures("no_family_of_another_test")
def test_every_command_takes_the_tasks(tmp_path: Path) -> None:
    family = ["--family", str(FILE)]
    made = f"folder={folder(tmp_path)}"
    here(tmp_path, "tasks", "dabstep", *family, "--out", "T", made)
    tasks = rows(tmp_path / "T" / "eval.jsonl")
    assert [t["id"] for t in tasks] == ["dabstep-5", "dabstep-9"]  # the third has no answer
    assert tasks[0]["meta"]["published"] and "payments.csv" in tasks[0]["prompt"][0]["content"]
    here(tmp_path, "audit", *family, "--tasks", "T/eval.jsonl")
    asked = ["--tasks", "T/eval.jsonl", "--model"]
    for model, outcome in (("gold", 1.0), ("empty", 0.0), ("cheat:not_applicable", 0.0)):
        out = model.replace(":", "-")
        here(tmp_path, "eval", *family, *asked, model, "--out", out, "--no-baselines")
        assert [row["outcome"] for row in rows(tmp_path / out / "rows.jsonl")] == [outcome] * 2

    (tmp_path / "data" / "tasks" / "dev.jsonl").write_text("")
    done = run(tmp_path, "tasks", "dabstep", *family, "--out", "U", made)
    assert done.returncode == 2 and "dev.jsonl" in done.stderr
