# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The figures of CDR-Bench as tables of the report (`cdr_figures.py` has the numbers)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.task import TaskError
from rewards.cdr.leaderboard import leaderboard
from rewards.cdr.release_files import CORE, KINDS
from train.evaluation.cdr_figures import FAMILIES, in_turn
from train.evaluation.contract import Table
from train.evaluation.results import aligned, number, percent, with_interval

Row = Mapping[str, Any]
DOMAINS = {
    "pii": "PII redaction",
    "hallu": "hallucination processing",
    "rubric": "rubric scoring",
    "safety": "safety tagging",
}
PLACES = {"pii": "Table 9", "hallu": "Table 10", "safety": "Table 11", "rubric": "Table 12"}
RATES = (
    ("gold_drop", "gold drops"),
    ("said_drop", "answer drops"),
    ("false_drop", "KEEP dropped"),
    ("false_keep", "DROP kept"),
)
CELLS = "RS@K with its 95 % interval, clustered by document, and the number of instances. "


def tables_of(numbers: Row) -> Sequence[Table]:
    """Every table that has something to tell, from a benchmark's numbers in results.json; none of
    results that hold no figures."""
    found: Row = numbers.get("figures") or {}
    if not found:
        return ()
    parts = (_lengths, _domains, _slices, _curve, _styles, _failures, _stops, _orders, _rates)
    return [*_main(numbers), *(t for part in parts for t in part(found)), *_subtasks(found)]


def side_by_side(runs: Sequence[Path], out: Path, base_model: str = "") -> str:
    """Table 2 over several runs, models or prompting strategies, and the release's leaderboard,
    whose files go to `out/cdr_reports`. "" where no two lines would stand there.

    Raises `TaskError` for a base model that is not among them.
    """
    roots = [root for run in runs if (root := run / "data" / "evaluation").is_dir()]
    if len(roots) < 2:
        return ""
    board = leaderboard(roots, out / "cdr_reports", base_model)
    if base_model and base_model not in board.papers:
        there = ", ".join(sorted(board.papers))
        raise TaskError(f"--base-model {base_model}: no such line; there is {there}")
    table = main_results(board.papers)
    heads = ("model", "suite", "primary_value_pct", "rank", "delta_vs_best_pp", "delta_vs_base_pp")
    lines = [[*heads], *([str(row.get(n) or "–") for n in heads] for row in board.waterline)]
    said = [table.title, *aligned(table.lines), table.note, "", *aligned(lines)]
    return "\n".join([*said, f"leaderboard: {out / 'cdr_reports'}"])


def main_results(named: Mapping[str, Mapping[str, Row]]) -> Table:
    """Table 2 of the paper: a line a model or prompting strategy, from `paper_metrics` by track."""
    columns: list[tuple[str, str, str]] = []
    for track in CORE:
        if any(track in papers for papers in named.values()):
            columns += [(track, "mean_rs@k", f"{track} RS@K"), (track, "mean_rg", "RG")]
        if track.startswith("order") and any(
            "ocs_at_k" in p.get(track, {}) for p in named.values()
        ):
            columns.append((track, "ocs_at_k", "OCS@K"))
        if track == "order_f":
            slots = ("pre", "mid", "post")
            columns += [(track, f"rs_{slot}@k", f"RS@K {slot}") for slot in slots]
    columns = [c for c in columns if any(c[1] in p.get(c[0], {}) for p in named.values())]
    lines = [["model", *(head for *_, head in columns)]]
    for name, papers in named.items():
        lines.append([name, *(_points(papers.get(t, {}).get(key)) for t, key, _ in columns)])
    note = "Table 2 of the paper, per cent. Answers are read as the release does."
    return Table("CDR-Bench main results", lines, note)


