"""What listing everything earns: all values of a column that a question names, all of its tables.

A list that holds every candidate holds the right ones too, so a lenient metric pays it. Each
question is answered so, in every way there is, and refused where training would pay for it.
"""

# duckdb ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, permutations
from typing import Any

from data_gen.krama.lakes.constants import MOST, earns
from data_gen.krama.lakes.ops import Op, Split, sources_of
from data_gen.krama.lakes.sql import part_of
from data_gen.proof.marks import number, text
from data_gen.proof.original import NotProvable, Opened
from data_gen.proof.shelf import Shelf
from rewards.krama.judge import says_much_more

_LISTED = 1000  # values of one list
_PAIRED = 6  # columns of text of which two are listed together, as a pair is asked for


def everything(ops: tuple[Op, ...], shelf: Shelf) -> list[list[Any]]:
    """Lists of everything that a question could be about: the distinct values of each column it
    names (as numbers where they are), of each part of a split one, of two columns of text, all of
    them together, and the names of the columns of its tables."""
    lists: list[list[Any]] = []
    for source in sources_of(ops):
        held = shelf.table(source.path, source.part)
        for column in source.columns:
            for read in (text, number):
                try:
                    lists.append(_distinct(shelf, held, column, read(held, column)))
                except NotProvable:
                    continue  # a column that no question asks so about
        for op in ops:
            if isinstance(op, Split) and op.column in held.ids:
                cell = part_of(text(held, op.column), op.cut)
                lists.append(_distinct(shelf, held, op.column, cell))
        lists.append(list(held.ids))
    texts = [one for one in lists if any(isinstance(c, str) for c in one)]
    pairs = [[*one, *other] for one, other in permutations(texts[:_PAIRED], 2)]
    together = list(dict.fromkeys(chain.from_iterable(lists)))
    return [one for one in [*lists, *pairs, together[:_LISTED]] if one]


def _distinct(shelf: Shelf, table: Opened, column: str, cell: str) -> list[Any]:
    """The distinct values of what SQL makes of the cells of a column, in order. A table of a shelf
    never changes, so that each is asked for once."""
    texts = f"SELECT DISTINCT {table.column(column)} FROM {table.table}"
    query = f"SELECT DISTINCT c FROM (SELECT {cell} AS c FROM ({texts})) ORDER BY c LIMIT {_LISTED}"
    if query not in shelf.listed:
        shelf.listed[query] = [c for (c,) in shelf.con.execute(query).fetchall() if c is not None]
    return shelf.listed[query]


def best_listing(kind: str, target: Any, lists: Sequence[list[Any]]) -> tuple[float, float]:
    """(outcome, reward) of the listing that earns most, as a list or as one text."""
    found = [(0.0, 0.0)]
    for listed in lists:
        for answer in (listed, ", ".join(map(str, listed)), " ".join(map(str, listed))):
            outcome, reward = earns(kind, target, answer)
            if kind == "string_approximate" and says_much_more(str(answer), str(target)):
                reward = 0.0  # gold says `names_only`
            found.append((outcome, reward))
    return max(f[0] for f in found), max(f[1] for f in found)


def listings_earn(found: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, dict[str, Any]]:
    """Of each answer type: tasks, and what their best listings earn on average and at most."""
    return {
        kind: {
            "tasks": len(pairs),
            "outcome": round(sum(p[0] for p in pairs) / len(pairs), 4),
            "reward": round(sum(p[1] for p in pairs) / len(pairs), 4),
            "highest reward": round(max(p[1] for p in pairs), 4),
        }
        for kind, pairs in sorted(found.items())
        if pairs
    }


def pays(pair: tuple[float, float]) -> bool:
    """Whether training would pay for a listing."""
    return pair[1] > MOST
