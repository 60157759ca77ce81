"""Tasks that are answered in words, for tools that know prompts and texts: the chat, the gold text,
the score of a text. What `assay export` writes goes through here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.family import family_of, gold_answer, score_answer, use_families
from assay.task import RIGHT, Answer, Score, Task, TaskError, read_tasks

TASKS, SETTINGS = "tasks.jsonl", "assay.json"  # beside an adapter


@dataclass(frozen=True)
class Words:
    """One task in words: its messages, and the text that scores 1, with the `files` that its tools
    leave beside it."""

    task: Task
    messages: list[dict[str, str]]
    gold: str
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

    def prompt(self) -> str:
        """The messages as one text."""
        return "\n\n".join(m["content"] for m in self.messages)


@dataclass(frozen=True)
class Message:
    """How tasks are answered in a message whose gold is what an environment leaves in files: the
    message that scores 1, and its `form` in a sentence, which prompts do not say. `places` are
    where prompts say that files lie: name in `Task.files` → path in the solver's folder."""

    gold: Callable[[Task], str]
    form: str = ""
    places: Mapping[str, str] = field(default_factory=dict[str, str])


MESSAGES = {
    "answer": Message(
        lambda task: json.dumps({"answer": task.gold["answer"]}),
        'Answer with one JSON object: {"answer": …}, its value a number, a text or a list.',
        {"lake": "data"},
    )
}


def message_of(task: Task) -> str | None:
    """Return the message that scores 1 for a task whose gold has files too; None where there is
    none."""
    if (known := MESSAGES.get(task.family)) is not None:
        return known.gold(task)
    gold = gold_answer(family_of(task), task)
    if gold is None or not (gold.files and gold.text):
        return None
    score = score_answer(task, Answer(gold.text))
    return gold.text if (score.outcome or 0.0) >= RIGHT else None


def said_gold(task: Task) -> str:
    """Return gold as a text. Raises `TaskError` for a task that is answered in files."""
    if (message := message_of(task)) is not None:
        return message
    gold = gold_answer(family_of(task), task)
    if gold is None or gold.files:
        what = "has to be run first" if gold is None else "is a file"
        raise TaskError(
            f"task {task.id}: its gold {what}, and this form knows texts only; export it to harbor"
        )
    return gold.text


def in_words(task: Task) -> Words:
    """Make the chat and the gold text of a task. Raises `TaskError` as `said_gold` does; a task
    with tools may have gold in the files that they leave."""
    made = gold_answer(family_of(task), task) if task.tools else None
    if made and made.files and message_of(task) is None:
        gold, files = made.text, made.files
    else:
        gold, files = said_gold(task), dict[str, bytes]()
    messages = [dict(m) for m in task.prompt]
    if task.family in MESSAGES:
        last = messages[-1]
        said = f"{last['content']}\n\n{MESSAGES[task.family].form}"
        messages[-1] = {**last, "content": said}
    return Words(task, messages, gold, files)


def score_text(
    task: Task, text: str, truncated: bool = False, files: Mapping[str, bytes] | None = None
) -> Score:
    """Score a message, with the `files` that its episode left, as `assay score` scores a row
    with this output."""
    return score_answer(task, Answer(text, truncated, files=files or {}))


def load(folder: str | Path) -> list[Words]:
    """Read the tasks of an exported folder, its families added. Raises `TaskError`."""
    folder = Path(folder)
    settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    use_families(str(spec) for spec in settings["families"])
    return [in_words(task) for task in read_tasks(folder / TASKS)]


def bare(task: Task) -> dict[str, Any]:
    """Write the task as a row without files, which a text does not need."""
    return replace(task, files={}, tools=()).to_json()


def settings_of(specs: Iterable[str], env: Iterable[str] = ()) -> Mapping[str, Any]:
    """Write what stands in `assay.json`: families and environments of one's own, by whole paths."""
    return {"families": list(specs), "env": list(env)}
