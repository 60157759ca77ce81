"""Saying a recipe in plain words, and reading it back.

Every operator has a few surface forms, none with an operator or parameter name. The forms are
distinct, so `read_requirement` recovers the exact recipe; tasks are built only from wordings that
read back to themselves, which is what makes the instruction sufficient for the answer.

This is the demo's grammar, short enough for a small model; CDR tasks have a larger one
(`data_gen.cdr.language`, `data_gen.cdr.instruct`). The two stay apart because measured training
runs depend on these words byte by byte.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from assay.files import yaml_beside
from data_gen.demo.inject import pick
from rewards.gold import Step

POLARITIES = ("reject", "keep")
_FORMS = yaml_beside(__file__, "forms.yaml")
MAPPER_FORMS: dict[str, list[str]] = _FORMS["mappers"]

# (operator, direction) → (forms that say when to reject, forms that say when to keep).
FILTER_FORMS: dict[tuple[str, ...], tuple[list[str], ...]] = {
    tuple(name.split()): tuple(said[polarity] for polarity in POLARITIES)
    for name, said in _FORMS["filters"].items()
}
FILTERS = tuple(dict.fromkeys(name for name, _ in FILTER_FORMS))
_KEYS = {
    "text_length_filter": ("min_len", "max_len", 1),
    "words_num_filter": ("min_num", "max_num", 1),
    "maximum_line_length_filter": ("min_len", "max_len", 1),
    "alphanumeric_filter": ("min_ratio", "max_ratio", 100),
}


def filter_step(name: str, direction: str, number: int) -> Step:
    """The filter the words stand for. Percentages become ratios; the lower bound that the operator
    would add to a `max` filter by default is switched off, because no word of the task says it."""
    low, high, scale = _KEYS[name]
    bound: int | float = number / scale if scale > 1 else number
    return Step(name, {low: bound} if direction == "min" else {low: 0, high: bound})


def filter_number(step: Step) -> tuple[str, int]:
    """(direction, spoken number) of a filter step; the inverse of `filter_step`."""
    low, high, scale = _KEYS[step.operator]
    direction = "max" if high in step.params else "min"
    return direction, round(step.params[high if direction == "max" else low] * scale)


def say_step(step: Step, rng: Random, forms: int = 3, polarity: str = "reject") -> str:
    """One of the first `forms` surface forms of a step, in lower case."""
    if step.operator in MAPPER_FORMS:
        return pick(rng, MAPPER_FORMS[step.operator][:forms])
    direction, number = filter_number(step)
    options = FILTER_FORMS[(step.operator, direction)][POLARITIES.index(polarity)]
    return pick(rng, options[:forms]).format(n=number)


def say_recipe(
    steps: Sequence[Step], rng: Random, forms: int = 3, polarities: Sequence[str] = ("reject",)
) -> str:
    """The requirement: every step in order, as a list, a chain of sentences or a brief note."""
    clauses = [say_step(step, rng, forms, pick(rng, polarities)) for step in steps]
    style = pick(rng, STYLES[:forms]) if len(clauses) > 1 else "sentence"
    if style == "list":
        return " ".join(f"{i}. {_capital(clause)}." for i, clause in enumerate(clauses, 1))
    if style == "brief":
        return _capital("; ".join(clauses)) + "."
    if style == "chain":
        rest = "".join(f", then {clause}" for clause in clauses[1:])
        return f"First {clauses[0]}{rest}."
    return _capital(clauses[0]) + "."


STYLES = ("list", "chain", "brief")


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _patterns() -> list[tuple[str, str, str]]:
    """(pattern, operator, direction or ""), longest form first so that no form hides another."""
    rows = [(form, name, "") for name, forms in MAPPER_FORMS.items() for form in forms]
    for (name, direction), groups in FILTER_FORMS.items():
        rows += [(form, name, direction) for group in groups for form in group]
    rows.sort(key=lambda row: -len(row[0]))
    return [(re.escape(f).replace(r"\{n\}", r"(\d+)"), name, way) for f, name, way in rows]


_PATTERNS = _patterns()
_ANY = re.compile(
    "|".join(
        f"(?P<f{i}>{re.sub(r'[(](?=.d)', '(?:', p)})" for i, (p, _, _) in enumerate(_PATTERNS)
    ),
    re.IGNORECASE,
)


def read_requirement(text: str) -> list[Step]:
    """The recipe a requirement of this grammar stands for (empty for other text)."""
    steps: list[Step] = []
    for match in _ANY.finditer(text):
        pattern, name, direction = _PATTERNS[int((match.lastgroup or "f0")[1:])]
        if not direction:
            steps.append(Step(name, {}))
            continue
        number = re.fullmatch(pattern, match.group(), re.IGNORECASE)
        steps.append(filter_step(name, direction, int(number.group(1)) if number else 0))
    return steps
