"""results.json and the numbers that are computed from it, all of them from its rows.

`{"rows": {name: [row, ...]}, "meta": {...}}`. A row is one answer to one held-out task: task_id,
status_gold, has_filter, outcome, reward, parts, why, predicted_status, output, tokens; optional
are input_text, gold_text, prompt (shown with samples) and `pass@k` for one or several k (from
answers at temperature 1; the table shows the largest). `outcome` None is an infrastructure
failure and counts nowhere. Tasks without a status (any family but refinement) have `status_gold`
None; where no row has one, the table shows means of outcome and reward only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from train.evaluation.stats import (
    Interval,
    balanced,
    balanced_difference,
    mcnemar_exact,
    paired_difference,
    wilson,
)

Row = Mapping[str, Any]
ORDER = ("copy_input", "always_drop", "always_keep_copy", "gold", "untouched", "sft", "rl")
NEEDED = ("task_id", "status_gold", "has_filter", "outcome", "reward", "why", "tokens")
STATUSES = ("KEEP", "DROP")
PREDICTED = (*STATUSES, "none")


class ResultsError(ValueError):
    """results.json that cannot be read; the message names the file, the row and the field."""


@dataclass(frozen=True)
class Summary:
    """One line of the results table; NaN where there is nothing to measure."""

    name: str
    n: int
    failed: int  # infrastructure failures, left out of everything else
    rs: Interval
    outcome: float
    balanced: float
    keep: float
    keep_filter: float
    keep_plain: float
    drop: float
    rg: float
    reward: float
    no_answer: float
    tokens: float
    passed: tuple[int, float] | None  # (k, pass@k)
    confusion: dict[str, dict[str, int]]  # gold → predicted → count


@dataclass(frozen=True)
class Comparison:
    """Two rows of the table on the tasks both answered."""

    before: str
    after: str
    n: int
    rs: Interval
    balanced: Interval
    gained: int
    lost: int
    p: float


def read_results(path: Path) -> dict[str, Any]:
    """results.json, checked; raises `ResultsError`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultsError(
            f"{path}: cannot be read ({error.strerror}); give a run directory"
        ) from None
    except ValueError as error:
        raise ResultsError(f"{path}: not valid JSON ({error})") from None
    return check_results(data, str(path))


def check_results(data: Any, where: str = "results") -> dict[str, Any]:
    """`data` if every row has what the table needs; raises `ResultsError` naming what lacks."""
    if not isinstance(data, dict) or not isinstance(data.get("rows"), dict):
        raise ResultsError(f'{where}: wanted {{"rows": {{name: [...]}}, "meta": {{...}}}}')
    for name, rows in data["rows"].items():
        for number, row in enumerate(rows):
            lacks = [field for field in NEEDED if field not in row]
            if lacks:
                raise ResultsError(f"{where}: row {number} of {name!r} lacks {', '.join(lacks)}")
    return data


def heldout(data: Mapping[str, Any]) -> bool:
    """Whether the tasks are held out; `meta.heldout` says so where an evaluation knows better."""
    return bool((data.get("meta") or {}).get("heldout", True))


def ordered(names: Sequence[str]) -> list[str]:
    """Baselines, untouched, SFT, RL; names this table does not know come last, as given."""
    return sorted(names, key=lambda n: ORDER.index(n) if n in ORDER else len(ORDER))


def summarise(name: str, rows: Sequence[Row]) -> Summary:
    valid = [r for r in rows if r["outcome"] is not None]
    outcomes = [float(r["outcome"]) for r in valid]
    mean, binary = _mean(outcomes), all(o in (0.0, 1.0) for o in outcomes)
    known = [r for r in valid if r["status_gold"] in STATUSES]

    def accuracy(status: str, has_filter: bool | None = None) -> float:
        chosen = [
            float(r["outcome"])
            for r in valid
            if r["status_gold"] == status and has_filter in (None, bool(r["has_filter"]))
        ]
        return _mean(chosen)

    return Summary(
        name=name,
        n=len(valid),
        failed=len(rows) - len(valid),
        # Wilson's interval is of a share; graded outcomes have a mean alone
        rs=wilson(sum(outcomes), len(valid)) if binary else Interval(mean, math.nan, math.nan),
        outcome=mean,
        balanced=balanced([float(r["outcome"]) for r in known], [r["status_gold"] for r in known]),
        keep=accuracy("KEEP"),
        keep_filter=accuracy("KEEP", True),
        keep_plain=accuracy("KEEP", False),
        drop=accuracy("DROP"),
        rg=_mean([float((r.get("parts") or {}).get("rg", 0.0)) for r in valid]),
        reward=_mean([float(r["reward"]) for r in valid]),
        no_answer=_mean([float(r["why"] == "no_answer") for r in valid]),
        tokens=_mean([float(r["tokens"]) for r in valid]),
        passed=_passed(valid),
        confusion=_confusion(valid),
    )


