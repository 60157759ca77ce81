"""`krama.agent`: who acts on a benchmark's tasks, beside the benchmark's own agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from assay.task import Task, TaskError
from configs.answers import AGENT
from rollouts.environment import Budget
from train.evaluation.contract import budget_of

# name → (tool that stands for it, messages of its model). The first as it was published with
# on lakes: 20 actions, then the answer; the other one's own bounds end it earlier.
OTHERS = {"smolagents": ("smolagents", 21), "datawise": ("datawise", 60)}
TURNS = dict(OTHERS.values())


def acted_on(tasks: Sequence[Task], args: Any, prefix: str) -> list[Task]:
    """The tasks with the agent that is asked for as their tool, where it acts on any benchmark's
    tasks. Raises `TaskError` for another benchmark's agent where only words with this prefix are
    asked."""
    if args.agent in OTHERS:
        return [replace(task, tools=(OTHERS[args.agent][0],)) for task in tasks]
    if args.agent and all(word.startswith(prefix) for word in args.tasks):
        raise TaskError(f"{AGENT}={args.agent}: it works on lakes; give {' or '.join(OTHERS)}")
    return list(tasks)


def agents_budget(task: Task, args: Any) -> Budget:
    """The bounds of an episode: an agent that needs more messages has the same seconds of tools."""
    plain = budget_of(args)
    turns = max((TURNS.get(tool, 0) for tool in task.tools), default=0)
    return replace(plain, turns=turns) if turns and not args.turns else plain
