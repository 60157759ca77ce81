"""Clauses: one step of a recipe in words, and the reader that turns words back into steps.

The reader is the proof behind every written instruction: it accepts exactly the phrases of
`phrases.yaml`, wherever they stand in a text, in order. Numbers are spoken exactly
(ratios as percentages), so the recipe that comes back is the recipe that went in.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
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


# What ends a clause behind its first words, and what it says: operator, bound, manner. Behind the
# words before a number stands the number.
Ending = tuple[re.Pattern[str], str, str, int]
_WORD = re.compile(r"\w+")
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


@cache
def _beginnings() -> tuple[dict[str, list[Ending]], dict[str, list[int]]]:
    """(endings by what clauses begin with, all of it or up to the number; how long beginnings with
    a first word are; all with the longest first, so that none hides another)."""
    found: dict[str, list[Ending]] = {}
    for name, manner, form in _all_forms():
        for said in _ways(form):
            found.setdefault(said.translate(_LOWER), []).append((_ending(""), name, "", manner))
    for manner, known in enumerate((CONDITIONS, CONDITIONS_TO_THE_LETTER)):
        for (name, bound), sides in known.items():
            for side, conditions in enumerate(sides):
                frames = [f.split("{c}")[0] for mood in MOODS for f in FILTER_FRAMES[mood][side]]
                for frame, condition in product(frames, conditions):
                    left, right = (frame + condition).translate(_LOWER).split("{n}")
                    ending = _ending(f"{NUMBER}{re.escape(right)}")
                    found.setdefault(left, []).append((ending, name, bound, manner))
    sizes: dict[str, set[int]] = {}
    for said, endings in found.items():
        endings.sort(key=lambda ending: -len(ending[0].pattern))
        sizes.setdefault(_WORD.findall(said)[0], set()).add(len(said))
    return found, {head: sorted(own, reverse=True) for head, own in sizes.items()}


def _ways(form: Form) -> Iterator[str]:
    """Every clause that a form of a mapper gives."""
    if not isinstance(form, str):
        yield from form.values()
        return
    yield f"no {form}"
    for determiner, (imperative, gerund, participle) in product(DETERMINERS, VERBS):
        yield f"{imperative} {determiner}{form}"
        yield f"{gerund} {determiner}{form}"
        yield f"{determiner}{form} are {participle}"


@cache
def _ending(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"{pattern}(?!\w)")


def read_clauses(text: str) -> list[Clause]:
    """Every clause of the grammar in a text, in order. Other words are passed over; the case of
    ASCII letters does not matter."""
    text = text.translate(_LOWER)
    found: list[Clause] = []
    for word in _WORD.finditer(text):
        if not found or word.start() >= found[-1].end:
            clause = _clause_at(text, word.start(), word[0])
            found += [clause] if clause else []
    return found


def _clause_at(text: str, start: int, head: str) -> Clause | None:
    """The clause that begins here with a word."""
    beginnings, sizes = _beginnings()
    for size in sizes.get(head, ()):
        at = start + size
        for pattern, name, bound, manner in beginnings.get(text[start:at], ()):
            if not (end := pattern.match(text, at)):
                continue
            params: Any = RECIPE_PARAMS.get(name, {})
            if bound:
                params = {bound: read_number(bound, re.findall(NUMBER, end[0])[0])}
            return Clause(start, end.end(), Step(name, dict(params)), manner)
    return None