def compare(
    before: str, after: str, rows: Mapping[str, Sequence[Row]], resamples: int = 2000, seed: int = 0
) -> Comparison:
    """Paired over the tasks that both rows answered, whatever their order."""
    old = {r["task_id"]: r for r in rows[before] if r["outcome"] is not None}
    pairs = [
        (old[r["task_id"]], r)
        for r in rows[after]
        if r["outcome"] is not None and r["task_id"] in old
    ]
    a, b = [float(x["outcome"]) for x, _ in pairs], [float(y["outcome"]) for _, y in pairs]
    classes = [str(x["status_gold"]) for x, _ in pairs]
    gained = sum(y > x for x, y in zip(a, b, strict=True))
    lost = sum(y < x for x, y in zip(a, b, strict=True))
    return Comparison(
        before=before,
        after=after,
        n=len(pairs),
        rs=paired_difference(a, b, resamples, seed),
        balanced=balanced_difference(a, b, classes, resamples, seed),
        gained=gained,
        lost=lost,
        p=mcnemar_exact(gained, lost),
    )


def comparisons(data: Mapping[str, Any]) -> list[Comparison]:
    """untouched → sft, sft → rl, and so on along the trained rows that are there."""
    names = [n for n in ("untouched", "sft", "rl") if n in data["rows"]]
    meta = data.get("meta") or {}
    resamples, seed = int(meta.get("bootstrap", 2000)), int(meta.get("bootstrap_seed", 0))
    pairs = pairwise(names)
    return [compare(a, b, data["rows"], resamples, seed) for a, b in pairs]


# heading, what it shows
HEADINGS = (
    "model",
    "RS [95 %]",
    "balanced RS",
    "KEEP",
    "KEEP+filter",
    "KEEP no filter",
    "DROP",
    "RG",
    "reward",
    "no answer",
    "tokens",
)
PLAIN_HEADINGS = ("model", "tasks", "outcome", "reward", "no answer", "tokens")


def has_status(data: Mapping[str, Any]) -> bool:
    """Whether any row belongs to a task that is kept or dropped."""
    return any(r["status_gold"] in STATUSES for rows in data["rows"].values() for r in rows)


def cells(summary: Summary, status: bool = True) -> list[str]:
    """The texts of one line under `HEADINGS` (without a status: `PLAIN_HEADINGS`), and pass@k
    when it was measured."""
    s = summary
    if not status:
        return [
            s.name,
            str(s.n),
            show(s.outcome),
            show(s.reward),
            "–" if math.isnan(s.no_answer) else f"{s.no_answer:.0%}",
            "–" if math.isnan(s.tokens) else f"{s.tokens:.0f}",
            *([show(s.passed[1])] if s.passed else []),
        ]
    rates = [s.balanced, s.keep, s.keep_filter, s.keep_plain, s.drop, s.rg, s.reward]
    return [
        s.name,
        show_interval(s.rs),
        *map(show, rates),
        "–" if math.isnan(s.no_answer) else f"{s.no_answer:.0%}",
        "–" if math.isnan(s.tokens) else f"{s.tokens:.0f}",
        *([show(s.passed[1])] if s.passed else []),
    ]


def text_table(data: Mapping[str, Any]) -> str:
    """The results table, confusion counts and paired comparisons as plain text."""
    summaries = [summarise(n, data["rows"][n]) for n in ordered(list(data["rows"]))]
    ks = sorted({s.passed[0] for s in summaries if s.passed})
    status = has_status(data)
    headings = [*(HEADINGS if status else PLAIN_HEADINGS), *(f"pass@{k}" for k in ks[:1])]
    lines = [headings, *(cells(s, status) for s in summaries)]
    lines = [line + [""] * (len(headings) - len(line)) for line in lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    out = [
        "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    out.insert(1, "-" * len(out[0]))
    counts = sorted({s.n for s in summaries})
    what = "held-out tasks" if heldout(data) else "tasks"
    how = "greedy; Wilson intervals" if status else "greedy"
    out.append(f"{' or '.join(map(str, counts))} {what}, {how}")
    if failed := sum(s.failed for s in summaries):
        out.append(f"lost to the infrastructure and counted nowhere: {failed} answers")
    for s in summaries if status else ():
        parts = [
            f"{gold}: " + ", ".join(f"{s.confusion[gold][p]} {p}" for p in PREDICTED)
            for gold in STATUSES
        ]
        out.append(f"status {s.name:<{widths[0]}}  gold {'; gold '.join(parts)}")
    for c in comparisons(data):
        out.append(
            f"{c.before} → {c.after}: RS {show_interval(c.rs, True)}, "
            f"balanced RS {show_interval(c.balanced, True)} (paired bootstrap), "
            f"{c.gained} gained, {c.lost} lost, McNemar p {c.p:.2g}"
        )
    return "\n".join(out)


def show(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def show_interval(interval: Interval, signed: bool = False) -> str:
    form = "{:+.3f} [{:+.3f}, {:+.3f}]" if signed else "{:.3f} [{:.3f}, {:.3f}]"
    return "–" if math.isnan(interval.value) else form.format(*interval)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _passed(rows: Sequence[Row]) -> tuple[int, float] | None:
    """(k, mean pass@k) for the largest k that every row has, or None."""
    ks = [int(k.removeprefix("pass@")) for k in (rows[0] if rows else ()) if k.startswith("pass@")]
    for k in sorted(ks, reverse=True):
        values = [r.get(f"pass@{k}") for r in rows]
        if None not in values:
            return k, _mean([float(v) for v in values if v is not None])
    return None


def _confusion(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {g: {p: 0 for p in PREDICTED} for g in STATUSES}
    for row in rows:
        said = row.get("predicted_status")
        if row["status_gold"] in table:
            table[row["status_gold"]][said if said in STATUSES else "none"] += 1
    return table
