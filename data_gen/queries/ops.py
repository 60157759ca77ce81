"""What the steps of a gold pipeline do, as data: no code in any language, no word of a question.

Two modules write code from these, and share nothing else: `pipeline` writes pandas, which makes
the gold; `duckdb_sql` writes SQL over the original files, which proves it. The steps change one
table of rows (`t`) or make of it one value a group (`g`). Text is compared without the blanks
around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Summary = Literal["mean", "median", "total", "largest", "std"]
Cut = Literal["after_comma", "before_comma", "in_brackets"]
Sign = Literal[">", "<", ">=", "<="]


@dataclass(frozen=True)
class Source:
    """A table by its name: the file, the part of it (sheet, table), and columns it must have.
    Nothing of how it is read stands here."""

    path: str
    part: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Load:
    """t := the rows of a table. Value: their number."""

    table: Source


@dataclass(frozen=True)
class Clean:
    """Cells of a column become numbers; rows without one go. Value: the rows left."""

    column: str


@dataclass(frozen=True)
class Years:
    """As `Clean`, for whole numbers. Value: how many different ones."""

    column: str


@dataclass(frozen=True)
class Split:
    """A column that holds two things gives one of them to a new column; rows without it go.
    Value: how many different ones."""

    column: str
    cut: Cut
    into: str


@dataclass(frozen=True)
class Keep:
    """Rows where a text column has a value. Value: the rows left."""

    column: str
    value: str


@dataclass(frozen=True)
class Limit:
    """Rows on one side of a limit. Value: the rows left."""

    column: str
    sign: Sign
    limit: float


@dataclass(frozen=True)
class Join:
    """Inner join with another table on keys (mine, theirs), which brings one column of it; rows
    without a value there go. `whole`: keys are whole numbers. Value: the rows left."""

    table: Source
    mine: str
    theirs: str
    brings: str
    number: bool = True
    whole: bool = False


@dataclass(frozen=True)
class Least:
    """Rows whose group (by keys as in `Group`) has at least so many rows. Value: the rows left."""

    keys: tuple[str, ...]
    whole: tuple[bool, ...]
    rows: int


@dataclass(frozen=True)
class Group:
    """g := one summary of a column for every value of the keys. Value: the number of groups.
    `whole` says of each key whether it is a whole number (else text)."""

    keys: tuple[str, ...]
    whole: tuple[bool, ...]
    of: str
    how: Summary


@dataclass(frozen=True)
class Above:
    """How many groups lie above the mean of all groups."""


@dataclass(frozen=True)
class Best:
    """The keys of the group with the highest (or lowest) value, joined by a comma and a blank."""

    high: bool


@dataclass(frozen=True)
class Top:
    """The keys of the k groups with the highest (or lowest) values."""

    k: int
    high: bool


@dataclass(frozen=True)
class Each:
    """The value of every group, in the order of the keys."""


@dataclass(frozen=True)
class Interpolate:
    """The value at `share` of the way from the key `at` + 1 from the end to the next, linearly."""

    share: float
    at: int


@dataclass(frozen=True)
class Figure:
    """One summary of a column, rounded."""

    of: str
    how: Summary
    digits: int


@dataclass(frozen=True)
class Difference:
    """The summary over the rows with one value of a column less that with another, rounded."""

    by: str
    one: str
    other: str
    of: str
    how: Summary
    digits: int


@dataclass(frozen=True)
class Portion:
    """The percentage of rows on one side of a limit, rounded."""

    column: str
    sign: Sign
    limit: float
    digits: int


@dataclass(frozen=True)
class Correlate:
    """Pearson's correlation of two columns."""

    x: str
    y: str


@dataclass(frozen=True)
class Fit:
    """Least squares of y on x with an intercept: the slope, or [slope, intercept]."""

    x: str
    y: str
    both: bool


@dataclass(frozen=True)
class Nth:
    """The key of the group at a place (2 is the second) from the highest (or lowest) value."""

    place: int
    high: bool


@dataclass(frozen=True)
class Spread:
    """The highest value of all groups less the lowest, rounded."""

    digits: int


@dataclass(frozen=True)
class Change:
    """The change from the group of one key to that of another, in per cent of the former,
    rounded. Keys are whole numbers."""

    one: int
    other: int
    digits: int


@dataclass(frozen=True)
class Share:
    """The percentage that the rows with a value of a text column have in the total of another
    column over all rows, rounded."""

    by: str
    value: str
    of: str
    digits: int


@dataclass(frozen=True)
class AboveOwn:
    """How many rows lie above the mean of the rows with the same text in a column; rows without
    one go."""

    by: str
    of: str


Row = Load | Clean | Years | Split | Keep | Limit | Join | Least
OfGroups = Above | Best | Nth | Top | Each | Interpolate | Spread | Change
OfRows = Figure | Difference | Portion | Share | AboveOwn | Correlate | Fit
Last = OfGroups | OfRows
Op = Row | Group | Last


def sources_of(ops: tuple[Op, ...]) -> tuple[Source, ...]:
    """The tables that steps read, in their order."""
    return tuple(op.table for op in ops if isinstance(op, Load | Join))


def in_order(op: Op | None, answer_type: str) -> bool:
    """Whether a question that ends in this step fixes the order of its answer: the groups of a
    listing, slope before intercept, the two names of a pair."""
    fixed = isinstance(op, Each) or (isinstance(op, Fit) and op.both)
    return fixed or (isinstance(op, Best) and answer_type == "string_approximate")
