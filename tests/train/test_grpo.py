"""Dr.GRPO, end to end on a tiny model: it learns, its loss equals the closed form, flat
groups are refilled, and a kill changes no bit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from grpo_runs import KILLED, RL, each, few_as, refinement_tasks, run_rl
from places import ROOT

from assay.task import Score, Task, TaskError
from configs.schema import GrpoConfig, GrpoRunConfig
from rollouts.environment import EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Trajectory
from train.grpo import (
    Ask,
    fitting,
    frame_of,
    largest,
    micro_loss,
    refilled,
    sample,
    segments_of,
    train_grpo,
    update,
)
from train.grpo import batch_of as rollout_batch
from train.model.batch import Batch, batch_of
from train.model.optim import MasterAdamW
from train.model.packing import pack
from train.model.policy import TransformersPolicy, load_policy
from train.run.checkpoint import CheckpointError, Checkpoints
from train.run.log import RunLog, read_metrics
from train.run.run import Loop

SHORT = replace(RL, steps=2)


def test_grpo_raises_the_reward(tiny_folder: Path, tmp_path: Path) -> None:
    run_rl(tiny_folder, tmp_path, RL)
    rewards = [row["reward/mean"] for row in read_metrics(tmp_path)]
    assert len(rewards) == 12
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1
    rows = (tmp_path / "rollouts" / "step_000012.jsonl").read_text().splitlines()
    assert len(rows) == 64 and {"ids", "loss_mask", "reward", "outcome"} <= set(json.loads(rows[0]))


@pytest.fixture(scope="module")
def plain(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The policy after two steps of the defaults."""
    return run_rl(tiny_folder, tmp_path_factory.mktemp("plain"), SHORT)


@pytest.mark.parametrize(
    "changes",
    [
        {"normaliser": "sequence_mean"},
        {"sampling_correction": "token", "top_k": 40, "top_p": 0.95},
        {"kl_coef": 0.1},
        {"divide_by_std": True, "temperature": 0.7},
    ],
)
def test_every_switch_changes_what_is_learned(
    tiny_folder: Path, plain: Any, tmp_path: Path, changes: dict[str, Any]
) -> None:
    reference = load_policy(tiny_folder, "float32") if "kl_coef" in changes else None
    other = run_rl(tiny_folder, tmp_path, replace(SHORT, **changes), reference=reference)
    assert not torch.equal(plain.named()[0][1], other.named()[0][1])
    assert all(torch.isfinite(t).all() for _, t in other.named())


def test_failed_scoring_teaches_nothing_and_is_counted(tiny_folder: Path, tmp_path: Path) -> None:
    def broken(task: Task, trajectory: Trajectory) -> Score:
        return Score(None, None, {}, "sandbox_error")

    policy = load_policy(tiny_folder, "float32")
    before = policy.named()[0][1].detach().clone()
    after = run_rl(tiny_folder, tmp_path, replace(RL, steps=1), broken).named()[0][1]
    assert torch.equal(before, after)
    assert read_metrics(tmp_path)[0]["why/sandbox_error"] == 1.0


def test_mini_batches_use_the_log_probabilities_of_the_batch_start(tiny_folder: Path) -> None:
    """With two optimiser steps a batch, the second step's ratio is no longer 1."""
    policy = load_policy(tiny_folder, "float32")
    tokenizer = ChatTokenizer(tiny_folder)
    config = replace(RL, mini_batch=4, lr=0.05)
    tasks, engine = refinement_tasks(8), policy.engine(tokenizer.stop_ids, 64)
    groups = sample(tasks, engine, tokenizer, config, 5)
    batch = rollout_batch(tasks, groups, each(few_as)(tasks, groups), config)
    out = update(
        policy,
        MasterAdamW(policy.named()),
        batch,
        config,
        lr=0.05,
        micro_tokens=9999,
        reference=None,
    )
    assert out["pg_clipfrac"] > 0


