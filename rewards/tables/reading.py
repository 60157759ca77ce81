"""What was decided about one table of a file, and what is said where a table cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, cast

from rewards.task import TaskError

Frame = Any  # a pandas DataFrame; pandas ships no types
FORMS = ("csv", "excel", "json", "lines", "parquet", "sqlite", "html")


class Unreadable(TaskError):
    """A table that cannot be read, or that contradicts its `Reading`; one sentence says why."""


@dataclass(frozen=True)
class Unread:
    """A table, or a file, that was refused: where it lies and why, in one sentence."""

    path: str
    why: str
    part: str = ""

    def said(self) -> str:
        return f"{_place(self.path, self.part)}: {self.why}"


@dataclass(frozen=True)
class Reading:
    """How one table of a file is read.

    `skip` counts lines or rows above the column names. `columns` are the names of the frame; where
    `header` is false they are not in the file. `decimal` is empty where no number of the table
    tells. `numbers` are columns of numbers, `marked` those of them whose cells are text to pandas
    (marks between thousands, signs, numbers in quotes of a typed form), `text` columns that stay
    text whatever pandas would make of them. `notes` are sentences for the user.
    """

    path: str  # relative to the root folder, with /
    form: str
    part: str = ""  # sheet, SQLite table, number of the HTML table
    sep: str = ","
    encoding: str = "utf-8"
    quote: str = '"'
    escape: str = ""
    skip: int = 0
    header: bool = True
    columns: tuple[str, ...] = ()
    decimal: str = ""
    thousands: str = ""
    numbers: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    dates: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed: tuple[str, ...] = ()  # columns whose missing values the user named
    ragged: str = ""  # "skip": rows of too many fields are left out
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How a sentence names the table."""
        return _place(self.path, self.part)

    def said(self) -> str:
        """One sentence: what was decided."""
        parts = [*self._form_said(), *self._columns_said(), *self.notes]
        return f"{self.name}: {'; '.join(parts)}"

    def _form_said(self) -> list[str]:
        if self.form != "csv":
            return [self.form] + ([f"{self.skip} rows above the names"] if self.skip else [])
        names = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", r"\s+": "spaces"}
        one = len(self.columns) == 1
        said = ["one column" if one else f"fields between {names.get(self.sep, repr(self.sep))}"]
        said += [self.encoding] if self.encoding != "utf-8" else []
        said += [f"quotes {self.quote or 'none'}"] if self.quote != '"' else []
        said += [f"{self.skip} lines above the names"] if self.skip else []
        return said

    def _columns_said(self) -> list[str]:
        said: list[str] = []
        if self.decimal == "," or self.thousands:
            between = f", {self.thousands!r} between thousands" if self.thousands else ""
            said.append(f"decimal mark {self.decimal or '.'!r}{between}")
        for name, words in self.missing.items():
            said.append(f"{name!r}: {', '.join(map(repr, words))} means no value")
        said += [f"{name!r}: dates as {form}" for name, form in self.dates.items()]
        return said

    def code(self, name: str = "t") -> str:
        """pandas statements that put into `name` what `load` gives, read from `data/PATH`."""
        from rewards.tables.script import statements

        return "\n".join(statements(self, name))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> Reading:
        """The reading that `to_json` gave. Raises `TaskError` for a field that is not known."""
        known = {f.name for f in fields(Reading)}
        if unknown := sorted(set(row) - known):
            raise TaskError(f"a reading has no field {unknown[0]!r}")
        values = dict(row)
        for key in ("columns", "numbers", "marked", "text", "fixed", "notes"):
            values[key] = tuple(values.get(key, ()))
        found = cast("Mapping[str, list[str]]", values.get("missing", {}))
        values["missing"] = {k: tuple(v) for k, v in found.items()}
        return Reading(**values)


def _place(path: str, part: str) -> str:
    return f"{path} [{part}]" if part else path
