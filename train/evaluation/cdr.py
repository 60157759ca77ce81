"""CDR-Bench: how its tasks are asked. What is made of the answers is loaded when it is needed."""

from __future__ import annotations

from typing import Any

from assay.task import Task
from rollouts.prompts import ChatTokenizer
from rollouts.sampler import Plan
from train.evaluation.contract import (
    Benchmark,
    budget_of,
    later,
    plain_plan,
    published_room,
)

# of an answer, in the paper (App. B.1); an endpoint has its own bound
ANSWER_TOKENS = 32_768


def plan(task: Task, args: Any, tokenizer: ChatTokenizer | None) -> Plan:
    if "instance_id" not in task.gold:  # a text of one's own
        return plain_plan(task, args, tokenizer)
    room: int = args.max_new_tokens
    if not room and tokenizer is not None:
        room = published_room(task, args, tokenizer, ANSWER_TOKENS)
    return Plan(room, budget_of(args))


BENCHMARK = Benchmark(
    open=later("train.evaluation.cdr_release", "open_folder"),
    plan=plan,
    tables=later("train.evaluation.cdr_release", "tables"),
    shown=later("train.evaluation.cdr_shown", "tables_of"),
    report=later("train.evaluation.cdr_errors", "write_errors"),
    several=later("train.evaluation.cdr_shown", "side_by_side"),
)
