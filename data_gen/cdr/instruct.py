"""Instructions in the benchmark's eleven styles, and the proof that each one says its recipe.

A style is a frame around clauses of `data_gen.cdr.language`. `read_instruction` accepts a text only
when clauses and frame account for every character of it, so what it returns is what the text says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from random import Random

from assay.files import yaml_beside
from assay.seeds import derive_seed
from assay.task import TaskError
from configs.cdr import InstructConfig
from data_gen.cdr.language import Clause, pick, read_clauses, say_step, speakable
from data_gen.cdr.outcome import Outcome, read_outcome, say_outcome
from data_gen.cdr.units import Asked
from rewards.cdr.release_files import sample_variants
from rewards.gold import Step

_MARK = "\ue000"


@dataclass(frozen=True)
class Style:
    """`openings` + clause (+ a join + clause)* + `closings`; a join may hold a running number."""

    id: str
    label: str
    mood: str
    openings: Sequence[str]
    joins: Sequence[str]
    closings: Sequence[str]


STYLES = tuple(Style(**row) for row in yaml_beside(__file__, "styles.yaml"))
_ORDER = re.compile(r"\b(?:order|sequence|one after the other|first|begin|1\.)", re.IGNORECASE)


class InstructionError(TaskError):
    """A text that is not an instruction of this grammar, or a recipe it has no words for."""


Manners = tuple[int, ...]  # of the words of every step; (): all are the short ones


def say(
    steps: Sequence[Step], style: Style, rng: Random, forms: int = 0, manners: Manners = ()
) -> str:
    """One instruction for a recipe. Raises `InstructionError` when a step cannot be spoken."""
    for step in steps:
        if not speakable(step):
            raise InstructionError(f"no words for {step.operator} with {step.params}")
    clauses = [
        say_step(step, style.mood, rng, forms, manner)
        for step, manner in zip(steps, manners or (0,) * len(steps), strict=True)
    ]
    several = len(steps) > 1
    opening = pick(rng, _fitting(style.openings, several))
    join = pick(rng, style.joins)
    if opening == "1. ":
        join = ". {number}. "
    elif several and "{number}" in join:
        opening = "1. "
    text = opening + clauses[0]
    for number, clause in enumerate(clauses[1:], 2):
        text += join.format(number=number) + clause
    text += pick(rng, _fitting(style.closings, several))
    return text[0].upper() + text[1:]


def _fitting(words: Sequence[str], several: bool) -> Sequence[str]:
    """A single step has no order to speak of."""
    return words if several else [w for w in words if not _ORDER.search(w)]


@cache
def _skeletons() -> list[tuple[Style, re.Pattern[str]]]:
    found: list[tuple[Style, re.Pattern[str]]] = []
    for style in STYLES:
        opening, closing = ("|".join(map(re.escape, p)) for p in (style.openings, style.closings))
        joins = "|".join(re.escape(j).replace(r"\{number\}", r"\d+") for j in style.joins)
        pattern = rf"(?:{opening}){_MARK}(?:(?:{joins}){_MARK})*(?:{closing})"
        found.append((style, re.compile(pattern, re.IGNORECASE)))
    return found


def read_instruction(text: str) -> tuple[list[Step], str]:
    """(recipe, style id) of an instruction. Raises `InstructionError` unless clauses and the frame
    of one style account for the whole text."""
    clauses, style = _read(text)
    return [clause.step for clause in clauses], style


def _read(text: str) -> tuple[list[Clause], str]:
    clauses = read_clauses(text)
    left, at = "", 0
    for clause in clauses:
        left += text[at : clause.start] + _MARK
        at = clause.end
    left += text[at:]
    for style, pattern in _skeletons():
        if pattern.fullmatch(left):
            return clauses, style.id
    raise InstructionError(f"not an instruction of this grammar: {left.replace(_MARK, '…')!r}")


@dataclass(frozen=True)
class PromptVariant:
    """One wording of a recipe, as the release stores it; `source` is written when it is not our
    grammar, `wording` in the styles that describe a result: whether it does (`outcome`) or has to
    tell the steps (`steps`)."""

    style_id: str
    style_label: str
    user_requirement: str
    source: str = ""
    wording: str = ""

    def to_json(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if value}


def pool(steps: Sequence[Step], key: str, seed: int = 0, forms: int = 0) -> list[PromptVariant]:
    """One variant a style, by style id. The same key and seed give the same words.

    Every variant is read back; raises `InstructionError` when it does not say the recipe.
    """
    return [variant(steps, style, key, seed, forms) for style in STYLES]


def variant(
    steps: Sequence[Step],
    style: Style,
    key: str,
    seed: int = 0,
    forms: int = 0,
    manners: Manners = (),
) -> PromptVariant:
    """The variant of one style, with the words of every step in its manner. It is read back;
    raises `InstructionError` when it does not say the recipe in that manner."""
    rng = Random(derive_seed(seed, "instruction", key, style.id))
    text = say(steps, style, rng, forms, manners)
    wanted = list(zip(steps, manners or (0,) * len(steps), strict=True))
    if [(clause.step, clause.manner) for clause in _read(text)[0]] != wanted:
        raise InstructionError(f"{text!r} does not read back to its recipe")
    return PromptVariant(style.id, style.label, text)


def drawn(size: int, key: str, name: str, config: InstructConfig) -> tuple[list[int], list[int]]:
    """Indices in the pool of `size` wordings of a row (`key` of its recipe, `name`): of its K
    variants, and of the wordings of its training tasks, all styles alike often.

    Of the training tasks its own variants come first, then the others, each part by the rank of a
    hash of the row; a pool smaller than what is wanted gives all it has.
    """

    def rank(index: int) -> int:
        return derive_seed(config.seed, "wording", key, name, index)

    picked = sample_variants(size, config.variants, config.seed, key, name)
    others = set(range(size)) - set(picked)
    asked = [*sorted(picked, key=rank), *sorted(others, key=rank)]
    return picked, asked[: config.variants_per_task]


@dataclass(frozen=True)
class Pool:
    """The variants of a recipe, each read back to exactly that recipe; or why it has none."""

    variants: tuple[PromptVariant, ...]
    refused: str = ""


@lru_cache(maxsize=10_000)
def pool_of(asked: Asked, config: InstructConfig) -> Pool:
    """The pool of a recipe."""
    key, steps = asked
    wanted = [Step(name, dict(params)) for name, params in steps]
    try:
        return Pool(tuple(pool(wanted, key, config.seed, config.forms)))
    except InstructionError as error:
        return Pool((), f"unspoken: {str(error)[:60]}")


@lru_cache(maxsize=20_000)
def describing(
    asked: Asked, style: str, label: str, outcome: Outcome, config: InstructConfig
) -> PromptVariant:
    """The variant of a style of a recipe that describes its outcome. It is read back; raises
    `InstructionError` when it does not say just that."""
    rng = Random(derive_seed(config.seed, "outcome", asked[0], style))
    text = say_outcome(outcome, style, rng, config.forms)
    if read_outcome(text) != (outcome, style):
        raise InstructionError(f"{text!r} does not read back to its outcome")
    return PromptVariant(style, label, text, wording="outcome")


_STYLES = {style.id: style for style in STYLES}


@lru_cache(maxsize=20_000)
def in_manners(asked: Asked, style: str, manners: Manners, config: InstructConfig) -> PromptVariant:
    """The variant of a style of a recipe that has a pool, with the words of every step in a manner
    of its own."""
    key, steps = asked
    wanted = [Step(name, dict(params)) for name, params in steps]
    return variant(wanted, _STYLES[style], key, config.seed, config.forms, manners)
