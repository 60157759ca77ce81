# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The paper's tables and figures of CDR-Bench, from scored answers.

Answers are read as the release reads them, so that these numbers go with `paper_metrics.json`.
Tables by input length, filter place and difficulty, and the rates of statuses, are ours. Cells are
rates with their 95 % interval, clustered by document, and how many they are of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.rows import read_rows
from assay.task import TaskError
from rewards.cdr.errors import MODES, analyse, error_text, order_confusion, stop_behaviour
from rewards.cdr.family import length_slice
from rewards.cdr.leaderboard import leaderboard, subtask_of
from rewards.cdr.release_files import CORE, KINDS, REPORTED_SLOTS, kind_of, slot_name
from rewards.cdr.release_scores import ScoredFile, mean, write_json
from train.evaluation.stats import mean_interval
from train.evaluation.tables import (
    NONE,
    Draw,
    Table,
    aligned,
    ends,
    grouped,
    in_order,
    known,
    number,
    percent,
    points,
    rs_curve,
    with_interval,
)

Row = Mapping[str, Any]
Pairs = Sequence[tuple[Row, Row]]  # a row, and the scores of its instance or of one answer
TURNS = (*REPORTED_SLOTS, "easy", "medium", "hard")
# the paper's two families of core tasks
FAMILIES = {
    "atomic": ("atomic_m", "atomic_f"),
    "compositional": ("agnostic_m", "order_m", "order_f"),
}
# of the semantic extension: its name in words, and its table in the paper
DOMAINS = {
    "pii": ("PII redaction", "Table 9"),
    "hallu": ("hallucination processing", "Table 10"),
    "rubric": ("rubric scoring", "Table 12"),
    "safety": ("safety tagging", "Table 11"),
}
# a subtask of hallucination processing → its key in the report that asks for everything
KEYS = {
    "detect": "has_hallucination",
    "spans": "spans",
    "types": "types",
    "correct": "corrected_text",
}
CELLS = "RS@K with its 95 % interval, clustered by document, and the number of instances. "


@dataclass(frozen=True)
class TrackAnswers:
    """One track's prediction rows, and their scores in the same order."""

    rows: Sequence[Row]
    scored: ScoredFile

    @property
    def instances(self) -> Pairs:
        return list(zip(self.rows, self.scored.instances, strict=True))

    @property
    def answers(self) -> Pairs:
        """Answers to single wordings that can be scored."""
        of = {str(row["instance_id"]): row for row in self.rows}
        return [(of[str(v["instance_id"])], v) for v in self.scored.variants if v["scorable"]]


Tracks = Mapping[str, TrackAnswers]


@dataclass(frozen=True)
class Rate:
    """A share of `n` with its interval, None where there is nothing; and mean RS and RG."""

    value: float | None = None
    interval: Sequence[float] | None = None
    n: int = 0
    more: tuple[float | None, float | None] = (None, None)

    def __str__(self) -> str:
        return (
            NONE if self.value is None else f"{with_interval(self.value, self.interval)} ({self.n})"
        )


def rate(pairs: Pairs, field: str, draw: Draw) -> Rate:
    """Of a field of the scores; pairs that have none count nowhere."""
    there = [(row, float(one[field])) for row, one in pairs if one[field] is not None]
    sources = [
        str(r.get("source_record_id") or r.get("base_sample_id") or r["instance_id"])
        for r, _ in there
    ]
    found = mean_interval([value for _, value in there], sources, draw.resamples, draw.seed)
    more = (mean(one.get("rs") for _, one in pairs), mean(one.get("mean_rg") for _, one in pairs))
    return Rate(known(found.value), ends(found), len(there), more)


def split(pairs: Pairs, name_of: Callable[[Row, Row], str | None]) -> dict[str, Pairs]:
    """Pairs by what `name_of` calls them; those without a name are left out."""
    parts: dict[str, list[tuple[Row, Row]]] = {}
    for pair in pairs:
        if name := name_of(*pair):
            parts.setdefault(name, []).append(pair)
    return {name: parts[name] for name in sorted(parts, key=in_turn)}


