"""Tables of texts: made once, shown as plain text, as Markdown, and in the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NONE = "–"
Lines = Sequence[Sequence[str]]  # headings first


@dataclass(frozen=True)
class Table:
    """A table of a benchmark: its first line has the headings, its first column what the lines are
    about. `curves`: the same numbers as named lines of (x, y) to be drawn over `across`."""

    title: str
    lines: Lines
    note: str = ""
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]] = ()
    across: str = ""


def aligned(lines: Lines) -> list[str]:
    """Columns of equal width, the first to the left, under a ruled head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in lines
    ]
    return [out[0], "-" * max(map(len, out)), *out[1:]]


def markdown(lines: Lines) -> list[str]:
    head, *rest = [f"| {' | '.join(line)} |" for line in lines]
    return [head, "|---" * len(lines[0]) + "|", *rest]


def number(value: float | None, form: str = "{:.3f}") -> str:
    return NONE if value is None else form.format(value)


def percent(value: float | None, form: str = "{:.0%}") -> str:
    return number(value, form)


def points(value: float | None) -> str:
    """A fraction in per cent, without the sign."""
    return NONE if value is None else f"{100 * value:.2f}"


def with_interval(value: float | None, ends: Sequence[float] | None) -> str:
    if value is None:
        return NONE
    return f"{value:.3f}" + (f" [{ends[0]:.3f}, {ends[1]:.3f}]" if ends else "")
