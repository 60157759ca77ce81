"""The one table from a benchmark's name to its room on this floor."""

from __future__ import annotations

from train.evaluation import cdr, dare, krama
from train.evaluation.contract import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    "cdr": cdr.BENCHMARK,
    "dare": dare.BENCHMARK,
    "krama": krama.BENCHMARK,
}


def benchmark_of(family: str) -> str:
    """The benchmark that a family's tasks belong to, "" for any other family."""
    return next((name for name, b in BENCHMARKS.items() if family in b.families), "")
