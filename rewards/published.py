"""Knowing the questions of published evaluation sets again, by content.

`published.json` beside this file holds hashes and no text: of each evaluation database the
questions that name its columns, and lines of its description that no other database has.
Trajectories and tasks that a model is to learn from are looked up here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from assay.task import Task, TaskError, refuse_without_gold

FILE = Path(__file__).with_name("published.json")
ENOUGH = 2  # lines of a database's description in one chat: the chat is about that database
LEAST = 40  # characters of a line that says anything
LONGEST = 20_000  # characters of a question; what is longer holds a document
_BREAK = re.compile(r"\\r|\\n|[\r\n]")  # tools may answer in JSON, where line ends are escaped


@cache
def _known() -> tuple[frozenset[str], Mapping[str, str], Mapping[str, str]]:
    """(names of databases, hash of a question → its database, hash of a line → its database)."""
    rows: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    questions, lines = (
        {h: row["name"] for row in rows for h in row[field]} for field in ("questions", "lines")
    )
    return frozenset(row["name"] for row in rows), questions, lines


def text_hash(text: str) -> str:
    """16 hexadecimal digits of a text, whatever its case and white space."""
    bare = " ".join(text.split()).casefold()
    return hashlib.sha256(bare.encode("utf-8", "replace")).hexdigest()[:16]


def lines_of(text: str) -> Iterator[str]:
    """The lines of a text that are long enough to be known again."""
    for line in _BREAK.split(text):
        if len(line) >= LEAST and len(" ".join(line.split())) >= LEAST:
            yield line


def _strings(said: Any) -> Iterator[str]:
    """A text; of one in JSON, as tools answer, the texts in it."""
    if isinstance(said, str) and said.lstrip()[:1] in ("{", "["):
        try:
            said = json.loads(said)
        except (ValueError, RecursionError):
            yield said
            return
    if isinstance(said, str):
        yield said
    elif isinstance(said, dict | list):
        inner = cast("dict[str, Any] | list[Any]", said)
        for value in inner.values() if isinstance(inner, dict) else inner:
            yield from _strings(value)


def published_database(
    questions: Iterable[str], answers: Iterable[str] = (), names: Iterable[str] = ()
) -> str:
    """The published evaluation database that a task or chat is about, "" for none.

    `questions` are what is asked: one of them is recognised as a whole. In `answers`, what tools
    said, two lines of a description are enough. `names` are what a row says of itself; a
    database's name (`NAME` or `NAME:VARIANT`) is enough. A question that names nothing but a target
    and files is like those of other databases; of it nothing is said.
    """
    databases, known, lines = _known()
    for name in names:
        if name.partition(":")[0] in databases:
            return name.partition(":")[0]
    for text in questions:
        if len(text) <= LONGEST and (name := known.get(text_hash(text))):
            return name
    said = (line for text in answers for part in _strings(text) for line in lines_of(part))
    seen = {h for h in map(text_hash, said) if h in lines}
    (name, count), *_ = Counter(lines[h] for h in seen).most_common(1) or [("", 0)]
    return name if count >= ENOUGH else ""


def refuse_published(tasks: Iterable[Task], where: str | Path) -> None:
    """Raise `TaskError` for a published benchmark's task, known by its mark or by its question, or
    one whose gold is doubted: they are for evaluation, and never train anything; and for a task
    without gold."""
    for task in tasks:
        refuse_without_gold([task], where)
        if task.meta.get("published"):
            raise TaskError(
                f"{where}: task {task.id} is a published benchmark task; train on generated ones "
                "and keep it for `assay eval`"
            )
        if name := published_database(str(message.get("content") or "") for message in task.prompt):
            raise TaskError(
                f"{where}: task {task.id} asks a question of {name}, a published evaluation "
                "database; leave it out of what is trained on"
            )
        if task.gold.get("doubt"):
            raise TaskError(
                f"{where}: task {task.id} has doubted gold ({task.gold['doubt']}); leave it out"
            )
