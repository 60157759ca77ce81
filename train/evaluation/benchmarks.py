"""The one table from a benchmark's name to its room on this floor."""

from __future__ import annotations

from typing import Any

from rewards.task import Task
from rollouts.prompts import ChatTokenizer
from rollouts.sampler import Plan
from train.evaluation import cdr, dare, krama
from train.evaluation.contract import Benchmark, plain_plan

BENCHMARKS: dict[str, Benchmark] = {
    "cdr": cdr.BENCHMARK,
    "dare": dare.BENCHMARK,
    "krama": krama.BENCHMARK,
}


def benchmark_of(family: str) -> str:
    """The benchmark that a family's tasks belong to, "" for any other family."""
    return next((name for name, b in BENCHMARKS.items() if family in b.families), "")


def plan_of(task: Task, args: Any, tokenizer: ChatTokenizer | None, benchmark: str = "") -> Plan:
    """How a task is asked: its benchmark's way, or the plain one."""
    name = benchmark or benchmark_of(task.family)
    return (BENCHMARKS[name].plan if name else plain_plan)(task, args, tokenizer)
