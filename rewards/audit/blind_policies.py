"""Answers made without the work: from the prompt's own words, from constants, from other tasks.

A policy never sees the gold of the task it answers. Its texts are handed in through the family's
`forms`, so that the same idea is tried in every answer format that the family knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from assay.family import Family, as_answer
from assay.task import Answer, Task

MOST_WORDS = 200  # of a prompt that a policy may list
_WORD = re.compile(r"[^\W\d_][\w'-]*")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
_QUOTED = re.compile(r"'([^'\n]{1,80})'|\"([^\"\n]{1,80})\"|`([^`\n]{1,80})`")


@dataclass(frozen=True)
class Shown:
    """What a prompt shows, in the pieces that a policy may use."""

    whole: str
    after: str  # below the last line that ends in a colon, else below the first line
    last: str  # the last line
    colon: str  # behind the first colon
    words: tuple[str, ...]
    numbers: tuple[str, ...]
    quoted: tuple[str, ...]


@lru_cache(maxsize=512)
def _read(text: str) -> Shown:
    lines = text.split("\n")
    ends = [i for i, line in enumerate(lines[:-1]) if line.rstrip().endswith(":")]
    after = "\n".join(lines[(ends[-1] if ends else 0) + 1 :])
    words = tuple(dict.fromkeys(_WORD.findall(text)))[:MOST_WORDS]
    numbers = tuple(dict.fromkeys(_NUMBER.findall(text)))[:MOST_WORDS]
    quoted = tuple(dict.fromkeys(a or b or c for a, b, c in _QUOTED.findall(text)))[:MOST_WORDS]
    colon = text.partition(":")[2].strip()
    return Shown(text, after, lines[-1], colon, words, numbers, quoted)


def shown(task: Task) -> Shown:
    """The pieces of the task's last user message."""
    said = [str(m.get("content") or "") for m in task.prompt if m.get("role") == "user"]
    return _read(said[-1] if said else "")


Piece = Callable[[Shown], str]


def _listed(values: Sequence[str]) -> str:
    return json.dumps(list(values), ensure_ascii=False)


# What a policy may write, by name: each says nothing that the prompt does not say.
PIECES: Mapping[str, Piece] = {
    "the prompt": lambda s: s.whole,
    "the text below": lambda s: s.after,
    "the last line": lambda s: s.last,
    "behind the colon": lambda s: s.colon,
    "first number": lambda s: s.numbers[0] if s.numbers else "0",
    "last number": lambda s: s.numbers[-1] if s.numbers else "0",
    "first quoted": lambda s: s.quoted[0] if s.quoted else "",
    "last quoted": lambda s: s.quoted[-1] if s.quoted else "",
    "a list of all numbers": lambda s: "[" + ", ".join(s.numbers) + "]",
    "a list of all words": lambda s: _listed(s.words),
    "a list of all quoted": lambda s: _listed(s.quoted),
    "all words, or": lambda s: " or ".join(s.words),
    "all quoted, or": lambda s: " or ".join(s.quoted),
}
CONSTANTS: tuple[str, ...] = (
    "",
    "0",
    "1",
    "-1",
    "100",
    "yes",
    "no",
    "true",
    "unknown",
    "none",
    "[]",
    "{}",
    "null",
    "NaN",
    "1e308",
)
HEDGES: Mapping[str, str] = {
    "hedge: yes or no": "yes or no",
    "hedge: 0 to 100": "[" + ", ".join(str(i) for i in range(101)) + "]",
    "hedge: 0 or 1 or 2": "0 or 1 or 2 or 3",
    "500 null keys": json.dumps({f"key{i}": None for i in range(500)}),
    "tags": "<answer></answer><status>KEEP</status><clean_text></clean_text>" * 20,
    "filler": "the " * 500,
}


def in_form(family: Family, form: str, task: Task, text: str) -> Answer:
    """The text handed in by one of the family's forms."""
    return as_answer(family.forms[form](task, text))


@dataclass(frozen=True)
class Policy:
    """One way to answer any task of a family: a form, and the text it is given."""

    name: str
    answer: Callable[[Task], Answer]


def fixed_policies(family: Family) -> Iterator[Policy]:
    """Every piece, constant and hedge in every form of the family."""
    texts: dict[str, Callable[[Task], str]] = {
        name: lambda task, piece=piece: piece(shown(task)) for name, piece in PIECES.items()
    }
    texts |= {f"constant {c!r}": lambda task, c=c: c for c in CONSTANTS}
    texts |= {name: lambda task, text=text: text for name, text in HEDGES.items()}
    for form in family.forms:
        for name, text in texts.items():
            yield Policy(
                _named(family, form, name),
                lambda task, form=form, text=text: in_form(family, form, task, text(task)),
            )


def _named(family: Family, form: str, name: str) -> str:
    return name if len(family.forms) == 1 else f"{name} [{form}]"
