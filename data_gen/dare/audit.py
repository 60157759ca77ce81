# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""What `assay audit` says of table tasks: which are leaky or guessable, do cheats fool the scorer.

No model and no sandbox: cheating predictions are written from what a solver sees and scored in both
readings, and the files are searched for the leaks of the specification's section 9.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.console import progress
from assay.task import Task, TaskError
from data_gen.dare.layout import Frame, csv_bytes, read_table
from rewards.audit.laws import Broken
from rewards.dare.metrics import raw_r2
from rewards.dare.score import TableGold, read_gold, score_table

CHEAT_LIMIT = 0.1  # what a cheat may earn in the strict reading
Finding = dict[str, Any]


def guess(train: Frame, target: str) -> Any:
    """The commonest label, or the mean."""
    column = train[target].dropna()
    return column.mean() if column.dtype.kind == "f" else column.mode().iloc[0]


def cheats(train: Frame, keys: Frame, targets: Sequence[str]) -> dict[str, bytes]:
    """Predictions that do none of the work, by name."""
    import pandas as pd

    lazy = keys.assign(**{t: guess(train, t) for t in targets})
    first = lazy.iloc[:1]
    frames = {
        "constant": lazy,
        "one row repeated": pd.concat([first] * len(lazy)),
        "a repeat and a gap": pd.concat([first, lazy.iloc[:-1]]),
        "keys only": keys,
        "header only": lazy.iloc[:0],
        "blank": keys.assign(**dict.fromkeys(targets, "")),
        "every key twice": pd.concat([lazy, lazy]),
    }
    return {name: csv_bytes(frame) for name, frame in frames.items()}


def tables_of(task: Task, root: Path) -> tuple[Frame, Frame]:
    """(training table, test table) that a solver sees."""
    found = {n.split("_")[0].split(".")[0]: root / p for n, p in sorted(task.files.items())}
    try:
        return read_table(found["train"]), read_table(found["val"])
    except (KeyError, OSError) as error:
        raise TaskError(f"task {task.id}: its train or val file is not there ({error})") from None


def told_by_one_column(gold: TableGold, train: Frame, test: Frame) -> list[str]:
    """Columns whose straight line, fitted on the training file, gives R2 ≥ 0.99 (spec 9.3)."""
    import numpy as np

    (target,) = gold.targets[:1]
    truth = _truth(gold)
    whole = test.merge(truth, on=list(gold.key_columns))
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


def _truth(gold: TableGold) -> Frame:
    from rewards.dare.read import read_truth

    return read_truth(gold.truth_csv)


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
    """One row of the report: best cheat a reading, and leaks. Raises `TaskError` for files that
    are not there or gold that cannot be read."""
    gold = read_gold(task.gold)
    train, test = tables_of(task, root)
    attacks = cheats(train, test[list(gold.key_columns)], gold.targets)
    row: Finding = {"id": task.id, "track": task.track}
    honest = score_table(gold, gold.truth_csv.encode(), trusted=True)
    row["gold"] = honest.outcome
    for reading in ("strict", "release"):
        scores = {
            n: score_table(gold, data, reading, trusted=True).outcome or 0.0
            for n, data in attacks.items()
        }
        best = max(scores, key=lambda n: scores[n])
        row[reading] = {"cheat": best, "outcome": round(scores[best], 4)}
        if reading == "strict":
            del scores["constant"]  # the one honest answer among them
            row["fooled"] = sorted(n for n, v in scores.items() if v > CHEAT_LIMIT)
            row["guessable"] = gold.task_type.endswith("-IF") and row["strict"]["outcome"] >= 1.0
    return row | {"leaks": leaks(task, gold, train, test)}


def summary(rows: Sequence[Finding], twins: int) -> Finding:
    """Counts by track, and over all tasks."""
    tracks: dict[str, Finding] = {}
    for track in sorted({str(r["track"]) for r in rows}):
        mine = [r for r in rows if r["track"] == track]
        tracks[track] = {
            "tasks": len(mine),
            "leaky": sum(bool(r["leaks"]) for r in mine),
            "guessable": sum(bool(r["guessable"]) for r in mine),
            "strict_fooled": sum(bool(r["fooled"]) for r in mine),
            "best_cheat_strict": max(r["strict"]["outcome"] for r in mine),
            "best_cheat_release": max(r["release"]["outcome"] for r in mine),
        }
    gold = sum(r["gold"] == 1.0 for r in rows)
    return {"tasks": len(rows), "gold_scores_one": gold, "same_answers": twins, "tracks": tracks}


def audit_tables(
    tasks: Sequence[Task], roots: Sequence[Path]
) -> tuple[list[Finding], Finding, list[Broken]]:
    """(a row a task, the summary, broken laws): what `assay audit` says of table tasks beside the
    laws of every family. Raises `TaskError` for files that are not there."""
    rows = [
        audited(task, root)
        for task, root in progress(list(zip(tasks, roots, strict=True)), "audit of tables", "tasks")
    ]
    same: dict[str, int] = defaultdict(int)
    for task in tasks:
        same[str(task.gold.get("truth_csv"))] += 1
    broken = [
        Broken("table", f"task {row['id']}", f"{', '.join(row['fooled'])} fools the scorer")
        for row in rows
        if row["fooled"]
    ]
    return rows, summary(rows, sum(n - 1 for n in same.values())), broken
