"""Let a model answer tasks: the one function behind `assay rollout`, `assay eval`, validation while
a run trains, and the demo's evaluations.

A model is an engine that decodes many answers side by side (`Batch`), something that is asked for
one message at a time (`Each`: a server, an endpoint, a script), or answers that need no model
(`Answers`). Every answer is handed over when it is there; what breaks in the infrastructure is an
answer with a failure. Who keeps answers (assay/journal.py) says which are there already.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.task import Answer, Task, TaskError, derive_seed
from rollouts.conversation import Ask, ChatEngine
from rollouts.engines.engine import Engine
from rollouts.environment import Budget, Maker
from rollouts.episode import Episode, rollout
from rollouts.event_loop import asyncio_run
from rollouts.prompts import MESSAGE, ChatTokenizer
from rollouts.trajectory import Sampling, Trajectory

GIVE_UP = 8  # failures in a row after which an endpoint counts as gone
CHARACTERS = 4  # of a text that make about one token, where nobody counts them
Item = tuple[Task, int]  # a task and the number of the sample
Keep = Callable[[Task, Trajectory], None]


@dataclass(frozen=True)
class Plan:
    """How one task is asked: tokens of one message (0: as many as the endpoint allows), and the
    bounds of its episode."""

    tokens: int
    budget: Budget = field(default_factory=Budget)


@dataclass(frozen=True)
class Asked:
    """What is to be answered: `n` samples of each of `tasks` but those in `done`, (task id, sample)
    pairs. `sampling` holds for all tasks, but for the length of a message, which the plan says."""

    tasks: Sequence[Task]
    plan: Callable[[Task], Plan]
    sampling: Sampling
    n: int = 1
    seed: int = 0
    maker: Maker | None = None
    done: Container[tuple[str, int]] = field(default_factory=frozenset[tuple[str, int]])

    def missing(self, tasks: Sequence[Task] | None = None) -> list[Item]:
        """What lacks an answer, of all tasks or of some, in their order."""
        some = self.tasks if tasks is None else tasks
        return [(task, j) for task in some for j in range(self.n) if (task.id, j) not in self.done]

    def how(self, task: Task) -> Sampling:
        return replace(self.sampling, max_new_tokens=self.plan(task).tokens)


@dataclass(frozen=True)
class Batch:
    """An engine that decodes up to `slots` answers side by side."""

    engine: Engine
    tokenizer: ChatTokenizer
    slots: int = 64


@dataclass(frozen=True)
class Each:
    """One message at a time, `in_flight` of them side by side: words of a `ChatEngine`, or token
    ids with the model's `tokenizer`. `name` is what messages call it."""

    ask: ChatEngine | Ask
    tokenizer: ChatTokenizer | None = None
    in_flight: int = 16
    name: str = ""


@dataclass(frozen=True)
class Answers:
    """Answers without a model: gold, a cheat, nothing."""

    answer: Callable[[Task], Answer]
    tokenizer: ChatTokenizer | None = None


Model = Batch | Each | Answers


