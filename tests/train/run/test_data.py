"""Rows that a run learns from are asked in the words of `prompts`, are refused where they are about
an evaluation database, and are audited."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import yaml
from front import command
from leaky import leaky_file

from assay import family as families
from assay.family import Family, Score
from assay.rows import read_rows
from assay.task import Task, write_jsonl
from rewards.audit import audit_sample
from rewards.weights import RefinementReward
from rollouts.environments import read_prompts
from rollouts.words.cdr import KIND, messages
from rollouts.words.templates import ours
from train.examples import training_rows
from train.run.data import audit_line, audit_tasks

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


# --- the audit of tasks before the first step ----------------------------------------------------


grpo = command("grpo")

RL = ["rl.steps=1", "rl.prompts_per_step=2", "rl.mini_batch=2", "rl.rollouts_per_prompt=2"]
RL += ["rl.max_new_tokens=4", "engine.dtype=float32", "engine.threads=1"]


pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


def words(folder: Path, model: Path, leak: str, out: str = "run") -> list[str]:
    own = leaky_file(folder, leak)
    (family,) = families.use_families([str(own)])
    assert family.build is not None
    write_jsonl(folder / "tasks.jsonl", (t.to_json() for t in family.build(0)["train"]))
    tasks = ("--tasks", str(folder / "tasks.jsonl"), "--family", str(own))
    return [*tasks, "--model", str(model), "--out", str(folder / out), *RL]


def audit_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text())["audit"]


def test_a_leaky_reward_refuses_the_run_before_its_first_step(
    tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = words(tmp_path, tiny_folder, "digits")
    assert grpo(command) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    for part in ("family leaky", "the law 'floor'", "mend the reward", "rl.audit=warn"):
        assert part in said
    out = tmp_path / "run"
    assert not (out / "metrics.jsonl").exists() and not (out / "checkpoints").exists()
    found = audit_of(out)
    assert found["refusal"] in said and found["mode"] == "refuse"
    assert found["broken"][0]["family"] == "leaky" and found["best"]["leaky"]["reward"] > 0.8

    # a warning trains all the same, and the page says it
    assert grpo([*command, "rl.audit=warn"]) == 0
    assert "warning: the audit of 24 tasks" in capsys.readouterr().out
    assert audit_of(out)["mode"] == "warn"
    from train.report.write import write_page

    assert "the law 'floor'" in html.unescape(write_page(out, {}).read_text())

    # gone on with, it is not audited again, and what was found stays
    assert grpo([*command, "rl.audit=refuse", "rl.steps=2"]) == 0
    assert "audit of tasks" not in capsys.readouterr().out
    assert audit_of(out)["mode"] == "warn" and audit_of(out)["refusal"]

    shutil.rmtree(out)
    assert grpo([*command, "rl.audit=off"]) == 0
    assert "audit" not in capsys.readouterr().out and audit_of(out) == {"mode": "off"}


def test_the_reward_settings_of_the_run_are_what_is_audited() -> None:
    """A status that pays for nearly everything breaks the floor that the default keeps."""
    tasks = [
        Task(
            f"t{i}",
            "refinement",
            "toy",
            "train",
            [{"role": "user", "content": f"Remove a@b{i}.org"}],
            {"input_text": f"Mail a@b{i}.org now", "status": "KEEP", "text": f"Mail {i} now"},
        )
        for i in range(12)
    ]
    assert audit_sample(tasks, 0).ok
    paid = RefinementReward(format=0.0, status=0.9, progress=0.0, success=0.1)
    found = audit_sample(tasks, 0, {"refinement": paid})
    assert "family refinement breaks the law 'floor'" in found.refusal


def test_a_slow_scorer_is_looked_at_less(tmp_path: Path, capsys: Any) -> None:
    def score(task: Task, answer: Any) -> Score:
        return Score.of(answer.text == f"{task.id}!")

    families._added["slow"] = families.from_place(
        Family("slow", score, lambda task: f"{task.id}!"), "own.py:FAMILY"
    )
    tasks = [Task(f"t{i}", "slow", "k", "train", [], {}) for i in range(4)]
    found = audit_sample(tasks, 0, seconds=-1.0)
    assert found.cut == ("slow",) and found.ok
    assert "not looked at in whole, too slow: slow" in audit_line(found, 1.0)
    audit_tasks("refuse", tasks, tmp_path, 0, {}, tmp_path / "run")
    assert "every law holds" in capsys.readouterr().out
