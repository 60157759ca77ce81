"""Which table goes to which side: training, validation, held out. Copies stay together."""

from __future__ import annotations

from collections.abc import Sequence

from data_gen.dare.sources import groups
from data_gen.krama.lakes.lake import Lake, one_sided
from data_gen.krama.lakes.tables import Table
from rewards.seeds import derive_seed

_COPY = "a copy of a table that is used already"
_HELD = "a copy of a table that is held out"
_OTHER = "its table is on the other side: {}"


def copies(lakes: Sequence[Lake]) -> dict[tuple[str, str], str]:
    """(lake, table) → the group of tables whose columns are mostly the same, in whatever order."""
    marks = {f"{lake.name}\0{t.key}": t.marks for lake in lakes for t in lake.tables}
    return {(n.partition("\0")[0], n.partition("\0")[2]): g for n, g in groups(marks).items()}


def parted(
    train: Sequence[Lake], held: Sequence[Lake], share: float, seed: int
) -> tuple[list[Lake], list[Lake], list[Lake]]:
    """(training, validation, held out) lakes, with the tables of each side.

    No group of copies is on two sides, and of a group one table is used. A table of the training
    folders goes to validation by a hash of its group: about `share` of the groups.
    """
    group = copies([*train, *held])
    held_groups = {group[lake.name, t.key] for lake in held for t in lake.tables}
    taken: set[str] = set()

    def first(lake: Lake) -> Lake:
        """Without second copies."""
        kept: list[Table] = []
        for table in lake.tables:
            if group[lake.name, table.key] not in taken:
                kept.append(table)
            taken.add(group[lake.name, table.key])
        return one_sided(lake, kept, _COPY)

    held_out = [first(lake) for lake in held]
    free = [
        one_sided(
            lake, [t for t in lake.tables if group[lake.name, t.key] not in held_groups], _HELD
        )
        for lake in train
    ]
    free = [first(lake) for lake in free]

    def chosen(lake: Lake, table: Table) -> bool:
        return derive_seed(seed, "validation", group[lake.name, table.key]) % 1000 < 1000 * share

    own = [one_sided(lk, [t for t in lk.tables if not chosen(lk, t)], "") for lk in free]
    other = [one_sided(lk, [t for t in lk.tables if chosen(lk, t)], "") for lk in free]
    return own, [lake for lake in other if lake.tables], held_out
