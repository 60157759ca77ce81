"""A corpus record with its active mappers, and a memory of what mappers and filters did to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import nan
from typing import Any

from data_gen.cdr.domains import ALL_MAPPERS
from rewards.cdr.release_files import stable_id
from rewards.gold import RECIPE_PARAMS, BoundStep, GoldError, Profile, Step, bind


@dataclass(frozen=True)
class Record:
    """One document. `domain` is the internal name; `active` the mappers that change its text."""

    id: str
    domain: str
    text: str
    active: frozenset[str] = frozenset()
    source_name: str | None = None
    url: str | None = None
    language: str | None = None
    source: str = "unknown"
    licence: str = "unknown"
    label: str = ""  # the domain as the corpus names it
    chars: int | None = None  # how long the text is, where it is not at hand

    @property
    def length(self) -> int:
        """Characters of the text."""
        return len(self.text) if self.chars is None else self.chars


def record_id(row: dict[str, Any]) -> str:
    """The first non-empty of id, source_name, url; else 20 digits of the text's hash."""
    for name in ("id", "source_name", "url"):
        if row.get(name):
            return str(row[name])
    return stable_id(str(row.get("text", "")), digits=20)


def is_english(record: Record) -> bool:
    """By the record's language if it states one, else by its letters (spec section 8)."""
    if record.language:
        return record.language.lower().startswith("en")
    text = record.text
    cjk = sum("\u4e00" <= c <= "\u9fff" or "\u3040" <= c <= "\u30ff" for c in text)
    latin = sum(c.isascii() and c.isalpha() for c in text)
    letters = sum(c.isalpha() for c in text)
    few = cjk < 3 and cjk <= 0.005 * max(len(text), 1)
    return few and latin >= 20 and latin >= 0.8 * letters


@cache
def bound_mapper(name: str, profile: Profile = "bench") -> BoundStep:
    return bind(Step(name, dict(RECIPE_PARAMS.get(name, {}))), profile)


@cache
def bound_filter(name: str) -> BoundStep:
    return bind(Step(name))


def active_mappers(
    text: str, profile: Profile = "bench", names: Iterable[str] = ALL_MAPPERS
) -> list[str]:
    """Those of the mappers (26) whose output differs from the text, in their order.

    A mapper that fails on the text counts as not active.
    """
    found: list[str] = []
    for name in names:
        step = bound_mapper(name, profile)
        try:
            changed = step.call(text, **step.params) != text
        except (GoldError, ValueError, RecursionError):
            continue
        if changed:
            found.append(name)
    return found


class Replays:
    """Mapper outputs and filter statistics by text, remembered up to a limit.

    Recipes of one domain share prefixes and records, so most of what a recipe asks for has been
    computed for another one already.
    """

    def __init__(self, limit: int = 60_000) -> None:
        self._limit = limit
        self._outputs: dict[tuple[str, str], str] = {}
        self._stats: dict[tuple[str, str], float] = {}

    def apply(self, mapper: str, text: str) -> str:
        """The mapper's output. Raises what the mapper raises."""
        key = (mapper, text)
        if key not in self._outputs:
            if len(self._outputs) >= self._limit:
                self._outputs.clear()
            step = bound_mapper(mapper)
            self._outputs[key] = step.call(text, **step.params)
        return self._outputs[key]

    def states(self, text: str, mappers: Iterable[str]) -> list[str]:
        """S0 (the text) and the text after each mapper."""
        states = [text]
        for name in mappers:
            states.append(self.apply(name, states[-1]))
        return states

    def statistic(self, filter_name: str, text: str) -> float:
        key = (filter_name, text)
        if key not in self._stats:
            if len(self._stats) >= 4 * self._limit:
                self._stats.clear()
            step = bound_filter(filter_name)
            self._stats[key] = step.call(text, **step.params)
        return self._stats[key]

    def statistic_or_nan(self, filter_name: str, text: str) -> float:
        """The same, NaN where the filter fails on the text."""
        try:
            return self.statistic(filter_name, text)
        except (ValueError, RecursionError):
            return nan
