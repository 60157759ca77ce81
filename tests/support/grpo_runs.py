"""Dr.GRPO on a tiny model with a toy reward that it can climb."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from assay.task import Score, Task
from configs.schema import GrpoConfig, GrpoRunConfig
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Trajectory
from train.grpo import train_grpo
from train.model.policy import load_policy
from train.run.checkpoint import Checkpoints
from train.run.log import RunLog
from train.run.run import Loop


def refinement_tasks(count: int) -> list[Task]:
    """Short tasks in the refinement family: delete the x's."""
    tasks = []
    for i in range(count):
        text = "".join(random.Random(i).choice("abx") for _ in range(4)) + "x"
        gold = {"input_text": text, "status": "KEEP", "text": text.replace("x", "")}
        prompt = [{"role": "user", "content": f"{i % 7}{text}"}]
        tasks.append(Task(f"t{i}", "refinement", "toy", "train", prompt, gold))
    return tasks


def few_as(task: Task, trajectory: Trajectory) -> Score:
    """A dense toy reward that a random model can climb: the share of letters a to m."""
    text = trajectory.text
    share = sum(c in "abcdefghijklm" for c in text) / max(len(text), 1)
    return Score(float(share > 0.9), share, {"share": share})


def each(score: Any) -> Any:
    """A scorer of whole batches from one of single rollouts."""

    def scored(tasks: Any, groups: Any) -> Any:
        return [[score(t, x) for x in group] for t, group in zip(tasks, groups, strict=True)]

    return scored


SIZES = {"prompts_per_step": 8, "rollouts_per_prompt": 8, "mini_batch": 4, "max_new_tokens": 12}
RL = GrpoConfig(steps=12, lr=3e-3, max_length=128, save_every=3, **SIZES)


def run_rl(
    folder: Path, out: Path, config: GrpoConfig, score: Any = few_as, tasks: Any = (), **more: Any
) -> Any:
    policy, asked = load_policy(folder, "float32"), tasks or refinement_tasks(20)
    loop = Loop(1, RunLog(out), Checkpoints(out / "ck", GrpoRunConfig(rl=config)), 400, 32)
    train_grpo(policy, asked, ChatTokenizer(folder), each(score), config, loop, **more)
    return policy
