"""Products of a few rows with a model's weights: compiled for AMX, and by oneDNN, prepacked.

    python -m benchmarks.products [--threads N] [--repeats R] [--rows N ...]

The weights are those of SmolLM2-135M, in bfloat16: 30 layers and the head, which do not fit into
the caches, so every step of decoding reads them from memory. The sides alternate; medians of
processor time, and how fast the weights were read. Packing is timed once a repeat too: a step of
training does it anew.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from rollouts.engines.torch import decode
from rollouts.engines.torch.bindings import Kernels
from rollouts.engines.torch.kernels import compiled

LAYERS, HIDDEN, MLP, VOCABULARY = 30, 576, 1536, 49152
LAYER = ((960, HIDDEN), (HIDDEN, HIDDEN), (2 * MLP, HIDDEN), (HIDDEN, MLP))
ROWS = (1, 8, 16, 32, 64, 128, 256)


def timed(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="of torch (%(default)s)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    kernels = compiled(torch.bfloat16)
    shapes = [*LAYER * LAYERS, (VOCABULARY, HIDDEN)]
    weights = [torch.randn(size).bfloat16() for size in shapes]
    if not isinstance(kernels, Kernels) or kernels.packed(weights[0]) is None:
        raise SystemExit("no compiled products here: they want AMX, a C compiler and Linux")
    size = sum(w.nbytes for w in weights)

    def side(found: Kernels | None, rows: int) -> list[decode.Linear]:
        return [decode._linear(w, rows, True, kernels=found) for w in weights]

    sides: dict[str, Kernels | None] = {"compiled": kernels, "oneDNN": None}
    for rows in args.rows:
        x = {inner: torch.randn(rows, inner).bfloat16() for _, inner in LAYER}
        made = {name: side(found, rows) for name, found in sides.items()}
        times: dict[str, list[float]] = {name: [] for name in made}

        def work(linear: list[decode.Linear], x: dict[int, Tensor] = x) -> None:
            for weight, product in zip(weights, linear, strict=True):
                product(x[weight.shape[1]])

        for turn in range(args.repeats + 1):  # the first warms up
            for name, linear in made.items():
                taken = timed(lambda linear=linear: work(linear))
                if turn:
                    times[name].append(taken)
        ours, theirs = (statistics.median(times[name]) for name in sides)
        print(
            f"{rows:4} rows  compiled {1e3 * ours:6.1f} ms {size * args.threads / ours / 1e9:5.1f} "
            f"GB/s   oneDNN {1e3 * theirs:6.1f} ms   ratio {theirs / ours:5.2f}",
            flush=True,
        )
    ours, theirs = (
        statistics.median(timed(lambda found=found: side(found, 32)) for _ in range(args.repeats))
        for found in sides.values()
    )
    print(f"packing    compiled {1e3 * ours:6.1f} ms   oneDNN {1e3 * theirs:6.1f} ms")


if __name__ == "__main__":
    main()
