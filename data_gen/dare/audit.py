# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""What `assay audit` says of table tasks beside the laws of every family: the leaks of the
specification's section 9, answers that are one label throughout, answers that are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.console import progress
from assay.task import Task, TaskError
from data_gen.dare.layout import Frame, read_table
from rewards.audit_laws import Broken
from rewards.dare.read import read_truth
from rewards.dare.score import TableGold, raw_r2, read_gold

Finding = dict[str, Any]


def tables_of(task: Task, root: Path) -> tuple[Frame, Frame]:
    """(training table, test table) that a solver sees."""
    found = {n.split("_")[0].split(".")[0]: root / p for n, p in sorted(task.files.items())}
    try:
        return read_table(found["train"]), read_table(found["val"])
    except (KeyError, OSError) as error:
        raise TaskError(f"task {task.id}: its train or val file is not there ({error})") from None


def told_by_one_column(gold: TableGold, train: Frame, test: Frame) -> list[str]:
    """Columns whose straight line, fitted on the training file, gives R2 ≥ 0.99 (spec 9.3)."""
    (target,) = gold.targets[:1]
    whole = test.merge(read_truth(gold.truth_csv), on=list(gold.key_columns))
    found: list[str] = []
    for name in test.columns:
        if name in gold.key_columns or name not in train or train[name].dtype.kind not in "iuf":
            continue
        known = train[[name, target]].dropna()
        if known[name].nunique() < 2 or whole[name].isna().any():
            continue
        slope, base = np.polyfit(known[name].to_numpy(float), known[target].to_numpy(float), 1)
        if (raw_r2(whole[target], slope * whole[name] + base) or 0.0) >= 0.99:
            found.append(str(name))
    return found


def leaks(task: Task, gold: TableGold, train: Frame, test: Frame) -> Finding:
    """Shares of the answer that the handed files hold, by kind of leak."""
    found: Finding = {}
    if gold.task_type == "time-CF":
        keys = list(gold.key_columns)
        if set(keys) <= set(train.columns):
            known = train[keys].astype(str).drop_duplicates()
            hits = len(test[keys].astype(str).merge(known, on=keys))
            if hits:
                found["asked rows in the training file"] = round(hits / len(test), 4)
    if gold.task_type == "time-XF" and (names := told_by_one_column(gold, train, test)):
        found["columns that tell the target"] = names
    if gold.task_type.endswith("-MM"):
        names = [c for c in test.columns if c in train.columns and c != "row_id"]
        seen = train[names].astype(str).drop_duplicates()
        hits = len(test[names].astype(str).merge(seen, on=names))
        if hits > 0.01 * len(test):
            found["test rows seen in training"] = round(hits / len(test), 4)
    return found


def audited(task: Task, root: Path) -> Finding:
    """One row of the report. Raises `TaskError` for files that are not there or gold that cannot be
    read."""
    gold = read_gold(task.gold)
    train, test = tables_of(task, root)
    truth = read_truth(gold.truth_csv)[list(gold.targets)]
    one_label = task.track.endswith("-IF") and bool((truth.nunique() < 2).all())
    return {"guessable": one_label, "leaks": leaks(task, gold, train, test)}


def audit_tables(
    tasks: Sequence[Task], roots: Sequence[Path]
) -> tuple[list[Finding], Finding, list[Broken]]:
    """(a row a task, counts by track and over all tasks, no broken laws). Raises `TaskError` for
    files that are not there."""
    pairs = list(zip(tasks, roots, strict=True))
    rows = [audited(task, root) for task, root in progress(pairs, "audit of tables", "tasks")]
    tracks: dict[str, Finding] = {}
    for track in sorted({task.track for task in tasks}):
        mine = [row for task, row in zip(tasks, rows, strict=True) if task.track == track]
        leaky, guessable = (sum(bool(r[name]) for r in mine) for name in ("leaks", "guessable"))
        tracks[track] = {"tasks": len(mine), "leaky": leaky, "guessable": guessable}
    twins = len(tasks) - len({str(task.gold.get("truth_csv")) for task in tasks})
    return rows, {"tasks": len(rows), "same_answers": twins, "tracks": tracks}, []
