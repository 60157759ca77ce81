"""`--tasks`: files, folders and `NAME:DIR` of benchmarks as one list of tasks to ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.console import task_filter
from assay.family import require_families
from assay.task import (
    Task,
    TaskError,
    read_tasks,
    refuse_without_gold,
    with_absolute_files,
)
from train.evaluation.benchmarks import BENCHMARKS, benchmark_of
from train.evaluation.contract import HELDOUT, OF_A_RELEASE, Opened, all_heldout, splits_of
from train.evaluation.drawing import even_draw, unit_of
from train.evaluation.parts import part_of
from train.evaluation.trained import UNKNOWN, Seen, without_trained


@dataclass(frozen=True)
class Asked:
    """All tasks of a run, and which opened word each came from. Paths of files are absolute. `seen`
    says which of the tasks asked for the model was trained on."""

    tasks: list[Task]
    opened: list[Opened]
    of: dict[str, int]  # task id → index into `opened`
    seen: Seen = UNKNOWN

    def benchmark(self, task: Task) -> str:
        """The benchmark that asks and records the task, "" without one."""
        return self.opened[self.of[task.id]].benchmark or benchmark_of(task.family)


def open_all(words: Sequence[str], args: Any) -> Asked:
    """Every word of `--tasks` without what the model was trained on, drawn down to `--limit`.
    Raises `TaskError` in one sentence for what cannot be read, for a family that is not known, for
    two tasks of one id, and where nothing is left."""
    opened = [open_word(word, args) for word in words]
    of: dict[str, int] = {}
    for index, (word, part) in enumerate(zip(words, opened, strict=True)):
        for task in part.tasks:
            if task.id in of:
                raise TaskError(
                    f"--tasks {word}: task {task.id} is there twice (first in "
                    f"{words[of[task.id]]}); give each task once"
                )
            of[task.id] = index
    tasks = [task for part in opened for task in part.tasks]
    if not tasks:
        raise TaskError(f"--tasks {' '.join(words)}: no task is left")
    tasks = task_filter(args).select(tasks, f"--tasks {' '.join(words)}")
    require_families(tasks)
    refuse_without_gold(tasks, f"--tasks {' '.join(words)}")
    tasks, seen = without_trained(tasks, args)
    drawn = part_of(even_draw(tasks, args.limit, args.seed), args.part, unit_of)
    if not drawn:
        raise TaskError(f"--part {args.part}: no task is left for it; give fewer parts")
    return Asked(drawn, opened, of, seen)


def open_word(word: str, args: Any) -> Opened:
    """One word of `--tasks`. Raises `TaskError`."""
    name, colon, rest = word.partition(":")
    if colon and name in BENCHMARKS:
        opened = BENCHMARKS[name].open(rest, args)
        published = bool(opened.tasks) and all(t.meta.get("published") for t in opened.tasks)
        called = opened.asked or (OF_A_RELEASE if published else "")
        return replace(opened, benchmark=name, asked=called)
    path = Path(word)
    if path.is_dir():
        path = _in_folder(path)
    if not path.is_file():
        known = ", ".join(f"{n}:DIR" for n in BENCHMARKS)
        raise TaskError(f"--tasks {word}: no such file; give a tasks.jsonl, a folder, or {known}")
    found = [with_absolute_files(task, path.parent) for task in read_tasks(path)]
    if not found:
        raise TaskError(f"{path}: no tasks in it; build some with `assay tasks`")
    return Opened(found, heldout=all_heldout(found), split=splits_of(path, found))


def files_of(words: Sequence[str]) -> list[Path]:
    """The files of tasks that words of `--tasks` mean; a benchmark's folder is none."""
    paths = [Path(word) for word in words]
    return [_in_folder(path) if path.is_dir() else path for path in paths if path.exists()]


def _in_folder(folder: Path) -> Path:
    for name in (HELDOUT, "tasks.jsonl"):
        if (folder / name).is_file():
            return folder / name
    known = ", ".join(f"{n}:{folder}" for n in BENCHMARKS)
    raise TaskError(
        f"--tasks {folder}: the folder holds neither {HELDOUT} nor tasks.jsonl; name a file of it, "
        f"or a benchmark ({known})"
    )
