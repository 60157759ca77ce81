"""Which table goes to which side: training, validation, held out.

Tables that are copies of each other, and tables of one folder that can be joined, stay together.
"""

from __future__ import annotations

from collections.abc import Sequence

from data_gen.krama.lakes.lake import Lake
from data_gen.krama.lakes.sides import copies
from rewards.seeds import derive_seed

Sides = dict[str, dict[str, str]]  # folder → table → side
COPY = "a copy of a table that is used already"
_SCALE = 10_000


def sides_of(lakes: Sequence[Lake], heldout: float, validation: float, seed: int) -> Sides:
    """The side of every table that is used; of copies, one is. A family of tables is held out, or
    validates, by a hash of its content: about these shares of the families."""
    group = copies(lakes)
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for lake in lakes:
        for place, table in enumerate(lake.tables):
            for link in lake.links[place]:
                one = root(group[lake.name, table.key])
                two = root(group[lake.name, lake.tables[link.other].key])
                parent[max(one, two)] = min(one, two)
    found: Sides = {}
    taken: set[str] = set()
    for lake in lakes:
        mine = found.setdefault(lake.name, {})
        for table in lake.tables:
            own = group[lake.name, table.key]
            if own in taken:
                lake.refused[table.key] = COPY
                continue
            taken.add(own)
            mine[table.key] = _side(derive_seed(seed, "sql-side", root(own)), heldout, validation)
    return found


def _side(draw: int, heldout: float, validation: float) -> str:
    place = draw % _SCALE / _SCALE
    if place < heldout:
        return "heldout"
    return "validation" if place < heldout + validation else "train"
