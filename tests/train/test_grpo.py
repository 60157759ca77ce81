"""Dr.GRPO, end to end on a tiny model: it learns, its loss equals the closed form, flat
groups are refilled, and a kill changes no bit."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import random

import torch

from assay.task import Score, Task
from configs.schema import GrpoConfig, GrpoRunConfig
from rollouts.environment import EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Trajectory
from train.grpo import frame_of, largest, micro_loss, sample, segments_of, train_grpo, update
from train.model.batch import Batch, batch_of
from train.model.optim import MasterAdamW
from train.model.packing import pack
from train.model.policy import TransformersPolicy, load_policy
from train.run.checkpoint import CheckpointError, Checkpoints
from train.run.log import RunLog, read_metrics
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


def test_failed_scoring_teaches_nothing_and_is_counted(tiny_folder: Path, tmp_path: Path) -> None:
    def broken(task: Task, trajectory: Trajectory) -> Score:
        return Score(None, None, {}, "sandbox_error")

    policy = load_policy(tiny_folder, "float32")
    before = policy.named()[0][1].detach().clone()
    after = run_rl(tiny_folder, tmp_path, replace(RL, steps=1), broken).named()[0][1]
    assert torch.equal(before, after)
    assert read_metrics(tmp_path)[0]["why/sandbox_error"] == 1.0


def drawn(policy: Any, folder: Path, config: GrpoConfig, score: Any = few_as) -> Batch:
    """A step's batch of toy rollouts, scored."""
    tokenizer, tasks = ChatTokenizer(folder), refinement_tasks(config.prompts_per_step)
    groups = sample(tasks, policy.engine(tokenizer.stop_ids, 64), tokenizer, config, 5)
    return batch_of(tasks, groups, each(score)(tasks, groups), config)


def without_gradient(policy: Any) -> list[torch.Tensor]:
    """The gradients that a policy has, which are taken from it."""
    found = [tensor.grad.clone() for _, tensor in policy.named()]
    for _, tensor in policy.named():
        tensor.grad = None
    return found


def test_mini_batches_use_the_log_probabilities_of_the_batch_start(tiny_folder: Path) -> None:
    """With two optimiser steps a batch, the second step's ratio is no longer 1."""
    policy, config = load_policy(tiny_folder, "float32"), replace(RL, mini_batch=4, lr=0.05)
    batch, optimiser = drawn(policy, tiny_folder, config), MasterAdamW(policy.named())
    out = update(policy, optimiser, batch, config, lr=0.05, micro_tokens=9999)
    assert out["pg_clipfrac"] > 0


@pytest.mark.parametrize("by_transformers", [False, True])
def test_a_group_that_is_cut_has_the_gradient_of_the_whole(
    tiny_folder: Path, by_transformers: bool
) -> None:
    """`micro_tokens` bounds every micro-batch, and changes the order of sums alone."""
    policy: Any = load_policy(tiny_folder, "float32")
    if by_transformers:
        policy = TransformersPolicy(tiny_folder, "float32", "cpu")
    config = replace(RL, mini_batch=4, prompts_per_step=4)
    batch, inner = drawn(policy, tiny_folder, config), policy.logp
    found: list[torch.Tensor] = []
    sizes: list[int] = []

    def watched(packed: Any, temperature: float = 1.0) -> Any:
        sizes[-1] = max(sizes[-1], len(packed.ids))
        return inner(packed, temperature)

    policy.logp = watched
    for micro_tokens in (9999, 60):
        sizes.append(0)
        optimiser = MasterAdamW(policy.named())
        optimiser.step = lambda lr, max_norm: 0.0  # the gradients are looked at, not used
        update(policy, optimiser, batch, config, lr=0.0, micro_tokens=micro_tokens)
        found.append(torch.cat([grad.flatten() for grad in without_gradient(policy)]))
    longest = max(len(t.ids) for group in batch.groups for t in group)
    assert sizes[0] > 120 and sizes[1] <= max(60, longest)
    assert float((found[0] - found[1]).norm() / found[0].norm()) < 1e-6


class Parrot:
    """A tool task: whatever the model says is answered with a letter, three turns long."""

    def __init__(self, task: Task, sample: int, seed: int) -> None:
        self.task, self.said = task, ""

    async def open(self) -> EpisodeStart:
        return EpisodeStart(self.task.prompt)

    async def reply(self, said: ModelTurn) -> Reply:
        self.said += said.text
        return Reply([{"role": "tool", "content": "zz"}], done=said.turn == 2)

    async def close(self) -> EpisodeEnd:
        return EpisodeEnd({"said": self.said.encode()})


def test_grpo_learns_over_turns_with_tool_tokens_between(tiny_folder: Path, tmp_path: Path) -> None:
    """The reward looks at all turns; ids keep prompt, model, tool, model, tool, model."""

    def few(task: Task, trajectory: Trajectory) -> Score:
        return few_as(task, replace(trajectory, text=trajectory.files["said"].decode()))

    tasks = [replace(t, tools=("parrot",)) for t in refinement_tasks(6)]
    config = replace(RL, steps=10, prompts_per_step=4, max_new_tokens=6, max_length=400)
    run_rl(tiny_folder, tmp_path, config, few, tasks, maker=Parrot)
    rewards = [row["reward/mean"] for row in read_metrics(tmp_path)]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1
    row = lines(tmp_path, 10)[0]
    assert row["turns"] == 3 and len(row["ids"]) == len(row["loss_mask"])
    runs = "".join(map(str, row["loss_mask"])).strip("0").split("0")
    assert len([r for r in runs if r]) == 3


