"""Tables of a KramaBench evaluation: by domain and overall, over tasks as published."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from assay.task import RIGHT, Task
from rewards.krama.release import COUNTS, total
from train.evaluation.stats import wilson
from train.evaluation.tables import NONE, grouped, markdown, mean, number, points

Row = dict[str, Any]
DOUBTED, TRUSTED = "of these doubted", "without the doubted"  # rows of a table, after `overall`


def _cell(rows: Sequence[Row]) -> Row:
    """What one domain (or all) comes to. Rows without an outcome are counted, not scored."""
    scored = [r for r in rows if r["outcome"] is not None]
    outcomes = [float(r["outcome"]) for r in scored]
    right = sum(o >= RIGHT for o in outcomes)
    cell: Row = {
        "tasks": len(rows),
        "unscored": len(rows) - len(scored),
        "score": mean(outcomes),
        "right": right,
        "interval": list(wilson(right, len(scored))[1:]) if scored else None,
        "release": _release(rows),
        "design_judged": mean([r.get("design_judged") for r in scored]),
        "subtask_credit": mean([r["parts"].get("subtask_credit") for r in scored]),
        "tokens": mean([r["cost"]["tokens"] for r in rows]),
        "minutes": mean([float(r["cost"]["seconds"]) / 60 for r in rows]),
    }
    parents = grouped([r for r in scored if r["parent"]], lambda r: str(r["parent"]))
    if parents:  # sub-tasks: the mean of per-task means beside the mean over sub-tasks
        cell["score_by_parent"] = mean(mean(r["outcome"] for r in v) for v in parents.values())
    return cell


def _release(rows: Sequence[Row]) -> float | None:
    """The total the published harness prints; None where it stops or prints NaN."""
    metrics = [r["release"] for r in rows if r.get("release") is not None]
    try:
        value = total(metrics)
    except (TypeError, ZeroDivisionError):
        return None
    return None if math.isnan(value) else value


def summary(rows: Sequence[Row], tries: int = 0) -> dict[str, Any]:
    """{setting: {domain or "overall": numbers}}, what became of the answers, easy and hard tasks
    apart, and (with `tries` of a few-shot agent) what fewer tries had come to."""
    out: dict[str, Any] = {}
    for setting in dict.fromkeys(r["setting"] for r in rows):
        part = [r for r in rows if r["setting"] == setting]
        domains = sorted({str(r["domain"]) for r in part})
        out[setting] = _by_domain(part, domains)
        levels = sorted({str(r.get("difficulty") or "") for r in part} - {""})
        if len(levels) > 1:
            own = {x: [r for r in part if r.get("difficulty") == x] for x in levels}
            out[f"{setting} by difficulty"] = {x: _by_domain(own[x], domains) for x in levels}
            if setting == "end-to-end":
                out["pipeline-design by difficulty"] = out[f"{setting} by difficulty"]
        if counts := after_tries(part, tries):
            out[f"{setting} by tries"] = counts
        if setting == "end-to-end":
            out["pipeline-design"] = out[setting]
        out[f"{setting} categories"] = dict(Counter(r["category"] for r in part).most_common())
    return out


def _by_domain(rows: Sequence[Row], domains: Sequence[str]) -> Row:
    cells = {d: _cell([r for r in rows if r["domain"] == d]) for d in domains}
    found = {**{d: c for d, c in cells.items() if c["tasks"]}, "overall": _cell(rows)}
    doubted = [r for r in rows if r.get("doubt")]
    if doubted:
        found[DOUBTED] = _cell(doubted)
        found[TRUSTED] = _cell([r for r in rows if not r.get("doubt")])
    return found


def over_published(tasks: Sequence[Task]) -> list[str]:
    """Lines that say how much of the published benchmark these tasks are, which of them have
    doubted gold and why; none for other tasks."""
    asked = {t.id: t for t in tasks if t.meta.get("benchmark") == "krama"}
    known = [t for t in asked.values() if t.meta.get("domain") in COUNTS]
    lines: list[str] = []
    for index, what in enumerate(("tasks", "sub-tasks")):
        mine = [t for t in known if bool(t.meta.get("parent")) == bool(index)]
        if not mine:
            continue
        there = Counter(str(t.meta["domain"]) for t in mine)
        short = [f"{d} {there[d]} of {n[index]}" for d, n in COUNTS.items() if there[d] < n[index]]
        modes = sorted({str(t.meta.get("mode")) for t in mine})
        lines.append(
            f"Over {len(mine)} of the benchmark's {sum(n[index] for n in COUNTS.values())} {what}, "
            f"files shown: {', '.join(modes)}{'; ' if short else ''}{', '.join(short)}."
        )
    doubted = {t.id: str(t.gold["doubt"]) for t in asked.values() if t.gold.get("doubt")}
    whole = {name: why for name, why in doubted.items() if not asked[name].meta.get("parent")}
    if doubted:
        listed = "; ".join(f"{name}: {why}" for name, why in whole.items())
        parts = len(doubted) - len(whole)
        lines.append(
            f"Gold is doubted of {len(whole)} tasks{f' and {parts} sub-tasks' if parts else ''}, "
            f"which are counted above; krama.doubted=false leaves them out. {listed}".rstrip()
        )
    return lines


def after_tries(rows: Sequence[Row], most: int) -> list[Row]:
    """What a few-shot agent had come to with 1, 2, … `most` tries; [] for another agent.

    The prompt names no number of tries and an episode ends with the first pipeline that runs, so
    this is what runs with fewer tries give (paper, Tables 12 to 14), up to chance of the sampler.
    """
    scored = [r for r in rows if r["outcome"] is not None]
    scored = [r for r in scored if _agent(r) == "ds-guru few-shot"]
    if not scored or most < 2:
        return []
    found: list[Row] = []
    # all up to five, then every fifth, and the last
    for count in (n for n in range(1, most + 1) if n <= 5 or n % 5 == 0 or n == most):
        done = [r for r in scored if r["notes"]["tries"] <= count and r["notes"]["ended"] in _RAN]
        right = sum(float(r["outcome"]) >= RIGHT for r in done)
        found.append(
            {
                "tries": count,
                "tasks": len(scored),
                "ran": len(done),
                "score": sum(float(r["outcome"]) for r in done) / len(scored),
                "right": right,
                "interval": list(wilson(right, len(scored))[1:]),
                "calls": fmean(min(int(r["notes"]["tries"]), count) for r in scored),
            }
        )
    return found


def _agent(row: Row) -> str:
    notes: Row = row.get("notes") or {}
    return str(notes.get("agent"))


_RAN = ("ran", "no_answer")  # how an episode ends whose pipeline ran


def _interval(ends: Sequence[float] | None) -> str:
    """Wilson's interval of the share of tasks that are right."""
    return NONE if ends is None else f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}"


