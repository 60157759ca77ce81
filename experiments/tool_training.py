"""Does RL add to SFT on table tasks with tool calls, or do further passes of SFT do the same?

    python -m experiments.tool_training --out runs/tools                  # validation tasks
    python -m experiments.tool_training --out runs/tools --split heldout

Tasks are short ones of instruction following (IF): `assay tasks dare --short`, built with three
seeds, which ask other steps of the same tables. A table is on one side in all of them.

`sft` imitates the scripted reference agent on every training task, in one pass. `rl` goes on from
`sft` by Dr.GRPO. `sft_same` is the control: as many passes as the processor time of `sft` and `rl`
together. `rl_best` is Dr.GRPO from the one of both that is better on the validation tasks, and
`sft_more` its control: SFT for the processor time of that start and of `rl_best`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from assay.task import Task, read_tasks, write_jsonl
from experiments import study
from experiments.study import Answer, Place, Row, Table, answers_of, rows_of

TASKS, TOOL, SFT, RL = study.settings_of("tool_training", "tasks", "tool", "sft", "rl")
CHOSEN_ON = "validation"
VARIANTS = (0, 1, 2)  # seeds of the builder
ANSWERED = (*TOOL, "tools.turns=2", "sampling.max_new_tokens=380")
ALIKE = ("untouched",)  # answers once for all seeds
STARTS = ("sft", "sft_same")
NAMES = ("untouched", "sft", "rl", "sft_same", "rl_best", "sft_more")
PAIRS = (
    *(("sft", name) for name in NAMES[2:]),
    *(("sft_same", name) for name in ("rl", "rl_best")),
    ("rl", "rl_best"),
    ("sft_more", "rl_best"),
)


def tasks_of(place: Place) -> Path:
    """The tasks of all variants in one folder; what is another side in the first is left out."""
    pool = place.out / "tasks"
    if (pool / "heldout.jsonl").is_file():
        return pool
    side: dict[str, str] = {}
    found: dict[str, list[Task]] = {"train": [], "validation": [], "heldout": []}
    for seed in VARIANTS:
        words = (*TASKS, "--seed", seed)
        folder = place.tasks("dare", *words, folder=pool / f"variant{seed}")
        for split, tasks in found.items():
            for task in read_tasks(folder / f"{split}.jsonl"):
                if side.setdefault(task.meta["table_group"], split) == split:
                    tasks.append(variant(task, seed))
    for split, tasks in found.items():
        write_jsonl(pool / f"{split}.jsonl", (task.to_json() for task in tasks))
    return pool


def variant(task: Task, seed: int) -> Task:
    """A task under a name of its own, with its files as seen from the folder of all variants."""
    files = {name: f"variant{seed}/{path}" for name, path in task.files.items()}
    return replace(task, id=f"{task.id}~{seed}", files=files)


def gold(place: Place) -> Path:
    """What the agent did that knows the steps of every training task."""
    train = tasks_of(place) / "train.jsonl"
    return place.gold(train, (*TOOL, "tools.turns=2"), ("--fastest-by", "cost"))


def best_start(place: Place) -> str:
    """The SFT that is exact on most validation tasks."""

    def right(name: str) -> float:
        train_arm(place, name)
        answer(place, name, CHOSEN_ON)
        found = items(place.out, place.seed, name, CHOSEN_ON)
        return sum(one.values["exact"] for one in found)

    return max(STARTS, key=right)


def answer(place: Place, name: str, split: str) -> None:
    """An arm's greedy answers to a split."""
    target = study.folder_of(place.out, place.seed, name, split, ALIKE)
    tasks = f"dare:{tasks_of(place) / split}.jsonl"
    place.answer(target, place.trained(name), tasks, *ANSWERED)


def train_arm(place: Place, name: str) -> None:
    """Train an arm and, before it, its start."""
    if name == "sft":
        place.train(name, "sft", gold(place), place.model, (*SFT, "sft.epochs=1"))
    elif name in ("rl", "rl_best"):
        start = "sft" if name == "rl" else best_start(place)
        train_arm(place, start)
        tasks = tasks_of(place) / "train.jsonl"
        place.train(name, "grpo", tasks, place.trained(start), RL)
    elif name in ("sft_same", "sft_more"):
        rl = "rl" if name == "sft_same" else "rl_best"
        train_arm(place, rl)
        start = "sft" if rl == "rl" else best_start(place)
        longer = place.lasting((place.spent(start) + place.spent(rl)) / place.spent("sft"))
        longer.train(name, "sft", gold(place), place.model, SFT)


def items(out: Path, seed: int, name: str, split: str) -> list[Answer]:
    """Whether each task's prediction was exact, and whether it could be read."""
    rows = {
        row["task_id"]: row for row in answers_of(study.folder_of(out, seed, name, split, ALIKE))
    }
    tasks: list[Row] = rows_of(out / "tasks" / f"{split}.jsonl") if rows else []
    found: list[Answer] = []
    for task in tasks:
        row = rows[task["id"]]
        usable = float((row["reward"] or 0.0) >= 0.1)
        values = {"exact": float(row["outcome"] == 1.0), "usable": usable}
        found.append(Answer(task["id"], task["meta"]["table_group"], values))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    args = study.options(__doc__, NAMES).parse_args(argv)
    for place in study.places(args):
        for name in args.arms:
            train_arm(place, name)
            answer(place, name, args.split)
    shown = Table(("exact", "usable"), PAIRS, shared=True)
    shown.fill(args.out, NAMES, lambda name, seed: items(args.out, seed, name, args.split))
    shown.show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
