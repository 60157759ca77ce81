"""One generic row an answer: what every table, report and comparison is computed from."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
from assay.task import Answer, Score, Task, TaskError
from rollouts.sampler import answered
from rollouts.trajectory import UNTOLD, Trajectory

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
