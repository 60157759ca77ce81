# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""One row of any of the files as the page needs it: what the index holds, and a body as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.family import family_named, slices_of
from assay.task import Task, TaskError
from train.view.bodies import Pieces, body_of, dumps, list_of, number_of, tokens_of
from train.view.explain import Explanation
from train.view.gold import Tasks, explained, gold_of
from train.view.sources import Line, Source, crc


@dataclass(frozen=True)
class Asked:
    """A task as the rollouts show it. `body` is what its detail shows, as JSON."""

    task_id: str
    prompt: int
    """A checksum: tasks of one id and another prompt are other tasks."""
    family: str
    track: str
    group: str
    slices: Mapping[str, str]
    known: bool
    body: str


@dataclass(frozen=True)
class Rollout:
    """One rollout. `body` and `tokens` are JSON texts, which chunks are made of."""

    task: tuple[str, int]
    set_name: str
    step: int | None
    sample: int
    outcome: float | None
    reward: float | None
    parts: Mapping[str, float]
    why: str
    stop: str
    length: int | None
    seconds: float | None
    calls: int
    wrong: str
    label: str
    said: str
    answer: int
    body: str
    tokens: str


class Reader:
    """Turns rows into rollouts; `asked` collects the tasks they answer."""

    def __init__(self, tasks: Tasks, pieces: Pieces | None) -> None:
        self._tasks, self._pieces = tasks, pieces
        self.asked: dict[tuple[str, int], Asked] = {}

    def read(self, line: Line, source: Source) -> Rollout:
        """Raises `TaskError` naming file and line for a row that is no rollout."""
        row = line.row
        task_id, text = _needed(line)
        messages = [m for m in list_of(row.get("messages")) if isinstance(m, dict)]
        inline = row.get("prompt")
        task = self._tasks.of(task_id, messages, inline if isinstance(inline, str) else "")
        prompt = _prompt(task, messages, inline)
        key = (task_id, crc(json.dumps(prompt, sort_keys=True)))
        found = explained(task, row, text)

        def gold() -> str:
            return gold_of(task).get("text", "") if task is not None else ""

        known = self.asked.get(key)
        if known is None or (found is not None and not known.known):
            self.asked[key] = _asked(task_id, key[1], row, task, prompt, found)
        calls, length = row.get("tool_calls"), number_of(row.get("tokens", row.get("tokens_out")))
        wrong = found.finding.wrong if found else ()
        return Rollout(
            task=key,
            set_name=source.set_name,
            step=source.step,
            sample=int(number_of(row.get("sample")) or 0),
            outcome=number_of(row.get("outcome")),
            reward=number_of(row.get("reward")),
            parts=_parts(row.get("parts")),
            why=str(row.get("why") or ""),
            stop=str(row.get("stop") or ""),
            length=None if length is None else int(length),
            seconds=number_of(row.get("wall_s", row.get("seconds"))),
            calls=calls if type(calls) is int else len(list_of(calls)),
            # the first step that went wrong
            wrong=found.work.steps[wrong[0]].name if found and wrong else "",
            label=str(row.get("label") or ""),
            # the class the answer names, where gold has one
            said=str(row.get("said") or "none") if row.get("label") else "",
            answer=crc(text),
            body=body_of(row, messages, prompt, text, found, line.shown, gold),
            tokens=tokens_of(row, self._pieces),
        )


def _needed(line: Line) -> tuple[str, str]:
    row = line.row
    task_id, text = row.get("task_id"), row.get("text", row.get("output"))
    needed = {"task_id": isinstance(task_id, str | int), "text or output": isinstance(text, str)}
    lacks = [name for name, there in {**needed, "outcome": "outcome" in row}.items() if not there]
    if lacks:
        raise TaskError(
            f"{line.where}: no rollout, for it lacks {', '.join(lacks)}; give a run directory, "
            "`assay rollout` output or an evaluation"
        )
    return str(task_id), str(text)


def _parts(value: Any) -> dict[str, float]:
    held = value if isinstance(value, dict) else {}
    found = {str(name): number_of(part) for name, part in held.items()}
    return {name: part for name, part in found.items() if part is not None}


def _prompt(task: Task | None, messages: Sequence[Any], inline: Any) -> list[Any]:
    """The messages that came before the model's first."""
    if task is not None and not task.tools:
        return list(task.prompt)
    if messages:
        first = next((i for i, m in enumerate(messages) if m.get("role") == "assistant"), None)
        return list(messages[:first])
    if task is not None:
        return list(task.prompt)
    if isinstance(inline, str):
        return [{"role": "user", "content": inline}]
    return list_of(inline)


def _asked(
    task_id: str,
    prompt_crc: int,
    row: Mapping[str, Any],
    task: Task | None,
    prompt: Sequence[Any],
    found: Explanation | None,
) -> Asked:
    body: dict[str, Any] = {"id": task_id, "prompt": prompt}
    if task is not None:
        body["gold"] = gold_of(task)
        body["meta"] = task.meta
    if found is not None:
        work = found.work
        body["work"] = {
            "input": work.input,
            "gold": work.gold,
            "label": work.label,
            "unknown": work.unknown,
            "steps": [
                {"name": s.name, "kind": s.kind, "detail": s.detail, "changes": s.changes}
                | ({"after": s.after} if s.changes and s.kind != "filter" else {})
                for s in work.steps
            ],
        }
    return Asked(
        task_id,
        prompt_crc,
        str(row.get("family") or (task.family if task else "")),
        str(row.get("track") or (task.track if task else "")),
        str(row.get("group") or (task.group if task else None) or ""),
        _slices(row, task),
        found is not None or task is not None,
        dumps(body),
    )


def _slices(row: Mapping[str, Any], task: Task | None) -> dict[str, str]:
    held = row.get("slices")
    if isinstance(held, dict):
        return {str(k): str(v) for k, v in held.items()}
    if task is None:
        return {}
    try:
        return {str(k): str(v) for k, v in slices_of(family_named(task.family), task).items()}
    except Exception:  # a family of somebody's own
        return {}
