"""Which tables of a lake can be joined, on which columns, and what a join brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from data_gen.queries.tables import Table

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
    declared: bool = False  # the database says so


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
                for own in (*table.names, *table.groups, *table.keys):
                    if _meet(sets[place][own], sets[at][key]):
                        once = own in table.names
                        mine += _brought(table, other, at, own, key, False, once)
            mine += _by_year(table, other, at)
            mine += _by_reference(table, other, at, mine)
        found.append(mine)
    return found


def _meet(one: frozenset[str], two: frozenset[str]) -> bool:
    """Whether so many values are those of both that rows can be matched by them."""
    shared = len(one & two)
    return shared >= SHARED_LEAST and shared >= SHARE_LEAST * min(len(one), len(two))


def spelled_apart(tables: Sequence[Table]) -> dict[str, list[str]]:
    """Key of a table → a sentence for each column that would match one of another table, were it
    spelled as there."""
    sets = [{name: frozenset(values) for name, values in t.values.items()} for t in tables]
    plain = [{n: frozenset(map(str.casefold, v)) for n, v in found.items()} for found in sets]
    said: dict[str, list[str]] = {}
    for place, table in enumerate(tables):
        for at, other in enumerate(tables):
            for key in other.names if at != place else ():
                for own in (*table.names, *table.groups, *table.keys):
                    if _meet(sets[place][own], sets[at][key]) or not _meet(
                        plain[place][own], plain[at][key]
                    ):
                        continue
                    there = {v.casefold(): v for v in other.values[key]}
                    pairs = ((v, there.get(v.casefold(), v)) for v in table.values[own])
                    mine, theirs = next((a, b) for a, b in pairs if a != b)
                    said.setdefault(table.key, []).append(
                        f"no join with {other.key}: {mine} / {theirs} ('{own}', there '{key}') are "
                        "spelled differently"
                    )
    return said


def _by_reference(table: Table, other: Table, at: int, found: Sequence[Link]) -> list[Link]:
    """What the foreign keys of a database bring, where no other link brings it."""
    made: list[Link] = []
    for one in table.refers:
        same = (table.path, one.part) == (other.path, other.reading.part)
        if not same or one.column not in table.sense or not other.is_unique(one.theirs):
            continue
        whole, once = table.sense[one.column].whole, table.is_unique(one.column)
        listed = _brought(table, other, at, one.column, one.theirs, whole, once)
        known = {(link.mine, link.theirs, link.brings) for link in found}
        made += [
            replace(link, declared=True)
            for link in listed
            if (link.mine, link.theirs, link.brings) not in known
        ]
    return made


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