def _points(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def _main(numbers: Row) -> Iterator[Table]:
    papers: Mapping[str, Row] = numbers.get("paper_metrics") or {}
    if any(track in papers for track in CORE):
        model = next(str(paper["model"]) for paper in papers.values())
        yield main_results({model: papers})


def _lengths(found: Row) -> Iterator[Table]:
    by: Mapping[str, Mapping[str, Row]] = found["by"].get("recipe length") or {}
    tracks = [track for track in FAMILIES["compositional"] if by.get(track)]
    values = sorted({v for track in tracks for v in by[track]}, key=in_turn)
    if not values:
        return
    lines = [["operators", *tracks]]
    lines += [[value, *(_cell(by[track].get(value)) for track in tracks)] for value in values]
    drawn = [
        (track, [(float(v), c["rs@k"]) for v, c in by[track].items() if c["rs@k"] is not None])
        for track in tracks
    ]
    note = "Fig. 3 of the paper. " + CELLS
    yield Table("CDR-Bench by recipe length", lines, note, drawn, "operators")


def _domains(found: Row) -> Iterator[Table]:
    by: Mapping[str, Mapping[str, Row]] = found.get("domains") or {}
    names = [name for name in FAMILIES if any(name in cells for cells in by.values())]
    if not names:
        return
    lines = [["domain", *names, "gap"]]
    for domain, cells in by.items():
        one, other = ((cells.get(name) or {}).get("rs@k") for name in FAMILIES)
        gap = "–" if one is None or other is None else f"{100 * (other - one):+.1f} pp"
        lines.append([domain, *(_cell(cells.get(name)) for name in names), gap])
    note = (
        "Fig. 4 of the paper: atomic_m and atomic_f together, the three compositional tracks "
        "together, and compositional − atomic in percentage points. " + CELLS
    )
    yield Table("CDR-Bench by domain, atomic and compositional", lines, note)


def _slices(found: Row) -> Iterator[Table]:
    for name, by in found["by"].items():
        if name == "recipe length":
            continue
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
    kinds: Mapping[str, Row] = found.get("style_kind", {})
    for kind in KINDS if any("outcome" in values for values in kinds.values()) else ():
        lines.append([kind, *(_cell(kinds.get(track, {}).get(kind), "rs") for track in by)])
    note = (
        "Fig. 12 (right) of the paper: RS of the answers to each style, with its 95 % interval and "
        "the number of answers. Styles about the result (outcome) against those that list the "
        "operations (enumerating)."
    )
    yield Table("CDR-Bench by style", lines, note)


def _curve(found: Row) -> Iterator[Table]:
    of: Mapping[str, Row] = {**(found.get("family_curve") or {}), **found["curve"]}
    curves: dict[str, dict[int, float | None]] = {
        name: {int(k): v for k, v in curve.items() if k.isdigit()}
        for name, curve in of.items()
        if curve["n"]
    }
    ks = sorted({k for curve in curves.values() for k in curve})
    if len(ks) < 2:
        return
    lines = [["wordings", *curves]]
    lines += [[str(k), *(number(curve.get(k)) for curve in curves.values())] for k in ks]
    lines.append(["instances", *(str(of[name]["n"]) for name in curves)])
    drawn = [
        (track, [(float(k), v) for k, v in curve.items() if v is not None])
        for track, curve in curves.items()
    ]
    note = (
        "Fig. 12 (left) of the paper. The chance that one of k drawn wordings is right, over the "
        "instances of which all wordings were scored. `cdr.k=0` on `tracks_all_prompts` asks all "
        "eleven."
    )
    yield Table("CDR-Bench RS@K", lines, note, drawn, "K")


def _failures(found: Row) -> Iterator[Table]:
    by: Mapping[str, Row] = found.get("failures") or {}
    lines = [["track", "answers", "wrong"]]
    for track, cell in by.items():
        if cell["n"]:
            lines.append([track, str(cell["n"]), f"{100 * cell['wrong']:.1f} %"])
    if lines[1:]:
        note = "Fig. 13a of the paper: each answer counts, not each instance."
        yield Table("CDR-Bench failure rates", lines, note)


def _stops(found: Row) -> Iterator[Table]:
    by: Mapping[str, Row] = found.get("stops") or {}
    lines = [["filter place", "answers", "RS", "nearer stop", "nearer full run", "stop − full"]]
    for slot in sorted(by, key=in_turn):
        row = by[slot]
        stop, full = row.get("stop", 0.0), row.get("full", 0.0)
        shares = (percent(stop), percent(full), f"{100 * (stop - full):+.1f} pp")
        lines.append([slot, str(row["n"]), f"{row['rs']:.3f}", *shares])
    if lines[1:]:
        note = (
            "Fig. 6 of the paper: answers to order_f texts that a filter drops and whose full run "
            "differs; nearer by edit distance to where the recipe stops, or to the full run."
        )
        yield Table("CDR-Bench stopping at a rejecting filter", lines, note)


def _orders(found: Row) -> Iterator[Table]:
    row: Row = found.get("orders") or {"n": 0}
    if not row["n"]:
        return
    sides = ("canonical", "swapped", "tie")
    lines = [
        ["order_m, swapped order", "wrong answers", *(f"nearer {s}" for s in sides[:2]), "tie"]
    ]
    shares = (f"{100 * row.get(side, 0.0):.1f} %" for side in sides)
    lines.append(["all", str(row["n"]), *shares])
    note = (
        "Table 3 of the paper: wrong answers to a swapped order, nearer by edit distance to the "
        "gold of the canonical order, or to their own."
    )
    yield Table("CDR-Bench errors on swapped orders", lines, note)


def _rates(found: Row) -> Iterator[Table]:
    lines = [["track", "answers", *(head for _, head in RATES)]]
    for track, by in found["rates"].items():
        for slot, rates in by.items() if by["all"]["n"] else ():
            name = track if slot == "all" else f"{track} {slot}"
            lines.append([name, str(rates["n"]), *(percent(rates.get(key)) for key, _ in RATES)])
    if lines[1:]:
        note = (
            "Not in the paper. KEEP dropped: share of texts to keep that the answer drops. DROP "
            "kept: share of texts to drop that the answer keeps."
        )
        yield Table("CDR-Bench statuses", lines, note)


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
        note = f"{PLACES[domain]} of the paper. {CELLS}" + (
            "Gap: mean of subtasks − all at once. Right within the whole: share of answers to all "
            "at once in which this field is right."
        )
        yield Table(f"CDR-Bench {DOMAINS[domain]}", lines, note)


def _row(cell: Row) -> list[str]:
    return [_cell(cell), number(cell["rs"]), number(cell["rg"])]
