# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""Results by slice: every model's outcome with its interval, as a picture and as numbers, and what
the last stage changed."""

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
    with_interval,
)
from train.evaluation.tables import Draw, ends, in_order
from train.report.markup import Line, Links, bounds_text, quiet, section, table, wide
from train.report.svg import COLOURS, interval_mark

Row = Mapping[str, Any]
FEW = 10  # tasks of a slice that is folded beside larger ones
DRAWN_SLICES = 24  # of the picture


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

    def said(self, families: int) -> str:
        """Its name and value in words."""
        head = f"{self.family}: {self.name}" if families > 1 else self.name
        return f"{head} = {self.value}"

    def words(self, families: int) -> dict[str, str]:
        """What the viewer filters by."""
        family = {"family": self.family} if families > 1 else {}
        return {**family, f"slice:{self.name}": self.value}


def slices(
    parts: Sequence[Shown], data: Mapping[str, Any], links: Links, found: Sequence[Slice]
) -> str:
    """The section of slices. Baselines are left out where a model answered. A slice that has one
    value alone says nothing and is left out, and so is one that parts the tasks as an earlier one
    does. Slices of few tasks are folded beside larger ones. `found`: of `found_slices`."""
    models = models_of(parts)
    rows = named_rows(data)
    pair = [name for name in TRAINED if name in rows][-2:]
    pair = pair if len(pair) == 2 else []
    if not found:
        return ""
    changes = changed(pair, rows[pair[0]], rows[pair[1]], draw_of(data)) if pair else {}
    families = len({one.family for one in found})
    ranges = [abs(v) for c in changes.values() if ends(c.outcome) for v in c.outcome]
    reach = max([0.1, *ranges])
    heads = ["slice", asked_as(models), *(p.name for p in models)]
    heads += [f"{pair[0]} → {pair[1]}", ""] if pair else []

    def body(mine: Sequence[Slice]) -> str:
        lines: list[Line] = []
        last = ("", "")
        for one in mine:
            kind = "part" if (one.family, one.name) != last else ""
            last = (one.family, one.name)
            cells = [
                _cell(cell, part, links, one.words(families))
                for cell, part in zip(one.cells, models, strict=True)
            ]
            comparison = changes.get((one.family, one.name, one.value))
            more = _change(comparison, links, one.words(families), reach) if pair else []
            lines.append((kind, [escape(one.said(families)), str(one.tasks), *cells, *more]))
        return wide(table(heads, lines), "Slices")

    large = [one for one in found if one.tasks >= FEW] or found
    small = [one for one in found if one not in large]
    note = (
        "Outcome, and 95 % intervals clustered by source; RS@K is the share of instances right in "
        "one of K wordings. Slices overlap, and none is corrected for how many there are: of "
        "twenty, one interval misses its mark by chance."
    )
    few = f"<summary>{len(small)} slices of fewer than {FEW} {asked_as(models)}</summary>"
    folded = f"<details>{few}{body(small)}</details>" if small else ""
    return section("Slices", body(large), folded, quiet(note))


def models_of(parts: Sequence[Shown]) -> list[Shown]:
    """The models that answered; baselines where none did."""
    return [part for part in parts if not part.baseline] or list(parts)


def found_slices(parts: Sequence[Shown], data: Mapping[str, Any]) -> list[Slice]:
    """The slices of an evaluation's models."""
    models = models_of(parts)
    return list(slices_of(models, named_rows(data).get(models[-1].name, [])))


def picture(parts: Sequence[Shown], slices: Sequence[Slice]) -> str:
    """Outcomes with their intervals on one scale from 0 to 1: of all tasks, and of the slices that
    are large enough."""
    models = models_of(parts)
    found = [one for one in slices if one.tasks >= FEW][:DRAWN_SLICES]
    families = len({one.family for one in found})
    sets = [(f"all {asked_as(models)}", [part.cell for part in models])]
    sets += [(f"{one.said(families)} ({one.tasks})", list(one.cells)) for one in found]
    lines: list[str] = []
    for name, cells in sets:
        if len(models) > 1:
            lines.append(f'<div class="of">{escape(name)}</div>')
        lines += [
            _dot(part.name if len(models) > 1 else name, n, cell)
            for n, (part, cell) in enumerate(zip(models, cells, strict=True))
            if cell is not None and cell["mean_outcome"] is not None
        ]
    return f'<div class="dots{"" if len(models) > 1 else " one"}">{"".join(lines)}</div>'


def _dot(name: str, number_of_model: int, cell: Mapping[str, Any]) -> str:
    """A name, a dot with its whiskers, and the numbers."""
    colour = f"background:var(--c{number_of_model % COLOURS})"
    outcome, bounds = float(cell["mean_outcome"]), cell["interval"]
    whisker = ""
    if bounds:
        low, high = (min(max(float(end), 0.0), 1.0) for end in bounds)
        whisker = f'<i style="left:{low:.1%};width:{high - low:.1%};{colour}"></i>'
    place = min(max(outcome, 0.0), 1.0)
    return (
        f'<span class="name">{escape(name)}</span><span class="track" aria-hidden="true">'
        f'{whisker}<b style="left:{place:.1%};{colour}"></b></span>'
        f"<span>{with_interval(outcome, bounds)}</span>"
    )


def slices_of(models: Sequence[Shown], rows: Sequence[Row]) -> Iterator[Slice]:
    """Slices by family and name; of one with many values those with the most tasks. `rows` of one
    model tell which slices part the tasks alike: the first of them stands for all."""
    for family in dict.fromkeys(f for part in models for f in part.tables["by_slice"]):
        of = [part.tables["by_slice"].get(family, {}) for part in models]
        seen: list[set[frozenset[str]]] = []
        for name in dict.fromkeys(n for mine in of for n in mine):
            values = dict.fromkeys(v for mine in of for v in mine.get(name, {}))
            parted = _parted(rows, family, name)
            if len(values) < 2 or (parted and parted in seen):
                continue
            seen.append(parted)
            made = [
                Slice(family, name, value, [mine.get(name, {}).get(value) for mine in of])
                for value in values
            ]
            kept = sorted(made, key=lambda one: -one.tasks)[:SHOWN_VALUES]
            yield from sorted(kept, key=lambda one: in_order(one.value))


def _parted(rows: Sequence[Row], family: str, name: str) -> set[frozenset[str]]:
    """The sets of tasks that share a value of a slice."""
    found: dict[str, set[str]] = {}
    for row in rows:
        if (row.get("family") or "") == family and name in (row.get("slices") or {}):
            found.setdefault(str(row["slices"][name]), set()).add(str(row["task_id"]))
    return {frozenset(tasks) for tasks in found.values()}


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