@pytest.mark.parametrize("by_transformers", [False, True])
def test_a_group_that_is_cut_has_the_gradient_of_the_whole(
    tiny_folder: Path, by_transformers: bool
) -> None:
    """`micro_tokens` bounds every micro-batch, and changes the order of sums alone."""
    tokenizer, config = ChatTokenizer(tiny_folder), replace(RL, mini_batch=4, prompts_per_step=4)
    policy = load_policy(tiny_folder, "float32")
    if by_transformers:
        policy = TransformersPolicy(tiny_folder, "float32", "cpu")
    tasks = refinement_tasks(4)
    groups = sample(tasks, policy.engine(tokenizer.stop_ids, 64), tokenizer, config, 5)
    batch = rollout_batch(tasks, groups, each(few_as)(tasks, groups), config)
    found: list[torch.Tensor] = []
    sizes: list[int] = []
    inner = policy.logp

    def watched(packed: Any, temperature: float = 1.0) -> Any:
        sizes[-1] = max(sizes[-1], len(packed.ids))
        return inner(packed, temperature)

    policy.logp = watched
    for micro_tokens in (9999, 60):
        sizes.append(0)
        optimiser = MasterAdamW(policy.named())
        optimiser.step = lambda lr, max_norm: 0.0  # the gradients are looked at, not used
        update(policy, optimiser, batch, config, lr=0.0, micro_tokens=micro_tokens)
        found.append(torch.cat([t.grad.flatten() for _, t in policy.named() if t.grad is not None]))
        for _, tensor in policy.named():
            tensor.grad = None
    longest = max(len(t.ids) for group in groups for t in group)
    assert sizes[0] > 120 and sizes[1] <= max(60, longest)
    assert float((found[0] - found[1]).norm() / found[0].norm()) < 1e-6


def test_prompts_that_leave_no_room_are_left_out_or_refused(tiny_folder: Path) -> None:
    tokenizer = ChatTokenizer(tiny_folder)
    tasks = refinement_tasks(3)
    long = replace(tasks[0], prompt=[{"role": "user", "content": "y" * 500}])
    kept = fitting([*tasks, long], tokenizer, RL)
    assert [t.id for t in kept] == ["t0", "t1", "t2"]
    with pytest.raises(TaskError, match=r"raise rl\.max_length"):
        fitting([long], tokenizer, RL)


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
        text = trajectory.answer().files["said"].decode()
        share = sum(c in "abcdefghijklm" for c in text) / max(len(text), 1)
        return Score(float(share > 0.9), share)

    tasks = [replace(t, tools=("parrot",)) for t in refinement_tasks(6)]
    policy, config = (
        load_policy(tiny_folder, "float32"),
        replace(RL, steps=10, prompts_per_step=4, max_new_tokens=6, max_length=400),
    )
    train_grpo(
        policy,
        tasks,
        ChatTokenizer(tiny_folder),
        each(few),
        config,
        Loop(1, RunLog(tmp_path), Checkpoints(tmp_path / "ck", GrpoRunConfig(rl=config)), 2000),
        maker=Parrot,
    )
    rewards = [row["reward/mean"] for row in read_metrics(tmp_path)]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1
    row = json.loads((tmp_path / "rollouts" / "step_000010.jsonl").read_text().splitlines()[0])
    assert row["turns"] == 3 and len(row["ids"]) == len(row["loss_mask"])
    runs = "".join(map(str, row["loss_mask"])).strip("0").split("0")
    assert len([r for r in runs if r]) == 3


def test_the_kl_term_covers_groups_without_an_advantage(tiny_folder: Path) -> None:
    """Every rollout is pulled to the reference, also where all rewards are equal."""
    tokenizer, tasks = ChatTokenizer(tiny_folder), refinement_tasks(4)
    policy, reference = (load_policy(tiny_folder, "float32") for _ in range(2))
    with torch.no_grad():
        policy.named()[1][1].mul_(1.1)
    config = replace(RL, prompts_per_step=4, mini_batch=4, kl_coef=0.1, normaliser="sequence_mean")
    groups = sample(tasks, policy.engine(tokenizer.stop_ids, 64), tokenizer, config, 5)
    flat = [[Score(1.0, 0.3) for _ in group] for group in groups]
    batch = rollout_batch(tasks, groups, flat, config)
    assert not batch.adv_PG.any()
    before = policy.named()[0][1].detach().clone()
    kinds = (MasterAdamW(policy.named()), batch, config)
    packed = pack(segments_of(batch, range(4), True))
    with torch.no_grad():
        own, other = (p.logp(packed, config.temperature)[0] for p in (policy, reference))
    said = update(policy, *kinds, lr=1e-3, micro_tokens=999, reference=reference)
    kl = (other - own).exp() - (other - own) - 1
    assert said["kl/reference"] == pytest.approx(float(kl.mean()), rel=1e-3)
    assert said["kl/reference"] > 0 and said["grad_norm"] > 0
    assert not torch.equal(before, policy.named()[0][1])
    lengths = [sum(t.loss_mask) for group in groups for t in group]
    total = len(list(train_grpo_segments(batch, True)))
    assert total == len(lengths) and not list(train_grpo_segments(batch, False))


