"""Who makes the choices of a question: a seed, or a draft that an endpoint proposes.

Both choose among the same options, which the builder names. A draft that wants anything else makes
no question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, TypeVar, cast

from data_gen.krama.lakes.links import Link
from data_gen.krama.lakes.ops import Sign
from data_gen.krama.lakes.tables import Table
from data_gen.proposing import Unfit, check_fields, short, text_in, texts_in

Option = TypeVar("Option")

FIELDS = (
    *("kind", "file", "join", "measure", "by", "part", "filter", "summary", "order", "k"),
    *("values", "value", "limit", "side", "line", "share", "back", "rows", "digits", "place"),
)
SIDES: dict[str, Sign] = {"above": ">", "below": "<", "at least": ">=", "at most": "<="}
_JOINS = 2  # of one question
_FREE = ("kind", "file", "digits", "rows")  # fields that a kind of question need not use


class NoQuestion(ValueError):
    """These tables do not have what this kind of question needs; the text, if any, says why."""


class Drawn:
    """Every choice by a seed."""

    draft = False

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def one(self, what: str, options: Sequence[Option]) -> Option:
        return self.rng.choice(options)

    def two(self, what: str, options: Sequence[Option]) -> list[Option]:
        return self.rng.sample(options, 2)

    def limit(self, what: str, options: Sequence[float]) -> float:
        return self.rng.choice(options)

    def yes(self, what: str, share: float) -> bool:
        """Whether something is done that is done in this share of the questions."""
        return self.rng.random() < share

    def took(self, what: str, name: str) -> None:
        """A column was taken without a choice."""


class Proposed(Drawn):
    """The choices of a draft; what it leaves open is drawn by the seed."""

    draft = True

    def __init__(self, rng: Random, draft: Mapping[str, Any]) -> None:
        super().__init__(rng)
        check_fields(draft, FIELDS)
        self.row = draft
        self.left = {name: list(texts_in(draft, name)) for name in ("measure", "by")}
        self.joins = _joins(draft.get("join"))
        self.used: set[str] = set()

    def given(self, what: str) -> Any:
        self.used.add(what)
        return self.row.get(what)

    def one(self, what: str, options: Sequence[Option]) -> Option:
        if what in self.left:
            return self._column(what, options)
        wanted = self.given(what)
        if wanted is None:
            if what in ("digits", "rows", "share", "back", "k", "place"):
                return self.rng.choice(options)
            raise Unfit(f"{what}: not given; it may be {_listed(options)}")
        for option in options:
            if option == wanted and type(option) is type(wanted):
                return option
        raise Unfit(f"{what}: {short(wanted)} is none of {_listed(options)}")

    def _column(self, what: str, options: Sequence[Option]) -> Option:
        self.used.add(what)
        left = self.left[what]
        if not left:
            raise Unfit(f"{what}: one more column is needed, of {_listed(options)}")
        for option in options:
            if option == left[0]:
                left.pop(0)
                return option
        usual = "a measured number" if what == "measure" else "a column to group by"
        raise Unfit(f"{what}: '{left[0]}' is not {usual} here; there are {_listed(options)}")

    def two(self, what: str, options: Sequence[Option]) -> list[Option]:
        wanted = self.given(what)
        if not isinstance(wanted, list) or len(wanted) != 2 or wanted[0] == wanted[1]:  # pyright: ignore[reportUnknownArgumentType]
            raise Unfit(f"{what}: wanted two of {_listed(options)}")
        found = [o for w in wanted for o in options if o == w]  # pyright: ignore[reportUnknownVariableType]
        if len(found) != 2:
            raise Unfit(f"{what}: wanted two of {_listed(options)}")
        return found

    def limit(self, what: str, options: Sequence[float]) -> float:
        return self.within(self.given(what), what, options)

    def within(self, wanted: Any, what: str, options: Sequence[float]) -> float:
        """A limit inside the usual values of its column: between the least and the greatest that
        the builder would draw."""
        low, high = min(options), max(options)
        if isinstance(wanted, bool) or not isinstance(wanted, int | float):
            raise Unfit(f"{what}: wanted a number from {low:g} to {high:g}, not {short(wanted)}")
        if not low <= wanted <= high:
            raise Unfit(f"{what}: {short(wanted)} is not between {low:g} and {high:g}")
        found = float(f"{wanted:.6g}")
        if found != float(wanted):
            raise Unfit(f"{what}: {wanted!r} has more than six digits")
        return found

    def yes(self, what: str, share: float) -> bool:
        match what:
            case "order":
                return self._either(what, "highest", "lowest")
            case "side":
                return self._either(what, "above", "below")
            case _:
                return self.given(what) is not None

    def _either(self, what: str, yes: str, no: str) -> bool:
        wanted = self.given(what)
        if wanted not in (yes, no):
            raise Unfit(f"{what}: wanted {yes} or {no}, not {short(wanted)}")
        return wanted == yes

    def took(self, what: str, name: str) -> None:
        if name not in self.left[what]:
            raise Unfit(f"{what}: the column that the join brings, '{name}', must stand there")
        self.used.add(what)
        self.left[what].remove(name)

    def next_is(self, what: str, names: Sequence[str]) -> bool:
        """Whether the next column of the draft is one of these."""
        return bool(self.left[what]) and self.left[what][0] in names

    def part(self) -> str:
        """Which of two things in a cell is meant, "" for the whole cell."""
        self.used.add("part")
        return text_in(self.row, "part")

    def link(self, options: Sequence[Link], tables: Sequence[Table]) -> Link | None:
        """The next join that the draft wants, None where it wants no more."""
        self.used.add("join")
        if not self.joins:
            return None
        row = self.joins.pop(0)
        check_fields(row, ("file", "brings", "on"), " in join")
        file, brings, on = (text_in(row, name) for name in ("file", "brings", "on"))
        for link in options:
            if tables[link.other].key == file and link.brings == brings and on in ("", link.mine):
                return link
        raise Unfit(f"join: nothing here brings '{brings}' of '{file}'")

    def filtered(self) -> tuple[str, str, Any] | None:
        """(column, "is" or a side, value or limit) of the filter, None where there is none."""
        wanted = self.given("filter")
        if wanted is None:
            return None
        if not isinstance(wanted, dict):
            raise Unfit(f"filter: wanted a column and a condition, not {short(wanted)}")
        row: dict[str, Any] = {str(k): v for k, v in wanted.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        check_fields(row, ("column", "is", *SIDES), " in filter")
        said = [name for name in ("is", *SIDES) if row.get(name) is not None]
        if len(said) != 1 or not text_in(row, "column"):
            raise Unfit(f"filter: wanted a column and one of is, {', '.join(SIDES)}")
        return text_in(row, "column"), said[0], row[said[0]]

    def check_used(self) -> None:
        """Raises `Unfit` for what the draft wants and this kind of question does not have."""
        for name, left in self.left.items():
            if left:
                raise Unfit(f"{name}: this kind of question has no place for '{left[0]}'")
        if self.joins and "join" in self.used:
            raise Unfit("join: this kind of question has no place for one more")
        for name, value in self.row.items():
            if name and name not in (*self.used, *_FREE, *self.left) and value is not None:
                raise Unfit(f"{name}: this kind of question does not take it")


def _joins(wanted: Any) -> list[dict[str, Any]]:
    """The joins of a draft: one, or a list of one or two."""
    rows = cast("list[Any]", wanted) if isinstance(wanted, list) else [wanted]
    rows = [] if wanted is None else rows
    if len(rows) > _JOINS or not all(isinstance(row, dict) for row in rows):
        raise Unfit(f"join: wanted file and brings, once or twice, not {short(wanted)}")
    return [{str(k): v for k, v in row.items()} for row in rows]


def _listed(options: Sequence[Any]) -> str:
    shown = [str(option) for option in dict.fromkeys(options)]
    return f"{', '.join(shown[:8])}{' …' if len(shown) > 8 else ''}" or "none"
