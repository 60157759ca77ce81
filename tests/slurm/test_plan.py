"""PLAN.yaml → sbatch calls, and the sentences a wrong plan gets."""

from __future__ import annotations

from typing import Any

import pytest

from configs.loader import ConfigError
from train.cluster.plan import make_plan, sbatch_call

STAGES: list[dict[str, Any]] = [
    {"name": "tasks", "command": ["tasks", "demo", "--out", "{out}/tasks"]},
    {"name": "sft", "script": "sft", "after": ["tasks"], "args": ["data={out}/tasks/x.jsonl"],
     "sbatch": {"time": "1:00:00"}},
    {"name": "rollouts", "after": ["sft"], "command": ["rollout", "--tasks", "{in}", "--out",
     "{shard}"], "array": {"input": "{out}/t.jsonl", "shards": 4, "align": 8, "at_once": 2}},
    {"name": "eval", "after": ["sft", "rollouts"], "items": [
        {"name": "a", "argv": ["eval", "--out", "{item}"]}]},
]  # fmt: skip


def plan(stages: Any = None, **more: Any) -> Any:
    return make_plan({"name": "p", "out": "runs/p", "stages": stages or STAGES, **more}, "p.yaml")


def test_a_chain_becomes_calls_that_wait_for_each_other() -> None:
    jobs = plan(sbatch={"partition": "a"}).jobs
    names = ["tasks", "sft", "rollouts", "rollouts-merge", "eval", "eval-check"]
    assert [job.name for job in jobs] == names
    calls = [sbatch_call(job, {n: str(i) for i, n in enumerate(names)}) for job in jobs]
    assert calls[0] == [
        "sbatch", "--parsable", "--job-name=p-tasks", "--output=runs/p/logs/%x-%A_%a.log",
        "--partition=a", "slurm/command.sbatch", "out=runs/p/tasks", "--", "tasks", "demo", "--out",
        "runs/p/tasks",
    ]  # fmt: skip
    assert "--dependency=afterok:0" in calls[1] and "--kill-on-invalid-dep=yes" in calls[1]
    assert "--time=1:00:00" in calls[1] and calls[1][-1] == "out=runs/p/sft"
    assert "--array=0-3%2" in calls[2]
    assert calls[2][calls[2].index("--") :] == [
        "--", "rollout", "--tasks", "{in}", "--out", "{out}"
    ]  # fmt: skip
    # who comes after an array comes after its merge
    assert "--dependency=afterok:2" in calls[3] and "--dependency=afterok:1:3" in calls[4]
    assert jobs[4].items[0] == {
        "name": "a", "out": "runs/p/eval/a", "argv": ["eval", "--out", "{out}"]
    }  # fmt: skip


@pytest.mark.parametrize(("stage", "said"), [
    ({"name": "a", "comand": []}, "unknown key comand; did you mean command?"),
    ({"name": "a", "script": "grpo"}, "wanted one of"),
    ({"name": "a"}, "needs a command, a script, an array or items"),
    ({"name": "a", "command": "tasks demo"}, "is text; wanted a list of words"),
    ({"name": "a", "command": ["x"], "after": ["b"]}, "'b', which is no earlier stage"),
    ({"name": "a", "command": ["x", True]}, "put it in quotes"),
    ({"name": "a b", "command": ["x"]}, "give letters and digits"),
    ({"name": "a", "command": ["x"], "array": {"input": "i", "shards": 0}}, "shards=0; wanted a"),
    ({"name": "a", "items": [{"name": "i", "argv": ["eval"]}]}, "no {item} to write to"),
])  # fmt: skip
def test_a_wrong_plan_is_refused_in_one_sentence(stage: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=r"p\.yaml") as error:
        plan([stage])
    assert said in str(error.value)
