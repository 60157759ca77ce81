"""How long a step may take on A100s, from low to high, and what each end assumes.

Operations are counted exactly (they agree with torch's counter on fake tensors). How much of a
GPU's speed a run gets, and how long answers are, is not known before it runs: those are ranges, and
a dry run prints them.
"""

from __future__ import annotations

from dataclasses import dataclass

from configs.schema import GrpoRunConfig, SftRunConfig
from train.backends.ranges import Range, known
from train.model.shape import Shape

# An A100 as its data sheet has it, and what of it one usually gets.
FLOPS, FLOPS_SHARE = 312e12, Range(0.25, 0.45)
BANDWIDTH, BANDWIDTH_SHARE = 2.0e12, Range(0.45, 0.70)
TOKEN_S = Range(0.002, 0.005)  # of a server for one token of all its answers, beside the memory
LINK = Range(25e9, 200e9)  # bytes a second into one GPU: between nodes at worst, NVLink at best
HOST = Range(20e9, 80e9)  # bytes a second that the cores of a node update offloaded weights at
OVERHEAD_S = Range(10.0, 60.0)  # of an RL step: weights to the servers, scoring, data
TOOL_S = Range(0.0, 120.0)  # of the slowest episode of a step, where tasks have tools


@dataclass(frozen=True)
class Time:
    """Seconds of a step, by what they are for, and what was assumed."""

    parts: dict[str, Range]
    assumed: tuple[str, ...]

    def step(self) -> Range:
        return sum(self.parts.values(), start=known(0.0))

    def lines(self, steps: int | None) -> list[str]:
        step = self.step()
        each = " + ".join(f"{name} {value.text('.0f')} s" for name, value in self.parts.items())
        whole = "" if steps is None else f", {steps} steps {(step * (steps / 3600)).text()} h"
        return [
            f"time (estimate, A100): {(step * (1 / 60)).text()} min a step{whole}",
            f"  a step: {each}",
            *(f"  assumed: {text}" for text in self.assumed),
        ]


def forward_flops(shape: Shape, tokens: float, scored: float) -> float:
    """Of a forward pass over one sequence whose last `scored` positions get logits."""
    return (
        tokens * shape.layers * 2 * _matrices(shape)
        + _scores(shape, tokens) * 2
        + 2 * (scored * shape.vocab * shape.hidden)
    )


def step_flops(shape: Shape, tokens: float, scored: float) -> float:
    """Of a forward and a backward pass over one sequence. Layers are computed again in the
    backward pass, up to their last product."""
    again = _matrices(shape) - shape.hidden * shape.mlp
    linear = tokens * shape.layers * (6 * _matrices(shape) + 2 * again)
    return linear + _scores(shape, tokens) * 9 + 6 * scored * shape.vocab * shape.hidden


def _matrices(shape: Shape) -> float:
    """Weights of a layer that its input is multiplied by."""
    heads = 2 * shape.heads + 2 * shape.kv_heads
    return shape.hidden * shape.head_dim * heads + 3 * shape.hidden * shape.mlp


def _scores(shape: Shape, tokens: float) -> float:
    """One product of queries and keys in all layers, of which a causal mask needs half. Forward
    has two such products, backward five."""
    return shape.layers * tokens**2 * shape.heads * shape.head_dim


def speed() -> Range:
    """Operations a second of one GPU."""
    return FLOPS_SHARE * FLOPS


def sft_time(config: SftRunConfig, shape: Shape) -> Time:
    """Of a DeepSpeed step."""
    cluster, longest = config.cluster, float(config.sft.max_length)
    rows = config.sft.batch_size / cluster.devices
    flops = Range(step_flops(shape, longest / 4, longest / 16), step_flops(shape, longest, longest))
    parts = {"computing": (flops * rows).over(speed())}
    assumed = [
        f"sequences of {longest / 4:.0f}–{longest:.0f} tokens (a quarter to all of sft.max_length)",
        _speed_text(),
    ]
    if cluster.devices > 1:
        passes = 3 if cluster.zero_stage == 3 else 1  # gathered twice, gradients sent once
        sent = known(passes * 2.0 * shape.parameters * rows)
        parts["between GPUs"] = Range(0.0, sent.over(LINK).high)
        assumed.append(
            f"{LINK.low / 1e9:g} GB/s into a GPU at the high end; hidden behind the computing at "
            "the low end"
        )
    if cluster.offload:
        moved = known(28.0 * shape.parameters / cluster.nodes)  # read and written by an update
        parts["update on the host"] = moved.over(HOST)
        assumed.append(
            f"the cores of a node update {HOST.low / 1e9:g}–{HOST.high / 1e9:g} GB/s of "
            "weights and moments"
        )
    return Time(parts, tuple(assumed))


