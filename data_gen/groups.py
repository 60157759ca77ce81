"""What belongs together, directly or through others: names, copies of tables, tables that are drawn
from one another. Their tasks belong on one side of a split.

Copies of whole columns are known before anything is built. A table that holds some of the rows of
another is known by the marks of its rows, and one that calls its rows something else, or measures
in another unit, by the sketches of its numbers (`assay.fingerprints`), from the files that are
shipped: the same marks that `assay tasks check` compares.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.fingerprints import TableMarks, tables_of
from assay.workers import WorkerPool, limit_threads

FEW = 24  # databases that are read before processes for them would have begun
TRAINING = ("train_v2", "train", "covariates_train")  # clean training files, without their ending


class Together:
    """Groups of names, each called by its least name. A name that was never joined is alone."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def head(self, name: str) -> str:
        """The least name of the group."""
        path: list[str] = []
        while (parent := self._parent.get(name, name)) != name:
            path.append(name)
            name = parent
        self._parent.update(dict.fromkeys(path, name))
        return name

    def join(self, one: str, two: str) -> None:
        """Put the groups of two names together."""
        least, most = sorted((self.head(one), self.head(two)))
        self._parent[most] = least

    def heads(self, names: Iterable[str]) -> dict[str, str]:
        """Each name with the least of its group."""
        return {name: self.head(name) for name in names}


def alike(marks: Mapping[str, Collection[Hashable]], like: Callable[[str, str], bool]) -> Together:
    """The names that are alike by `like`, of which those are asked that have a mark in common."""
    groups = Together()
    holders: defaultdict[Hashable, set[str]] = defaultdict(set)
    for name in sorted(marks):
        own = set(marks[name])
        for other in sorted({near for mark in own for near in holders[mark]}):
            if groups.head(name) != groups.head(other) and like(name, other):
                groups.join(name, other)
        for mark in own:
            holders[mark].add(name)
    return groups


def same_table(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether most columns of the narrower table are columns of the other."""
    return bool(one and other) and len(one & other) >= 0.6 * min(len(one), len(other))


def copies_of_tables(marks: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Source → the name of its group: copies of one table, and copies of copies, are together.
    The group's name does not depend on what sources are called where columns say enough."""
    groups = alike(marks, lambda one, other: same_table(marks[one], marks[other]))
    least: dict[str, str] = {}
    for name, head in groups.heads(sorted(marks)).items():
        key = min(marks[name], default=hashlib.sha256(name.encode()).hexdigest()[:16])
        least[head] = min(key, least.get(head, "g"))
    return {name: least[head] for name, head in groups.heads(sorted(marks)).items()}


def kin(marks: Mapping[str, Sequence[TableMarks]]) -> dict[str, str]:
    """Name → the least name among those whose tables are like each other, directly or through
    others."""
    own = {name: {m for table in tables for m in table.all()} for name, tables in marks.items()}

    def like(one: str, other: str) -> bool:
        return any(a.like(b) for a in marks[one] for b in marks[other])

    return alike(own, like).heads(marks)


def kin_of_databases(
    rows: Sequence[Mapping[str, Any]], databases: Path, workers: int = 1
) -> dict[str, str]:
    """Group of a table → the group it belongs to, for the rows of a question list (`kin`)."""
    marks: dict[str, list[TableMarks]] = {}
    # Every database: what one of them keeps in other files, another has at hand.
    folders = [databases / str(row["file_path"]) / "source" for row in rows]
    with WorkerPool(workers, limit_threads, few=FEW) as crew:
        for row, found in zip(rows, crew.map(_shipped, folders), strict=True):
            marks.setdefault(str(row["table_group"]), []).extend(found)
    return kin(marks)


def _shipped(folder: Path) -> list[TableMarks]:
    training = [p for p in sorted(folder.iterdir()) if p.name.partition(".")[0] in TRAINING]
    return list(tables_of(training))
