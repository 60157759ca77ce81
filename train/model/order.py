# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""Which rows an optimiser step sees: a function of (seed, step) alone, so a resumed run agrees.

Where rewards decide too (`rl.curriculum`, `rl.dynamic_sampling`), it is one of (seed, step, what
was reached before), and the latter is in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from assay.seeds import derive_seed
from assay.task import Task, TaskError
from configs.training import GrpoConfig
from rollouts.prompts import ChatTokenizer

FloatArray = NDArray[np.float64]
FORGET = 0.97  # of an observation's weight is left a step later; half of it after 23 steps
Count = tuple[float, float, int]  # (passed, failed, step they are counted for)


@lru_cache(maxsize=32)  # of the epochs and strata in use: 8 MB for a million rows
def epoch_order(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order (count,) in which rows are seen in an epoch; depends on (seed, epoch) alone."""
    generator = np.random.Generator(np.random.Philox(derive_seed(seed, "order", epoch)))
    order = generator.permutation(count)
    order.setflags(write=False)
    return order


def _in_turn(at: int, count: int, seed: int) -> int:
    """Row number `at` of one endless sequence of shuffled epochs."""
    epoch, place = divmod(at, count)
    return int(epoch_order(count, seed, epoch)[place])


def batch_of(step: int, count: int, size: int, seed: int) -> list[int]:
    """Rows of optimiser step `step`; the data is one endless sequence of shuffled epochs."""
    return [_in_turn(at, count, seed) for at in range(step * size, (step + 1) * size)]


def strata(tasks: Sequence[Task], balance: str) -> list[list[int]]:
    """Rows grouped by what the batches are to be balanced over, in order of the value's name.

    `none`: all rows together; `status`: by `gold["status"]`; `track`: by track.
    """
    groups: dict[str, list[int]] = {}
    for row, task in enumerate(tasks):
        key = {"none": "", "status": str(task.gold.get("status")), "track": task.track}[balance]
        groups.setdefault(key, []).append(row)
    return [groups[key] for key in sorted(groups)]


def balanced_batch(step: int, groups: Sequence[Sequence[int]], size: int, seed: int) -> list[int]:
    """`size` rows of step `step`, the groups taking turns; each group is shuffled by epochs.

    With one group this is `batch_of`. A group smaller than the others is seen more often.
    """
    if len(groups) == 1:
        return [groups[0][i] for i in batch_of(step, len(groups[0]), size, seed)]
    rows: list[int] = []
    for at in range(step * size, (step + 1) * size):
        turn, which = divmod(at, len(groups))
        group = groups[which]
        key = derive_seed(seed, "stratum", which)
        rows.append(group[_in_turn(turn, len(group), key)])
    return rows


_LENGTHS: WeakKeyDictionary[ChatTokenizer, dict[int, tuple[Any, int]]] = WeakKeyDictionary()


def prompt_lengths(tasks: Sequence[Task], tokenizer: ChatTokenizer) -> list[int]:
    """Tokens of each task's prompt. A prompt is tokenised once, however many steps of a run ask."""
    known = _LENGTHS.setdefault(tokenizer, {})
    for task in tasks:
        if (
            id(task.prompt) not in known
        ):  # what is kept of it is the prompt itself, so no other has its id
            known[id(task.prompt)] = (task.prompt, len(tokenizer.prompt(task.prompt)))
    return [known[id(task.prompt)][1] for task in tasks]


def fitting(tasks: Sequence[Task], tokenizer: ChatTokenizer, config: GrpoConfig) -> Sequence[Task]:
    """Tasks whose prompt leaves room for an answer (all, while the length is not decided). Raises
    `TaskError` if none does."""
    if not config.max_length:
        return tasks
    room = config.max_length - config.max_new_tokens
    # with tools the environment writes the prompt; the episode's budget limits its length
    found = prompt_lengths(tasks, tokenizer)
    lengths = [0 if t.tools else length for t, length in zip(tasks, found, strict=True)]
    kept = [t for t, length in zip(tasks, lengths, strict=True) if length <= room]
    if not kept:
        wanted = config.max_new_tokens + max(lengths)
        raise TaskError(
            f"none of {len(tasks)} tasks has a prompt of at most {room} tokens (rl.max_length − "
            f"rl.max_new_tokens); raise rl.max_length, to {wanted} for all of them"
        )
    if len(kept) < len(tasks):
        print(f"{len(tasks) - len(kept)} tasks with longer prompts than {room} tokens left out")
    return kept


# --- prompts that are chosen by what happened to them --------------------------------------------

PRIOR = 2.0  # pseudo-observations of a task's kind, before its own: worth two rollouts


def kind_of(task: Task) -> str:
    """What pass rates are shared over."""
    return f"{task.family} {task.track} {task.meta.get('difficulty')}"


def faded(seen: Mapping[int, Count], key: int, step: int) -> tuple[float, float]:
    """(passed, failed), as they count at a step."""
    passed, failed, when = seen.get(key, (0.0, 0.0, step))
    left = FORGET ** (step - when)
    return passed * left, failed * left


def count(seen: dict[int, Count], key: int, outcomes: Sequence[float], step: int) -> None:
    """Count the outcomes (0 to 1) of one prompt's rollouts at a step."""
    passed, failed = faded(seen, key, step)
    total = sum(outcomes)
    seen[key] = (passed + total, failed + len(outcomes) - total, step)


@dataclass
class PassRates:
    """How often each task is solved, as Beta distributions: what a curriculum goes by.

    A task's rollouts count by their outcomes, older ones less (`FORGET`), for the policy moves on.
    The prior is the mean of the task's kind (family, track, difficulty), worth `PRIOR` rollouts, so
    that tasks not yet asked are told apart too.
    """

    kinds: Sequence[str]
    seen: dict[int, Count] = field(default_factory=dict[int, Count])  # by row

    def learn(self, row: int, outcomes: Sequence[float], step: int) -> None:
        """Count the outcomes (0 to 1) of one task's rollouts at a step."""
        count(self.seen, row, outcomes, step)

    def betas(self, step: int) -> tuple[FloatArray, FloatArray]:
        """(α, β) of every row at a step."""
        of_kind: dict[str, tuple[float, float]] = {}
        for row in sorted(self.seen):
            passed, failed = faded(self.seen, row, step)
            p, f = of_kind.get(self.kinds[row], (1.0, 1.0))
            of_kind[self.kinds[row]] = (p + passed, f + failed)
        alpha, beta = np.empty(len(self.kinds)), np.empty(len(self.kinds))
        for row, kind in enumerate(self.kinds):
            p, f = of_kind.get(kind, (1.0, 1.0))
            passed, failed = faded(self.seen, row, step)
            alpha[row] = passed + PRIOR * p / (p + f)
            beta[row] = failed + PRIOR * f / (p + f)
        return alpha, beta

    def ranked(self, step: int, key: int) -> list[int]:
        """All rows, those first whose groups likely have both better and worse answers.

        Thompson sampling: a pass rate p is drawn from each row's distribution, and rows stand in
        order of p(1 − p). The same counts, step and `key` give the same order.
        """
        alpha, beta = self.betas(step)
        generator = np.random.Generator(np.random.Philox(key))
        rates = generator.beta(alpha, beta)
        return [int(i) for i in np.argsort(-rates * (1 - rates), kind="stable")]


class Prompts:
    """Which rows a step asks: in turn, or by pass rates (`rl.curriculum`); and which take the
    places of flat groups (`rl.dynamic_sampling`). The same seed, steps and outcomes give the same
    rows; `state` is what a checkpoint needs to go on with them."""

    def __init__(self, tasks: Sequence[Task], config: GrpoConfig, seed: int) -> None:
        self.config, self.seed = config, seed
        self.pools = strata(tasks, config.balance)
        self.rates: PassRates | None = None
        if config.curriculum == "pass_rate":
            self.rates = PassRates([kind_of(task) for task in tasks])

    def of_step(self, step: int) -> list[int]:
        """The rows of a step; from every stratum as many as its turn."""
        size = self.config.prompts_per_step
        if self.rates is None:
            return balanced_batch(step, self.pools, size, self.seed)
        turns = [at % len(self.pools) for at in range(step * size, (step + 1) * size)]
        order = self.rates.ranked(step, derive_seed(self.seed, "curriculum", step))
        return self._take(turns, order, set(), repeat=True)

    def instead(self, step: int, again: int, flat: Sequence[int], asked: set[int]) -> list[int]:
        """Rows for the places of `flat` ones, of the same strata and not among `asked`, as far as
        there are any."""
        key = derive_seed(self.seed, "instead", step, again)
        if self.rates is not None:
            order = self.rates.ranked(step, key)
        else:
            rows = sum(map(len, self.pools))
            order = [int(i) for i in np.random.Generator(np.random.Philox(key)).permutation(rows)]
        of_row = {row: which for which, pool in enumerate(self.pools) for row in pool}
        return self._take([of_row[row] for row in flat], order, asked, repeat=False)

    def _take(
        self, turns: Sequence[int], order: Sequence[int], asked: set[int], repeat: bool
    ) -> list[int]:
        """The first row in `order` of each turn's stratum that was not taken yet; `repeat`: a
        stratum that is too small starts again."""
        places = {row: place for place, row in enumerate(order)}
        whole = [sorted(pool, key=lambda row: places[row]) for pool in self.pools]
        queues = [[row for row in pool if row not in asked] for pool in whole]
        taken: list[int] = []
        for which in turns:
            if not queues[which] and repeat:
                queues[which] = list(whole[which])
            if queues[which]:
                taken.append(queues[which].pop(0))
        return taken

    def learn(self, step: int, rows: Sequence[int], outcomes: Sequence[Sequence[float]]) -> None:
        """Count what the rollouts of a step's rows reached; nothing to do without a curriculum."""
        if self.rates is None:
            return
        for row, reached in zip(rows, outcomes, strict=True):
            if reached:
                self.rates.learn(row, reached, step)

    def state(self) -> dict[str, Any]:
        """JSON data for a checkpoint; {} where nothing is counted."""
        if self.rates is None:
            return {}
        return {"pass_rates": [[row, *seen] for row, seen in sorted(self.rates.seen.items())]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's `state`."""
        if self.rates is not None:
            rows: list[Any] = state.get("pass_rates") or []
            self.rates.seen = {int(r): (float(p), float(f), int(s)) for r, p, f, s in rows}