class Allowance:
    """What may be spent: tokens read and written, and dollars by their `price` a million of each.

    One more answer is begun only if it may cost as much as the dearest so far (before the first:
    as much as it could at most) beside all that are on their way. So a limit is passed only by what
    the last answers cost more than all before them.
    """

    def __init__(
        self, tokens: int = 0, dollars: float = 0.0, price: Sequence[float] = (0.0, 0.0)
    ) -> None:
        self._limits = (tokens or math.inf, dollars or math.inf)
        self._price = tuple(price) or (0.0, 0.0)
        self.read = self.written = self.answers = 0  # by all answers, failed ones too
        self._dearest = (0.0, 0.0)
        self._flying: list[tuple[float, float]] = []  # set aside for answers on their way
        self._changed = asyncio.Condition()
        self.reached = False

    def _cost(self, read: float, written: float) -> tuple[float, float]:
        dollars = (read * self._price[0] + written * self._price[1]) / 1e6
        return read + written, dollars

    @property
    def dollars(self) -> float:
        return self._cost(self.read, self.written)[1]

    def already(self, lost: tuple[int, int], rows: Iterable[tuple[int, int]]) -> None:
        """Count what earlier starts cost: tokens (read, written) by answers that no row is left of,
        and by those of each row."""
        for read, written in rows:
            self.spent(read, written)
        self.read += lost[0]
        self.written += lost[1]

    def spent(self, read: int, written: int) -> None:
        """Count what an answer cost."""
        self.read += read
        self.written += written
        self.answers += 1
        tokens, dollars = self._cost(read, written)
        self._dearest = (max(self._dearest[0], tokens), max(self._dearest[1], dollars))

    def _fits(self, one: tuple[float, float]) -> bool:
        used = self._cost(self.read, self.written)
        if not self.answers and not self._flying:  # the first is asked for whatever it costs
            return all(spent < limit for spent, limit in zip(used, self._limits, strict=True))
        sums = [sum(costs) for costs in zip(used, one, *self._flying, strict=True)]
        return all(whole <= limit for whole, limit in zip(sums, self._limits, strict=True))

    def may(self) -> bool:
        """Whether one more answer may be asked for, with none on its way."""
        self.reached = self.reached or not self._fits(self._dearest)
        return not self.reached

    async def begin(self, read: int, written: int) -> tuple[float, float] | None:
        """Set aside what an answer may cost, which is for `end`; None where the limit is reached.
        `read` and `written`: its tokens, as far as they can be told before."""
        async with self._changed:
            while not self.reached:
                one = self._dearest if self.answers else self._cost(read, written)
                if self._fits(one):
                    self._flying.append(one)
                    return one
                if self._flying:
                    await self._changed.wait()
                else:
                    self.reached = True
            self._changed.notify_all()
        return None

    async def end(self, one: tuple[float, float], run: Trajectory) -> None:
        self.spent(*tokens_of(run))
        async with self._changed:
            self._flying.remove(one)
            self._changed.notify_all()


def tokens_of(run: Trajectory) -> tuple[int, int]:
    """(tokens read, tokens written) of an episode, failed attempts before it too: as an endpoint
    counts them, else its ids, else about as many as its characters make."""
    if run.ids:
        return len(run.ids) - sum(run.loss_mask), sum(run.loss_mask)
    first: Any = run.notes.get("retried_usage") or {}
    usage = {key: run.usage.get(key, 0) + first.get(key, 0) for key in {*run.usage, *first}}
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if read is None and run.failure is None:
        read = sum(_about(m) for m in run.messages if m.get("role") != "assistant")
    if written is None and run.failure is None:
        written = sum(_about(m) for m in run.messages if m.get("role") == "assistant")
    return read or 0, written or 0


def _about(message: Any) -> int:
    return len(str(message.get("content") or "").encode("utf-8", "replace")) // CHARACTERS + 1


def expected(asked: Asked) -> tuple[int, int | None]:
    """(tokens of the first messages that are to be read, about; tokens that may be written at most,
    None where there is no bound) of everything that lacks an answer."""
    items = asked.missing()
    read = sum(_about(message) for task, _ in items for message in task.prompt)
    if any(not asked.plan(task).tokens for task, _ in items):
        return read, None
    turns = [asked.plan(task).budget.turns if task.tools else 1 for task, _ in items]
    most = sum(asked.plan(task).tokens * t for (task, _), t in zip(items, turns, strict=True))
    return read, most


def sample(asked: Asked, model: Model, keep: Keep, allowance: Allowance | None = None) -> None:
    """Let `model` answer what is missing; `keep` is given each answer as soon as it is there. What
    `keep` raises ends it.

    Raises `TaskError` for a model that is gone: several answers in a row failed. Where the
    allowance is used up it returns, and `allowance.reached` says so.
    """
    allowed = allowance or Allowance()
    if isinstance(model, Answers):
        missing = asked.missing()
        made = {task.id: model.answer(task) for task, _ in missing}  # all, before one is kept
        for task, j in missing:
            keep(task, answered(task, made[task.id], j, asked.seed, model.tokenizer))
    elif isinstance(model, Batch):
        for part in chunks(asked, model.slots):
            wanted = {(task.id, j) for task, j in asked.missing(part)}
            if wanted and not allowed.may():
                return
            for task, run in decode(asked, model, part) if wanted else ():
                allowed.spent(*tokens_of(run))
                if (task.id, run.sample) in wanted:
                    keep(task, run)
    else:
        asyncio_run(sample_side_by_side(asked, model, keep, allowed))


