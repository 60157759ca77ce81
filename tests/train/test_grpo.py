"""The loops, end to end on a tiny model: they learn, they resume to the bit, they refuse."""

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
from places import ROOT

torch = pytest.importorskip("torch")

from configs.schema import GrpoConfig, GrpoRunConfig, SftConfig  # noqa: E402
from rewards.task import Score, Task, TaskError, write_jsonl  # noqa: E402
from rollouts.environment import Closing, Opening, Reply, Said  # noqa: E402
from rollouts.prompts import ChatTokenizer  # noqa: E402
from rollouts.trajectory import Trajectory  # noqa: E402
from train.examples import Example  # noqa: E402
from train.grpo import batch_of as rollout_batch  # noqa: E402
from train.grpo import describe, fitting, sample, train_grpo, update  # noqa: E402
from train.model.optim import MasterAdamW  # noqa: E402
from train.model.policy import load_policy  # noqa: E402
from train.run.checkpoint import CheckpointError  # noqa: E402
from train.run.log import RunLog, read_metrics  # noqa: E402
from train.run.loop import Loop  # noqa: E402
from train.run.resume import Checkpoints  # noqa: E402
from train.sft import train_sft  # noqa: E402


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


RL = GrpoConfig(
    steps=12,
    prompts_per_step=8,
    rollouts_per_prompt=8,
    mini_batch=4,
    lr=3e-3,
    max_new_tokens=12,
    max_length=128,
    save_every=3,
)


def run_rl(folder: Path, out: Path, config: GrpoConfig, score: Any = few_as, **more: Any) -> Any:
    policy = load_policy(folder, "float32")
    whole = GrpoRunConfig(rl=config)
    train_grpo(
        policy,
        refinement_tasks(20),
        ChatTokenizer(folder),
        each(score),
        config,
        Loop(1, RunLog(out), Checkpoints(out / "ck", whole), 400, 32),
        **more,
    )
    return policy


def test_grpo_raises_the_reward(tiny_folder: Path, tmp_path: Path) -> None:
    run_rl(tiny_folder, tmp_path, RL)
    rewards = [row["reward/mean"] for row in read_metrics(tmp_path)]
    assert len(rewards) == 12
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1
    rows = (tmp_path / "rollouts" / "step_000012.jsonl").read_text().splitlines()
    assert len(rows) == 64 and {"ids", "loss_mask", "reward", "outcome"} <= set(json.loads(rows[0]))


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
    tiny_folder: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    short = replace(RL, steps=2)
    plain = run_rl(tiny_folder, tmp_path / "a", short)
    reference = load_policy(tiny_folder, "float32") if "kl_coef" in changes else None
    other = run_rl(tiny_folder, tmp_path / "b", replace(short, **changes), reference=reference)
    assert not torch.equal(plain.named()[0][1], other.named()[0][1])
    assert all(torch.isfinite(t).all() for _, t in other.named())


def test_sft_learns_and_resumes_to_the_same_bits(tiny_folder: Path, tmp_path: Path) -> None:
    tokenizer = ChatTokenizer(tiny_folder)
    examples = [
        Example(tokenizer.prompt(t.prompt), tokenizer.answer(t.gold["text"]))
        for t in refinement_tasks(24)
    ]
    config = SftConfig(epochs=4, batch_size=8, lr=3e-3, warmup=2)

    def run(out: Path, stop_after: int | None) -> Any:
        policy = load_policy(tiny_folder, "float32")
        log = RunLog(out)
        if stop_after is not None:
            log.step = stopper(stop_after, log.step)  # type: ignore[method-assign]
        train_sft(
            policy,
            examples,
            config,
            Loop(3, log, Checkpoints(out / "ck", GrpoRunConfig()), 200),
            every=2,
        )
        return policy

    whole = run(tmp_path / "a", None)
    losses = [row["loss"] for row in read_metrics(tmp_path / "a")]
    assert losses[-1] < losses[0] * 0.8
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "b", 5)
    resumed = run(tmp_path / "b", None)
    assert same(whole, resumed)
    assert [r["step"] for r in read_metrics(tmp_path / "b")] == list(range(1, 13))


def stopper(at: int, step: Any) -> Any:
    def stop(stage: str, number: int, *rest: Any) -> None:
        step(stage, number, *rest)
        if number == at:
            raise KeyboardInterrupt

    return stop


def same(a: Any, b: Any) -> bool:
    return all(torch.equal(x, y) for (_, x), (_, y) in zip(a.named(), b.named(), strict=True))


def test_a_changed_locked_field_is_refused_by_name(tiny_folder: Path, tmp_path: Path) -> None:
    run_rl(tiny_folder, tmp_path, replace(RL, steps=3))
    with pytest.raises(CheckpointError, match=r"rl\.lr was 0\.003 and is 0\.001"):
        run_rl(tiny_folder, tmp_path, replace(RL, steps=4, lr=1e-3))


def test_failed_scoring_teaches_nothing_and_is_counted(tiny_folder: Path, tmp_path: Path) -> None:
    def broken(task: Task, trajectory: Trajectory) -> Score:
        return Score(None, None, {}, "sandbox_error")

    policy = load_policy(tiny_folder, "float32")
    before = policy.named()[0][1].detach().clone()
    after = run_rl(tiny_folder, tmp_path, replace(RL, steps=1), broken).named()[0][1]
    assert torch.equal(before, after)
    assert read_metrics(tmp_path)[0]["why/sandbox_error"] == 1.0


