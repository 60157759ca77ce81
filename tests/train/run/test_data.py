"""What a run learns from: in the words of `prompts`, and nothing of an evaluation database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from front import command

from assay.rows import read_rows
from assay.task import Task, write_jsonl
from rollouts.environments import read_prompts
from rollouts.words.cdr import KIND, messages
from rollouts.words.templates import ours
from train.run.data import training_rows

rollout = command("rollout")


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A refinement task in each mode, and one of another family."""
    made: list[Task] = []
    for mode in ("direct", "few_shot"):
        gold = {"status": "KEEP", "text": "a b", "input_text": "a  b", "mode": mode, "recipe": []}
        meta = {"requirement": "Squeeze blanks.", "examples": ["x"]}
        prompt = messages("Squeeze blanks.", "a  b", mode)
        made.append(Task(mode, "refinement", "t", "train", prompt, gold, meta=meta))
    asked = [{"role": "user", "content": "1 + 1?"}]
    gold = {"answer_type": "numeric_exact", "answer": 2}
    made.append(Task("sum", "answer", "t", "train", asked, gold))
    write_jsonl(tmp_path / "tasks.jsonl", (task.to_json() for task in made))
    return tmp_path / "tasks.jsonl"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    texts = {**ours(KIND).texts, "direct": "Ask: {requirement} Text: {input}", "system": "Go."}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"refinement": texts}), "utf-8")
    return tmp_path / "own.yaml"


def test_tasks_to_imitate_are_asked_in_the_words_of_a_file(tasks: Path, own: Path) -> None:
    before = dict(training_rows(str(tasks)))
    rows = dict(training_rows(str(tasks), prompts=str(own)))
    direct, few_shot, other = rows.values()
    assert [m["content"] for m in direct["prompt"]] == ["Go.", "Ask: Squeeze blanks. Text: a  b"]
    assert ours(KIND)["examples"] in few_shot["prompt"][-1]["content"]
    assert "examples" not in few_shot["meta"]  # the fixed ones stand in their place
    assert other == list(before.values())[-1]
    words = read_prompts(str(own))
    assert words.inputs() == {"prompts": f"refinement {words.of('refinement').hash}"}
    assert read_prompts("").inputs() == {}
    once = words.asked([Task.from_json(direct, "x")])
    assert once == [Task.from_json(direct, "x")]  # asked in them already


def test_rollouts_go_on_only_in_the_words_they_were_begun_with(
    tasks: Path, own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.jsonl"
    line = ["--tasks", str(tasks), "--solver", "gold", "--out", str(out)]
    assert rollout([*line, f"prompts={own}"]) == 0
    assert "refinement: asked in words of one's own" in capsys.readouterr().out
    said = {row["task_id"]: row["messages"][0]["content"] for _, row in read_rows(out)}
    assert said["direct"] == "Go."
    record = json.loads((tmp_path / "r.jsonl.settings.json").read_text("utf-8"))
    assert record["settings"]["words"] == {
        "refinement": read_prompts(str(own)).of("refinement").hash
    }
    assert rollout([*line, f"prompts={own}"]) == 0
    assert rollout(line) == 2
    assert rollout([*line, "prompts=nowhere.yaml"]) == 2
    assert "prompts=nowhere.yaml: no such file or folder" in capsys.readouterr().err


CODE = {"code": "print(1)", "files_to_load": ["metadata.txt"], "files_to_save": []}


def trajectory(question: str, answer: str, **more: Any) -> dict[str, Any]:
    called = {"id": "call_1", "type": "function"}
    function = {"name": "python_executor", "arguments": json.dumps(CODE)}
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [{**called, "function": function}]},
        {"role": "tool", "tool_call_id": "call_1", "name": "python_executor", "content": answer},
        {"role": "assistant", "content": "Done."},
    ]
    return {"messages": messages, **more}


def test_a_trajectory_of_another_table_is_taken(tmp_path: Path) -> None:
    said = json.dumps({"stdout": "a\tb\n1\t2\n", "stderr": ""})
    rows = [trajectory("Predict `y`.", said, file_path="own_table_class")]
    write_jsonl(tmp_path / "traj.jsonl", rows)
    assert len(training_rows(str(tmp_path / "traj.jsonl"))) == 1
