"""One generic row an answer: what every table, report and comparison is computed from; and
evaluation as a function, for runs that train (`assay eval` adds opening, a journal and files)."""

from __future__ import annotations

import importlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.console import Progress
from assay.family import (
    cheat_answer,
    family_of,
    gold_answer,
    parted_answer,
    score_answer,
    slices_of,
    source_of,
    without_thoughts,
)
from assay.task import RIGHT, Answer, Score, Task, TaskError, derive_seed
from rollouts.engines.engine import Engine
from rollouts.environment import Budget, Maker
from rollouts.prompts import ChatTokenizer
from rollouts.sampler import Asked, Batch, Plan, answered, sample
from rollouts.trajectory import UNTOLD, Sampling, Trajectory
from train.evaluation.stats import pass_at_k
from train.memory import give_back_memory

Row = dict[str, Any]
Scorer = Callable[[Task, Trajectory], Score]
REFERENCES = ("gold", "empty")  # what answers without a model, for every family
CHEAT = "cheat:"
# families whose tasks fall into classes: `function(task, answer)` → (class of gold, class that the
# answer names)
LABELS = {"refinement": "rewards.cdr.family:labels"}


def scorer(weights: Mapping[str, Any] | None = None) -> Scorer:
    """(task, trajectory) → Score, with the run's weights by family."""

    def score(task: Task, trajectory: Trajectory) -> Score:
        return score_answer(task, trajectory.answer(), weights)

    return score


def thought_of(trajectory: Trajectory, task: Task) -> str:
    """What the model thought before its last message: told apart by an endpoint, or marked in the
    text; "" where it thought nothing."""
    marked = parted_answer(family_of(task), task, trajectory.text).thought
    return "\n\n".join(filter(None, [trajectory.told, marked]))


def row_of(task: Task, run: Trajectory, score: Score, price: Sequence[float] = ()) -> Row:
    """One line of results.json. `price`: dollars a million prompt tokens and sampled tokens; `cost`
    is None without one. Tokens, too, are None where an endpoint does not tell them."""
    family = family_of(task)
    read, written = prompt_tokens(run), run.sampled
    told = not run.notes.get(UNTOLD)
    thought = thought_of(run, task)
    cost = (read * price[0] + written * price[1]) / 1e6 if price and told else None
    return {
        "task_id": task.id,
        "family": task.family,
        "track": task.track,
        "sample": run.sample,
        "source": source_of(family, task),
        "group": task.group,
        "instance": task.meta.get("instance"),
        "slices": slices_of(family, task),
        **labels_of(task, without_thoughts(family, task, run.answer())),
        **score.to_json(),
        "failure": run.failure,
        "stop": run.stop,
        "output": run.text,
        **({"thought": thought} if thought else {}),
        "tokens_in": read if told else None,
        "tokens_out": written if told else None,
        "turns": run.turns,
        "tool_calls": len(run.tool_calls),
        "seconds": round(run.wall_s, 3),
        "cost": cost,
        **(run.kept_files() if run.files else {}),
    }


def prompt_tokens(run: Trajectory) -> int:
    """Tokens the model read: as an endpoint counts them, else ids that it did not sample."""
    return run.usage.get("prompt_tokens", len(run.ids) - sum(run.loss_mask))


def labels_of(task: Task, answer: Answer) -> Row:
    """The class of gold and the one the answer names; {} where the family has none. Results then
    show the balanced outcome, in which every class counts alike, and which is taken for which."""
    if task.family not in LABELS:
        return {}
    module, _, name = LABELS[task.family].partition(":")
    gold, said = getattr(importlib.import_module(module), name)(task, answer)
    return {"label": gold, "said": said}


def reference_answer(name: str, task: Task) -> Answer:
    """What `gold`, `empty` or `cheat:NAME` says to a task.

    Raises `TaskError` for a cheat that the task's family does not have. What cannot be made
    (gold that has to be executed, a function of an own family that raises) is an answer with a
    failure.
    """
    family = family_of(task)
    if name == "empty":
        return Answer("")
    if name.startswith(CHEAT) and name.removeprefix(CHEAT) not in family.cheats:
        known = ", ".join(f"{CHEAT}{n}" for n in family.cheats) or "none"
        raise TaskError(
            f"--model {name}: family {family.name} of task {task.id} has no such cheat; "
            f"it has {known}"
        )
    try:
        if name == "gold":
            made = gold_answer(family, task)
            return made or Answer(failure="gold has to be executed; no answer is at hand")
        return cheat_answer(family, name.removeprefix(CHEAT), task)
    except TaskError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"[:300]
        return Answer(failure=f"{name} of family {family.name} raised {said}")


