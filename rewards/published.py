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

FILE = Path(__file__).with_name("published.json")
ENOUGH = 2  # lines of a database's description in one chat: the chat is about that database
LEAST = 40  # characters of a line that says anything
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


def published_database(texts: Iterable[str], names: Iterable[str] = ()) -> str:
    """The published evaluation database that the texts of one chat or task are about, "" for none.

    A question is recognised as a whole, a description by two lines of it, and a database by its own
    name where one of `names` is it (`NAME` or `NAME:VARIANT`). A question that names nothing but a
    target and files is like those of other databases; of it nothing is said.
    """
    databases, questions, lines = _known()
    for name in names:
        if name.partition(":")[0] in databases:
            return name.partition(":")[0]
    seen: set[str] = set()
    for text in texts:
        if name := questions.get(text_hash(text)):
            return name
        said = "\n".join(_strings(text))
        seen |= {h for h in map(text_hash, lines_of(said)) if h in lines}
    (name, count), *_ = Counter(lines[h] for h in seen).most_common(1) or [("", 0)]
    return name if count >= ENOUGH else ""
