# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""Results by slice: every model's outcome with its interval, and what the last stage changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from train.evaluation.comparing import Comparison, compare_pairs, pairs_of
from train.evaluation.results import (
    SHOWN_VALUES,
    TRAINED,
    Shown,
    asked_as,
    at_k,
    draw_of,
    named_rows,
    number,
)
from train.evaluation.tables import Draw, ends, in_order
from train.report.markup import Line, Links, bounds_text, quiet, section, table, wide
from train.report.svg import interval_mark

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Slice:
    """One value of one slice of a family. `cells`: one for each model, None where it has none."""

    family: str
    name: str
    value: str
    cells: Sequence[Mapping[str, Any] | None]

    @property
    def tasks(self) -> int:
        return max(cell["tasks"] for cell in self.cells if cell)

    def words(self, families: int) -> dict[str, str]:
        """What the viewer filters by."""
        family = {"family": self.family} if families > 1 else {}
        return {**family, f"slice:{self.name}": self.value}


def slices(parts: Sequence[Shown], data: Mapping[str, Any], links: Links) -> str:
    """The section of slices. Baselines are left out where a model answered. A slice that has one
    value alone says nothing and is left out."""
    models = [part for part in parts if not part.baseline] or list(parts)
    rows = named_rows(data)
    pair = [name for name in TRAINED if name in rows][-2:]
    pair = pair if len(pair) == 2 else []
    found = list(slices_of(models))
    changes = changed(pair, rows[pair[0]], rows[pair[1]], draw_of(data)) if pair and found else {}
    families = len({one.family for one in found})
    reach = max(0.1, *(abs(v) for c in changes.values() if ends(c.outcome) for v in c.outcome), 0.1)
    lines: list[Line] = []
    last = ("", "")
    for one in found:
        kind = "part" if (one.family, one.name) != last else ""
        last = (one.family, one.name)
        head = f"{one.family}: {one.name}" if families > 1 else one.name
        cells = [
            _cell(cell, part, links, one.words(families))
            for cell, part in zip(one.cells, models, strict=True)
        ]
        comparison = changes.get((one.family, one.name, one.value))
        more = _change(comparison, links, one.words(families), reach) if pair else []
        lines.append((kind, [escape(f"{head} = {one.value}"), str(one.tasks), *cells, *more]))
    heads = ["slice", asked_as(models), *(p.name for p in models)]
    heads += [f"{pair[0]} → {pair[1]}", ""] if pair else []
    if not lines:
        return ""
    note = (
        "Outcome, and 95 % intervals clustered by source; RS@K is the share of instances right in "
        "one of K wordings. Slices overlap, and none is corrected for how many there are: of "
        "twenty, one interval misses its mark by chance."
    )
    return section("Slices", wide(table(heads, lines), "Slices"), quiet(note))


def slices_of(models: Sequence[Shown]) -> Iterator[Slice]:
    """Slices by family and name; of one with many values those with the most tasks."""
    for family in dict.fromkeys(f for part in models for f in part.tables["by_slice"]):
        of = [part.tables["by_slice"].get(family, {}) for part in models]
        for name in dict.fromkeys(n for mine in of for n in mine):
            values = dict.fromkeys(v for mine in of for v in mine.get(name, {}))
            made = [
                Slice(family, name, value, [mine.get(name, {}).get(value) for mine in of])
                for value in values
            ]
            if len(made) > 1:
                kept = sorted(made, key=lambda one: -one.tasks)[:SHOWN_VALUES]
                yield from sorted(kept, key=lambda one: in_order(one.value))


def changed(
    names: Sequence[str], before: Sequence[Row], after: Sequence[Row], draw: Draw
) -> dict[tuple[str, str, str], Comparison]:
    """(family, slice, value) → what changed on its tasks."""
    found: dict[tuple[str, str, str], list[Any]] = {}
    for pair in pairs_of(before, after):
        for name, value in (pair.row.get("slices") or {}).items():
            key = (str(pair.row.get("family") or ""), str(name), str(value))
            found.setdefault(key, []).append(pair)
    return {key: compare_pairs(names[0], names[1], mine, draw) for key, mine in found.items()}


def _cell(
    cell: Mapping[str, Any] | None, part: Shown, links: Links, words: Mapping[str, str]
) -> str:
    if cell is None:
        return "–"
    text = number(cell["mean_outcome"])
    behind = escape(text) if part.baseline and links.one else links.answers(text, part.name, words)
    bounds = cell["interval"]
    wholes = ""
    if "rs@k" in cell:
        said = f"{at_k(cell)} {number(cell['rs@k']['value'])}"
        wholes = f'<span class="bounds">{escape(said)}</span>'
    return behind + (bounds_text(bounds, "{:.3f}") if bounds else "") + wholes


def _change(
    c: Comparison | None, links: Links, words: Mapping[str, str], reach: float
) -> list[str]:
    if c is None:
        return ["–", ""]
    bounds = ends(c.outcome)
    text = links.pairs(f"{c.outcome.value:+.3f}", c.before, c.after, "outcome", words)
    if not bounds:
        return [text, ""]
    return [text + bounds_text(bounds, "{:+.3f}"), interval_mark(c.outcome, -reach, reach)]
