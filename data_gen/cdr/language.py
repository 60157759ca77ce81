"""Clauses: one step of a recipe in words, and the reader that turns words back into steps.

The reader is the proof behind every written instruction: it accepts exactly the phrases of
`phrases.yaml`, wherever they stand in a text, in order. Numbers are spoken exactly
(ratios as percentages), so the recipe that comes back is the recipe that went in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, TypeVar

from assay.files import yaml_beside
from rewards.gold import RECIPE_PARAMS, Step

T = TypeVar("T")
Form = str | Mapping[str, str]  # a noun, or a sentence in all moods
Sides = tuple[Sequence[str], Sequence[str]]  # of a rejecting filter, of a keeping one
MOODS = ("imperative", "gerund", "statement", "negative")
_WORDS: dict[str, Any] = yaml_beside(__file__, "phrases.yaml")
VERBS: Sequence[Sequence[str]] = _WORDS["VERBS"]
DETERMINERS: Sequence[str] = _WORDS["DETERMINERS"]
NOUNS: Mapping[str, Sequence[str]] = _WORDS["NOUNS"]
SENTENCES: Mapping[str, Sequence[Mapping[str, str]]] = _WORDS["SENTENCES"]
FORMS: dict[str, Sequence[Form]] = {**NOUNS, **SENTENCES}  # of every mapper, the short ones
TO_THE_LETTER: Mapping[str, Sequence[Sequence[Form]]] = _WORDS["TO_THE_LETTER"]


def _sides(said: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, Sides]:
    return {name: (own["rejected"], own["kept"]) for name, own in said.items()}


# of "filter bound"; the short ones, and those to the letter
CONDITIONS, CONDITIONS_TO_THE_LETTER = (
    {(key.split()[0], key.split()[1]): own for key, own in _sides(_WORDS[name]).items()}
    for name in ("CONDITIONS", "CONDITIONS_TO_THE_LETTER")
)
FILTER_FRAMES = _sides(_WORDS["FILTER_FRAMES"])
NUMBER = r"\d[\d,]*(?:\.\d+)?(?: ?%| per ?cent)?"


@dataclass(frozen=True)
class Clause:
    """Where in a text a step is said, and in which manner: 0 for the short words."""

    start: int
    end: int
    step: Step
    manner: int = 0


def pick(rng: Random, options: Sequence[T]) -> T:
    """One option; through `random()` alone, whose sequence no Python version has changed."""
    return options[int(rng.random() * len(options))]


def speakable(step: Step) -> bool:
    """Whether the grammar has words for a step with exactly these parameters."""
    if step.operator in FORMS:
        return step.params == RECIPE_PARAMS.get(step.operator, {})
    return len(step.params) == 1 and (step.operator, next(iter(step.params))) in CONDITIONS


def say_number(key: str, value: float, rng: Random) -> str:
    """A threshold as people write it: a share as a percentage, thousands with or without comma."""
    if key.endswith("_ratio"):
        percent = f"{round(value * 100, 6):.6f}".rstrip("0").rstrip(".")
        return percent + pick(rng, ("%", " %", " percent"))
    whole = int(value)
    return f"{whole:,}" if whole >= 1000 and rng.random() < 0.5 else str(whole)


def read_number(key: str, said: str) -> float | int:
    digits = re.sub(r"[^\d.]", "", said)
    return round(float(digits) / 100, 8) if key.endswith("_ratio") else int(float(digits))


def say_step(step: Step, mood: str, rng: Random, forms: int = 0, manner: int = 0) -> str:
    """A step as a clause in a mood, lower case; `forms` limits the choice to the first ones.

    Raises ValueError for a step the grammar has no words for.
    """
    if not speakable(step):
        raise ValueError(f"no words for {step.operator} with {step.params}")

    def some(options: Sequence[T]) -> T:
        return pick(rng, options[: forms or None])

    if step.operator in FORMS:
        form = some(_forms(step.operator, manner))
        if isinstance(form, str):
            return _say_deletion(form, mood, some)
        return form[mood]
    ((key, value),) = step.params.items()
    side = int(rng.random() * 2)
    known = CONDITIONS_TO_THE_LETTER if manner else CONDITIONS
    condition = some(known[step.operator, key][side])
    frame = some(FILTER_FRAMES[mood][side])
    return frame.format(c=condition.format(n=say_number(key, value, rng)))


def _forms(mapper: str, manner: int) -> Sequence[Form]:
    return TO_THE_LETTER[mapper][manner - 1] if manner else FORMS[mapper]


def _all_forms() -> Iterator[tuple[str, int, Form]]:
    """(mapper, manner, form) of all that turn a text into another."""
    for name in FORMS:
        for manner in range(1 + len(TO_THE_LETTER.get(name, ()))):
            for form in _forms(name, manner):
                yield name, manner, form


def _say_deletion(noun: str, mood: str, some: Callable[[Sequence[Any]], Any]) -> str:
    if mood == "negative":
        return f"no {noun}"
    imperative, gerund, participle = some(VERBS)
    determiner = some(DETERMINERS)
    if mood == "imperative":
        return f"{imperative} {determiner}{noun}"
    if mood == "gerund":
        return f"{gerund} {determiner}{noun}"
    return f"{determiner}{noun} are {participle}"


def _any(options: Sequence[str]) -> str:
    ranked = sorted(set(options), key=lambda o: (-len(o), o))
    return "(?:" + "|".join(map(re.escape, ranked)) + ")"


Meaning = tuple[Step, str, int]  # a step, the bound of a filter that is said, the manner


@dataclass(frozen=True)
class _Alternative:
    """One way of saying one step: the words it can begin with, and three patterns side by side.
    Many ways have the first and the last in common."""

    heads: frozenset[str]
    before: str
    pattern: str
    after: str
    meaning: Meaning


def _head(text: str) -> str:
    found = re.match(r"\w+", text)
    assert found, f"{text!r}: a phrase must begin with a word"
    return found.group().lower()


def _heads(options: Sequence[str]) -> frozenset[str]:
    return frozenset(map(_head, options))


@cache
def _alternatives() -> tuple[_Alternative, ...]:
    """Every clause of the grammar, longest first, so that none hides another."""
    found = [*_deletions(), *_sentences(), *_conditions()]
    return tuple(alternative for _, alternative in sorted(found, key=lambda pair: -pair[0]))


def _deletions() -> Iterator[tuple[int, _Alternative]]:
    verbs, gerunds, participles = ([v[i] for v in VERBS] for i in range(3))
    start, the = f"(?:{_any(verbs)}|{_any(gerunds)})", _any(DETERMINERS)
    said = [determiner for determiner in DETERMINERS if determiner]
    nouns = [form for form in _all_forms() if isinstance(form[2], str)]
    for mood in ("active", "passive", "negative"):
        for name, manner, noun in nouns:
            assert isinstance(noun, str)
            word = re.escape(noun)
            heads, before, after = {
                "active": (_heads([*verbs, *gerunds]), f"{start} {the}", ""),
                "passive": (_heads([*said, noun]), the, f" are {_any(participles)}"),
                "negative": (_heads(["no"]), "no ", ""),
            }[mood]
            step = Step(name, dict(RECIPE_PARAMS.get(name, {})))
            yield len(noun), _Alternative(heads, before, word, after, (step, "", manner))


def _sentences() -> Iterator[tuple[int, _Alternative]]:
    for name, manner, form in _all_forms():
        if isinstance(form, str):
            continue
        step = Step(name, dict(RECIPE_PARAMS.get(name, {})))
        for said in form.values():
            word = re.escape(said)
            yield len(said), _Alternative(_heads([said]), "", word, "", (step, "", manner))


def _conditions() -> Iterator[tuple[int, _Alternative]]:
    frames = FILTER_FRAMES
    for manner, known in enumerate((CONDITIONS, CONDITIONS_TO_THE_LETTER)):
        for (name, bound), sides in known.items():
            meaning = (Step(name), bound, manner)
            for side, conditions in enumerate(sides):
                starts = [f.split("{c}")[0] for mood in MOODS for f in frames[mood][side]]
                for condition in conditions:
                    left, right = (re.escape(part) for part in condition.split("{n}"))
                    body = f"{left}(?:{NUMBER}){right}"
                    said = _Alternative(_heads(starts), _any(starts), body, "", meaning)
                    yield len(condition) + 30, said


Reader = tuple[re.Pattern[str], tuple[Meaning, ...]]


@cache
def _begins() -> frozenset[str]:
    """Every word that a clause can begin with."""
    return frozenset(head for a in _alternatives() for head in a.heads)


def _reader_of(word: str) -> Reader | None:
    """What reads the clauses that can begin with a word; None where none can. Words are looked up
    before anything is kept: they are a model's, without end."""
    if word.isascii():
        head = word.lower()
        return _reader(head) if head in _begins() else None
    folded = word.translate(_LIKE_ASCII)
    return _any_reader() if folded.isascii() and folded.lower() in _begins() else None


