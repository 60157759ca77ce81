"""Tables that are drawn from one another: their tasks belong on one side of a split.

Copies of whole columns are known before anything is built. A table that holds some of the rows of
another is known by the marks of its rows, and one that calls its rows something else, or measures
in another unit, by the sketches of its numbers (`assay.fingerprints`), from the files that are
shipped: the same marks that `assay tasks check` compares.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.fingerprints import TableMarks, tables_of
from assay.workers import WorkerPool, limit_threads
from data_gen.together import Together

FEW = 24  # databases that are read before processes for them would have begun
TRAINING = ("train_v2", "train", "covariates_train")  # clean training files, without their ending


def joined(rows: Sequence[Mapping[str, Any]], databases: Path, workers: int = 1) -> dict[str, str]:
    """Group of a table → the group it belongs to, for the rows of a question list (`heads`)."""
    marks: dict[str, list[TableMarks]] = {}
    # Every database: what one of them keeps in other files, another has at hand.
    folders = [databases / str(row["file_path"]) / "source" for row in rows]
    with WorkerPool(workers, limit_threads, few=FEW) as crew:
        for row, found in zip(rows, crew.map(_shipped, folders), strict=True):
            marks.setdefault(str(row["table_group"]), []).extend(found)
    return heads(marks)


def _shipped(folder: Path) -> list[TableMarks]:
    return list(tables_of(_training(folder)))


def heads(marks: Mapping[str, Sequence[TableMarks]]) -> dict[str, str]:
    """Name → the least name among those whose tables are like each other, directly or through
    others."""
    groups = Together()
    holders: defaultdict[int, set[str]] = defaultdict(set)
    for name in sorted(marks):
        own = {mark for table in marks[name] for mark in table.all()}
        for other in sorted({near for mark in own for near in holders[mark]}):
            apart = groups.head(name) != groups.head(other)
            if apart and _like(marks[name], marks[other]):
                groups.join(name, other)
        for mark in own:
            holders[mark].add(name)
    return groups.heads(marks)


def _training(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.iterdir()) if p.name.partition(".")[0] in TRAINING]


def _like(ones: Sequence[TableMarks], others: Sequence[TableMarks]) -> bool:
    return any(one.like(other) for one in ones for other in others)
