"""DARE-bench's family: a prediction file for a table, scored against the truth."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from assay.console import licences_of
from assay.family import SOURCE, Answer, Cheat, Family
from assay.fingerprints import TableMarks, tables_of
from assay.task import Task
from rewards.dare.read import read_truth
from rewards.dare.score import FILE, TableReward, read_gold, score_file


def _gold(task: Task) -> Answer:
    return Answer(files={FILE: read_gold(task.gold).truth_csv.encode()})


def _frame(task: Task) -> tuple[Any, list[str], list[str]]:
    gold = read_gold(task.gold)
    return read_truth(gold.truth_csv), list(gold.key_columns), list(gold.targets)


def _file(frame: Any) -> Answer:
    return Answer(files={FILE: frame.to_csv(index=False).encode()})


def _constant(task: Task) -> Answer:
    """Every target's commonest label or its mean, over the truth itself: no constant does better
    by guessing."""
    frame, keys, targets = _frame(task)
    made = frame[keys].copy()
    for name in targets:
        column = frame[name].dropna()
        numbers = column.dtype.kind == "f"
        made[name] = column.mean() if numbers else column.mode().iloc[0]
    return _file(made)


def every_target(task: Task, text: str) -> Answer:
    """Every key of the test file, which a solver is handed, with the text as every target."""
    frame, keys, targets = _frame(task)
    return _file(frame[keys].assign(**dict.fromkeys(targets, text)))


def _keys_only(task: Task) -> Answer:
    frame, keys, _ = _frame(task)
    return _file(frame[keys])


def _slices(task: Task) -> dict[str, str]:
    """Task type, whether the table is a published one, its domain and licence (the paper's Table 11
    scores a subset by licence), and how many targets are asked for."""
    meta = task.meta
    source = meta.get("table") or meta.get("database") or meta.get("source") or task.id
    found = {"track": task.track, "origin": "published" if meta.get("published") else "built"}
    found[SOURCE] = str(source)
    if isinstance(task.meta.get("domain"), str):
        found["domain"] = task.meta["domain"]
    targets: Any = task.gold.get("targets")
    if isinstance(targets, list | tuple):
        found["targets"] = str(len(cast("list[Any]", targets)))
    return found | {"licence": ", ".join(licences_of(task))}


def _content(task: Task) -> Iterable[str | TableMarks]:
    """The tables that the model is handed; where they cannot be read, the truth itself."""
    found = tables_of(Path(path) for path in task.files.values())
    if found:
        return found
    return [str(task.gold.get("truth_csv") or task.gold.get("task_dir") or "")]


TABLE = Family(
    name="table",
    score=score_file,
    gold=_gold,
    weights=TableReward,
    cheats={
        "constant": Cheat(_constant, admits=0.9),
        "blank": Cheat(lambda task: every_target(task, ""), admits=0.1),
        "keys only": Cheat(_keys_only, admits=0.1),
    },
    slices=_slices,
    content=_content,
    audit="rewards.dare.audit:TABLE_AUDIT",
)