def in_turn(value: str) -> tuple[int, tuple[list[int], bool, str]]:
    """What values are sorted by: places of a filter and difficulties as they follow one another,
    others by their numbers."""
    return TURNS.index(value) if value in TURNS else -1, in_order(value)


def _slot(row: Row, _: Row) -> str | None:
    slot = slot_name(row.get("order_slot"))
    return slot if slot in REPORTED_SLOTS else None


def _steps(row: Row, _: Row) -> str | None:
    steps = len(row.get("operator_sequence") or []) or row.get("recipe_length")
    return str(steps) if steps else None


SLICES: dict[str, Callable[[Row, Row], str | None]] = {
    "input characters": lambda row, _: length_slice(len(str(row["input_text"]))),
    "domain": lambda row, _: row.get("domain"),
    "filter place": _slot,
    "difficulty": lambda row, _: row.get("difficulty_label"),
}


def tables_of(papers: Mapping[str, Row], tracks: Tracks, draw: Draw) -> list[Table]:
    """Every table that has something to tell. `papers`: paper_metrics.json by track."""
    core = {name: found for name, found in tracks.items() if name in CORE}
    made = [
        *([main_results({next(str(p["model"]) for p in papers.values()): papers})] if core else []),
        _lengths(core, draw),
        _domains(core, draw),
        *_slices(core, draw),
        _curve(core, tracks),
        _styles(core, tracks, draw),
        _failures(tracks),
        _stops(core),
        _orders(core),
        _rates(core),
        *(_subtasks(domain, tracks, draw) for domain in DOMAINS),
    ]
    return [table for table in made if table is not None and table.lines[1:]]


def main_results(named: Mapping[str, Mapping[str, Row]]) -> Table:
    """Table 2 of the paper: a line a model or prompting strategy, from `paper_metrics` by track."""
    columns: list[tuple[str, str, str]] = []
    for track in CORE:
        columns += [(track, "mean_rs@k", f"{track} RS@K"), (track, "mean_rg", "RG")]
        columns += [(track, "ocs_at_k", "OCS@K")] * track.startswith("order")
        slots = REPORTED_SLOTS if track == "order_f" else ()
        columns += [(track, f"rs_{slot}@k", f"RS@K {slot}") for slot in slots]
    columns = [c for c in columns if any(c[1] in p.get(c[0], {}) for p in named.values())]
    lines = [["model", *(head for *_, head in columns)]]
    for name, papers in named.items():
        lines.append([name, *(points(papers.get(t, {}).get(key)) for t, key, _ in columns)])
    note = "Table 2 of the paper, per cent. Answers are read as the release does."
    return Table("CDR-Bench main results", lines, note)


def _grid(head: str, columns: Mapping[str, Mapping[str, Rate]]) -> list[list[str]]:
    """A line a value, a column a track."""
    values = sorted({value for column in columns.values() for value in column}, key=in_turn)
    cells = [[str(by.get(value, Rate())) for by in columns.values()] for value in values]
    return [[head, *columns], *([v, *line] for v, line in zip(values, cells, strict=True))]


def _by(
    tracks: Tracks, names: Sequence[str], name_of: Callable[[Row, Row], str | None], draw: Draw
) -> dict[str, dict[str, Rate]]:
    """Track → value → RS@K; tracks without any value are left out."""
    found = {t: split(tracks[t].instances, name_of) for t in names if t in tracks}
    return {
        track: {value: rate(pairs, "rs_at_k", draw) for value, pairs in parts.items()}
        for track, parts in found.items()
        if parts
    }


