"""The sampler: what is asked together, what is left out, and when nothing more is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.task import Answer, Task, TaskError
from rollouts.conversation import ChatReply
from rollouts.sampler import Allowance, Answers, Asked, Each, Plan, chunks, sample
from rollouts.trajectory import Sampling, Trajectory


def tasks(count: int) -> list[Task]:
    prompt = [{"role": "user", "content": "x" * 40}]
    return [Task(f"t{i}", "refinement", "a", "heldout", prompt, {}) for i in range(count)]


def asked(count: int, **more: Any) -> Asked:
    plan = Plan(100)
    return Asked(tasks(count), lambda task: plan, Sampling(0), **more)


class Chat:
    """Answers with a usage; remembers how many requests were side by side."""

    def __init__(self, costs: Sequence[int] = (5,)) -> None:
        self.costs, self.count, self.now, self.most = costs, 0, 0, 0

    async def chat(self, *_: Any) -> ChatReply:
        cost = self.costs[self.count % len(self.costs)]
        self.count, self.now = self.count + 1, self.now + 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return ChatReply("a", [], "eos", {"prompt_tokens": 10, "completion_tokens": cost})


def answers(what: Asked, model: Any, allowance: Allowance | None = None) -> list[Trajectory]:
    runs: list[Trajectory] = []
    sample(what, model, lambda task, run: runs.append(run), allowance)
    return runs


def test_only_what_is_missing_is_asked() -> None:
    chat = Chat()
    done = frozenset([("t0", 1), ("t2", 0)])
    runs = answers(asked(3, n=2, done=done), Each(chat, None, 2))
    found = sorted((r.task_id, r.sample) for r in runs)
    assert found == [("t0", 0), ("t1", 0), ("t1", 1), ("t2", 1)]
    assert chat.count == 4 and chat.most == 2


def test_who_is_decoded_together_depends_on_no_answer_that_is_there() -> None:
    whole = chunks(asked(10, n=2), 8)
    assert [[t.id for t in part] for part in whole] == [
        [f"t{i}" for i in range(at, min(at + 4, 10))] for at in (0, 4, 8)
    ]
    assert chunks(asked(10, n=2, done=frozenset([("t0", 0), ("t0", 1)])), 8) == whole
    assert chunks(asked(6, n=2), 8)[0] == whole[0]  # more tasks come later


def test_answers_without_a_model_are_made_before_one_is_kept() -> None:
    def answer(task: Task) -> Answer:
        if task.id == "t2":
            raise TaskError("no gold")
        return Answer("a")

    runs: list[Trajectory] = []
    with pytest.raises(TaskError, match="no gold"):
        sample(asked(3), Answers(answer), lambda task, run: runs.append(run))
    assert runs == []
    sample(asked(2), Answers(lambda task: Answer("a")), lambda task, run: runs.append(run))
    assert [(run.text, run.ids, run.stop) for run in runs] == [("a", [], "eos")] * 2


LIMIT = st.integers(1, 900)


@settings(deadline=None, max_examples=40)
@given(cost=st.integers(1, 100), limit=LIMIT, side=st.integers(1, 8))
def test_answers_that_cost_alike_never_pass_a_limit(cost: int, limit: int, side: int) -> None:
    allowance = Allowance(tokens=limit)
    runs = answers(asked(20), Each(Chat([cost]), None, side), allowance)
    spent = (10 + cost) * len(runs)
    assert len(runs) == max(1, min(20, limit // (10 + cost)))  # the first is always asked for
    assert allowance.read + allowance.written == spent
    assert allowance.reached == (len(runs) < 20)
    # the first is set aside by its tokens and the price of each kind
    first = asyncio.run(Allowance(price=(1.0, 3.0)).begin(limit, cost))
    assert first == (limit + cost, pytest.approx((limit + 3 * cost) / 1e6))


@settings(deadline=None, max_examples=40)
@given(costs=st.lists(st.integers(1, 100), min_size=1, max_size=12), limit=LIMIT)
def test_a_limit_is_passed_only_by_an_answer_dearer_than_all_before(
    costs: list[int], limit: int
) -> None:
    runs = answers(asked(20), Each(Chat(costs), None, 1), Allowance(tokens=limit))
    *before, _ = [10 + run.usage["completion_tokens"] for run in runs]
    assert not before or sum(before) + max(before) <= limit
