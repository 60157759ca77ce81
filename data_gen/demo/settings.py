"""What the demo's tasks may ask for: operators in words, how many tasks, how hard, and presets.

Every operator has a few surface forms, none with an operator or parameter name. The forms are
distinct, so `read_requirement` recovers the exact recipe; tasks are built only from wordings that
read back to themselves, which is what makes the instruction sufficient for the answer.

This is the demo's grammar, short enough for a small model; CDR tasks have a larger one
(`data_gen.cdr.instruct`). The two stay apart because measured training runs depend on these words
byte by byte.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

from assay.files import yaml_beside
from configs.loader import ConfigError, Section, within
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


# --- counts, mix and difficulty

EASY_OPERATORS = (
    "clean_email_mapper",
    "clean_links_mapper",
    "clean_phone_mapper",
    "clean_html_mapper",
    "remove_specific_chars_mapper",
)
MEDIUM_OPERATORS = (
    *EASY_OPERATORS,
    "clean_ip_mapper",
    "clean_path_mapper",
    "punctuation_normalization_mapper",
    "remove_long_words_mapper",
    "remove_repeat_sentences_mapper",
)


@dataclass(frozen=True)
class DemoTaskSettings(Section):
    """Counts, mix and difficulty. Shares are in [0, 1]; lengths are characters."""

    difficulty: str = "medium"  # a name for the rest; `preset` fills the rest in
    train_sft: int = within(600, 0)
    train_rl: int = within(800, 0)
    heldout: int = within(420, 0)
    validation: int = within(60, 0)  # from further documents, to choose settings on
    heldout_documents: float = within(0.25, 0, 1)
    # of the documents that are not held out; without tasks none
    validation_documents: float = within(0.1, 0, 1)
    min_chars: int = 18
    max_chars: int = within(220, 120)  # of an input, rules of a banner not counted
    operators: tuple[str, ...] = MEDIUM_OPERATORS
    filters: tuple[str, ...] = FILTERS
    directions: tuple[str, ...] = ("min", "max")
    polarities: tuple[str, ...] = ("reject",)  # "keep" also says filters the other way round
    filter_share: float = within(2 / 3, 0, 1)
    drop_share: float = within(0.5, 0, 1)  # of the tasks with a filter
    filter_place: str = "any"  # among the mappers: any, first or last
    mappers: tuple[float, ...] = (0.45, 0.4, 0.15)  # how often a recipe has 1, 2, 3… mappers
    sft_mappers: tuple[float, ...] = ()  # the same for the SFT split alone; empty: as `mappers`
    forms: int = 3  # surface forms in use, 1 to 3
    low_margin: float = 0.55  # a statistic is at most this, or at least
    high_margin: float = 1.8  # this, times the threshold
    steady: bool = True  # filters decide alike on the input, so their place changes only the text
    # share of tasks with an item that no step of the recipe removes
    distractors: float = within(0.0, 0, 1)
    wrapped: float = within(0.25, 0, 1)  # share of tasks laid out in short lines
    states: bool = False  # answers write the state after every step before the result

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (
            ("operators", tuple(MAPPER_FORMS)),
            ("filters", FILTERS),
            ("directions", ("min", "max")),
            ("polarities", POLARITIES),
            ("filter_place", ("any", "first", "last")),
            ("forms", (1, 2, 3)),
        ):
            value: Any = getattr(self, name)
            given = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
            if not given or len({*given}) < len(given) or not {*given} <= {*known}:
                listed = ", ".join(map(str, known))
                raise ConfigError(f"{name}={value!r}: wanted some of {listed}, each once")
        if not self.low_margin < 1 < self.high_margin:
            raise ConfigError("low_margin must be below 1 and high_margin above it")
        for name in ("mappers", "sft_mappers"):
            mix: tuple[float, ...] = getattr(self, name)
            odd = len(mix) > len(self.operators) or any(w < 0 for w in mix)
            if odd or not sum(mix or (name == "sft_mappers",)):
                raise ConfigError(
                    f"{name}={mix}: wanted weights of 0 or more, not all 0, "
                    "for recipes of 1, 2, … mappers"
                )


PRESETS: dict[str, dict[str, Any]] = {
    "easy": {
        "operators": EASY_OPERATORS,
        "filters": ("text_length_filter", "words_num_filter"),
        "mappers": (0.6, 0.4),
        "forms": 1,
        "max_chars": 210,
        "wrapped": 0.0,
    },
    "medium": {},
    "hard": {
        "operators": tuple(MAPPER_FORMS),
        "polarities": POLARITIES,
        "mappers": (0.25, 0.4, 0.35),
        "max_chars": 280,
        "low_margin": 0.7,
        "high_margin": 1.4,
        "steady": False,
        "distractors": 0.3,
    },
}


def preset(difficulty: str = "medium", **changes: Any) -> DemoTaskSettings:
    """The settings of a difficulty, with changes on top."""
    if difficulty not in PRESETS:
        raise ConfigError(f"difficulty={difficulty!r}: wanted one of {', '.join(PRESETS)}")
    try:
        base = replace(DemoTaskSettings(difficulty=difficulty), **PRESETS[difficulty])
        return replace(base, **changes)
    except ValueError as error:
        raise ConfigError(str(error)) from None


@dataclass(frozen=True)
class OrderSettings:
    """Groups (of two tasks) a split; `drop_share` of them with a text that is rejected."""

    train_sft: int = 120
    train_rl: int = 160
    heldout: int = 60
    validation: int | None = None  # None: a third of `heldout`
    drop_share: float = 2 / 3  # of the groups with a filter
    mapper_share: float = 0.0  # of all groups: two mappers in both orders, in place of a filter
    thresholds: tuple[int, ...] = (45, 50, 55)  # characters; texts are well below or well above
    max_chars: int = 100
    states: bool = False  # answers write the state after every step before the result
    brief: bool = False  # a short system message without the answer's form, which SFT has to teach
    operators: tuple[str, ...] = EASY_OPERATORS
    heldout_documents: float = 0.3
    validation_documents: float = 0.1  # of those not held out; without tasks none
