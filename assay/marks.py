"""What of a task must not meet it again, as 63-bit marks: its contents, its tables, what it asks.

Marks say whether two tasks are one without keeping either: a model's record of what it was trained
on (`train/run/trained_on.py`) and the rows of rollouts hold nothing else.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from assay.family import Family, called, family_of
from assay.fingerprints import Known, KnownNumbers, TableMarks, packed
from assay.task import GOLD_LEFT_OUT, Task

MASK = (1 << 63) - 1  # positive, and an int64 for every reader of JSON and parquet


def normal(text: str) -> str:
    """The text without what an eye overlooks: case, runs of space, and forms of characters."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def contents(task: Task) -> list[str | TableMarks]:
    """`Family.content` of a task. Raises `TaskError` naming the task where it raises."""
    family = family_of(task)
    if task.meta.get(GOLD_LEFT_OUT):  # what is left is what a model reads
        return [str(m.get("content") or "") for m in task.prompt if m.get("role") == "user"]
    with called(family, task, "content"):
        found = list(family.content(task))
    return [one if isinstance(one, TableMarks) else str(one) for one in found]


@dataclass(frozen=True)
class Marks:
    """One of `texts` is enough to know the task again; a table counts by most of its marks."""

    texts: tuple[int, ...]
    tables: tuple[TableMarks, ...] = ()

    def flat(self) -> list[int]:
        """All of them, each once, in order; behind them the sketches of each table's columns of
        numbers (`packed`), which begin with a negative number."""
        own = [mark for table in self.tables for mark in (*table.columns, *table.rows)]
        sketches = sorted({tuple(packed(table.numbers)) for table in self.tables})
        return [*sorted({*self.texts, *own}), *chain.from_iterable(sketches)]

    def within(self, known: Known, measured: KnownNumbers) -> bool:
        """Whether these are marks of something in a set: `known` says of each mark whether it is
        in the set, `measured` of a table's columns of numbers whether a table there has them."""
        if any(known(self.texts)):
            return True
        return any(table.within(known, measured) for table in self.tables)


def text_mark(text: str) -> int:
    """The mark of a text, the same but for case, space and forms of characters."""
    digest = hashlib.sha256(normal(text).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") & MASK


def asked_mark(messages: Iterable[Mapping[str, Any]], *of: str) -> int:
    """The mark of what a chat says before the model's first turn; `of`: what belongs to it beside
    the words."""
    said: list[str] = ["asked", *of]
    for message in messages:
        if message.get("role") == "assistant":
            break
        said.append(str(message.get("content") or ""))
    return text_mark("\x1f".join(said))


def marks_of(task: Task) -> Marks:
    """The marks of a task whose files have paths that can be opened from here.

    Two tasks with the same words and no files are one. With files the words may be the same for
    every task ("predict the kind"), so that there the id counts too. So they may where a family of
    somebody's own says itself what its content is: there the content counts.
    """
    found = contents(task)
    said = [text for text in found if isinstance(text, str) and normal(text)]
    family = family_of(task)
    own: tuple[str, ...] = (task.family, task.id) if task.files else ()
    if not own and family.origin and family.content is not Family.content:
        own = (task.family, *map(normal, said))
    texts = map(text_mark, said)
    tables = tuple(table for table in found if isinstance(table, TableMarks))
    return Marks((asked_mark(task.prompt, *own), *texts), tables)


def row_marks(row: Mapping[str, Any]) -> list[int]:
    """The marks of a row that something is learned from: those it brings (`assay rollout` writes
    them, `assay select` keeps them), else of the chat that it is."""
    if brought := row.get("marks"):
        return [int(mark) for mark in brought]
    return [asked_mark(row["messages"])] if isinstance(row.get("messages"), list) else []
