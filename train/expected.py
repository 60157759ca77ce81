# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false
"""How long a training will take, from a short measurement of its own engine, said beforehand.

Nothing that is measured here stays: gradients are cleared, and no random state is drawn from, so a
run ends in the same bits as without.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from assay.task import Task
from configs.sft import SftConfig
from configs.training import GrpoConfig
from rollouts.prompts import ChatTokenizer
from train.examples import Example
from train.grpo import sample
from train.model.optim import backward
from train.model.packing import Segment, pack
from train.model.policy import Policy, device_of
from train.run.loop import Loop
from train.sft import sft_steps

LONGEST = 512  # tokens of a text that is learned from to measure
GPU_TEXTS = 8  # such texts at a time: a GPU takes about as long for one
NEW, PROMPTS = 16, 4  # tokens and prompts of a short rollout


def sft_line(policy: Policy, kept: Sequence[Example], config: SftConfig, loop: Loop) -> str:
    """`N steps over T tokens, about M minutes …`; what is there already does not count."""
    if not kept:
        return "no example fits"
    steps = sft_steps(len(kept), config)
    rows = steps * config.batch_size  # the last batch runs on into rows that were seen
    tokens = round(rows / len(kept) * sum(e.tokens for e in kept))
    middle = sorted(kept, key=lambda e: e.tokens)[len(kept) // 2]
    speed = learning_speed(policy, middle.prompt, middle.answer)
    said = duration(tokens / speed)
    return f"{steps} steps over {tokens} tokens: about {said} at {speed:.0f} tokens a second"


def rl_line(
    policy: Policy,
    tasks: Sequence[Task],
    tokenizer: ChatTokenizer,
    config: GrpoConfig,
    loop: Loop,
) -> str:
    """`N steps of R rollouts: at most M minutes …`, as if every answer used all of its tokens."""
    rollouts = config.prompts_per_step * config.rollouts_per_prompt
    what = f"{config.steps} steps of {rollouts} rollouts"
    if any(task.tools for task in tasks):
        return f"{what}; how long tools take is not known beforehand"
    few = list(tasks[:PROMPTS])
    engine = policy.engine(tokenizer.stop_ids, loop.slots)

    def rollout(new: int) -> Callable[[], Any]:
        short = replace(config, max_new_tokens=min(new, config.max_new_tokens))
        return lambda: sample(few, engine, tokenizer, short, 0)

    timed(rollout(1))
    start, whole = timed(rollout(1)), timed(rollout(NEW))
    token = max(whole - start, 1e-6) / max(min(NEW, config.max_new_tokens) - 1, 1)
    parts = config.prompts_per_step / len(few)
    decode = parts * (start + token * config.max_new_tokens)
    prompt = max((tokenizer.prompt(task.prompt) for task in few), key=len)
    speed = learning_speed(policy, prompt, prompt[: config.max_new_tokens])
    learn = rollouts * (config.max_new_tokens + len(prompt) / config.rollouts_per_prompt) / speed
    decode *= 1 + config.dynamic_sampling
    return f"{what}: at most about {duration(config.steps * (decode + learn))}"


def learning_speed(policy: Policy, prompt: Sequence[int], answer: Sequence[int]) -> float:
    """Tokens a second of a forward and backward pass over (the end of) a text, on a GPU over a few
    of it."""
    answer = list(answer)[-LONGEST:] or [0]
    prompt = list(prompt)[-max(LONGEST - len(answer), 1) :]
    device = device_of(policy)
    texts = GPU_TEXTS if device.type == "cuda" else 1

    def learn() -> None:
        rows = [Segment(prompt, [answer], [row]) for row in range(texts)]
        logp_N, _ = policy.logp(pack(rows, device))
        backward(-logp_N.mean())
        for _, tensor in policy.named():
            tensor.grad = None

    timed(learn)
    return texts * (len(prompt) + len(answer)) / timed(learn)


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    if torch.cuda.is_initialized():  # its work goes on after the call
        torch.cuda.synchronize()
    return max(time.perf_counter() - began, 1e-6)


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