def train_grpo_segments(batch: Any, flat_too: bool) -> list[int]:
    return [r for s in segments_of(batch, range(len(batch.tasks)), flat_too) for r in s.rows]


def test_the_loss_is_a_sum_over_tokens_by_hand(tiny_folder: Path) -> None:
    """On policy: −Σ A/(budget·R), or −Σ A/(length·R); its gradient is the closed form."""
    tokenizer, tasks = ChatTokenizer(tiny_folder), refinement_tasks(3)
    policy = load_policy(tiny_folder, "float32")
    for normaliser in ("constant", "sequence_mean"):
        config = replace(RL, mini_batch=8, normaliser=normaliser)
        groups = sample(tasks, policy.engine(tokenizer.stop_ids, 64), tokenizer, config, 5)
        scores = each(few_as)(tasks, groups)
        batch = rollout_batch(tasks, groups, scores, config)
        segments = segments_of(batch, range(3))
        frame = frame_of(policy, batch, config, 9999, False)
        loss, _ = micro_loss(policy, segments, frame, config, 24, None)
        loss.backward()
        mine = [t.grad.clone() for _, t in policy.named()]
        for _, t in policy.named():
            t.grad = None
        packed = pack(segments)
        logp, _ = policy.logp(packed, config.temperature)
        flat = [t for group in groups for t in group]
        scale = [
            float(batch.adv_PG.flatten()[r])
            / (config.max_new_tokens if normaliser == "constant" else sum(flat[r].loss_mask))
            / 24
            for r in packed.row.tolist()
        ]
        assert float(loss.detach()) == pytest.approx(-sum(scale), abs=1e-6)
        (-(logp * torch.tensor(scale)).sum()).backward()
        for a, (_, t) in zip(mine, policy.named(), strict=True):
            assert torch.allclose(a, t.grad, atol=1e-6 * float(t.grad.abs().max()) + 1e-12)
            t.grad = None


def test_a_norm_that_is_not_a_number_is_not_hidden() -> None:
    assert largest([1.0, 3.0, 2.0]) == 3.0
    assert all(n != n for n in (largest([1.0, float("nan")]), largest([float("nan"), 1.0])))


# --- tasks of which groups of equal rewards are left out -----------------------------------------


SIZES = {"prompts_per_step": 6, "rollouts_per_prompt": 4, "mini_batch": 3, "max_new_tokens": 8}
HALF_FLAT = GrpoConfig(steps=6, lr=3e-3, max_length=64, save_every=2, **SIZES)
ALL = replace(HALF_FLAT, dynamic_sampling=2, overlong="soft", overlong_buffer=4)
TASKS = [
    Task(f"t{i}", "toy", "x", "train", [{"role": "user", "content": f"{i}"}], {"flat": i % 2})
    for i in range(24)
]


def reward(task: Task, rollout: Trajectory) -> Score:
    """Every other task pays the same for every answer."""
    share = sum(c in "abcdefghijklm" for c in rollout.text) / max(len(rollout.text), 1)
    return Score(1.0, 1.0) if task.gold["flat"] else Score(float(share > 0.5), share)


def learn(folder: Path, out: Path, config: GrpoConfig, score: Any = reward) -> Any:
    return run_rl(folder, out, config, score, TASKS)


