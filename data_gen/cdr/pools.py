"""The wordings of every recipe that is asked for, made and read back once for a build."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from random import Random

from assay.seeds import derive_seed
from configs.cdr import InstructConfig
from data_gen.cdr.instruct import (
    STYLES,
    InstructionError,
    Manners,
    PromptVariant,
    pool,
    variant,
)
from data_gen.cdr.outcome import read_outcome, say_outcome
from data_gen.cdr.settle import Outcome
from data_gen.cdr.units import Asked
from rewards.gold import Step


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
