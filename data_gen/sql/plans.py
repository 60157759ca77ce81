"""A question as data: what is asked of which columns. SQL and pandas are written from it apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Sign = Literal["=", "!=", ">", ">=", "<", "<="]
Summary = Literal["mean", "total", "largest", "smallest", "rows"]
Kind = Literal[
    "list",
    "count",
    "aggregate",
    "group",
    "having",
    "top",
    "distinct",
    "join",
    "join_filter",
    "above_average",
    "absent",
    "share",
    "date_part",
    "top_each",
    "best_group",
    "unmatched",
]
SUMMARIES: tuple[Summary, ...] = ("mean", "total", "largest", "smallest")


@dataclass(frozen=True)
class Field:
    """A column: `name` in the database, `original` in the file, `words` in the question."""

    name: str
    original: str
    words: str
    kind: Literal["number", "group", "name", "key", "year", "date", "other"] = "other"
    nullable: bool = False
    unique: bool = False
    whole: bool = False  # whole numbers


@dataclass(frozen=True)
class Filter:
    field: Field
    sign: Sign
    value: int | float | str


@dataclass(frozen=True)
class Plan:
    """One question over the table in place 0 of its unit; `join`: over rows of that table with
    those of the table in place 1 whose `theirs` is their `mine`. `join_filter` has its conditions
    on the second table."""

    kind: Kind
    filters: tuple[Filter, ...] = ()
    shown: tuple[Field, ...] = ()  # columns of the result that are taken as they are
    group: Field | None = None
    measure: Field | None = None
    summary: Summary = "rows"
    limit: int = 0  # rows of an order, or the bound of a HAVING
    down: bool = True  # the largest first
    sign: Sign = ">"
    part: Literal["", "year", "month", "decade"] = ""
    mine: Field | None = None
    theirs: Field | None = None
    extra: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def shape(self) -> str:
        """What is asked, without the values: a second question of one shape is a near-duplicate."""
        fields = (*(f.field for f in self.filters), *self.shown, self.group, self.measure)
        names = [f.name if f else "-" for f in (*fields, self.mine)]
        return " ".join([self.kind, self.summary, self.part, *names])

    @property
    def columns(self) -> tuple[Field, ...]:
        """Every column that it names, once."""
        found = (*(f.field for f in self.filters), *self.shown, self.group, self.measure)
        return tuple(dict.fromkeys(f for f in found if f is not None))
