# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The figures of CDR-Bench as tables of the report (`cdr_figures.py` has the numbers)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from train.evaluation.cdr_figures import in_turn
from train.evaluation.contract import Table
from train.evaluation.results import number, percent, with_interval

Row = Mapping[str, Any]
DOMAINS = {
    "pii": "PII redaction",
    "hallu": "hallucination processing",
    "rubric": "rubric scoring",
    "safety": "safety tagging",
}
RATES = (
    ("gold_drop", "gold drops"),
    ("said_drop", "answer drops"),
    ("false_drop", "KEEP dropped"),
    ("false_keep", "DROP kept"),
    ("rs@k", "RS@K"),
    ("stop", "nearer stop"),
    ("full", "nearer full run"),
    ("stop_minus_full", "stop − full"),
    ("canonical", "nearer canonical"),
)
CELLS = "RS@K with its 95 % interval, clustered by document, and the number of instances. "


def tables_of(numbers: Row) -> Sequence[Table]:
    """Every table that has something to tell, from a benchmark's numbers in results.json; none of
    results that hold no figures."""
    found: Row = numbers.get("figures") or {}
    if not found:
        return ()
    return [*_slices(found), *_styles(found), *_curve(found), *_rates(found), *_subtasks(found)]


def _slices(found: Row) -> Iterator[Table]:
    for name, by in found["by"].items():
        tracks = [track for track, values in by.items() if values]
        values = sorted({v for track in tracks for v in by[track]}, key=in_turn)
        if len(values) < 2:
            continue
        lines = [[name, *tracks]]
        for value in values:
            lines.append([value, *(_cell(by[track].get(value)) for track in tracks)])
        if name == "domain":
            lines.append(["best − worst", *(_gap(by[track]) for track in tracks)])
        yield Table(f"CDR-Bench by {name}", lines, CELLS + "Answers are read as the release does.")


def _cell(cell: Row | None, key: str = "rs@k") -> str:
    if cell is None or cell[key] is None:
        return "–"
    return f"{with_interval(cell[key], cell['interval'])} ({cell['n']})"


def _gap(by: Mapping[str, Row]) -> str:
    there = {value: cell["rs@k"] for value, cell in by.items() if cell["rs@k"] is not None}
    if len(there) < 2:
        return "–"
    best, worst = max(there, key=lambda v: there[v]), min(there, key=lambda v: there[v])
    return f"{there[best] - there[worst]:.3f}" + (f" ({best}, {worst})" if best != worst else "")


def _styles(found: Row) -> Iterator[Table]:
    by: Mapping[str, Row] = found["style"]
    styles = sorted({style for values in by.values() for style in values})
    if len(styles) < 2:
        return
    lines = [["style", *by]]
    for style in styles:
        lines.append([style, *(_cell(by[track].get(style), "rs") for track in by)])
    note = "RS of the answers to each style, with its 95 % interval and the number of answers."
    yield Table("CDR-Bench by style", lines, note)


def _curve(found: Row) -> Iterator[Table]:
    curves: dict[str, dict[int, float | None]] = {
        track: {int(k): v for k, v in curve.items() if k.isdigit()}
        for track, curve in found["curve"].items()
        if curve["n"]
    }
    ks = sorted({k for curve in curves.values() for k in curve})
    if len(ks) < 2:
        return
    lines = [["wordings", *curves]]
    lines += [[str(k), *(number(curve.get(k)) for curve in curves.values())] for k in ks]
    lines.append(["instances", *(str(found["curve"][track]["n"]) for track in curves)])
    drawn = [
        (track, [(float(k), v) for k, v in curve.items() if v is not None])
        for track, curve in curves.items()
    ]
    note = (
        "The chance that one of k drawn wordings is right, over the instances of which all "
        "wordings were scored. `--k 0` on `tracks_all_prompts` asks all eleven."
    )
    yield Table("CDR-Bench RS@K", lines, note, drawn, "K")


def _rates(found: Row) -> Iterator[Table]:
    rows = [
        (f"{track} {slot}" if slot != "all" else track, rates)
        for track, by in found["rates"].items()
        for slot, rates in by.items()
    ]
    having = [(key, head) for key, head in RATES if any(r.get(key) is not None for _, r in rows)]
    if not having:
        return
    lines = [["track", "answers", *(head for _, head in having)]]
    for name, rates in rows:
        cells = [
            _signed(rates.get(key)) if key == "stop_minus_full" else percent(rates.get(key))
            for key, _ in having
        ]
        lines.append([name, str(rates["n"]), *cells])
    note = (
        "KEEP dropped: share of texts to keep that the answer drops. Nearer stop, nearer full run: "
        "of texts to drop whose full run differs, by edit distance. Nearer canonical: of wrong "
        "answers to a swapped order, those nearer to the canonical order's gold."
    )
    yield Table("CDR-Bench rates", lines, note)


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.0%}"


def _subtasks(found: Row) -> Iterator[Table]:
    for domain, by in found["subtasks"].items():
        lines = [["subtask", "RS@K", "RS", "RG", "right within the whole"]]
        for name, cell in (by.get("atomic") or {}).items():
            lines.append([name, *_row(cell), percent(cell.get("within"))])
        if "macro" in by:
            lines.append(["mean of subtasks", number(by["macro"]), "–", "–", "–"])
        if "compositional" in by:
            lines.append(["all at once", *_row(by["compositional"]), "–"])
        for steps, cell in (by.get("steps") or {}).items():
            lines.append([f"all at once, {steps} steps", *_row(cell), "–"])
        if by.get("gap") is not None:
            lines.append(["gap", f"{by['gap']:+.3f}", "–", "–", "–"])
        note = CELLS + (
            "Gap: mean of subtasks − all at once. Right within the whole: share of answers to all "
            "at once in which this field is right."
        )
        yield Table(f"CDR-Bench {DOMAINS[domain]}", lines, note)


def _row(cell: Row) -> list[str]:
    return [_cell(cell), number(cell["rs"]), number(cell["rg"])]