def chunks(asked: Asked, slots: int) -> list[list[Task]]:
    """All tasks in groups that are decoded side by side, whatever is answered already: what is
    decoded together decides the last bits, so a run that goes on meets the same neighbours."""
    kinds: dict[Plan, list[Task]] = {}
    for task in asked.tasks:
        kinds.setdefault(asked.plan(task), []).append(task)
    size = max(1, slots // asked.n)
    return [some[at : at + size] for some in kinds.values() for at in range(0, len(some), size)]


def decode(asked: Asked, model: Batch, part: Sequence[Task]) -> list[tuple[Task, Trajectory]]:
    """All samples of tasks that have the same plan."""
    how, budget = asked.how(part[0]), asked.plan(part[0]).budget
    engine, tokenizer, seed = model.engine, model.tokenizer, asked.seed
    groups = asyncio_run(
        rollout(part, engine, tokenizer, how, asked.n, seed, maker=asked.maker, budget=budget)
    )
    return [(task, run) for task, group in zip(part, groups, strict=True) for run in group]


class CircuitBreaker:
    """Counts failures in a row of an endpoint, `who`; `most` of them end the run with one
    sentence. The first failure is said at once."""

    def __init__(self, who: str, most: int = GIVE_UP) -> None:
        self._who, self._most, self._row, self._said = who, most, 0, False

    def see(self, failure: str | None, answered: bool = False) -> None:
        """After each request: None when it was answered. `answered`: the endpoint is there, though
        what it said is no answer. Raises `TaskError` when the endpoint counts as gone."""
        if failure is not None and not self._said:
            self._said = True
            print(
                f"assay: {failure}; it counts nowhere, and {self._most} failures in a row end the "
                "run",
                file=sys.stderr,
                flush=True,
            )
        self._row = 0 if failure is None or answered else self._row + 1
        if self._row >= self._most:
            raise TaskError(
                f"{self._who}: {self._row} requests in a row failed, the last with {failure}; "
                "what was answered is kept, the same command goes on"
            )


async def sample_side_by_side(
    asked: Asked, model: Each, keep: Keep, allowance: Allowance | None = None
) -> None:
    """`sample` on a loop that runs already. What `keep` raises and bad input end every episode."""
    missing, allowed = asked.missing(), allowance or Allowance()
    queue, breaker = iter(missing), CircuitBreaker(f"--model {model.name}")

    async def worker() -> None:
        for task, j in queue:  # shared: each goes to the first worker that is free
            read = sum(_about(message) for message in task.prompt)
            begun = await allowed.begin(read, asked.plan(task).tokens or MESSAGE)
            if begun is None:
                return
            budget = asked.plan(task).budget
            one = Episode(task, j, asked.seed, asked.maker, budget, model.tokenizer)
            run = await one.play(model.ask, asked.how(task))
            await allowed.end(begun, run)
            keep(task, run)
            breaker.see(run.failure, answered="no_answer" in run.notes)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(model.in_flight, len(missing))):
                group.create_task(worker())
    except ExceptionGroup as errors:  # of the workers: the first one says it
        raise errors.exceptions[0] from None


def answered(
    task: Task,
    answer: Answer,
    sample: int = 0,
    seed: int = 0,
    tokenizer: ChatTokenizer | None = None,
) -> Trajectory:
    """The trajectory of an answer that no model gave; with ids where there is a tokenizer and the
    task has no tools (an answer without the calls before it is nothing to learn from)."""
    prompt: list[int] = []
    said: list[int] = []
    if tokenizer is not None and not task.tools:
        prompt, said = tokenizer.prompt(task.prompt), tokenizer.answer(answer.text, plain=True)
    zeros = [0.0] * (len(prompt) + len(said))
    stop = "length" if answer.truncated else "eos"
    return Trajectory(
        task_id=task.id,
        sample=sample,
        ids=prompt + said,
        loss_mask=[0] * len(prompt) + [1] * len(said),
        logprobs=zeros,
        sampling_logprobs=list(zeros),
        stop="error" if answer.failure is not None else stop,
        text=answer.text,
        seed=derive_seed(seed, task.id, sample),
        messages=[*task.prompt, {"role": "assistant", "content": answer.text}],
        files=answer.files,
        failure=answer.failure,
        tokenizer=tokenizer.fingerprint if tokenizer is not None and said else "",
    )
