"""Attention of whole sequences: in training, forward and back, and of prompts before decoding.

    python -m benchmarks.sequences [--threads N] [--repeats R] [--lengths TOKENS ...]

One layer of SmolLM2-135M's heads and widths, in bfloat16. `tiles` are the compiled kernels for AMX;
`shares` are torch's products with compiled shares between them, as where there is no AMX; `torch`
is its scaled_dot_product_attention. The sides alternate; medians of processor time. Behind them
stands what the layer keeps for its gradients.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from rollouts.engines.torch.bindings import Kernels
from rollouts.engines.torch.kernels import compiled
from rollouts.engines.torch.llama import Layer, Shape, rope_tables
from rollouts.engines.torch.prefill import _mixed, _padding, _Piece
from train.model.fused import Attend, AttendTiled, Seen

HEADS, KV_HEADS, SIZE = 9, 3, 64
REPEAT = HEADS // KV_HEADS


def training(kernels: Kernels, rows: int, length: int) -> tuple[dict[str, Callable[[], None]], str]:
    """Forward and back of causal rows, by side; and what two sides keep."""

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).bfloat16().requires_grad_()

    mask = torch.zeros(length, length).masked_fill(
        torch.ones(length, length).triu(1).bool(), float("-inf")
    )
    seen = Seen(mask.expand(rows, -1, -1), torch.bfloat16)
    q = some(rows * KV_HEADS, REPEAT * length, SIZE)
    keys, values = some(rows * KV_HEADS, length, SIZE), some(rows * KV_HEADS, length, SIZE)
    grad = torch.randn(q.shape).bfloat16()
    one, two, three = (x.view(rows, -1, length, SIZE) for x in (q, keys, values))

    def by(function: Any) -> Callable[[], None]:
        return lambda: function.apply(q, keys, values, seen, kernels).backward(grad)

    def by_torch() -> None:
        mixed = F.scaled_dot_product_attention(one, two, three, is_causal=True, enable_gqa=True)
        mixed.backward(grad.view(mixed.shape), retain_graph=True)

    sides = {"tiles": by(AttendTiled), "shares": by(Attend), "torch": by_torch}
    stats, shares = q.numel() // SIZE * 8, q.numel() // SIZE * length * 2
    return sides, f"kept: tiles {stats >> 10:,} KB, shares {shares >> 10:,} KB"


def prompts(kernels: Kernels, count: int, length: int) -> dict[str, Callable[[], None]]:
    """Prompts that all begin at their first token."""
    frequencies = torch.logspace(0, -4, SIZE // 2)
    shape = Shape(1, 576, HEADS, KV_HEADS, SIZE, 1536, 49152, 1e-5, True, frequencies)
    none = torch.empty(0)
    layer = Layer(none, none, none, none, none, none, None, None, None, None)
    heads = torch.randn(count * length, (HEADS + 2 * KV_HEADS) * SIZE).bfloat16()
    position = torch.arange(length).repeat(count)
    tables = rope_tables(shape, position, heads.dtype)
    k, v = torch.zeros(2, count, KV_HEADS, length, SIZE, dtype=heads.dtype)
    piece = _Piece(0, count, [0] * count, [length] * count)
    padding = _padding(piece, k.device, k.dtype)
    spans = torch.tensor([[0, length]] * count)

    def tiles() -> None:
        kernels.read_prompts(heads, tables, (None, None), k, v, spans, 1e-5)

    def by_torch() -> None:
        _mixed(shape, layer, heads, tables, position, padding, k, v)

    sides = {"tiles": tiles, "torch": by_torch}
    return {name: torch.inference_mode()(work) for name, work in sides.items()}


def compare(
    name: str, sides: Mapping[str, Callable[[], None]], repeats: int, more: str = ""
) -> None:
    times: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(repeats + 1):  # the first warms up
        for side, work in sides.items():
            before = time.process_time()
            work()
            if turn:
                times[side].append(time.process_time() - before)
    ours = statistics.median(times["tiles"])
    parts = [f"{name:<24}"]
    for side, taken in times.items():
        one = statistics.median(taken)
        parts.append(f"{side} {1e3 * one:7.2f} ms ({one / ours:.2f})")
    print("   ".join(parts), more, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="of torch (%(default)s)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 2048])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    found = compiled(torch.bfloat16)
    if not isinstance(found, Kernels) or not found.multiplies:
        raise SystemExit("this needs compiled kernels and a processor with AMX")
    for length in args.lengths:
        rows = max(1, 2048 // length)
        sides, kept = training(found, rows, length)
        compare(f"training {rows} x {length}", sides, args.repeats, kept)
        compare(f"prompts  {rows} x {length}", prompts(found, rows, length), args.repeats)


if __name__ == "__main__":
    main()
