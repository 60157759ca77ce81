"""What a rewording of a question must keep, and the check that it does. No model takes part in it.

The check proves that every fact stands in the rewording and that none came to it. It cannot prove
that a sentence means the same: facts whose order or neighbours carry meaning are named in `Facts`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assay.files import yaml_beside
from data_gen.tally import Refusal

SHORTEST, LONGEST, SLACK = 0.4, 2.0, 100  # length of a rewording, in lengths of the question

_QUOTED = (
    r"(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w))*'(?!\w)|\"[^\"\n]*\"|`[^`\n]*`|“[^”\n]*”|‘[^’\n]*’(?!\w)"
)
_NUMBER = r"(?<![\w.])[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?%?(?!\w)"
_FILE = re.compile(r"(?<![\w.])[\w-]+\.[A-Za-z]{2,8}\d?(?!\w)")
_PLAIN = frozenset(".,;:?!'’()-–—/%")  # marks that any sentence may have
_CHATTER = re.compile(
    r"(?i)^(sure|certainly|of course|here(?:'s| is| are)|okay|ok\b|i'd be|as an ai|reworded"
    r"|rewritten)"
    r"|://|\bhere is (?:the|your|a) (?:reworded|rewritten)"
)
# words of one line may stand for each other; each line is in both texts or in neither
_MEANINGS = [
    re.compile(rf"(?i)\b(?:{words})\b") for words in yaml_beside(__file__, "meanings.yaml")
]
Token = tuple[str, bool]  # (as written, whether it is a number)


@dataclass(frozen=True)
class Facts:
    """What a rewording must keep beside numbers and quoted names, which are found by themselves.

    `literals` (file names, sentences that say how to answer) stand in it to the letter. The parts
    of each of `together` follow one another with no other fact between them ("'Area'", "above",
    "30"); the first mentions of each of `in_order` keep their order: both as far as the question
    itself has them so. No text of `gold` may come in.
    """

    literals: tuple[str, ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    in_order: tuple[tuple[str, ...], ...] = ()
    gold: tuple[str, ...] = ()


def named(question: str, facts: Facts) -> list[str]:
    """What must stand in a rewording to the letter, each once, in the order of the question."""
    return list(dict.fromkeys(text for text, _ in _tokens(question, facts.literals)))


def lacks(question: str, text: str, facts: Facts) -> Refusal | None:
    """Why a rewording may not stand for the question; None when it may."""
    return (
        malformed(question, text)
        or _facts(question, text, facts)
        or _meaning(question, text, facts)
    )


def malformed(question: str, text: str) -> Refusal | None:
    """Why a text is no question in other words, whatever it says; None when it may be one."""
    if not text.strip():
        return Refusal("empty")
    if "\n" in text and "\n" not in question:
        return Refusal("several lines")
    if not all(c.isprintable() or c == "\n" for c in text):
        return Refusal("control characters")
    if _CHATTER.search(text) and not _CHATTER.search(question):
        return Refusal("more than the question")
    if len(text) < SHORTEST * len(question):
        return Refusal("too short")
    if len(text) > LONGEST * len(question) + SLACK:
        return Refusal("too long")
    odd = {c for c in text if not c.isalnum() and not c.isspace()} - set(question) - _PLAIN
    return Refusal("new marks") if odd - set('"“”‘`') else None


def _facts(question: str, text: str, facts: Facts) -> Refusal | None:
    asked = _tokens(question, facts.literals)
    said = _tokens(text, [t for t, number in asked if not number])
    numbers, given = _numbers(asked), _numbers(said)
    rest = _rest(text, said)
    if new := sorted(given.keys() - numbers.keys()):
        return Refusal("a new number", new[0])
    if any(c.isdigit() for c in rest):
        return Refusal("a new number")
    if lost := sorted((numbers - given).keys()):
        return Refusal("a number is lost", lost[0])
    if numbers != given:
        return Refusal("a number is said again", sorted((given - numbers).keys())[0])
    names, kept = _names(asked), _names(said)
    if lost := sorted(names.keys() - kept.keys()):
        return Refusal("lost", lost[0][:80])
    if new := sorted(kept.keys() - names.keys()):
        return Refusal("a new quoted value", new[0][:80])
    for literal in facts.literals:  # a sentence said twice, or one of two mentions left out
        if literal in names and " " in literal and kept[literal] != names[literal]:
            return Refusal("said again", literal[:80])
    return Refusal("a new file name") if _FILE.search(rest) else None


def _meaning(question: str, text: str, facts: Facts) -> Refusal | None:
    known = [t for t, number in _tokens(question, facts.literals) if not number]
    before, after = _rest(question, _tokens(question, known)), _rest(text, _tokens(text, known))
    for pattern in _MEANINGS:
        one, two = pattern.search(before), pattern.search(after)
        if bool(one) != bool(two):
            found = one or two
            word = found.group(0).lower() if found else ""
            return Refusal(f"{'lost' if one else 'new'} word", word)
        before, after = pattern.sub(" ", before), pattern.sub(" ", after)
    for group in facts.together:
        asked, said = (_listed(one, [*known, *group]) for one in (question, text))
        if _adjoin(asked, group) and not _adjoin(said, group):
            return Refusal("parted", " ".join(group)[:80])
    for group in facts.in_order:
        asked, said = (_listed(one, [*known, *group]) for one in (question, text))
        if _ordered(asked, group) and not _ordered(said, group):
            return Refusal("another order", " ".join(group)[:80])
    for answer in facts.gold:
        if _holds(text, answer) and not _holds(question, answer):
            return Refusal("the answer is in it")
    return None


def _pattern(known: Iterable[str]) -> re.Pattern[str]:
    """Known texts, longer ones first, then quoted texts, then numbers."""
    fixed = sorted({k for k in known if k}, key=lambda k: (-len(k), k))
    edged = [
        ("(?<![\\w./-])" if k[0].isalnum() else "")
        + re.escape(k)
        + ("(?!\\w)" if k[-1].isalnum() else "")
        for k in fixed
    ]
    return re.compile("|".join([*edged, _QUOTED, f"(?P<number>{_NUMBER})"]))


def _tokens(text: str, known: Iterable[str]) -> list[Token]:
    wanted = set(known)
    return [
        (m.group(0), m.group("number") is not None and m.group(0) not in wanted)
        for m in _pattern(wanted).finditer(text)
    ]


def _rest(text: str, tokens: Sequence[Token]) -> str:
    """The text without its facts."""
    return _pattern([t for t, number in tokens if not number]).sub(" ", text)


def _numbers(tokens: Sequence[Token]) -> Counter[str]:
    return Counter(t for t, number in tokens if number)


def _names(tokens: Sequence[Token]) -> Counter[str]:
    return Counter(t for t, number in tokens if not number)


def _listed(text: str, known: Iterable[str]) -> list[str]:
    return [t for t, _ in _tokens(text, known)]


def _ordered(said: Sequence[str], group: Sequence[str]) -> bool:
    places = [said.index(part) if part in said else -1 for part in group]
    return -1 not in places and sorted(places) == places


def _adjoin(said: Sequence[str], group: Sequence[str]) -> bool:
    size = len(group)
    return any(list(said[i : i + size]) == list(group) for i in range(len(said) - size + 1))


def _holds(text: str, part: str) -> bool:
    return bool(part.strip()) and bool(
        re.search(rf"(?i)(?<!\w){re.escape(part.strip())}(?!\w)", text)
    )
