# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""What an evaluation found: results, comparisons, slices, classes, and how answers ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from train.evaluation.comparing import Comparison, signed
from train.evaluation.results import (
    Shown,
    columns,
    comparisons,
    curve_table,
    family_table,
    heldout,
    named_rows,
    provenance,
    shown,
    texts,
)
from train.evaluation.tables import ends
from train.report.curves import figure
from train.report.markup import (
    NO_LINKS,
    Line,
    Links,
    bounds_text,
    plain,
    quiet,
    section,
    table,
    wide,
)
from train.report.slicing import found_slices, picture, slices
from train.report.svg import interval_mark, line_chart

Row = Mapping[str, Any]
MOST_REASONS = 12
# column of the results → what its answers have in common
BEHIND: dict[str, Mapping[str, str]] = {
    "outcome [95 %]": {},
    "no answer": {"why": "no_answer"},
    "cut": {"stop": "length"},
    "no outcome": {"outcome": "none"},
}


def evaluation(data: Mapping[str, Any], links: Links) -> list[str]:
    """The sections of an evaluation, from results.json."""
    parts = shown(data)
    found = found_slices(parts, data)
    rows = {p.name: named_rows(data).get(p.name, []) for p in parts if not p.baseline}
    head = "Held-out results" if heldout(data) else "Results"
    return [
        section(head, *map(quiet, provenance(data)), picture(parts, found), _results(parts, links)),
        section("Families", plain(family_table(parts), "Families")),
        _compared(comparisons(data), links),
        _curve(parts),
        slices(parts, data, links, found),
        _confusions(parts, links),
        section(
            "How answers ended",
            _reasons(rows, "why", "Why answers scored as they did", links),
            _reasons(rows, "stop", "Why generation stopped", links),
        ),
    ]


def _results(parts: Sequence[Shown], links: Links) -> str:
    names = columns(parts)
    lines: list[Line] = []
    for part in parts:
        cells = [
            _linked(part, name, text, links)
            for name, text in zip(names, texts(part, names), strict=True)
        ]
        kind = "" if part.baseline else "trained"
        lines.append((kind, cells))
    failed = sum(part.cell["no_outcome"] for part in parts)
    note = f" {failed} answers have no outcome and count nowhere." if failed else ""
    return wide(table(names, lines), "Results") + quiet(
        "Outcome: mean of the benchmark's metric, with 95 % intervals clustered by source "
        "(document, table, lake). Reward: mean of what RL sees. Balanced: every class of gold "
        "counts alike."
        f"{note}"
    )


def _linked(part: Shown, name: str, text: str, links: Links) -> str:
    if name not in BEHIND or text == "–":
        return escape(text)
    links = NO_LINKS if part.baseline and links.one else links
    value, bracket, _ = text.partition(" [")
    linked = links.answers(value, part.name, BEHIND[name])
    return linked + (bounds_text(part.cell["interval"], "{:.3f}") if bracket else "")


def _curve(parts: Sequence[Shown]) -> str:
    """RS@1 to RS@K, as a table and, of models, drawn."""
    lines = curve_table(parts)
    if len(lines) < 2:
        return ""
    drawn = [
        (part.name, [(float(k), v) for k, v in part.cell["rs_curve"].items() if v is not None])
        for part in parts
        if not part.baseline and part.cell.get("rs_curve")
    ]
    chart = line_chart(drawn, "K", "RS@K")
    drawing = figure("RS@K", [name for name, _ in drawn], chart) if drawn else ""
    pictures = f'<div class="charts">{drawing}</div>'
    note = (
        "Share of instances right in one of K wordings, over the instances that have all of them. "
        "RS@1 is the mean over wordings."
    )
    return section("RS@K", pictures, plain(lines, "RS@K"), quiet(note))


def _compared(found: Sequence[Comparison], links: Links) -> str:
    if not found:
        return ""
    drawn = [i for c in found for i in (c.outcome, c.balanced) if ends(i)]
    reach = max(0.05, *(abs(v) for i in drawn for v in i)) if drawn else 0.05

    def cells(c: Comparison) -> list[str]:
        shown_intervals = [
            text
            for i in (c.outcome, c.balanced)
            for text in (signed(i), interval_mark(i, -reach, reach) if ends(i) else "")
        ]
        return [
            escape(f"{c.before} → {c.after}"),
            links.pairs(str(c.n), c.before, c.after, ""),
            *shown_intervals,
            links.pairs(str(c.gained), c.before, c.after, "up"),
            links.pairs(str(c.lost), c.before, c.after, "down"),
            f"{c.p:.2g}",
        ]

    headings = (
        *("change", "tasks", "outcome [95 %]", "", "balanced [95 %]", ""),
        *("gained", "lost", "McNemar p"),
    )
    body = wide(table(headings, [("", cells(c)) for c in found]), "What each stage changed")
    note = (
        "Paired over the same tasks, with a bootstrap over their sources; McNemar's test is exact "
        "and two-sided. SFT had the same gold as RL: SFT → RL is what RL adds to it."
    )
    return section("What each stage changed", body, quiet(note))


def _confusions(parts: Sequence[Shown], links: Links) -> str:
    """Which class is taken for which, where tasks fall into classes."""
    grids = "".join(_confusion(part, links) for part in parts if part.cell.get("confusion"))
    return section("Gold against answer", f'<div class="grids">{grids}</div>' if grids else "")


def _confusion(part: Shown, links: Links) -> str:
    counted = part.cell["confusion"]
    said = sorted({name for counts in counted.values() for name in counts})

    def count(gold: str, name: str) -> str:
        number = str(counted[gold].get(name, 0))
        if number == "0" or (part.baseline and links.one):
            return number  # a table alone was kept of an evaluation's baselines
        return links.answers(number, part.name, {"label": gold, "said": name})

    lines = [("", [escape(f"gold {g}"), *(count(g, name) for name in said)]) for g in counted]
    return table((part.name, *said), lines)


def _reasons(rows: Mapping[str, Sequence[Row]], field: str, head: str, links: Links) -> str:
    """How many answers of each model have each value of a field, and their share."""
    counts = {n: Counter(str(row.get(field) or "") for row in mine) for n, mine in rows.items()}
    total = sum(counts.values(), Counter[str]())
    values = [value for value, _ in total.most_common(MOST_REASONS) if value]
    if not values:
        return ""

    def cell(name: str, value: str) -> str:
        number = counts[name][value]
        if not number:
            return "–"
        text = f"{number} ({number / len(rows[name]):.0%})"
        return links.answers(text, name, {field: value})

    lines: list[Line] = [("", [escape(v), *(cell(name, v) for name in rows)]) for v in values]
    return f"<h3>{escape(head)}</h3>" + wide(table([field, *rows], lines), head)
