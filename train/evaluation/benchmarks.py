"""The one table from a benchmark's name to its room on this floor."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from assay.task import Task
from rollouts.prompts import ChatTokenizer
from rollouts.sampler import Plan
from train.evaluation.contract import Benchmark, plain_plan

FAMILIES = {  # of the tasks of each benchmark
    "cdr": ("refinement", "structured"),
    "dare": ("table",),
    "krama": ("answer",),
}


class Rooms(Mapping[str, Benchmark]):
    """Benchmark by name. A room is loaded when it is first asked for: a command that samples
    answers needs one of them at most."""

    def __getitem__(self, name: str) -> Benchmark:
        if name not in FAMILIES:
            raise KeyError(name)
        return importlib.import_module(f"train.evaluation.{name}").BENCHMARK

    def __iter__(self) -> Iterator[str]:
        return iter(FAMILIES)

    def __len__(self) -> int:
        return len(FAMILIES)


BENCHMARKS = Rooms()


def benchmark_of(family: str) -> str:
    """The benchmark that a family's tasks belong to, "" for any other family."""
    return next((name for name, families in FAMILIES.items() if family in families), "")


def plan_of(task: Task, args: Any, tokenizer: ChatTokenizer | None, benchmark: str = "") -> Plan:
    """How a task is asked: its benchmark's way, or the plain one."""
    name = benchmark or benchmark_of(task.family)
    return (BENCHMARKS[name].plan if name else plain_plan)(task, args, tokenizer)
