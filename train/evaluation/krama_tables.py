"""Tables of a KramaBench evaluation: by domain and overall, over tasks as published."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from rewards.krama.release import total
from rewards.task import RIGHT
from train.evaluation.stats import wilson

Row = dict[str, Any]


def _mean(values: Sequence[float | None]) -> float | None:
    present = [v for v in values if v is not None]
    return fmean(present) if present else None


def _cell(rows: Sequence[Row]) -> Row:
    """What one domain (or all) comes to. Rows without an outcome are counted, not scored."""
    scored = [r for r in rows if r["outcome"] is not None]
    outcomes = [float(r["outcome"]) for r in scored]
    right = sum(o >= RIGHT for o in outcomes)
    cell: Row = {
        "tasks": len(rows),
        "unscored": len(rows) - len(scored),
        "score": _mean(outcomes),
        "right": right,
        "interval": list(wilson(right, len(scored))[1:]) if scored else None,
        "release": _release(rows),
        "design_static": _mean([r["parts"].get("design_static") for r in scored]),
        "design_judged": _mean([r.get("design_judged") for r in scored]),
        "subtask_credit": _mean([r["parts"].get("subtask_credit") for r in scored]),
        "tokens": _mean([float(r["cost"]["tokens"]) for r in rows]),
        "minutes": _mean([float(r["cost"]["seconds"]) / 60 for r in rows]),
    }
    parents: dict[str, list[float]] = {}
    for r in scored:
        if r["parent"]:
            parents.setdefault(str(r["parent"]), []).append(float(r["outcome"]))
    if parents:  # sub-tasks: the mean of per-task means beside the mean over sub-tasks
        cell["score_by_parent"] = fmean(fmean(v) for v in parents.values())
    return cell


def _release(rows: Sequence[Row]) -> float | None:
    """The total the published harness prints; None where it stops or prints NaN."""
    metrics = [r["release"] for r in rows if r.get("release") is not None]
    try:
        value = total(metrics)
    except (TypeError, ZeroDivisionError):
        return None
    return None if math.isnan(value) else value


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """{setting: {domain or "overall": numbers}}, and what became of the answers."""
    out: dict[str, Any] = {}
    for setting in dict.fromkeys(r["setting"] for r in rows):
        part = [r for r in rows if r["setting"] == setting]
        domains = sorted({str(r["domain"]) for r in part})
        cells = {d: _cell([r for r in part if r["domain"] == d]) for d in domains}
        out[setting] = {**cells, "overall": _cell(part)}
        if setting == "end-to-end":
            out["pipeline-design"] = out[setting]
        out[f"{setting} categories"] = dict(Counter(r["category"] for r in part).most_common())
    return out


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _interval(ends: Sequence[float] | None) -> str:
    """Wilson's interval of the share of tasks that are right."""
    return "-" if ends is None else f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


_Columns = Sequence[tuple[str, Callable[[Row], str]]]
_SHARED: _Columns = (
    ("tokens a task", lambda c: _number(c["tokens"])),
    ("minutes a task", lambda c: "-" if c["minutes"] is None else f"{c['minutes']:.3f}"),
    ("no outcome", lambda c: str(c["unscored"])),
)
_COLUMNS: dict[str, _Columns] = {
    "end-to-end": (
        ("tasks", lambda c: str(c["tasks"])),
        ("score %", lambda c: _percent(c["score"])),
        ("right", lambda c: str(c["right"])),
        ("right, 95 %", lambda c: _interval(c["interval"])),
        ("release harness %", lambda c: _percent(c["release"])),
        *_SHARED,
    ),
    # the same runs, judged by their code
    "pipeline-design": (
        ("tasks", lambda c: str(c["tasks"])),
        ("design, static %", lambda c: _percent(c["design_static"])),
        ("design, judged %", lambda c: _percent(c["design_judged"])),
        ("sub-answers printed %", lambda c: _percent(c["subtask_credit"])),
        ("no outcome", lambda c: str(c["unscored"])),
    ),
    "subtasks": (
        ("sub-tasks", lambda c: str(c["tasks"])),
        ("score %", lambda c: _percent(c["score"])),
        ("mean of tasks %", lambda c: _percent(c.get("score_by_parent"))),
        ("release harness %", lambda c: _percent(c["release"])),
        *_SHARED,
    ),
}


def text_tables(tables: dict[str, Any], meta: dict[str, Any]) -> str:
    """Markdown. Scores are means over tasks (overall: over all tasks, not over domains)."""
    lines = [f"KramaBench, {meta['agent']}, {meta['model']}, reading {meta['reading']}"]
    for setting, columns in _COLUMNS.items():
        if setting not in tables:
            continue
        lines += ["", f"## {setting}", ""]
        lines.append("| domain | " + " | ".join(name for name, _ in columns) + " |")
        lines.append("|" + "---|" * (len(columns) + 1))
        for domain, cell in tables[setting].items():
            lines.append(f"| {domain} | " + " | ".join(show(cell) for _, show in columns) + " |")
        found = tables.get(f"{setting} categories", {})
        if found:
            lines += ["", "What became of them: " + ", ".join(f"{n} {k}" for k, n in found.items())]
    return "\n".join(lines) + "\n"
