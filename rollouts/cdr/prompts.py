"""The messages of a refinement task, by prompt mode (spec section 11), in words from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from assay.task import Message, Task
from rewards.parse import render
from rollouts.cdr.words import ANALYSIS, FORMATS, MODES, SLOTS
from rollouts.words.templates import Kind, Words, ours

__all__ = ["KIND", "MODES", "Example", "messages"]

MARK = "words"  # in a task's meta: the hash of the words that it is asked in, where not ours


class Example(NamedTuple):
    """A solved task as a prompt shows it."""

    requirement: str
    text: str
    status: str
    result: str


def messages(
    requirement: str,
    text: str,
    mode: str = "direct",
    output_format: str = "tagged_text",
    examples: Sequence[Example] = (),
    words: Words | None = None,
) -> list[Message]:
    """System and user message; `examples` are those of few_shot, () for the fixed ones of the
    words. Raises ValueError for a mode that does not exist."""
    if mode not in MODES:
        raise ValueError(f"mode={mode!r}: wanted one of {', '.join(MODES)}")
    words = words or ours(KIND)
    form = FORMATS.get(output_format, "")
    shown = "\n\n".join(
        words.fill(
            "example",
            number=i,
            requirement=one.requirement,
            input=one.text,
            output=render(one.status, one.result),
        )
        for i, one in enumerate(examples, 1)
    )
    user = words.fill(
        form or mode,
        requirement=requirement,
        input=text,
        contract=words["contract"],
        examples=shown or words["examples"],
    )
    system = words["system_analysis" if mode in ANALYSIS and not form else "system"]
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _asks(task: Task) -> bool:
    own = isinstance(task.meta.get("requirement"), str) and "input_text" in task.gold
    return own and (task.family == "structured" or "mode" in task.gold)


def _ask(task: Task, words: Words) -> Task:
    """The task in these words; in few_shot behind their fixed examples. One that is asked in them
    already stays as it is."""
    if not _asks(task) or task.meta.get(MARK, ours(KIND).hash) == words.hash:
        return task
    form = task.gold.get("output_format")
    if form is None:
        form = "json" if task.family == "structured" else "tagged_text"
    mode = str(task.gold.get("mode") or "direct")
    said = (str(task.meta["requirement"]), str(task.gold["input_text"]))
    meta = {k: v for k, v in task.meta.items() if k != "examples"}
    if words.source != "ours":
        meta[MARK] = words.hash
    return replace(task, prompt=messages(*said, mode, str(form), words=words), meta=meta)


KIND = Kind("refinement", SLOTS, Path(__file__).with_name("words.yaml"), _asks, _ask)
