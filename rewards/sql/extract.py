"""The SQL query in a model's message: the last fenced block."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = 20_000  # characters of a query
_LABELS = ("", "sql", "sqlite", "sqlite3")
_FENCE = re.compile(r"^ {0,3}```[ \t]*(\S*)[^\n`]*$", re.MULTILINE)


@dataclass(frozen=True)
class Extracted:
    """`sql` is "" unless `why` is `ok`; else `why` says what is missing."""

    sql: str
    why: str = "ok"


def extract(text: str) -> Extracted:
    """The query of the last closed block of three backticks. Never raises.

    A block may be labelled `sql` or `sqlite` or have no label. `why` is `no_answer` (no closed
    block), `other_language`, `empty` or `too_long`.
    """
    marks = list(_FENCE.finditer(text)) if "```" in text else []
    blocks: list[tuple[str, str]] = []
    at = 0
    while at + 1 < len(marks):
        opening, closing = marks[at], marks[at + 1]
        if closing.group(1):  # an opening that nothing closes, then another
            at += 1
            continue
        blocks.append((opening.group(1).lower(), text[opening.end() : closing.start()]))
        at += 2
    if not blocks:
        return Extracted("", "no_answer")
    label, body = blocks[-1]
    sql = body.strip()
    if label not in _LABELS:
        return Extracted("", "other_language")
    if not sql:
        return Extracted("", "empty")
    return Extracted(sql) if len(sql) <= LONGEST else Extracted("", "too_long")


def fenced(sql: str) -> str:
    """The message that hands in a query; `extract(fenced(sql)).sql == sql` for a trimmed query
    without a line that begins with a fence."""
    return f"```sql\n{sql}\n```"
