# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The next tokens of waves: one pass a token, which a GPU repeats from a recording.

A pass of a small model is some thousand short operations, and a GPU does each faster than Python
asks for it. A CUDA graph asks for all of them at once. What it has recorded holds for the same
tensors only, so it is made anew where a wave begins or ends, loses rows or needs more columns.
`ASSAY_GRAPHS=off` does without.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from rollouts.engines.torch.bindings import Kernels
from rollouts.engines.torch.branches import Branches
from rollouts.engines.torch.decode import Products, step
from rollouts.engines.torch.llama import Llama
from rollouts.engines.torch.sampling import pick
from rollouts.engines.torch.waves import Wave
from rollouts.trajectory import Sampling

LEAST = 4  # passes in a row that are worth a recording


def draw(
    waves: Sequence[Wave] | Sequence[Branches],
    logits: Tensor,
    sampling: Sampling,
    kernels: Kernels | None,
) -> None:
    """The next tokens of every sample of every wave, from the logits of what was fed."""
    draws: list[Tensor] = []
    rows: list[Tensor] = []
    first = 0
    for wave in waves:
        numbers, lines = wave.asked()
        draws.append(numbers)
        rows.append(lines + first)
        first += wave.lines
    drawn = pick(logits, sampling, torch.cat(draws), torch.cat(rows), kernels)
    columns = zip(*(column.split([len(d) for d in draws]) for column in drawn), strict=True)
    for wave, (ids, full, narrow) in zip(waves, columns, strict=True):
        wave.take(ids, full, narrow)


class Passes:
    """Next tokens of the waves of one call, on a GPU by a graph."""

    def __init__(self, model: Llama, products: Products, sampling: Sampling) -> None:
        self.model, self.products, self.sampling = model, products, sampling
        off = os.environ.get("ASSAY_GRAPHS", "").lower() in ("off", "0", "no", "false")
        self._records = model.embed.is_cuda and not off
        self._graph: torch.cuda.CUDAGraph | None = None
        self._of: list[tuple[Wave, int]] = []

    def run(self, waves: Sequence[Wave]) -> None:
        """As many tokens for all waves as can be drawn before one of them has to settle."""
        for wave in waves:
            if not wave.cache.room:
                wave.cache.grow()
        count = min(min(wave.ahead, wave.cache.room) for wave in waves)
        left = count
        if self._records and not self._holds(waves) and count >= LEAST:
            self._once(waves)  # loads what a recording may not
            left -= 1
            self._record(waves)
        for _ in range(left):
            if self._graph is not None and self._holds(waves):
                self._graph.replay()
            else:
                self._once(waves)
        for wave in waves:
            wave.cache.used += count
            wave.settle(count)

    def _once(self, waves: Sequence[Wave]) -> None:
        ids = torch.cat([w.token for w in waves])
        logits = step(self.model, self.products, [w.cache for w in waves], ids)
        draw(waves, logits, self.sampling, self.products.kernels)

    def _holds(self, waves: Sequence[Wave]) -> bool:
        """Whether the recording is of these waves, with the tensors that they have now."""
        return self._of == [(wave, wave.cache.moved) for wave in waves]

    def _record(self, waves: Sequence[Wave]) -> None:
        """Record one pass; nothing is computed. All recordings of a call use the same memory, so
        the last one is kept until there is a new one."""
        graph = torch.cuda.CUDAGraph()
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            pool = None if self._graph is None else self._graph.pool()
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                self._once(waves)
            finally:
                graph.capture_end()
        here.wait_stream(aside)
        self._graph, self._of = graph, [(wave, wave.cache.moved) for wave in waves]
