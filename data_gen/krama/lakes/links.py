"""Which tables of a lake can be joined, on which columns, and what a join brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from data_gen.krama.lakes.tables import Table

SHARED_LEAST = 5  # values that both keys must have
SHARE_LEAST = 0.5  # of the values of the smaller key
_YEARS_LEAST = 8
_COMMON = 2  # names of columns, beside the year, that two yearly tables must share
Brought = Literal["number", "group"]


@dataclass(frozen=True)
class Link:
    """Rows of one table find at most one row of another, by its place among the lake's tables."""

    other: int
    mine: str
    theirs: str
    brings: str
    what: Brought
    whole: bool = False  # the keys are whole numbers


Links = Sequence[Sequence[Link]]  # of each table


def links_of(tables: Sequence[Table]) -> Links:
    """Every link of every table, in an order that depends on the tables alone."""
    sets = [{name: frozenset(values) for name, values in t.values.items()} for t in tables]
    found: list[list[Link]] = []
    for place, table in enumerate(tables):
        mine: list[Link] = []
        for at, other in enumerate(tables):
            if at == place:
                continue
            for key in other.names:
                for own in (*table.names, *table.groups):
                    shared = len(sets[place][own] & sets[at][key])
                    least = min(len(sets[place][own]), len(sets[at][key]))
                    if shared >= SHARED_LEAST and shared >= SHARE_LEAST * least:
                        once = own in table.names
                        mine += _brought(table, other, at, own, key, False, once)
            mine += _by_year(table, other, at)
        found.append(mine)
    return found


def beside(first: Link, links: Sequence[Link], used: Sequence[str]) -> list[Link]:
    """Links that may follow a first one: to a third table, for a column of the other kind. One key
    is not read as a text and as a year."""
    return [
        link
        for link in links
        if link.other != first.other
        and link.what != first.what
        and link.brings not in used
        and (link.mine != first.mine or link.whole == first.whole)
    ]


def _by_year(table: Table, other: Table, at: int) -> list[Link]:
    """Two tables with a row a year can be joined by it, where they speak of one thing: they have
    other columns of the same names. A yearly figure says nothing of one continent's rows, and two
    unrelated series that happen to be yearly make no question."""
    found: list[Link] = []
    shared = {*table.columns} & {*other.columns}
    for theirs in other.single_years:
        for own in table.single_years:
            if len(shared - {own, theirs}) < _COMMON:
                continue
            years = {*table.spans[own]} & {*other.spans[theirs]}
            if len(years) >= _YEARS_LEAST:
                found += _brought(table, other, at, own, theirs, True)
    return found


def _brought(
    table: Table, other: Table, at: int, mine: str, theirs: str, whole: bool, once: bool = True
) -> list[Link]:
    """What is new to the first table: columns to group by and, where each row of the other table
    is found `once`, measures. One that is found by many rows would be counted as often."""
    taken = set(table.columns)
    found = [
        Link(at, mine, theirs, name, "number", whole)
        for name in other.numbers
        if once and name not in taken and name != theirs
    ]
    return found + [
        Link(at, mine, theirs, name, "group", whole)
        for name in other.groups
        if name not in taken and name != theirs
    ]