def lines(out: Path, step: int) -> list[dict[str, Any]]:
    text = (out / "rollouts" / f"step_{step:06d}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def same(a: Any, b: Any) -> bool:
    return all(torch.equal(x, y) for (_, x), (_, y) in zip(a.named(), b.named(), strict=True))


def test_flat_groups_give_way_to_those_that_teach(tiny_folder: Path, tmp_path: Path) -> None:
    run_rl(
        tiny_folder, tmp_path / "on", replace(HALF_FLAT, dynamic_sampling=2, steps=3), reward, TASKS
    )
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
    learn(tiny_folder, tmp_path / "off", replace(HALF_FLAT, steps=1))
    (row,) = read_metrics(tmp_path / "off")
    assert "by_group/sampled" not in row and "learned" not in lines(tmp_path / "off", 1)[0]


def test_of_a_task_asked_twice_each_group_keeps_its_place() -> None:
    """One of the two groups teaches, the other is flat, and no further prompt teaches."""

    def made(rows: list[int], rewards: list[list[float]]) -> Batch:
        groups: Any = [[f"{row}{i}" for i in range(2)] for row in rows]
        scores = [[Score(x, x) for x in line] for line in rewards]
        return batch_of([TASKS[row] for row in rows], groups, scores, config, rows)

    config = replace(HALF_FLAT, dynamic_sampling=1, prompts_per_step=2, mini_batch=2)
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
    def nothing(task: Task, rollout: Trajectory) -> Score:
        return Score(0.0, 0.1)

    before = load_policy(tiny_folder, "float32")
    after = run_rl(
        tiny_folder, tmp_path, replace(HALF_FLAT, dynamic_sampling=9, steps=1), nothing, TASKS
    )
    assert same(before, after)
    (row,) = read_metrics(tmp_path)
    assert row["by_group/sampled"] == 24 and row["by_group/flat_after"] == 1  # every task, once


def test_the_score_and_what_is_learned_from_are_both_logged(
    tiny_folder: Path, tmp_path: Path
) -> None:
    learn(tiny_folder, tmp_path / "soft", replace(ALL, steps=1))
    (row,) = read_metrics(tmp_path / "soft")
    rollouts = lines(tmp_path / "soft", 1)
    assert row["reward/used/mean"] < row["reward/mean"]
    cut = [r for r in rollouts if r["stop"] == "length"]
    assert cut and all(r["reward_used"] == pytest.approx(r["reward"] - 1) for r in cut)
    assert row["reward/mean"] == pytest.approx(sum(r["reward"] for r in rollouts) / len(rollouts))
    run_rl(
        tiny_folder, tmp_path / "mask", replace(HALF_FLAT, overlong="mask", steps=1), reward, TASKS
    )
    (row,) = read_metrics(tmp_path / "mask")
    masked = [r["masked"] for r in lines(tmp_path / "mask", 1)]
    assert row["overlong/masked"] == pytest.approx(sum(masked) / len(masked)) and any(masked)


# --- stopped and gone on with --------------------------------------------------------------------


CHILD = """
import sys, torch
torch.set_num_threads(1)
sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/tests/support"]
from pathlib import Path
from grpo_runs import KILLED, run_rl
run_rl(Path(sys.argv[2]), Path(sys.argv[3]), KILLED)
"""


# once this many steps are logged, and a little later: before the first save, and after others
@pytest.mark.parametrize("kills", [(3,), pytest.param((1, 4), marks=pytest.mark.slow)])
def test_kill_9_anywhere_and_rerun_gives_the_same_bits(
    tiny_folder: Path, tmp_path: Path, kills: tuple[int, ...]
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_rl(tiny_folder, whole, KILLED).save(whole / "model")
    pauses = random.Random(11)
    for lines in kills:
        words = [sys.executable, "-c", CHILD, str(ROOT), str(tiny_folder), str(killed)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        child = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)
        metrics = killed / "metrics.jsonl"
        while child.poll() is None:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= lines:
                time.sleep(pauses.random() * 0.05)
                child.send_signal(signal.SIGKILL)
                break
            time.sleep(0.005)
        child.wait()
    run_rl(tiny_folder, killed, KILLED).save(killed / "model")
    a, b = (p / "model" / "model.safetensors" for p in (whole, killed))
    assert a.read_bytes() == b.read_bytes()
    steps = [row["step"] for row in read_metrics(killed)]
    assert steps == list(range(1, KILLED.steps + 1))


def test_fewer_steps_than_are_done_are_refused(tiny_folder: Path, tmp_path: Path) -> None:
    run_rl(tiny_folder, tmp_path, replace(RL, steps=3))
    with pytest.raises(CheckpointError, match="at step 3 already and now ends after 2; ask for 3"):
        run_rl(tiny_folder, tmp_path, replace(RL, steps=2))


def test_a_schedule_that_ends_at_the_last_step_keeps_it(tiny_folder: Path, tmp_path: Path) -> None:
    config = replace(RL, steps=3, schedule="cosine")
    run_rl(tiny_folder, tmp_path, config)
    with pytest.raises(CheckpointError, match=r"rl\.steps was 3 and is 6"):
        run_rl(tiny_folder, tmp_path, replace(config, steps=6))
    run_rl(tiny_folder, tmp_path / "constant", replace(RL, steps=3))
    run_rl(tiny_folder, tmp_path / "constant", replace(RL, steps=4))