def grpo_time(config: GrpoRunConfig, shape: Shape, cache: float) -> Time:
    """Of a verl step; `cache`: bytes of keys and values on a GPU."""
    rl, cluster = config.rl, config.cluster
    rollouts = rl.prompts_per_step * rl.rollouts_per_prompt
    room = float(rl.max_length - 1)
    written = min(room, float(rl.turns * rl.max_new_tokens))  # the most that an episode writes
    # one message, or with tools several that together reach the budget of one
    mean = Range(
        min(written, rl.max_new_tokens / 4),
        min(written, rl.max_new_tokens * (1.0 if rl.turns > 1 else 0.5)),
    )
    longest = Range(float(min(written, rl.max_new_tokens)), written)
    servers = cluster.devices // cluster.tensor_parallel
    decode = Range(
        _decode(config, shape, cache, rollouts / servers, mean.low, longest.low, best=True),
        _decode(config, shape, cache, rollouts / servers, mean.high, longest.high, best=False),
    )
    read = rl.max_length - rl.max_new_tokens  # prompts are shorter than that
    ends = ((mean.low, mean.low + read / 8), (mean.high, min(room, mean.high + read / 2)))
    passes = 2 if rl.kl_coef else 1  # log-probabilities of π_old, and of the reference
    flops = [
        step_flops(shape, whole, whole) + passes * forward_flops(shape, whole, whole)
        for _, whole in ends
    ]
    work = Range(flops[0], flops[1]) * (rollouts / cluster.devices)
    parts = {
        "rollouts": decode + (TOOL_S if rl.turns > 1 else known(0.0)),
        "update": work.over(speed()),
        "the rest": OVERHEAD_S,
    }
    assumed = (
        f"episodes write {mean.text('.0f')} tokens on average, the longest of a step "
        f"{longest.text('.0f')}; servers wait for it",
        f"a server reads its memory at {_percent(BANDWIDTH_SHARE)} % of 2 TB/s, and needs "
        f"{(TOKEN_S * 1e3).text('.0f')} ms more a token",
        f"tools take {TOOL_S.text('.0f')} s in the slowest episode, where tasks have tools",
        f"{_speed_text()}; log-probabilities of the sampled tokens are computed once more",
    )
    return Time(parts, assumed)


def _decode(
    config: GrpoRunConfig,
    shape: Shape,
    cache: float,
    rollouts: float,
    mean: float,
    longest: float,
    *,
    best: bool,
) -> float:
    """Seconds in which a server writes its rollouts: all side by side up to the mean length, then
    the longest of them almost alone."""
    cut = config.cluster.tensor_parallel
    share = BANDWIDTH_SHARE.high if best else BANDWIDTH_SHARE.low
    token = TOKEN_S.low if best else TOKEN_S.high
    weights, each = 2 * shape.parameters / cut, shape.kv_bytes / cut
    side = max(1.0, min(rollouts, cache / (each * mean)))
    waves = -(-rollouts // side)
    together = (weights + side * each * mean / 2) / (BANDWIDTH * share) + token
    alone = (weights + each * longest) / (BANDWIDTH * share) + token
    return waves * mean * together + max(0.0, longest - mean) * alone


def _speed_text() -> str:
    return f"{_percent(FLOPS_SHARE)} % of an A100's {FLOPS / 1e12:.0f} TFLOP/s"


def _percent(share: Range) -> str:
    return (share * 100).text(".0f")