def _lengths(core: Tracks, draw: Draw) -> Table:
    by = _by(core, FAMILIES["compositional"], _steps, draw)
    drawn = [
        (track, [(float(v), c.value) for v, c in cells.items() if c.value is not None])
        for track, cells in by.items()
    ]
    note = "Fig. 3 of the paper. " + CELLS
    return Table("CDR-Bench by recipe length", _grid("operators", by), note, drawn, "operators")


def _domains(core: Tracks, draw: Draw) -> Table:
    by: dict[str, dict[str, Rate]] = {}
    for name, tracks in FAMILIES.items():
        pairs = [pair for track in tracks if track in core for pair in core[track].instances]
        if parts := split(pairs, SLICES["domain"]):
            by[name] = {value: rate(mine, "rs_at_k", draw) for value, mine in parts.items()}
    lines = _grid("domain", by)
    lines[0].append("gap")
    for line in lines[1:]:
        one, other = (by.get(name, {}).get(line[0], Rate()).value for name in FAMILIES)
        line.append(_points_apart(None if one is None or other is None else other - one))
    note = (
        "Fig. 4 of the paper: atomic_m and atomic_f together, the three compositional tracks "
        "together, and compositional − atomic in percentage points. " + CELLS
    )
    return Table("CDR-Bench by domain, atomic and compositional", lines, note)


def _points_apart(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:+.1f} pp"


def _slices(core: Tracks, draw: Draw) -> Iterator[Table]:
    for name, name_of in SLICES.items():
        by = _by(core, list(core), name_of, draw)
        lines = _grid(name, by)
        if name == "domain":
            lines.append(["best − worst", *map(_gap, by.values())])
        if len({value for cells in by.values() for value in cells}) > 1:
            note = CELLS + "Answers are read as the release does."
            yield Table(f"CDR-Bench by {name}", lines, note)


def _gap(by: Mapping[str, Rate]) -> str:
    there = {value: cell.value for value, cell in by.items() if cell.value is not None}
    if len(there) < 2:
        return NONE
    best, worst = max(there, key=lambda v: there[v]), min(there, key=lambda v: there[v])
    return f"{there[best] - there[worst]:.3f}" + (f" ({best}, {worst})" if best != worst else "")


def _styles(core: Tracks, tracks: Tracks, draw: Draw) -> Table | None:
    def style(_: Row, variant: Row) -> str:
        return str(variant.get("prompt_style_id") or "")

    def kind(row: Row, variant: Row) -> str:
        asked = row.get("prompt_variants") or []
        place = int(variant.get("prompt_variant_index") or 0)
        told = asked[place].get("wording") if place < len(asked) else None
        return kind_of(style(row, variant), told) if style(row, variant) else ""

    def rates(found: TrackAnswers, name_of: Callable[[Row, Row], str]) -> dict[str, Rate]:
        parts = split(found.answers, name_of)
        return {name: rate(pairs, "recipe_success", draw) for name, pairs in parts.items()}

    lines = _grid("style", {track: rates(found, style) for track, found in tracks.items()})
    if len(lines) < 3:
        return None
    kinds = {track: rates(found, kind) for track, found in core.items()}
    for one in KINDS if any("outcome" in cells for cells in kinds.values()) else ():
        lines.append([one, *(str(kinds.get(track, {}).get(one, Rate())) for track in tracks)])
    note = (
        "Fig. 12 (right) of the paper: RS of the answers to each style, with its 95 % interval and "
        "the number of answers. Styles about the result (outcome) against those that list the "
        "operations (enumerating)."
    )
    return Table("CDR-Bench by style", lines, note)


