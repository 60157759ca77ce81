"""The loop with flat groups refilled and long answers punished."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from grpo_runs import each  # noqa: E402

from assay.task import Score, Task  # noqa: E402
from configs.schema import GrpoConfig, GrpoRunConfig  # noqa: E402
from rollouts.prompts import ChatTokenizer  # noqa: E402
from rollouts.trajectory import Trajectory  # noqa: E402
from train.grpo import Ask, refilled, train_grpo  # noqa: E402
from train.model.batch import Batch, batch_of  # noqa: E402
from train.model.policy import load_policy  # noqa: E402
from train.run.checkpoint import Checkpoints  # noqa: E402
from train.run.log import RunLog, read_metrics  # noqa: E402
from train.run.run import Loop  # noqa: E402

SIZES = {"prompts_per_step": 6, "rollouts_per_prompt": 4, "mini_batch": 3, "max_new_tokens": 8}
RL = GrpoConfig(steps=6, lr=3e-3, max_length=64, save_every=2, **SIZES)
ALL = replace(RL, dynamic_sampling=2, overlong="soft", overlong_buffer=4)
TASKS = [
    Task(f"t{i}", "toy", "x", "train", [{"role": "user", "content": f"{i}"}], {"flat": i % 2})
    for i in range(24)
]


def reward(task: Task, rollout: Trajectory) -> Score:
    """Every other task pays the same for every answer."""
    share = sum(c in "abcdefghijklm" for c in rollout.text) / max(len(rollout.text), 1)
    return Score(1.0, 1.0) if task.gold["flat"] else Score(float(share > 0.5), share)


scores = each(reward)


def run(folder: Path, out: Path, config: GrpoConfig, score: Any = scores) -> Any:
    policy = load_policy(folder, "float32")
    checkpoints = Checkpoints(out / "ck", GrpoRunConfig(rl=config))
    loop = Loop(1, RunLog(out), checkpoints, 800, 64)
    train_grpo(policy, TASKS, ChatTokenizer(folder), score, config, loop)
    return policy


def lines(out: Path, step: int) -> list[dict[str, Any]]:
    text = (out / "rollouts" / f"step_{step:06d}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def same(a: Any, b: Any) -> bool:
    return all(torch.equal(x, y) for (_, x), (_, y) in zip(a.named(), b.named(), strict=True))


def test_flat_groups_give_way_to_those_that_teach(tiny_folder: Path, tmp_path: Path) -> None:
    run(tiny_folder, tmp_path / "on", replace(RL, dynamic_sampling=2, steps=3))
    for row in read_metrics(tmp_path / "on"):
        before, after = row["by_group/flat_before"], row["by_group/flat_after"]
        assert before > 0 and after < before  # half of the tasks are flat
        assert row["by_group/sampled"] > 6
        rollouts = lines(tmp_path / "on", row["step"])
        assert len(rollouts) == 4 * row["by_group/sampled"]
        learned = {r["task_id"] for r in rollouts if r["learned"]}
        flat = {r["task_id"] for r in rollouts if int(r["task_id"][1:]) % 2}
        assert len(learned) == 6 and len(learned & flat) == round(6 * after)
        assert len({r["task_id"] for r in rollouts}) == row["by_group/sampled"]
    run(tiny_folder, tmp_path / "off", replace(RL, steps=1))
    (row,) = read_metrics(tmp_path / "off")
    assert "by_group/sampled" not in row and "learned" not in lines(tmp_path / "off", 1)[0]


def test_of_a_task_asked_twice_each_group_keeps_its_place() -> None:
    """One of the two groups teaches, the other is flat, and no further prompt teaches."""

    def made(rows: list[int], rewards: list[list[float]]) -> Batch:
        groups: Any = [[f"{row}{i}" for i in range(2)] for row in rows]
        scores = [[Score(x, x) for x in line] for line in rewards]
        return batch_of([TASKS[row] for row in rows], groups, scores, config, rows)

    config = replace(RL, dynamic_sampling=1, prompts_per_step=2, mini_batch=2)
    first = made([3, 3], [[0.0, 1.0], [0.0, 0.0]])

    class Flat(Ask):
        def __call__(self, rows: Any, step: int) -> Batch:
            return made(list(rows), [[0.0, 0.0] for _ in rows])

    nothing: Any = None
    ask = Flat(TASKS, nothing, nothing, nothing, config, 0, None)
    batch, every = refilled(first, ask, [[*range(len(TASKS))]], 0)
    assert len(every.rows) == 3 and batch.groups[0] is first.groups[0]
    assert batch.adv_PG.tolist() == first.adv_PG.tolist()


def test_when_all_is_flat_the_rounds_end_and_nothing_is_learned(
    tiny_folder: Path, tmp_path: Path
) -> None:
    def flat(asked: Any, groups: Any) -> Any:
        return [[Score(0.0, 0.1) for _ in g] for g in groups]

    before = load_policy(tiny_folder, "float32")
    after = run(tiny_folder, tmp_path, replace(RL, dynamic_sampling=9, steps=1), score=flat)
    assert same(before, after)
    (row,) = read_metrics(tmp_path)
    assert row["by_group/sampled"] == 24 and row["by_group/flat_after"] == 1  # every task, once


def test_the_score_and_what_is_learned_from_are_both_logged(
    tiny_folder: Path, tmp_path: Path
) -> None:
    run(tiny_folder, tmp_path / "soft", replace(ALL, steps=1))
    (row,) = read_metrics(tmp_path / "soft")
    rollouts = lines(tmp_path / "soft", 1)
    assert row["reward/used/mean"] < row["reward/mean"]
    cut = [r for r in rollouts if r["stop"] == "length"]
    assert cut and all(r["reward_used"] == pytest.approx(r["reward"] - 1) for r in cut)
    assert row["reward/mean"] == pytest.approx(sum(r["reward"] for r in rollouts) / len(rollouts))
    run(tiny_folder, tmp_path / "mask", replace(RL, overlong="mask", steps=1))
    (row,) = read_metrics(tmp_path / "mask")
    masked = [r["masked"] for r in lines(tmp_path / "mask", 1)]
    assert row["overlong/masked"] == pytest.approx(sum(masked) / len(masked)) and any(masked)
