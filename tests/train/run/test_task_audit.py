"""`assay grpo` looks at its own tasks before the first step."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from front import command
from leaky import leaky_file

pytest.importorskip("torch")

from assay import family as families
from assay.family import Family, Score, Task
from assay.task import write_jsonl
from rewards.audit import audit_sample
from rewards.weights import RefinementReward
from train.run.data import audit_line, audit_tasks

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
