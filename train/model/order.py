# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""Which rows an optimiser step sees: a function of (seed, step) alone, so a resumed run agrees.

Which rows take the places of flat groups (`rl.dynamic_sampling`) depends on the step's own rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from assay.task import Task, TaskError, derive_seed
from configs.schema import GrpoConfig
from rollouts.prompts import ChatTokenizer


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


def drawn(tasks: Sequence[Task], config: GrpoConfig, seed: int) -> list[Task]:
    """The tasks that `config.steps` steps ask, each once, in their order; all of them where rewards
    decide what is asked."""
    if config.dynamic_sampling:
        return list(tasks)
    pools, rows = strata(tasks, config.balance), set[int]()
    for step in range(config.steps):
        rows.update(balanced_batch(step, pools, config.prompts_per_step, seed))
        if len(rows) == len(tasks):
            break
    return [tasks[i] for i in sorted(rows)]


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


def instead(
    seed: int,
    step: int,
    again: int,
    pools: Sequence[Sequence[int]],
    flat: Sequence[int],
    asked: set[int],
) -> list[int]:
    """Rows for the places of `flat` ones in round `again` of a step (`rl.dynamic_sampling`): of the
    same strata and not among `asked`, as far as there are any. The same arguments, the same rows.
    """
    generator = np.random.Generator(np.random.Philox(derive_seed(seed, "instead", step, again)))
    place = generator.permutation(sum(map(len, pools))).argsort()
    of_row = {row: which for which, pool in enumerate(pools) for row in pool}
    queues = [
        sorted((row for row in pool if row not in asked), key=lambda row: -int(place[row]))
        for pool in pools
    ]
    wanted = [queues[of_row[row]] for row in flat]
    return [queue.pop() for queue in wanted if queue]