# The letters beyond ASCII that IGNORECASE takes for ASCII ones.
_LIKE_ASCII = str.maketrans({"\u017f": "s", "\u212a": "k", "\u0130": "i", "\u0131": "i"})


@cache
def _reader(head: str) -> Reader:
    """The pattern of the clauses that can begin with a word, and what its groups stand for."""
    return _reader_for([a for a in _alternatives() if head in a.heads])


@cache
def _any_reader() -> Reader:
    """The same of all clauses, for words whose case is not plain."""
    return _reader_for(_alternatives())


def _reader_for(chosen: Sequence[_Alternative]) -> Reader:
    """What alternatives have in common is tried once for all of them."""
    alike: dict[tuple[str, str], list[_Alternative]] = {}
    for one in chosen:
        alike.setdefault((one.before, one.after), []).append(one)
    body = "|".join(
        f"{before}(?:{'|'.join(f'({one.pattern})' for one in group)}){after}"
        for (before, after), group in alike.items()
    )
    meanings = tuple(one.meaning for group in alike.values() for one in group)
    return re.compile(rf"(?:{body})(?!\w)", re.IGNORECASE), meanings


_WORD = re.compile(r"\w+")


def read_clauses(text: str) -> list[Clause]:
    """Every clause of the grammar in a text, in order. Other words are passed over.

    Clauses begin with a word; each word is tried against those that can begin with it, which
    finds what one pattern of all clauses finds, some ten times as fast.
    """
    found: list[Clause] = []
    at = 0
    for word in _WORD.finditer(text):
        if word.start() < at:  # inside the last clause, which ends with a word
            continue
        reader = _reader_of(word.group())
        match = reader[0].match(text, word.start()) if reader else None
        if reader is not None and match is not None:
            at = match.end()
            meaning = reader[1][int(match.lastindex or 1) - 1]
            found.append(Clause(word.start(), at, *_meant(meaning, match.group())))
    return found


def _meant(meaning: Meaning, said: str) -> tuple[Step, int]:
    step, bound, manner = meaning
    if not bound:
        return Step(step.operator, dict(step.params)), manner
    return Step(step.operator, {bound: read_number(bound, re.findall(NUMBER, said)[-1])}), manner
