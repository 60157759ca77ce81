"""Attention of a few tokens a row: compiled, without tiles, and by torch's own operations.

    python -m benchmarks.attention [--threads N] [--repeats R] [--sizes PROMPTSxROWSxLENGTHxNEW ...]

The layers, heads and widths are SmolLM2-135M's, in bfloat16; each layer has keys and values of its
own, as in a model, so they come from memory. 30 tokens of each row are sampled already; NEW are
fed, of which all but one are guesses. The sides alternate; medians of processor time, and what of
memory's bandwidth that is. Where the processor has no AMX, or for a token of a row that is alone
with its prompt, the two compiled sides are the same.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from rollouts.engines.torch import ragged
from rollouts.engines.torch.bindings import Kernels
from rollouts.engines.torch.compiler import library
from rollouts.engines.torch.decode import Prompts
from rollouts.engines.torch.kernels import DEFINES, compiled
from rollouts.engines.torch.llama import Layer, Shape, rope_tables

LAYERS, HEADS, KV_HEADS, SIZE, SAMPLED = 30, 9, 3, 64, 30
SIZES = ("16x8x220x1", "16x8x1000x1", "4x8x220x1", "64x1x220x1", "64x1x220x3")


def fed_rows(prompts: int, samples: int, length: int, new: int) -> ragged.Fed:
    """Rows with keys and values of all layers, as after some sampled tokens."""

    def some(rows: int, columns: int) -> list[torch.Tensor]:
        return [torch.randn(rows, KV_HEADS, columns, SIZE).bfloat16() for _ in range(LAYERS)]

    lengths = torch.full((prompts,), length)
    store = ragged.Store(Prompts(some(prompts, length), some(prompts, length), lengths))
    total = prompts * samples
    store.make_room(total, SAMPLED + new)
    store.own_k, store.own_v = some(total, store.columns), some(total, store.columns)
    rows = [(place // samples, place, SAMPLED, new) for place in range(total)]
    return ragged.Fed(store, rows, [0] * (total * new))


def side(kernels: Kernels | None, fed: ragged.Fed) -> Callable[[], None]:
    """All layers' attention, by these kernels or (None) by torch."""
    frequencies = torch.logspace(0, -4, SIZE // 2)
    shape = Shape(LAYERS, 576, HEADS, KV_HEADS, SIZE, 1536, 49152, 1e-5, True, frequencies)
    none = torch.empty(0)
    layer = Layer(none, none, none, none, none, none, None, None, None, None)
    projected = torch.randn(len(fed.ids), (HEADS + 2 * KV_HEADS) * SIZE).bfloat16()
    tables = rope_tables(shape, torch.tensor(fed.places()), projected.dtype)
    plan, out = torch.tensor(fed.rows), projected.new_empty(len(projected), HEADS * SIZE)
    blocks = [ragged._block(fed, projected.dtype)]

    def work() -> None:
        for index in range(LAYERS):
            if kernels is None:
                ragged.attend(shape, layer, index, [fed], blocks, projected, tables)
            else:
                for part in ragged._waves([fed], [plan], projected, out, *tables):
                    ragged._attend_compiled(kernels, layer, index, shape.eps, *part)

    return torch.inference_mode()(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="of torch (%(default)s)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--sizes", nargs="+", default=SIZES, help="prompts x rows of each x length x new tokens"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    found = compiled(torch.bfloat16)
    if not isinstance(found, Kernels):
        raise SystemExit(f"no compiled kernels here: {found}")
    plain = Kernels(library((*DEFINES[torch.bfloat16], "-DNO_TILES=1")))
    sides = {"compiled": found, "without tiles": plain, "torch": None}
    for size in args.sizes:
        prompts, samples, length, new = map(int, size.split("x"))
        fed = fed_rows(prompts, samples, length, new)
        works = {name: side(kernels, fed) for name, kernels in sides.items()}
        times: dict[str, list[float]] = {name: [] for name in works}
        for turn in range(args.repeats + 1):  # the first warms up
            for name, work in works.items():
                before = time.process_time()
                work()
                if turn:
                    times[name].append(time.process_time() - before)
        read = 4 * LAYERS * KV_HEADS * SIZE * (prompts * length + len(fed.rows) * SAMPLED)
        ours = statistics.median(times["compiled"])
        for name, taken in times.items():
            one = statistics.median(taken)
            rate = read * args.threads / one / 1e9
            print(
                f"{size:12} {name:14} {1e3 * one:7.1f} ms  {rate:5.1f} GB/s  "
                f"{one / ours:5.2f} times the compiled one's"
            )


if __name__ == "__main__":
    main()