# heading → cell
_Columns = Mapping[str, Callable[[Row], str]]
_UNSCORED: _Columns = {"no outcome": lambda c: str(c["unscored"])}
_SHARED: _Columns = {
    "tokens a task": lambda c: number(c["tokens"], "{:,.1f}"),
    "minutes a task": lambda c: number(c["minutes"]),
    **_UNSCORED,
}
_LEVEL: _Columns = {
    "tasks": lambda c: str(c["tasks"]),
    "score %": lambda c: points(c["score"]),
    "right, 95 %": lambda c: _interval(c["interval"]),
}
_DESIGN: _Columns = {
    "tasks": lambda c: str(c["tasks"]),
    "design, judged %": lambda c: points(c["design_judged"]),
}
_COLUMNS: dict[str, _Columns] = {
    "end-to-end": {
        "tasks": lambda c: str(c["tasks"]),
        "score %": lambda c: points(c["score"]),
        "right": lambda c: str(c["right"]),
        "right, 95 %": lambda c: _interval(c["interval"]),
        "release harness %": lambda c: points(c["release"]),
        **_SHARED,
    },
    # the same runs, judged by their code
    "pipeline-design": {
        **_DESIGN,
        "sub-answers printed %": lambda c: points(c["subtask_credit"]),
        **_UNSCORED,
    },
    "subtasks": {
        "sub-tasks": lambda c: str(c["tasks"]),
        "score %": lambda c: points(c["score"]),
        "mean of tasks %": lambda c: points(c.get("score_by_parent")),
        "release harness %": lambda c: points(c["release"]),
        **_SHARED,
    },
}
_TRIES: _Columns = {
    "ran": lambda c: f"{c['ran']} of {c['tasks']}",
    "score %": lambda c: points(c["score"]),
    "right": lambda c: str(c["right"]),
    "right, 95 %": lambda c: _interval(c["interval"]),
    "calls a task": lambda c: f"{c['calls']:.2f}",
}


def _table(head: str, columns: _Columns, cells: Mapping[str, Row]) -> list[str]:
    lines = [[name, *(show(cell) for show in columns.values())] for name, cell in cells.items()]
    return markdown([[head, *columns], *lines])


def text_tables(tables: dict[str, Any], meta: dict[str, Any]) -> str:
    """Markdown. Scores are means over tasks (overall: over all tasks, not over domains)."""
    lines = [f"KramaBench, {meta['agent']}, {meta['model']}, reading {meta['reading']}"]
    if "tries" in meta and str(meta["agent"]).startswith("ds-guru"):
        few_shot = f", {meta['tries']} tries" if meta["agent"] == "ds-guru-few-shot" else ""
        within = f" within {meta['snippet_tokens']} tokens" if meta["snippet_tokens"] else ""
        lines[0] += f"{few_shot}, {meta['rows']} rows a file{within}"
    for setting, columns in _COLUMNS.items():
        if setting not in tables:
            continue
        lines += ["", f"## {setting}", "", *_table("domain", columns, tables[setting])]
        if found := tables.get(f"{setting} categories"):
            lines += ["", "What became of them: " + ", ".join(f"{n} {k}" for k, n in found.items())]
        if levels := tables.get(f"{setting} by difficulty"):
            design = setting == "pipeline-design"
            lines += ["", f"### {setting}, by difficulty", ""]
            lines += _difficulty(levels, _DESIGN if design else _LEVEL)
        if counts := tables.get(f"{setting} by tries"):
            by_tries = {str(count["tries"]): count for count in counts}
            lines += ["", f"### {setting}, with fewer tries", ""]
            lines += _table("tries", _TRIES, by_tries)
    lines += [line for said in meta.get("over") or () for line in ("", said)]
    return "\n".join(lines) + "\n"


def _difficulty(levels: dict[str, Row], columns: _Columns) -> list[str]:
    """One line a domain, with columns for each level."""
    domains = dict.fromkeys(d for cells in levels.values() for d in cells)
    last = [d for d in ("overall", DOUBTED, TRUSTED) if d in domains]
    lines = [["domain", *(f"{level} {what}" for level in levels for what in columns)]]
    for domain in [*(d for d in domains if d not in last), *last]:
        cells = [cells.get(domain) for cells in levels.values()]
        shown = [show(c) if c else NONE for c in cells for show in columns.values()]
        lines.append([domain, *shown])
    return markdown(lines)