def _curve(core: Tracks, tracks: Tracks) -> Table | None:
    """RS@1 … RS@K, unbiased, over the instances that have all K wordings scored."""
    sets = {name: [core[t] for t in tracks if t in core] for name, tracks in FAMILIES.items()}
    sets |= {track: [found] for track, found in tracks.items()}
    curves: dict[str, tuple[int, dict[str, float | None]]] = {}
    for name, of in sets.items():
        variants = [variant for found in of for variant in found.scored.variants]
        asked = grouped(variants, lambda variant: str(variant["instance_id"])).values()
        k = max(map(len, asked), default=0)
        whole = [m for m in asked if len(m) == k and all(v["scorable"] for v in m)]
        if whole:
            right = [sum(bool(v["recipe_success"]) for v in mine) for mine in whole]
            curves[name] = len(whole), rs_curve(right, k)
    ks = sorted({int(k) for _, curve in curves.values() for k in curve})
    if len(ks) < 2:
        return None
    lines = [["wordings", *curves]]
    lines += [[str(k), *(number(c.get(str(k))) for _, c in curves.values())] for k in ks]
    lines.append(["instances", *(str(count) for count, _ in curves.values())])
    drawn = [
        (name, [(float(k), v) for k, v in curve.items() if v is not None])
        for name, (_, curve) in curves.items()
    ]
    note = (
        "Fig. 12 (left) of the paper. The chance that one of k drawn wordings is right, over the "
        "instances of which all wordings were scored. `cdr.k=0` on `tracks_all_prompts` asks all "
        "eleven."
    )
    return Table("CDR-Bench RS@K", lines, note, drawn, "K")


def _failures(tracks: Tracks) -> Table:
    lines = [["track", "answers", "wrong"]]
    for track, found in tracks.items():
        wrong = [not one["recipe_success"] for _, one in found.answers]
        if wrong:
            lines.append([track, str(len(wrong)), f"{100 * sum(wrong) / len(wrong):.1f} %"])
    note = "Fig. 13a of the paper: each answer counts, not each instance."
    return Table("CDR-Bench failure rates", lines, note)


def _stops(core: Tracks) -> Table:
    by = stop_behaviour(core["order_f"].rows) if "order_f" in core else {}
    lines = [["filter place", "answers", "RS", "nearer stop", "nearer full run", "stop − full"]]
    for slot in sorted(by, key=in_turn):
        row = by[slot]
        stop, full = row.get("stop", 0.0), row.get("full", 0.0)
        shares = (percent(stop), percent(full), _points_apart(stop - full))
        lines.append([slot, str(row["n"]), number(row["rs"]), *shares])
    note = (
        "Fig. 6 of the paper: answers to order_f texts that a filter drops and whose full run "
        "differs; nearer by edit distance to where the recipe stops, or to the full run."
    )
    return Table("CDR-Bench stopping at a rejecting filter", lines, note)


def _orders(core: Tracks) -> Table:
    row = order_confusion(core["order_m"].rows) if "order_m" in core else {"n": 0}
    sides = {"canonical": "nearer canonical", "swapped": "nearer swapped", "tie": "tie"}
    lines = [["order_m, swapped order", "wrong answers", *sides.values()]]
    if row["n"]:
        shares = (f"{100 * row.get(side, 0.0):.1f} %" for side in sides)
        lines.append(["all", str(row["n"]), *shares])
    note = (
        "Table 3 of the paper: wrong answers to a swapped order, nearer by edit distance to the "
        "gold of the canonical order, or to their own."
    )
    return Table("CDR-Bench errors on swapped orders", lines, note)


def _rates(core: Tracks) -> Table:
    """Over all answers of a track, and by filter place where it has some."""
    lines = [["track", "answers", "gold drops", "answer drops", "KEEP dropped", "DROP kept"]]
    for track, found in core.items():
        answers = found.answers
        parts = {track: answers} if answers else {}
        parts |= {f"{track} {slot}": mine for slot, mine in split(answers, _slot).items()}
        for name, mine in parts.items():
            said = [(row["reference_status"], one.get("predicted_status")) for row, one in mine]
            pairs = [[str(status or "").strip().upper() for status in both] for both in said]
            shares = (
                mean(gold == "DROP" for gold, _ in pairs),
                mean(said == "DROP" for _, said in pairs),
                mean(said == "DROP" for gold, said in pairs if gold == "KEEP"),
                mean(said == "KEEP" for gold, said in pairs if gold == "DROP"),
            )
            lines.append([name, str(len(pairs)), *map(percent, shares)])
    note = (
        "Not in the paper. KEEP dropped: share of texts to keep that the answer drops. DROP "
        "kept: share of texts to drop that the answer keeps."
    )
    return Table("CDR-Bench statuses", lines, note)


