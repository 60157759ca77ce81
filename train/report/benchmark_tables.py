# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""Tables that benchmarks bring to the report, as sections and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from train.evaluation.benchmarks import BENCHMARKS
from train.evaluation.contract import Table
from train.evaluation.results import aligned
from train.report.curves import figure
from train.report.markup import plain, quiet, section
from train.report.svg import line_chart


def tables_in(data: Mapping[str, Any]) -> Iterator[Table]:
    """The tables of every benchmark that results.json has numbers of."""
    for name, numbers in (data.get("benchmarks") or {}).items():
        if name in BENCHMARKS:
            yield from BENCHMARKS[name].shown(numbers)


def own_tables(data: Mapping[str, Any]) -> list[str]:
    """A section for each table."""
    return [_section(table) for table in tables_in(data)]


def _section(table: Table) -> str:
    chart = ""
    if any(line for _, line in table.curves):
        drawn = line_chart(table.curves, table.across, table.title)
        names = [name for name, _ in table.curves]
        chart = f'<div class="charts">{figure(table.title, names, drawn)}</div>'
    return section(table.title, chart, plain(table.lines, table.title), quiet(table.note))


def text_of(data: Mapping[str, Any]) -> str:
    """The same as plain text, "" when there is none."""
    blocks = [[table.title, *aligned(table.lines), ""] for table in tables_in(data)]
    return "\n".join(line for block in blocks for line in block)
