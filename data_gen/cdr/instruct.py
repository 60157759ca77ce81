"""Instructions in the benchmark's eleven styles, and the proof that each one says its recipe.

A clause is one step of a recipe in words; a style is a frame around clauses. The reader is the
proof behind every written instruction: it accepts exactly the phrases of `phrases.yaml`, in order,
and `read_instruction` accepts a text only when clauses and frame account for every character of it.
Numbers are spoken exactly (ratios as percentages), so the recipe that comes back is the recipe that
went in.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from itertools import product
from random import Random
from typing import Any, TypeVar

from assay.files import yaml_beside
from assay.task import Task, TaskError, derive_seed
from configs.cdr import InstructConfig
from data_gen.cdr.units import Asked
from rewards.cdr.release_files import sample_variants
from rewards.gold import RECIPE_PARAMS, Step

# --- clauses

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


# --- instructions: clauses in the frame of a style

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


@dataclass(frozen=True)
class Worded:
    """A row and what is written of it. `pool`: all its variants, where they are wanted; `tasks`: as
    training has them. `told`: "outcome" where a style that describes the result does so, else why
    it tells the steps; "" where no such style is drawn. `unsaid`: an operator that changed the
    text in a way that none of its wordings tells, and how; two empty texts where there is none."""

    row: dict[str, Any]
    pool: list[PromptVariant]
    tasks: list[Task]
    told: str
    unsaid: tuple[str, str] = ("", "")

    def tasks_in(self, side: str) -> list[Task]:
        """The tasks of a split ("": none): training has every wording, as a group of their own
        where the row is in none; the others have the first."""
        if side in ("", "train"):
            return self.tasks if side else []
        return [replace(self.tasks[0], split=side, group=self.row["order_group_instance_id"])]


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


_STYLES = {style.id: style for style in STYLES}


@lru_cache(maxsize=20_000)
def in_manners(asked: Asked, style: str, manners: Manners, config: InstructConfig) -> PromptVariant:
    """The variant of a style of a recipe that has a pool, with the words of every step in a manner
    of its own."""
    key, steps = asked
    wanted = [Step(name, dict(params)) for name, params in steps]
    return variant(wanted, _STYLES[style], key, config.seed, config.forms, manners)
