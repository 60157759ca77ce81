# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The tasks that rollouts answer. Rollouts carry no gold; the run's task files do."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.family import Family, family_named, gold_answer, without_thoughts
from assay.task import Answer, Task, TaskError, read_tasks
from train.view.explain import Explanation, Finding, Work, align, plain_spine

_SHOWN_GOLD = 2_000_000  # characters of one gold file


def task_files(place: Path, records: Iterable[Mapping[str, Any]]) -> list[Path]:
    """Task files of a run: `tasks/*.jsonl` of its folder, and those that its records name."""
    folder = place if place.is_dir() else place.parent
    found = sorted((folder / "tasks").glob("*.jsonl"))
    for record in records:
        for name in _named(record):
            path = Path(name)
            found += [p for p in (path, folder / path) if p.is_file() and p.suffix == ".jsonl"]
    return list(dict.fromkeys(path.resolve() for path in found))


def _named(record: Mapping[str, Any]) -> Iterator[str]:
    """Words of a run's record that may name a tasks file."""
    config = record.get("config")
    for held in (config, record.get("settings"), record.get("meta"), record):
        if not isinstance(held, Mapping):
            continue
        for key in ("data", "validation", "tasks"):
            value = held.get(key)
            for word in value if isinstance(value, list) else [value]:
                if isinstance(word, str) and word:
                    yield word
    for made in record.get("made") or ():
        words = made.get("command") if isinstance(made, Mapping) else None
        yield from (str(word).partition("=")[2] or str(word) for word in words or ())


def read_records(place: Path) -> list[dict[str, Any]]:
    """What a run wrote down of itself, as far as it is there and can be read."""
    folder = place if place.is_dir() else place.parent
    names = [folder / n for n in ("run.json", "eval.json", "provenance.json")]
    if not place.is_dir():
        names += [place.with_name(f"{place.name}.provenance.json")]
        names += [place.with_name(f"{place.name}.settings.json")]
    found: list[dict[str, Any]] = []
    for path in names:
        try:
            record: Any = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(record, dict) and "rows" not in record:
            found.append(record)
    return found


class Tasks:
    """Tasks by id. The first file that has an id wins: files that were asked for come first."""

    def __init__(self, asked: Sequence[Path], found: Sequence[Path]) -> None:
        """Raises `TaskError` for an asked file that cannot be read; a found one is left out."""
        self._tasks: dict[str, list[Task]] = {}
        for path in asked:
            self._add(read_tasks(path))
        for path in found:
            try:
                self._add(read_tasks(path))
            except (TaskError, OSError):
                continue

    def _add(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self._tasks.setdefault(task.id, []).append(task)

    def of(self, task_id: str, messages: Sequence[Any], prompt: str) -> Task | None:
        """The task that was asked: of its id, and with its prompt where that can be compared. Other
        builds have other tasks of the same id."""
        for task in self._tasks.get(task_id, ()):
            if task.tools or not (messages or prompt):
                return task
            said = [m.get("content") for m in messages if isinstance(m, dict)]
            wanted = [m["content"] for m in task.prompt]
            if said[: len(wanted)] == wanted or (prompt and wanted and wanted[-1] == prompt):
                return task
        return None


def gold_of(task: Task) -> dict[str, Any]:
    """Gold as it can be shown: its text, its files, or why there is none."""
    try:
        made = gold_answer(family_named(task.family), task)
    except Exception as error:  # a family of somebody's own, or gold that says too little
        return {"why": f"gold cannot be written out ({type(error).__name__}: {error})"}
    if made is None:
        return {"why": "gold has to be executed; the page does not run it"}
    files = {n: d.decode("utf-8", "replace") for n, d in sorted(made.files.items())}
    long = [name for name, text in files.items() if len(text) > _SHOWN_GOLD]
    for name in long:
        files[name] = f"({len(files[name])} characters, not carried here)"
    return {"text": made.text, "files": files}


EXPLAINERS = {"refinement": "train.view.explain_cdr", "sql": "train.view.explain_sql"}
# what explains an answer of a family, step by step; they execute recipes and queries


def explainer_of(family: Family) -> Callable[[Task, Answer], Explanation] | None:
    """The function that explains answers of a family; None where nobody gave one."""
    name = EXPLAINERS.get(family.name)
    return importlib.import_module(name).explain if name else family.explain


def explained(task: Task | None, row: Mapping[str, Any], text: str) -> Explanation | None:
    """Where the answer leaves gold; None where there is no text to compare with."""
    if task is None:
        return _inline(row, text)
    try:
        family = family_named(task.family)
        if explain := explainer_of(family):
            return explain(task, without_thoughts(family, task, Answer(text)))
        made = gold_answer(family, task)
    except Exception:  # a family of somebody's own: the page shows the rest
        return None
    if made is None or not made.text:
        return None
    return _texts("", made.text, text, f"family {task.family} names no steps")


def _inline(row: Mapping[str, Any], text: str) -> Explanation | None:
    """From the gold that the row itself brings along."""
    gold, source = row.get("gold_text"), row.get("input_text")
    if not isinstance(gold, str):
        return None
    why = "the task is not at hand (give its file with --tasks)"
    source = source if isinstance(source, str) else ""
    label = str(row.get("label") or "")
    said, answer = str(row.get("said") or ""), text
    if "<clean_text>" in text:
        answer = text.partition("<clean_text>")[2].partition("</clean_text>")[0]
    found = _texts(source, gold, answer, why)
    work = Work(source, gold, label, (), why)
    return Explanation(work, Finding(answer, said, found.finding.segments, (), found.finding.said))


def _texts(source: str, gold: str, answer: str, why: str) -> Explanation:
    pieces = plain_spine(source, gold) if source else plain_spine("", gold)
    segments = align(pieces, source, gold, answer)
    said = "" if answer == gold else f"No step can be named: {why}."
    return Explanation(Work(source, gold, "", (), why), Finding(answer, "", segments, (), said))
