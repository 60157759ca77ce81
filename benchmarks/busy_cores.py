"""What other programs on the same cores cost the embedded engine, and what a shorter wait saves.

    python -m benchmarks.busy_cores [--pairs 7] [--rows 64]

Every operation of torch ends when its last thread does. Until then the others wait in a loop, and
only later asleep. `assay` sets GOMP_SPINCOUNT, the length of that loop, where no environment does.
This measures the products of a decoding step of SmolLM2-135M with libgomp's own value and with
Assay's, in turn, on quiet cores and beside one busy process on every core. Each figure is a median
over processes of their own, because the value is read when torch is loaded.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from assay import SPINS
from assay.workers import usable_cores

HIDDEN, KEYS, INNER, LAYERS = 576, 192, 1536, 10  # a third of the model's layers
SHAPES = [(HIDDEN, HIDDEN), (HIDDEN, KEYS), (HIDDEN, KEYS), (HIDDEN, HIDDEN)]
SHAPES += [(HIDDEN, INNER), (HIDDEN, INNER), (INNER, HIDDEN)]
STEPS = 9


def step_ms(rows: int) -> float:
    """Milliseconds of one step of `rows` rows: the median of some, in this process."""
    import time

    import torch

    torch.set_num_threads(usable_cores())
    weights = [torch.ones(shape) for shape in SHAPES]
    inputs = {width: torch.ones(rows, width) for width in (HIDDEN, INNER)}
    times: list[float] = []
    for _ in range(STEPS):
        began = time.perf_counter()
        for _ in range(LAYERS):
            for weight in weights:
                torch.mm(inputs[weight.shape[0]], weight)
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[1:])  # the first makes what the others use


def measured(rows: int, spins: str | None) -> float:
    """`step_ms` in a new process."""
    kept = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    env = {**kept, "GOMP_SPINCOUNT": spins} if spins else kept
    words = [sys.executable, "-m", "benchmarks.busy_cores", "--one", "--rows", str(rows)]
    return float(subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """One busy process on every core, each in a session of its own, as another user's would be."""
    words = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(words, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=7, help="(%(default)s)")
    parser.add_argument("--rows", type=int, default=64, help="answers side by side (%(default)s)")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one:
        print(step_ms(args.rows))
        return 0
    for name, count in (("quiet cores", 0), ("a busy process on every core", usable_cores())):
        with busy(count):
            pairs = [
                (measured(args.rows, None), measured(args.rows, SPINS)) for _ in range(args.pairs)
            ]
        own, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"{name}: libgomp's wait {own:.0f} ms, ours {ours:.0f} ms, {ratio:.2f} times as fast")
    return 0


if __name__ == "__main__":
    sys.exit(main())