def test_the_kl_term_covers_groups_without_an_advantage(tiny_folder: Path) -> None:
    """Every rollout is pulled to the reference, also where all rewards are equal."""
    policy, reference = (load_policy(tiny_folder, "float32") for _ in range(2))
    with torch.no_grad():
        policy.named()[1][1].mul_(1.1)
    config = replace(RL, prompts_per_step=4, mini_batch=4, kl_coef=0.1, normaliser="sequence_mean")
    batch = drawn(policy, tiny_folder, config, lambda task, rollout: Score(1.0, 0.3))
    assert not batch.adv_PG.any() and not segments_of(batch, range(4))
    before = policy.named()[0][1].detach().clone()
    packed = pack(segments_of(batch, range(4), True))
    with torch.no_grad():
        own, other = (p.logp(packed, config.temperature)[0] for p in (policy, reference))
    optimiser = MasterAdamW(policy.named())
    said = update(policy, optimiser, batch, config, lr=1e-3, micro_tokens=999, reference=reference)
    kl = (other - own).exp() - (other - own) - 1
    assert said["kl/reference"] == pytest.approx(float(kl.mean()), rel=1e-3)
    assert said["kl/reference"] > 0 and said["grad_norm"] > 0
    assert not torch.equal(before, policy.named()[0][1])
    assert len(set(packed.row.tolist())) == 4 * config.rollouts_per_prompt


CUT = {"sampling_correction": "token", "top_k": 40, "top_p": 0.95, "temperature": 0.7}


@pytest.mark.parametrize("changes", [{}, {"normaliser": "sequence_mean"}, CUT])
def test_the_loss_is_a_sum_over_tokens_by_hand(tiny_folder: Path, changes: dict[str, Any]) -> None:
    """On policy: −Σ w·A/(budget·R), or −Σ w·A/(length·R), where w weighs what was drawn from a part
    of the law; its gradient is the closed form."""
    policy = load_policy(tiny_folder, "float32")
    config = replace(RL, prompts_per_step=3, mini_batch=3, **changes)
    batch = drawn(policy, tiny_folder, config)
    segments = segments_of(batch, range(3))
    frame = frame_of(policy, batch, config, 9999, False)
    loss, _ = micro_loss(policy, segments, frame, config, 24, None)
    loss.backward()
    mine, packed = without_gradient(policy), pack(segments)
    logp, _ = policy.logp(packed, config.temperature)
    flat, adv = [t for group in batch.groups for t in group], batch.adv_PG.flatten()
    scale: list[float] = []
    for own, row, column in zip(logp.tolist(), packed.row, packed.column, strict=True):
        rollout = flat[row]
        drew = [x for x, m in zip(rollout.sampling_logprobs, rollout.loss_mask, strict=True) if m]
        length = len(drew) if "normaliser" in changes else config.max_new_tokens
        kept = min(math.exp(own - drew[column]), config.correction_cap) if changes is CUT else 1.0
        scale.append(kept * float(adv[row]) / length / 24)
    assert float(loss.detach()) == pytest.approx(-sum(scale), abs=1e-6)
    (-(logp * torch.tensor(scale)).sum()).backward()
    for a, b in zip(mine, without_gradient(policy), strict=True):
        assert torch.allclose(a, b, atol=1e-5 * float(b.abs().max()) + 1e-12)


def test_a_norm_that_is_not_a_number_is_not_hidden() -> None:
    assert largest([1.0, 3.0, 2.0]) == 3.0
    assert all(n != n for n in (largest([1.0, float("nan")]), largest([float("nan"), 1.0])))


def lines(out: Path, step: int) -> list[dict[str, Any]]:
    text = (out / "rollouts" / f"step_{step:06d}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_flat_groups_give_way_to_those_that_teach(tiny_folder: Path, tmp_path: Path) -> None:
    """Every other task pays the same for every answer."""

    def reward(task: Task, rollout: Trajectory) -> Score:
        return Score(1.0, 1.0) if int(task.id[1:]) % 2 else few_as(task, rollout)

    config = replace(RL, steps=3, prompts_per_step=6, rollouts_per_prompt=4, mini_batch=3)
    run_rl(tiny_folder, tmp_path, replace(config, dynamic_sampling=6), reward)
    for row in read_metrics(tmp_path):
        before, after = row["by_group/flat_before"], row["by_group/flat_after"]
        assert before > 0 and after < before  # half of the tasks are flat
        rollouts = lines(tmp_path, row["step"])
        assert len(rollouts) == 4 * row["by_group/sampled"] > 4 * 6
        learned = {r["task_id"] for r in rollouts if r["learned"]}
        flat = {r["task_id"] for r in rollouts if int(r["task_id"][1:]) % 2}
        assert len(learned) == 6 and len(learned & flat) == round(6 * after)
        assert len({r["task_id"] for r in rollouts}) == row["by_group/sampled"]


# --- stopped and gone on with --------------------------------------------------------------------


def test_a_run_goes_on_to_more_steps_where_they_are_the_same_run(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """A schedule that ends at the last step keeps it."""
    config = replace(RL, steps=2, schedule="constant")
    run_rl(tiny_folder, tmp_path / "constant", config)
    run_rl(tiny_folder, tmp_path / "constant", replace(config, steps=3))
    with pytest.raises(CheckpointError, match="at step 3 already and now ends after 2; ask for 3"):
        run_rl(tiny_folder, tmp_path / "constant", config)
    run_rl(tiny_folder, tmp_path, replace(config, schedule="cosine"))
    with pytest.raises(CheckpointError, match=r"rl\.steps was 2 and is 6"):
        run_rl(tiny_folder, tmp_path, replace(config, schedule="cosine", steps=6))
