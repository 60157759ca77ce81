# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""Sample answers of a report: what the last models say to the same tasks, side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from assay.task import RIGHT
from train.evaluation.results import is_baseline
from train.report.markup import Links, section

Row = Mapping[str, Any]
SHOWN, OF_A_KIND, LONGEST = 16, 2, 20_000


def samples(rows: Mapping[str, Sequence[Row]], links: Links) -> str:
    """Two tasks of every kind of difference between the last two models, then of every failure."""
    models = [name for name in rows if not is_baseline(name)] or list(rows)[-1:]
    if not models or not any(rows[name] for name in models):
        return ""
    by_task = {name: _first(rows[name]) for name in models}
    last, before = models[-1], models[-2] if len(models) > 1 else models[-1]
    seen: dict[tuple[Any, ...], int] = {}
    chosen: list[str] = []
    for task, row in by_task[last].items():
        other = by_task[before].get(task, row)
        kind = (_right(other), _right(row), row.get("family"), row.get("label"), row["why"])
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= OF_A_KIND and len(chosen) < SHOWN:
            chosen.append(task)
    parts = "".join(
        _sample(task, {n: by_task[n].get(task) for n in models}, links) for task in chosen
    )
    return section("Sample answers", parts)


def _first(rows: Sequence[Row]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(str(row["task_id"]), row)
    return found


def _right(row: Row) -> bool | None:
    return None if row["outcome"] is None else float(row["outcome"]) >= RIGHT


def _sample(task: str, answers: Mapping[str, Row | None], links: Links) -> str:
    first = next(row for row in answers.values() if row is not None)
    tags, blocks = [], []
    for field, label in (("prompt", "prompt"), ("input_text", "input"), ("gold_text", "gold text")):
        if first.get(field) is not None:
            text = first[field] if isinstance(first[field], str) else _chat(first[field])
            blocks.append(f'<div class="label">{label}</div><pre>{escape(text)}</pre>')
    for name, row in answers.items():
        if row is None:
            continue
        kind = "ok" if _right(row) else "no"
        tags.append(f'<span class="tag {kind}">{escape(name)}: {escape(str(row["why"]))}</span>')
        numbers = f"outcome {_brief(row['outcome'])}, reward {_brief(row['reward'])}"
        tokens = "–" if row.get("tokens_out") is None else row["tokens_out"]
        label = f"{escape(name)} ({numbers}, {tokens} tokens)"
        if links.page:
            sample = int(row.get("sample") or 0)
            label += " " + links.rollout("in the viewer", name, task, sample)
        output = escape(str(row.get("output", ""))[:LONGEST])
        blocks.append(f'<div class="label">{label}</div><pre>{output}</pre>')
    gold = f"gold {escape(str(first['label']))}" if first.get("label") else ""
    head = f"{escape(task)} <span class=quiet>{gold}</span>"
    return f"<details><summary>{head}{''.join(tags)}</summary>{''.join(blocks)}</details>"


def _chat(messages: Any) -> str:
    if isinstance(messages, list):
        return "\n\n".join(f"{m.get('role')}: {m.get('content')}" for m in messages)
    return json.dumps(messages, ensure_ascii=False)


def _brief(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"