def test_formula_and_batch_arithmetic_are_said() -> None:
    text = describe(GrpoConfig(max_new_tokens=96, sampling_correction="token"))
    assert "1/(96·128)" in text and "16 prompts × 8 rollouts = 128" in text and "π_old/q" in text
    dare = describe(GrpoConfig(normaliser="sequence_mean", kl_coef=0.1))
    assert "1/|tokens|" in dare and "KL" in dare


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


KILLED = replace(RL, steps=8, prompts_per_step=4, save_every=3)
CHILD = """
import sys, torch
torch.set_num_threads(1)
sys.path[:0] = [sys.argv[1], *(f"{sys.argv[1]}/tests/{d}" for d in ("support", "train"))]
from pathlib import Path
from test_grpo import KILLED, run_rl
policy = run_rl(Path(sys.argv[2]), Path(sys.argv[3]), KILLED)
policy.save(Path(sys.argv[3]) / "model")
"""


# once this many steps are logged, and a little later: before the first save, and after others
@pytest.mark.parametrize("kills", [(4,), pytest.param((1, 7), marks=pytest.mark.slow)])
def test_kill_9_anywhere_and_rerun_gives_the_same_bits(
    tiny_folder: Path, tmp_path: Path, kills: tuple[int, ...]
) -> None:
    def start(out: Path) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", CHILD, str(ROOT), str(tiny_folder), str(out)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_rl(tiny_folder, whole, KILLED).save(whole / "model")
    pauses = random.Random(11)
    for lines in kills:
        child = start(killed)
        metrics = killed / "metrics.jsonl"
        while child.poll() is None:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= lines:
                time.sleep(pauses.random() * 0.05)
                child.send_signal(signal.SIGKILL)
                break
            time.sleep(0.005)
        child.wait()
    assert start(killed).wait() == 0
    a, b = (p / "model" / "model.safetensors" for p in (whole, killed))
    assert a.read_bytes() == b.read_bytes()
    steps = [row["step"] for row in read_metrics(killed)]
    assert steps == list(range(1, KILLED.steps + 1))


def test_prompts_that_leave_no_room_are_left_out_or_refused(tiny_folder: Path) -> None:
    tokenizer = ChatTokenizer(tiny_folder)
    tasks = refinement_tasks(3)
    long = replace(tasks[0], prompt=[{"role": "user", "content": "y" * 500}])
    kept = fitting([*tasks, long], tokenizer, RL)
    assert [t.id for t in kept] == ["t0", "t1", "t2"]
    with pytest.raises(TaskError, match=r"raise rl\.max_length"):
        fitting([long], tokenizer, RL)


def test_write_jsonl_of_tasks_trains_from_the_command_line(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from train.cli.grpo import main as grpo_main
    from train.cli.sft import main as sft_main

    data = tmp_path / "tasks.jsonl"
    write_jsonl(data, (t.to_json() for t in refinement_tasks(8)))
    common = [f"data={data}", f"model.path={tiny_folder}", "engine.dtype=float32"]
    out = tmp_path / "sft"
    assert sft_main([*common, f"out={out}", "sft.batch_size=4", "engine.threads=1"]) == 0
    rl = ["rl.steps=1", "rl.prompts_per_step=2", "rl.mini_batch=2", "rl.max_new_tokens=8"]
    out = tmp_path / "rl"
    assert grpo_main([*common, f"out={out}", "engine.threads=1", *rl]) == 0
    assert (out / "model" / "model.safetensors").is_file()
    assert grpo_main([*common, "data=/nowhere.jsonl"]) == 2
    assert "/nowhere.jsonl: no such file" in capsys.readouterr().err


class Parrot:
    """A tool task: whatever the model says is answered with a letter, three turns long."""

    def __init__(self, task: Task, sample: int, seed: int) -> None:
        self.task, self.said = task, ""

    async def open(self) -> Opening:
        return Opening(self.task.prompt)

    async def reply(self, said: Said) -> Reply:
        self.said += said.text
        return Reply([{"role": "tool", "content": "zz"}], done=said.turn == 2)

    async def close(self) -> Closing:
        return Closing({"said": self.said.encode()})


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
    said = update(policy, *kinds, lr=1e-3, micro_tokens=999, reference=reference)
    assert said["kl/reference"] > 0 and said["grad_norm"] > 0
    assert not torch.equal(before, policy.named()[0][1])
    lengths = [sum(t.loss_mask) for group in groups for t in group]
    total = len(list(train_grpo_segments(batch, True)))
    assert total == len(lengths) and not list(train_grpo_segments(batch, False))


def train_grpo_segments(batch: Any, flat_too: bool) -> list[int]:
    from train.grpo import segments_of

    return [r for s in segments_of(batch, range(len(batch.tasks)), flat_too) for r in s.rows]


def test_the_loss_is_a_sum_over_tokens_by_hand(tiny_folder: Path) -> None:
    """On policy: −Σ A/(budget·R), or −Σ A/(length·R); its gradient is the closed form."""
    from train.grpo import frame_of, micro_loss, segments_of
    from train.model.packing import pack

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
    from train.grpo import largest

    assert largest([1.0, 3.0, 2.0]) == 3.0
    assert all(n != n for n in (largest([1.0, float("nan")]), largest([float("nan"), 1.0])))


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
