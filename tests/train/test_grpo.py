"""Dr.GRPO, end to end on a tiny model: it learns, and its loss equals the closed form."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from grpo_runs import RL, each, few_as, refinement_tasks, run_rl  # noqa: E402

from assay.task import Score, Task, TaskError  # noqa: E402
from configs.schema import GrpoRunConfig  # noqa: E402
from rollouts.environment import EpisodeEnd, EpisodeStart, ModelTurn, Reply  # noqa: E402
from rollouts.prompts import ChatTokenizer  # noqa: E402
from rollouts.trajectory import Trajectory  # noqa: E402
from train.grpo import batch_of as rollout_batch  # noqa: E402
from train.grpo import (  # noqa: E402
    fitting,
    frame_of,
    largest,
    micro_loss,
    sample,
    segments_of,
    train_grpo,
    update,
)
from train.model.optim import MasterAdamW  # noqa: E402
from train.model.packing import pack  # noqa: E402
from train.model.policy import TransformersPolicy, load_policy  # noqa: E402
from train.run.checkpoint import Checkpoints  # noqa: E402
from train.run.log import RunLog, read_metrics  # noqa: E402
from train.run.run import Loop  # noqa: E402

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
        replace(RL, steps=10, max_new_tokens=6, max_length=400),
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
