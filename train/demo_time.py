# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""How long the demo takes on this machine, from a measurement of some seconds; the sizes that fit
into a time.

The measurement only chooses sizes. They are recorded as settings, so that a run can be made again
without it, on any machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from configs.loader import to_dict
from configs.schema import DEMO_SIZES, DemoConfig
from rollouts.event_loop import asyncio_run
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Sampling
from train.model.optim import backward
from train.model.packing import Segment, pack
from train.model.policy import Policy, device_of
from train.run.log import duration
from train.run.record import read_run_record

PROMPT, ANSWER = 113, 42  # tokens of the default demo's tasks and golds, on average
SHARED, BESIDE = 50, 6  # of a prompt's tokens all begin with; rows of SFT that share them
# what is computed of a group's tokens in RL: samples and flat groups share most (one run's means)
DRAWN, LEARNED = 0.6, 0.35
START_S = 30.0  # tasks, loading the model three times, the report
PROMPTS, ROWS, NEW = 4, 64, 12  # prompts, answers and tokens of the measurement
GPU_TEXTS = 8  # such texts at a time: a GPU takes about as long for one
LEAST = {"train_sft": 40, "steps": 2, "tasks": 48}


@dataclass(frozen=True)
class Speeds:
    """Tokens a second: of prompts read, of answers written side by side, and learned from."""

    prefill: float
    decode: float
    learn: float


def measured_speeds(policy: Policy, tokenizer: ChatTokenizer, slots: int) -> Speeds:
    """Some seconds of the engine's own work, and of a forward and backward pass over a text (on a
    GPU over a few). Draws from no random state that a run uses."""
    engine, device = policy.engine(tokenizer.stop_ids, slots), device_of(policy)
    prompts = [
        tokenizer.prompt([{"role": "user", "content": f"{name} " * PROMPT}])[:PROMPT]
        for name in ("one", "two", "six", "ten")[:PROMPTS]
    ]
    rows, texts = min(ROWS, slots), GPU_TEXTS if device.type == "cuda" else 1
    answer = prompts[1][:ANSWER] or [0]

    def answers(asked: list[list[int]], n: int, new: int) -> int:
        made = asyncio_run(engine.generate(asked, Sampling(new), n, list(range(len(asked)))))
        return sum(len(one.ids) for group in made for one in group)

    def learn() -> None:
        segments = [Segment(prompts[0], [answer], [row]) for row in range(texts)]
        logp_N, _ = policy.logp(pack(segments, device))
        backward(-logp_N.mean())
        for _, tensor in policy.named():
            tensor.grad = None

    answers(prompts[:1], rows, 1)  # the first call makes what all others use
    read = timed(lambda: answers(prompts, 1, 1))
    start = timed(lambda: answers(prompts[:1], rows, 1))
    tokens: list[int] = []
    whole = timed(lambda: tokens.append(answers(prompts[:1], rows, NEW)))
    decode = max(tokens[0] - rows, 1) / max(whole - start, 1e-3)
    timed(learn)
    learned = texts * (len(prompts[0]) + len(answer)) / timed(learn)
    return Speeds(PROMPTS * PROMPT / read, decode, learned)


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    if torch.cuda.is_initialized():  # its work goes on after the call
        torch.cuda.synchronize()
    return max(time.perf_counter() - began, 1e-6)


def stage_seconds(config: DemoConfig, speeds: Speeds) -> dict[str, float]:
    """Seconds of every stage."""
    rl, tasks, own = config.rl, config.eval.tasks, PROMPT - SHARED

    def answered(length: float, tasks: int = tasks) -> float:
        return tasks * (own / speeds.prefill + length / speeds.decode)

    group = rl.rollouts_per_prompt * ANSWER
    learned = LEARNED * (PROMPT + group) / speeds.learn
    prompt = own / speeds.prefill + DRAWN * group / speeds.decode + learned
    examples = config.tasks.train_sft * config.sft.epochs
    return {
        "start and report": START_S,
        "untouched model": answered(
            config.eval.max_new_tokens, min(tasks, config.eval.untouched or tasks)
        ),
        "SFT": examples * (own + SHARED / BESIDE + ANSWER) / speeds.learn,
        "SFT model": answered(ANSWER),
        "Dr.GRPO": rl.steps * rl.prompts_per_step * prompt,
        "RL model": answered(ANSWER),
    }


def expected_line(config: DemoConfig, speeds: Speeds) -> str:
    """How long it will take here, stage by stage."""
    stages = stage_seconds(config, speeds)
    parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in stages.items())
    return f"about {duration(sum(stages.values()))} on this machine: {parts}"


def fitted_to(config: DemoConfig, speeds: Speeds, minutes: float) -> DemoConfig:
    """`config` with sizes that take about `minutes`, but not less than `LEAST`.

    All sizes shrink together; where there is time left, RL gets it.
    """
    stages = stage_seconds(config, speeds)
    fixed = stages.pop("start and report")
    if 0 < config.eval.untouched < config.eval.tasks:  # of its own size
        fixed += stages.pop("untouched model")
    share = (60 * minutes - fixed) / sum(stages.values())
    if share >= 1:
        step = stages["Dr.GRPO"] / config.rl.steps
        more = int((60 * minutes - fixed - sum(stages.values())) / step)
        return replace(config, rl=replace(config.rl, steps=config.rl.steps + more))

    def less(size: int, name: str, by: int) -> int:
        return min(size, max(LEAST[name], round(size * share / by) * by))

    tasks = less(config.eval.tasks, "tasks", 12)
    train_sft = less(config.tasks.train_sft, "train_sft", 8)
    return _sized(config, train_sft, tasks, less(config.rl.steps, "steps", 1), tasks)


def _sized(config: DemoConfig, train_sft: int, heldout: int, steps: int, tasks: int) -> DemoConfig:
    """`config` with these sizes, in the order of `DEMO_SIZES`."""
    return replace(
        config,
        tasks=replace(config.tasks, train_sft=train_sft, heldout=heldout),
        rl=replace(config.rl, steps=steps),
        eval=replace(config.eval, tasks=tasks),
    )


def _sizes(config: Mapping[str, Any]) -> list[int]:
    """The sizes of settings as they are written down."""
    return [config[section][key] for section, key in (name.split(".") for name in DEMO_SIZES)]


def sizes_of(config: DemoConfig) -> str:
    """The sizes as settings: the same run without measuring."""
    values = _sizes(to_dict(config))
    return " ".join(f"{name}={value}" for name, value in zip(DEMO_SIZES, values, strict=True))


def begun_with(config: DemoConfig) -> DemoConfig | None:
    """`config` with the sizes of the run in its folder; None where none has begun."""
    old: Mapping[str, Any] = read_run_record(Path(config.out)).get("config") or {}
    return _sized(config, *_sizes(old)) if old else None
