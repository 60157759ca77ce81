"""Settings of the demo tasks: how many, how hard, and the presets a search starts from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from configs.loader import ConfigError, Section, within
from data_gen.demo.wording import FILTERS, MAPPER_FORMS, POLARITIES

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
