"""Clauses: one step of a recipe in words, and the reader that turns words back into steps.

The reader is the proof behind every written instruction: it accepts exactly the phrases of
`rewards.cdr.phrases`, wherever they stand in a text, in order. Numbers are spoken exactly
(ratios as percentages), so the recipe that comes back is the recipe that went in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, TypeVar

from rewards.cdr.phrases import (
    CONDITIONS,
    DETERMINERS,
    FILTER_FRAMES,
    MOODS,
    NOUNS,
    SENTENCES,
    VERBS,
)
from rewards.gold import RECIPE_PARAMS, Step

T = TypeVar("T")
NUMBER = r"\d[\d,]*(?:\.\d+)?(?: ?%| per ?cent)?"


@dataclass(frozen=True)
class Clause:
    """Where in a text a step is said."""

    start: int
    end: int
    step: Step


def pick(rng: Random, options: Sequence[T]) -> T:
    """One option; through `random()` alone, whose sequence no Python version has changed."""
    return options[int(rng.random() * len(options))]


def speakable(step: Step) -> bool:
    """Whether the grammar has words for a step with exactly these parameters."""
    if step.operator in NOUNS or step.operator in SENTENCES:
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


def say_step(step: Step, mood: str, rng: Random, forms: int = 0) -> str:
    """A step as a clause in a mood, lower case; `forms` limits the choice to the first ones.

    Raises ValueError for a step the grammar has no words for.
    """
    if not speakable(step):
        raise ValueError(f"no words for {step.operator} with {step.params}")

    def some(options: Sequence[T]) -> T:
        return pick(rng, options[: forms or None])

    if step.operator in SENTENCES:
        return some(SENTENCES[step.operator])[MOODS.index(mood)]
    if step.operator in NOUNS:
        return _say_deletion(some(NOUNS[step.operator]), mood, some)
    ((key, value),) = step.params.items()
    side = int(rng.random() * 2)
    condition = some(CONDITIONS[step.operator, key][side])
    frame = some(FILTER_FRAMES[mood][side])
    return frame.format(c=condition.format(n=say_number(key, value, rng)))


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


@cache
def _reader() -> tuple[re.Pattern[str], dict[str, Step | tuple[str, str]]]:
    """The pattern of all clauses, and what each of its groups stands for."""
    meanings: dict[str, Step | tuple[str, str]] = {}
    nouns: list[tuple[str, str]] = []
    for name, options in NOUNS.items():
        group = f"m{len(meanings)}"
        meanings[group] = Step(name, dict(RECIPE_PARAMS.get(name, {})))
        nouns += [(noun, group) for noun in options]
    # One group an operator and mood, longest noun first so that none hides another.
    verb, ing, done = (_any([v[i] for v in VERBS]) for i in range(3))
    the = _any(DETERMINERS)
    alternatives: list[tuple[int, str]] = []
    for mood in ("active", "passive", "negative"):
        for noun, group in nouns:
            key = f"{group}{mood[0]}{len(alternatives)}"
            meanings[key] = meanings[group]
            word = re.escape(noun)
            body = {
                "active": rf"(?:{verb}|{ing}) {the}{word}",
                "passive": rf"{the}{word} are {done}",
                "negative": rf"no {word}",
            }[mood]
            alternatives.append((len(noun), f"(?P<{key}>{body})"))
    for name, forms in SENTENCES.items():
        for form in forms:
            for said in form:
                key = f"s{len(alternatives)}"
                meanings[key] = Step(name, dict(RECIPE_PARAMS.get(name, {})))
                alternatives.append((len(said), f"(?P<{key}>{re.escape(said)})"))
    for (name, bound), sides in CONDITIONS.items():
        for side, conditions in enumerate(sides):
            frames = [f for mood in MOODS for f in FILTER_FRAMES[mood][side]]
            before = _any([f.split("{c}")[0] for f in frames])
            for condition in conditions:
                key = f"f{len(alternatives)}"
                meanings[key] = (name, bound)
                left, right = condition.split("{n}")
                body = rf"{before}{re.escape(left)}(?:{NUMBER}){re.escape(right)}"
                alternatives.append((len(condition) + 30, f"(?P<{key}>{body})"))
    alternatives.sort(key=lambda pair: -pair[0])
    pattern = rf"(?<!\w)(?:{'|'.join(p for _, p in alternatives)})(?!\w)"
    return re.compile(pattern, re.IGNORECASE), meanings


def read_clauses(text: str) -> list[Clause]:
    """Every clause of the grammar in a text, in order. Other words are passed over."""
    pattern, meanings = _reader()
    found: list[Clause] = []
    for match in pattern.finditer(text):
        meaning = meanings[match.lastgroup or ""]
        if isinstance(meaning, Step):
            step = Step(meaning.operator, dict(meaning.params))
        else:
            name, bound = meaning
            numbers = re.findall(NUMBER, match.group())
            step = Step(name, {bound: read_number(bound, numbers[-1])})
        found.append(Clause(match.start(), match.end(), step))
    return found


def read_steps(text: str) -> list[Step]:
    """The recipe a text of this grammar stands for (empty for other text)."""
    return [clause.step for clause in read_clauses(text)]
