"""Which table goes to which side: training, validation, held out.

Tables that are copies of each other or drawn from one another, and tables of one folder that can
be joined, stay together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from assay.fingerprints import TableMarks
from assay.seeds import derive_seed
from assay.task import Task
from data_gen.groups import Together
from data_gen.queries.lake import Lake
from data_gen.queries.lake_sides import chosen, copies, families
from rewards.sql.family import marks_of

Sides = dict[str, dict[str, str]]  # folder → table → side
LIKE = "a table like one of another side"
COPY = "a copy of a table that is used already"
_SCALE = 10_000


def sides_of(lakes: Sequence[Lake], heldout: float, validation: float, seed: int) -> Sides:
    """The side of every table that is used; of copies, one is. A family of tables is held out, or
    validates, by a hash of its content: about these shares of the families."""
    group = copies(lakes)
    together = Together()
    for place, family in families(lakes, group).items():
        together.join(group[place], family)
    for lake in lakes:
        for place, table in enumerate(lake.tables):
            for link in lake.links[place]:
                other = group[lake.name, lake.tables[link.other].key]
                together.join(group[lake.name, table.key], other)
    found: Sides = {}
    best = set(chosen(lakes, group).values())
    for lake in lakes:
        mine = found.setdefault(lake.name, {})
        for table in lake.tables:
            own = group[lake.name, table.key]
            if (lake.name, table.key) not in best:
                lake.refused[table.key] = COPY
                lake.doubts[table.key] = table.doubts
                continue
            family = together.head(own)
            mine[table.key] = _side(derive_seed(seed, "sql-side", family), heldout, validation)
    return found


def parted(made: Sequence[Task], reasons: Counter[str]) -> list[Task]:
    """The tasks without those over a table that is like one of a stricter side, by its columns,
    its rows or its quantities: held out is strictest, then validation. Others are counted."""
    kept: list[Task] = []
    known: list[TableMarks] = []
    for side in ("heldout", "validation", "train"):
        mine: dict[str, tuple[TableMarks, ...]] = {}
        for task in made:
            if task.split == side:
                text = str(task.gold["database"])
                mine.setdefault(text, marks_of(text))
        shared = {text for text, tables in mine.items() if any(_like(t, known) for t in tables)}
        for task in made:
            if task.split == side:
                if task.gold["database"] in shared:
                    reasons[LIKE] += 1
                else:
                    kept.append(task)
        known += [t for text, tables in mine.items() if text not in shared for t in tables]
    return kept


def _like(table: TableMarks, known: Sequence[TableMarks]) -> bool:
    marks = table.all()
    return any(not marks.isdisjoint(other.all()) and table.like(other) for other in known)


def _side(draw: int, heldout: float, validation: float) -> str:
    place = draw % _SCALE / _SCALE
    if place < heldout:
        return "heldout"
    return "validation" if place < heldout + validation else "train"