def _subtasks(domain: str, tracks: Tracks, draw: Draw) -> Table:
    """A domain's atomic subtasks, their macro mean, the compositional score and the gap."""
    alone = tracks.get(f"semantic_{domain}_atomic")
    whole = tracks.get(f"semantic_{domain}_compositional")
    lines = [["subtask", "RS@K", "RS", "RG", "right within the whole"]]

    def line(name: str, pairs: Pairs, within: float | None = None) -> Rate:
        cell = rate(pairs, "rs_at_k", draw)
        lines.append([name, str(cell), *map(number, cell.more), percent(within)])
        return cell

    macro = at_once = None
    if alone is not None:
        parts = split(alone.instances, lambda row, _: subtask_of(row))
        macro = mean([line(n, pairs, _within(whole, n)).value for n, pairs in parts.items()])
        lines.append(["mean of subtasks", number(macro), NONE, NONE, NONE])
    if whole is not None:
        at_once = line("all at once", whole.instances).value
        by_steps = split(whole.instances, _steps) if domain == "pii" else {}
        for steps, pairs in by_steps.items():
            line(f"all at once, {steps} steps", pairs)
    if macro is not None and at_once is not None:
        lines.append(["gap", f"{macro - at_once:+.3f}", NONE, NONE, NONE])
    name, place = DOMAINS[domain]
    note = f"{place} of the paper. {CELLS}" + (
        "Gap: mean of subtasks − all at once. Right within the whole: share of answers to all "
        "at once in which this field is right."
    )
    return Table(f"CDR-Bench {name}", lines, note)


def _within(whole: TrackAnswers | None, subtask: str) -> float | None:
    """The share of compositional answers in which the subtask's field is right."""
    key = KEYS.get(subtask, subtask)
    usable = [one for _, one in whole.answers if "field_matches" in one] if whole else []
    return mean(bool((one["field_matches"] or {}).get(key)) for one in usable)


# --- files of a run, and several runs ------------------------------------------------------------


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
    lines = [[*heads], *([str(row.get(n) or NONE) for n in heads] for row in board.waterline)]
    said = [table.title, *aligned(table.lines), table.note, "", *aligned(lines)]
    return "\n".join([*said, f"leaderboard: {out / 'cdr_reports'}"])


def write_errors(run: Path) -> str:
    """Analyse every predictions file below `run/data/evaluation` into `errors.json`; returns the
    text to print, "" when there is none. `all`: the failure modes of all tracks, as the paper's
    Fig. 13b to d show them."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((run / "data" / "evaluation").glob("*/*/predictions_*.jsonl")):
        name = f"{path.parent.parent.name} / {path.parent.name} / {path.stem}"
        found[name] = analyse([row for _, row in read_rows(path)])
    if not found:
        return ""
    if len(found) > 1:
        parts = list(found.values())
        counts = {m: sum(part["failure_modes"].get(m, 0) for part in parts) for m in MODES}
        found["all"] = {
            **{name: sum(part[name] for part in parts) for name in ("predictions", "failures")},
            "failure_modes": {name: count for name, count in counts.items() if count},
            **{"operator_progress": None, "stop_behaviour": {}, "order_confusion": {"n": 0}},
        }
    write_json(run / "errors.json", found)
    texts = [f"{name}\n{error_text(rows)}" for name, rows in found.items()]
    return "\n".join(texts) + f"\nerrors: {run / 'errors.json'}"
