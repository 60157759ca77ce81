"""Would int8 weights make rollouts faster, and how far would they be from the trained policy?

    python -m benchmarks.int8 --model runs/demo/sft [--threads 1] [--repeats 5] [--dtype bfloat16]

16 prompts of `assay tasks demo`, 8 samples each, temperature 0.7, to their end (80 tokens at most).
Three sides in turn, as in a step of RL, the copies of the weights included: the working format;
int8 weights in the layers (per output channel, inputs quantised as they come, FBGEMM); and the
same with the head. Beside the processor time stands log q − log π over the sampled tokens: q is
what a token was drawn from, π the policy that is trained. Importance weights have to mend that
difference (`rl.sampling_correction=token`).
"""

# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.task import read_tasks
from benchmarks.engine import demo_tasks, timed
from rollouts.engines.torch import decode
from rollouts.engines.torch.bindings import Kernels
from rollouts.engines.torch.engine import TorchEngine, set_threads
from rollouts.engines.torch.llama import Llama
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Completion, Sampling
from train.model.packing import Segment, pack
from train.model.policy import load_policy

PROMPTS, GROUP = 16, 8
SAMPLING = Sampling(80, 0.7)
Maker = Callable[[Llama, int, bool], decode.Products]


def int8_linear(weight: Tensor) -> decode.Linear:
    """x·Wᵀ with W in int8, one scale an output channel; x is quantised at each call."""
    dtype, weight = weight.dtype, weight.detach().float()
    scales = (weight.abs().amax(1) / 127).clamp_min(1e-9).double()
    zeros = torch.zeros(len(weight), dtype=torch.long)
    whole = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
    ops: Any = torch.ops.quantized
    packed = ops.linear_prepack(whole, None)
    return lambda x: ops.linear_dynamic(x.float(), packed, False).to(dtype)


def gated(kernels: Kernels | None, both: decode.Linear, x: Tensor) -> Tensor:
    return decode.gated(kernels, both(x))


def int8_products(plain: Maker, with_head: bool) -> Maker:
    """What makes the products of a model whose linear layers have no bias."""

    def make(model: Llama, rows: int, packed: bool) -> decode.Products:
        kernels = decode.kernels_of(model)
        layers = [
            (
                int8_linear(b.qkv),
                int8_linear(b.o),
                partial(gated, kernels, int8_linear(b.gate_up)),
                int8_linear(b.down),
            )
            for b in model.layers
        ]
        head = int8_linear(model.head) if with_head else plain(model, rows, packed).head
        return decode.Products(layers, head)

    return make


@torch.no_grad()
def gaps(policy: Any, prompts: list[list[int]], groups: list[list[Completion]]) -> Tensor:
    """log q − log π of every sampled token."""
    found: list[float] = []
    for prompt, group in zip(prompts, groups, strict=True):
        packed = pack([Segment(prompt, [list(c.ids) for c in group], list(range(len(group))))])
        logp, _ = policy.logp(packed, SAMPLING.temperature)
        for value, row, at in zip(logp.tolist(), packed.row, packed.column, strict=True):
            found.append(group[int(row)].sampling_logprobs[int(at)] - value)
    return torch.tensor(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a folder of `assay sft` or demo")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16"))
    args = parser.parse_args()
    set_threads(args.threads)
    torch.backends.quantized.engine = "fbgemm"
    policy: Any = load_policy(args.model, args.dtype)
    tokenizer = ChatTokenizer(policy.folder)
    with tempfile.TemporaryDirectory() as made:
        demo_tasks(made)
        tasks = read_tasks(Path(made) / "heldout.jsonl")[:PROMPTS]
    prompts = [tokenizer.prompt(task.prompt) for task in tasks]
    engine = TorchEngine(policy.model, sorted(tokenizer.stop_ids), slots=PROMPTS * GROUP)
    plain = decode.products
    sides: dict[str, Maker] = {
        args.dtype: plain,
        "int8 layers": int8_products(plain, False),
        "int8 layers and head": int8_products(plain, True),
    }
    took: dict[str, list[float]] = {name: [] for name in sides}
    groups: dict[str, list[list[Completion]]] = {}

    def draw(name: str) -> None:
        engine.update_weights()
        groups[name] = engine.generate_now(prompts, SAMPLING, GROUP, range(PROMPTS))

    for repeat in range(args.repeats + 1):
        for name, maker in sides.items():
            decode.products = maker
            _, seconds = timed(lambda name=name: draw(name))
            if repeat:  # the first round warms up
                took[name].append(seconds)
    decode.products = plain
    base = took[args.dtype]
    for name in sides:
        ratios = [a / b for a, b in zip(base, took[name], strict=True)]
        gap = gaps(policy, prompts, groups[name]).abs()
        rate = sum(len(c.ids) for g in groups[name] for c in g) / statistics.median(took[name])
        print(
            f"{name:<21} {rate:6.1f} tok/s, {statistics.median(ratios):.2f} times {args.dtype} "
            f"({min(ratios):.2f} to {max(ratios):.2f})   |log q − log π| mean {gap.mean():.4f}, "
            f"99 % {gap.quantile(0.99):.3f}, most {gap.max():.2f}"
        )


if __name__ == "__main__":
    main()