def baseline_rows(
    tasks: Sequence[Task], weights: Mapping[str, Any] | None = None, gold: bool = True
) -> dict[str, list[Row]]:
    """Rows of the answers that need no model: every cheat of the tasks' families as `cheat:NAME`,
    on the tasks of the families that have it, and gold itself last."""
    score = scorer(weights)

    def answer(task: Task, name: str) -> Answer:
        try:
            return reference_answer(name, task)
        except TaskError as error:  # gold that says too little to be written out
            return Answer(failure=str(error))

    def rows(name: str, mine: Sequence[Task]) -> list[Row]:
        runs = [(task, answered(task, answer(task, name))) for task in mine]
        return [row_of(task, run, score(task, run)) for task, run in runs]

    families = {task.family: family_of(task) for task in tasks}
    names = dict.fromkeys(cheat for family in families.values() for cheat in family.cheats)
    found = {
        f"{CHEAT}{name}": rows(
            f"{CHEAT}{name}", [t for t in tasks if name in families[t.family].cheats]
        )
        for name in names
    }
    return {**found, "gold": rows("gold", tasks)} if gold else found


# --- evaluation as a function, for runs that train

MOST_CLASSES = 3


class Tally:
    """Counts rows as they come; `text` says what they come to so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start = clock, clock()
        self._scored, self._rows, self._tokens = 0, 0, 0
        self._outcome = self._reward = 0.0
        self._said: Counter[str] = Counter()

    def add(self, row: Mapping[str, Any]) -> None:
        self._rows += 1
        self._tokens += int(row.get("tokens_out") or 0)
        if row["outcome"] is not None:
            self._scored += 1
            self._outcome += float(row["outcome"])
            self._reward += float(row["reward"])
        if row.get("said"):
            self._said[str(row["said"])] += 1

    def text(self) -> str:
        """`outcome 0.41, reward 0.55, KEEP 61%, DROP 30%, 118 tok/s`; failed answers count in no
        mean."""
        parts: list[str] = []
        if self._scored:
            parts.append(f"outcome {self._outcome / self._scored:.2f}")
            parts.append(f"reward {self._reward / self._scored:.2f}")
        for name, count in self._said.most_common(MOST_CLASSES):
            parts.append(f"{name} {count / self._rows:.0%}")
        if lost := self._rows - self._scored:
            parts.append(f"no outcome {lost}")
        seconds = self._clock() - self._start
        if self._tokens and seconds > 0:
            parts.append(f"{self._tokens / seconds:.0f} tok/s")
        return ", ".join(parts)


def evaluate_tasks(
    tasks: Sequence[Task],
    engine: Engine,
    tokenizer: ChatTokenizer,
    score: Scorer,
    *,
    max_new_tokens: int,
    pass_k: int = 0,
    seed: int = 0,
    chunk: int = 128,
    progress: Progress | None = None,
    maker: Maker | None = None,
    budget: Budget | None = None,
) -> list[Row]:
    """One greedy row a task; with `pass_k`, also the unbiased pass@1 and pass@k at T = 1. `chunk`
    answers are decoded side by side."""
    rows: list[Row] = []
    tally, model = Tally(), Batch(engine, tokenizer, chunk)
    plan = Plan(max_new_tokens, budget or Budget())

    def asked(temperature: float, n: int, key: int) -> Asked:
        drawn = Sampling(max_new_tokens, temperature)
        return Asked(tasks, lambda task: plan, drawn, n, key, maker)

    def keep(task: Task, run: Trajectory) -> None:
        rows.append(row_of(task, run, score(task, run)))
        tally.add(rows[-1])
        if len(rows) % chunk == 0:  # keys and values of another length do not fit into its gaps
            give_back_memory()
        if progress is not None:
            progress.note(tally.text())
            progress.add(1)

    sample(asked(0.0, 1, seed), model, keep)
    if pass_k:
        outcomes: list[float | None] = []
        several = asked(1.0, pass_k, derive_seed(seed, "pass_k"))
        sample(several, model, lambda task, run: outcomes.append(score(task, run).outcome))
        for at, row in enumerate(rows):
            some = outcomes[at * pass_k : (at + 1) * pass_k]
            right = sum(o is not None and o >= RIGHT for o in some)
            row["pass@1"] = pass_at_k(pass_k, right, 1)
            row[f"pass@{pass_k}"] = pass_at_k(pass_k, right, pass_k)
    return rows
