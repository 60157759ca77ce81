"""Which table goes to which side: training, validation, held out.

Copies of a table stay together, and so do tables that are drawn from one another: other rows of
the same table, or its quantities in another unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.fingerprints import TableMarks
from assay.seeds import derive_seed
from data_gen.groups import copies_of_tables, kin
from data_gen.queries.lake import Lake, one_sided
from data_gen.queries.tables import Table

Place = tuple[str, str]  # lake, table

_COPY = "a copy of a table that is used already"
_HELD = "a copy of a table that is held out"
_DRAWN = "its rows or quantities are those of a table that is held out"


def copies(lakes: Sequence[Lake]) -> dict[Place, str]:
    """(lake, table) → the group of tables whose columns are mostly the same, in whatever order."""
    marks = {f"{lake.name}\0{t.key}": t.marks for lake in lakes for t in lake.tables}
    return {
        (n.partition("\0")[0], n.partition("\0")[2]): g for n, g in copies_of_tables(marks).items()
    }


def families(lakes: Sequence[Lake], group: Mapping[Place, str]) -> dict[Place, str]:
    """(lake, table) → the least group of those that are drawn from one another."""
    marks: dict[str, list[TableMarks]] = {}
    for lake in lakes:
        for table in lake.tables:
            marks.setdefault(group[lake.name, table.key], []).append(table.kin)
    head = kin(marks)
    return {place: head[name] for place, name in group.items()}


def chosen(lakes: Sequence[Lake], group: Mapping[Place, str]) -> dict[str, Place]:
    """Group → the copy that is used: the first without doubts, or else with the fewest."""
    found: dict[str, tuple[int, Place]] = {}
    for lake in lakes:
        for table in lake.tables:
            place = (lake.name, table.key)
            best = found.get(group[place])
            if best is None or len(table.doubts) < best[0]:
                found[group[place]] = (len(table.doubts), place)
    return {name: place for name, (_, place) in found.items()}


def parted(
    train: Sequence[Lake],
    held: Sequence[Lake],
    share: float,
    seed: int,
    held_share: float = 0.0,
) -> tuple[list[Lake], list[Lake], list[Lake]]:
    """(training, validation, held out) lakes, with the tables of each side.

    No family of tables is on two sides, and of copies one is used. A table of the training
    folders goes to validation by a hash of its family: about `share` of the families, and another
    `held_share` of them is held out.
    """
    group = copies([*train, *held])
    family = families([*train, *held], group)
    held_groups = {group[lake.name, t.key] for lake in held for t in lake.tables}
    held_families = {family[lake.name, t.key] for lake in held for t in lake.tables}

    def firsts(lakes: list[Lake]) -> list[Lake]:
        """Without second copies."""
        best = set(chosen(lakes, group).values())
        return [
            one_sided(lake, [t for t in lake.tables if (lake.name, t.key) in best], _COPY)
            for lake in lakes
        ]

    def apart(lake: Lake) -> Lake:
        """Without tables that are held out, and without those drawn from one."""
        places = {t.key: (lake.name, t.key) for t in lake.tables}
        drawn = {k for k, place in places.items() if family[place] in held_families}
        same = {k for k, place in places.items() if group[place] in held_groups}
        others = one_sided(lake, [t for t in lake.tables if t.key not in same], _HELD)
        return one_sided(others, [t for t in others.tables if t.key not in drawn], _DRAWN)

    held_out = firsts(list(held))
    free = firsts([apart(lake) for lake in train])

    def side(lake: Lake, table: Table) -> str:
        of = family[lake.name, table.key]
        if derive_seed(seed, "held out", of) % 1000 < 1000 * held_share:
            return "held out"
        chosen = derive_seed(seed, "validation", of) % 1000 < 1000 * share
        return "validation" if chosen else "train"

    def sided(name: str) -> list[Lake]:
        return [one_sided(lk, [t for t in lk.tables if side(lk, t) == name], "") for lk in free]

    own, other, more = sided("train"), sided("validation"), sided("held out")
    held_out += [lake for lake in more if lake.tables]
    return own, [lake for lake in other if lake.tables], held_out
