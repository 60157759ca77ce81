"""Rows that a run learns from are asked in the words of `prompts`, and are audited."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import yaml
from front import command
from leaky import leaky_family
from mixed_tasks import refinement

from assay.rows import read_rows
from assay.task import Task, write_jsonl
from rewards.audit import audit_sample
from rewards.weights import RefinementReward
from rollouts.environments import read_prompts
from rollouts.words.cdr import KIND, messages
from rollouts.words.templates import ours
from train.examples import training_rows
from train.report.write import write_page

grpo, rollout = command("grpo"), command("rollout")
pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


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


def test_tasks_are_asked_in_the_words_of_a_file_and_go_on_in_them_alone(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {**ours(KIND).texts, "direct": "Ask: {requirement} Text: {input}", "system": "Go."}
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump({"refinement": texts}), "utf-8")
    before = dict(training_rows(str(tasks)))
    direct, few_shot, other = dict(training_rows(str(tasks), prompts=str(own))).values()
    assert [m["content"] for m in direct["prompt"]] == ["Go.", "Ask: Squeeze blanks. Text: a  b"]
    assert ours(KIND)["examples"] in few_shot["prompt"][-1]["content"]
    assert "examples" not in few_shot["meta"]  # the fixed ones stand in their place
    assert other == list(before.values())[-1]
    once = read_prompts(str(own)).asked([Task.from_json(direct, "x")])
    assert once == [Task.from_json(direct, "x")]  # asked in them already

    out = tmp_path / "r.jsonl"
    line = ["--tasks", str(tasks), "--solver", "gold", "--out", str(out)]
    for _ in range(2):
        assert rollout([*line, f"prompts={own}"]) == 0
    said = {row["task_id"]: row["messages"][0]["content"] for _, row in read_rows(out)}
    assert said["direct"] == "Go."
    assert rollout(line) == 2
    assert rollout([*line, "prompts=nowhere.yaml"]) == 2
    assert "prompts=nowhere.yaml: no such file" in capsys.readouterr().err


# --- the audit of tasks before the first step ----------------------------------------------------


RL = ["rl.steps=1", "rl.prompts_per_step=2", "rl.mini_batch=2", "rl.rollouts_per_prompt=2"]
RL += ["rl.max_new_tokens=4", "engine.dtype=float32", "engine.threads=1"]


def audit_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text())["audit"]


def test_a_leaky_reward_refuses_the_run_before_its_first_step(
    tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, leaky = leaky_family(tmp_path, "digits")
    write_jsonl(tmp_path / "tasks.jsonl", (t.to_json() for t in leaky))
    out, own = tmp_path / "run", tmp_path / "leaky_digits.py"
    words = ["--tasks", f"{tmp_path}/tasks.jsonl", "--family", str(own), "--out", str(out)]
    words += ["--model", str(tiny_folder), *RL]
    assert grpo(words) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "family leaky" in said and "the law 'floor'" in said and "rl.audit=warn" in said
    assert not (out / "metrics.jsonl").exists() and not (out / "checkpoints").exists()
    found = audit_of(out)
    assert found["refusal"] in said and found["mode"] == "refuse"
    assert found["broken"][0]["family"] == "leaky" and found["best"]["leaky"]["reward"] > 0.8

    # a warning trains all the same, and the page says it
    assert grpo([*words, "rl.audit=warn"]) == 0
    assert "warning: the audit of 24 tasks" in capsys.readouterr().out
    assert "the law 'floor'" in html.unescape(write_page(out, {}).read_text())

    # gone on with, it is not audited again, and what was found stays
    assert grpo([*words, "rl.audit=refuse", "rl.steps=2"]) == 0
    assert "audit of tasks" not in capsys.readouterr().out
    assert audit_of(out)["mode"] == "warn" and audit_of(out)["refusal"]


def test_the_reward_settings_of_the_run_are_what_is_audited() -> None:
    """A status that pays for nearly everything breaks the floor that the default keeps."""
    tasks = [refinement(number, "KEEP", number) for number in range(12)]
    assert audit_sample(tasks, 0).ok
    paid = RefinementReward(format=0.0, status=0.9, progress=0.0, success=0.1)
    found = audit_sample(tasks, 0, {"refinement": paid})
    assert "family refinement breaks the law 'floor'" in found.refusal
