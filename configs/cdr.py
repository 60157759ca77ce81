"""Settings of `assay tasks cdr`, section by section; configs/cdr_*.yaml are its presets.

Numbers are those of CDR-Bench's construction code (sections 5 to 8 of its specification). A count
of 0 means "no limit" wherever a limit can be left out.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from typing import Literal

from configs import KEY_ENV
from configs.loader import Section, within


@dataclass(frozen=True)
class MiningConfig(Section):
    """Recipe mining per domain (section 6)."""

    min_combo_len: int = within(2, 1)
    max_combo_len: int = 5
    max_families: int = within(6, 1)
    max_recipes_per_family: int = within(8, 1)
    min_support: int = within(5, 0)
    min_support_ratio: float = within(0.02, 0, 1)
    min_recipe_support: int = within(5, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_combo_len < self.min_combo_len:
            raise ValueError("max_combo_len is below min_combo_len; raise it")


@dataclass(frozen=True)
class LibraryConfig(Section):
    """Filter attachment (section 7)."""

    max_support_records: int = within(128, 1)
    min_filter_support: int = within(5, 1)
    max_filters_per_recipe: int = within(3, 1)  # of each main type, and order families


@dataclass(frozen=True)
class InstanceConfig(Section):
    """Which records become tasks, and how filters are calibrated on them (section 8)."""

    max_text_length: int = within(10_000, 1)
    min_active: int = within(2, 0)  # mappers a record must activate to be used
    target_drop_rate: float = within(0.5, 0, 1)
    zero_policy: Literal["min-positive", "skip"] = "min-positive"
    per_variant: int = within(20, 1)
    per_operator: int = within(20, 1)
    groups_per_family: int = within(10, 1)
    min_keep: int = within(5, 0)
    min_drop: int = within(5, 0)
    min_groups: int = within(5, 0)


@dataclass(frozen=True)
class SwapConfig(Section):
    """Order pairs of adjacent mappers (section 8, order_m)."""

    max_records: int = within(128, 1)
    per_recipe: int = within(5, 1)
    total: int = within(0, 0)
    language: Literal["any", "en"] = "any"


@dataclass(frozen=True)
class ComposeConfig(Section):
    """Recipes made up from activated operators where mining gives too few; 0: none."""

    per_domain: int = within(0, 0)
    min_length: int = within(2, 1)
    max_length: int = 8
    min_support: int = within(8, 1)  # records that activate all operators of the recipe

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length < self.min_length:
            raise ValueError("max_length is below min_length; raise it")


@dataclass(frozen=True)
class SelectConfig(Section):
    """What of the construction is written as tasks. 0: everything.

    The defaults are the release's: 6 an operator, 10 a variant, 5 groups of each of 5 families a
    recipe, recipes with a filter only in the order tracks.
    """

    per_operator: int = within(6, 0)
    per_variant: int = within(10, 0)
    groups_per_family: int = within(5, 0)
    families_per_recipe: int = within(5, 0)
    filter_variants: bool = False  # also write filter-then-clean and clean-then-filter recipes
    difficulty_balanced: bool = False
    max_tasks: int = within(0, 0)
    max_chars: int = within(0, 0)  # longest input that is written
    # as many KEEP as DROP of every filter in train and validation; tracks/ stay as they are
    balance_filtered: bool = True


@dataclass(frozen=True)
class InstructConfig(Section):
    """The wording: styles, variants a task, prompt mode, and how much is written of it."""

    variants: int = within(3, 0)  # K prompt variants a task, sampled from its pool of one a style
    # wordings of a training task, each a row of the task's group
    variants_per_task: int = within(1, 1)
    seed: int = 0
    forms: int = within(0, 0)  # use only the first surface forms of every phrase; 0: all
    mode: Literal["direct", "few_shot", "plan_first", "state_aware"] = "direct"
    shots: int = within(2, 1)  # examples a few_shot task shows, training tasks of its track
    shot_chars: int = within(1000, 1)  # characters of input and answer that an example may have
    all_prompts: bool = False  # also write tracks_all_prompts/
    # rows whose words do not say what happens to the text are in no split; tracks/ have them
    as_said: bool = True


@dataclass(frozen=True)
class ParaphraseConfig(Section):
    """Freer wordings from an OpenAI-compatible endpoint (section 10); without `url` none."""

    url: str = ""  # up to where /chat/completions follows
    model: str = ""
    key_env: str = KEY_ENV  # environment variable with the key
    candidates: int = within(3, 1)  # asked for a recipe and style; each costs one to three requests
    share: float = within(1.0, 0, 1)  # of recipes that get paraphrases, by the rank of a hash
    workers: int = within(8, 1)  # requests side by side
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.timeout_s <= 0:
            raise ValueError(f"timeout_s={self.timeout_s} is no time; set more than 0")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url={self.url} is no URL; begin with http:// or https://")
        if self.url and not self.model:
            raise ValueError("a url needs a model: say which one the endpoint has")


@dataclass(frozen=True)
class SplitConfig(Section):
    """Held out by document, and by recipe template (the set of its operators). Validation gets
    documents of its own; the templates that are held out stay out of it too."""

    heldout_documents: float = within(0.2, 0, 1)
    validation_documents: float = within(0.05, 0, 1)
    heldout_recipes: float = within(0.1, 0, 1)
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heldout_documents + self.validation_documents > 1:
            raise ValueError(
                "heldout_documents and validation_documents are more than all; lower one"
            )


@dataclass(frozen=True)
class OperatorsConfig:
    """Which operators recipes and atomic tasks are made of."""

    # names, or `paper` for the 29 of the paper's Table 4; (): all
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class FieldsConfig:
    """What a corpus calls its fields, a path such as `meta.url` too; "": the name used here."""

    text: str = ""  # else text, content or raw_content
    id: str = ""
    domain: str = ""
    source: str = ""
    source_name: str = ""
    url: str = ""
    language: str = ""
    licence: str = ""  # else licence or license


@dataclass(frozen=True)
class CdrConfig(Section):
    """`assay tasks cdr`: corpora in, five tracks out."""

    corpora: tuple[str, ...] = ()
    fields: FieldsConfig = field(default_factory=FieldsConfig)
    encoding: str = ""  # of corpora that are no UTF-8, such as cp1252; "": these are left out
    licences: tuple[str, ...] = ()  # documents of these alone, patterns such as CC-BY*; (): all
    domains: Literal["source", "ranked"] = "source"  # the corpus's label, or by active operators
    scan_profile: Literal["bench", "dj"] = "bench"
    workers: int = within(0, 0)  # 0: all cores
    tracks: bool = True  # false: only pipeline.jsonl, the construction's result
    operators: OperatorsConfig = field(default_factory=OperatorsConfig)
    mining: MiningConfig = field(default_factory=MiningConfig)
    library: LibraryConfig = field(default_factory=LibraryConfig)
    compose: ComposeConfig = field(default_factory=ComposeConfig)
    instances: InstanceConfig = field(default_factory=InstanceConfig)
    swaps: SwapConfig = field(default_factory=SwapConfig)
    select: SelectConfig = field(default_factory=SelectConfig)
    instruct: InstructConfig = field(default_factory=InstructConfig)
    paraphrase: ParaphraseConfig = field(default_factory=ParaphraseConfig)
    split: SplitConfig = field(default_factory=SplitConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            raise ValueError(
                f"encoding={self.encoding} is not known; give one such as cp1252"
            ) from None
