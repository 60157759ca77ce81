"""Freer wordings of recipes from an endpoint, accepted only when they can be proved.

As in the benchmark's construction (spec section 10): per recipe and style a few candidates are
asked for at temperature 0.8. One is accepted when its recipe is recovered from its own words (by
our grammar where that accounts for every character, else by the endpoint choosing, for each
instruction in the text, from a menu of all operations, which must give exactly the recipe with its
numbers), and when the judge's five checks hold with a mean score of at least 3.5. Of a style's
accepted ones the one with the smallest hash is used; where none is accepted the grammar's own
wording stays. What a model says is never trusted for gold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, cast

from assay.console import Progress
from assay.files import yaml_beside
from assay.task import TaskError, derive_seed, write_jsonl
from configs.cdr import InstructConfig, ParaphraseConfig
from data_gen.cdr.instruct import (
    CONDITIONS,
    FORMS,
    InstructionError,
    PromptVariant,
    drawn,
    pool_of,
    read_instruction,
    read_number,
    say_number,
    say_step,
)
from data_gen.cdr.units import Instance
from data_gen.certificate import Refusal
from data_gen.rewording import FILE as JOURNAL
from data_gen.rewording import Endpoint, Job, Proof, reword_all
from rewards.cdr.release_files import stable_id
from rewards.cdr.release_scores import parse_json
from rewards.gold import RECIPE_PARAMS, Step

FILE = "paraphrases.jsonl"  # every candidate, and why it is not used
CHECKS = (
    "functional_equivalence",
    "order_correct",
    "no_code_names",
    "thresholds_natural",
    "fits_wrapper",
)
SCORES = ("naturalness", "threshold_grounding", "clarity", "style_distinctiveness")
LEAST_SCORE = 3.5
MOST_CHARS = 3000
_CODE = re.compile(r"_mapper|_filter|\bmin_|\bmax_|\b\w+_\w+\(", re.IGNORECASE)
# Parts of the request around the requirement; in it they would end or open one.
_WRAPPER = re.compile(r"</?(?:input|status|clean_text|analyze)>|```", re.IGNORECASE)
_WORDS: dict[str, str] = yaml_beside(__file__, "paraphrase.yaml")  # what the endpoint is asked
Style = tuple[str, tuple[Step, ...], PromptVariant]  # of a recipe: its key and steps


def paraphrase_units(
    units: Sequence[Sequence[Instance]],
    instruct: InstructConfig,
    config: ParaphraseConfig,
    out: Path,
) -> tuple[dict[tuple[str, str], str], dict[str, Any]]:
    """(the wordings that stand in for the grammar's by key and style, counts). What the journal in
    `out` holds is not asked again; all candidates are written to `out/paraphrases.jsonl`. Raises
    `TaskError` when the endpoint is gone."""
    if (out / FILE).exists() and not (out / JOURNAL).exists():
        raise TaskError(f"{out / FILE}: is of an older Assay and not read; remove it to ask again")
    styles = list(_styles(units, instruct, config))
    asked = [(*style, slot) for style in styles for slot in range(config.candidates)]
    jobs = [
        job_of(steps, base, derive_seed(slot, key, base.style_id, "paraphrase"))
        for key, steps, base, slot in asked
    ]
    options = {"in_flight": config.workers, "timeout_s": config.timeout_s}
    writer = Endpoint(config.url, config.model, out / JOURNAL, key_env=config.key_env, **options)
    with Progress("paraphrases", "candidates", len(jobs)) as bar:
        made = reword_all(jobs, writer, bar.add)
    rows: list[dict[str, Any]] = [
        {
            "recipe_prompt_key": key,
            "style_id": base.style_id,
            "slot": slot,
            "candidate_id": stable_id(key, f"{base.style_id}__{slot}", one.said),
            "base": base.user_requirement,
            "text": one.said,
            "refused": one.refused.coded() if one.refused else "",
        }
        for (key, _, base, slot), one in zip(asked, made, strict=True)
    ]
    write_jsonl(out / FILE, rows)

    def rank(row: dict[str, Any]) -> str:
        return stable_id("prompt-candidate-canonical", row["style_id"], row["candidate_id"])

    good = sorted((row for row in rows if not row["refused"]), key=rank, reverse=True)
    found = {(row["recipe_prompt_key"], row["style_id"]): row["text"] for row in good}
    refused = Counter(str(row["refused"]) for row in rows if row["refused"])
    return found, {
        "styles_of_recipes": len(styles),
        "styles_paraphrased": len(found),
        "candidates": len(rows),
        "accepted": len(good),
        "refused": dict(sorted(refused.items())),
    }


def _styles(
    units: Sequence[Sequence[Instance]], instruct: InstructConfig, config: ParaphraseConfig
) -> Iterator[Style]:
    """The styles that the units' tasks are asked in, recipe by recipe, each once."""
    seen: set[tuple[str, str]] = set()
    for row in (row for unit in units for row in unit):
        if int(stable_id("paraphrase", row.key), 16) >= config.share * (1 << 64):
            continue
        # a recipe that cannot be spoken has none, and is left out later with its reason
        variants = pool_of(row.asked, instruct).variants
        picked, trained = drawn(len(variants), row.key, row.id, instruct)
        every = range(len(variants)) if instruct.all_prompts else [*picked, *trained]
        for variant in (variants[i] for i in every):
            if (row.key, variant.style_id) not in seen:
                seen.add((row.key, variant.style_id))
                yield row.key, tuple(row.plan.steps), variant


def job_of(steps: Sequence[Step], base: PromptVariant, seed: int) -> Job:
    """One candidate for a variant in its style, and all that proves it; cheap checks come first."""

    def lacks(text: str) -> Refusal | None:
        if not text or len(text) > MOST_CHARS:
            return Refusal("too long" if text else "empty")
        if _WRAPPER.search(text):
            return Refusal("parts of the request in it")
        if _CODE.search(text):
            return Refusal("names of code in it")
        if not numbers_kept(steps, text):
            return Refusal("a number is missing")
        with_grammar = _by_grammar(text)
        return _other(with_grammar, steps) if with_grammar is not None else None

    def menu_for(text: str) -> str:
        if _by_grammar(text) is not None:
            return ""
        listed = "\n".join(f"{i}. {words}" for i, (_, words, _) in enumerate(menu(), 1))
        return _WORDS["menu"].format(menu=listed, text=text)

    def chosen_otherwise(_: str, reply: str) -> Refusal | None:
        try:
            chosen = [_chosen(row) for row in cast("list[dict[str, Any]]", parse_json(reply))]
        except (ValueError, LookupError, TypeError, OverflowError):
            chosen = []
        return _other(chosen, steps)

    def verdict_on(text: str) -> str:
        return _WORDS["judge"].format(
            checks=", ".join(CHECKS),
            scores=", ".join(SCORES),
            style=base.style_label,
            base=base.user_requirement,
            text=text,
        )

    def judged_bad(_: str, reply: str) -> Refusal | None:
        return Refusal("judge", why) if (why := _verdict(reply)) else None

    prompt = _WORDS["ask"].format(style=base.style_label, base=base.user_requirement)
    proofs = (Proof(menu_for, chosen_otherwise), Proof(verdict_on, judged_bad))
    return Job(base.user_requirement, prompt, seed, lacks, proofs)


def _other(found: Sequence[Step], wanted: Sequence[Step]) -> Refusal | None:
    if list(found) == list(wanted):
        return None
    return Refusal("another recipe was recovered" if found else "no recipe was recovered")


def _by_grammar(text: str) -> list[Step] | None:
    """The recipe where our grammar accounts for every character; else None."""
    try:
        return read_instruction(text)[0]
    except InstructionError:
        return None


@lru_cache(maxsize=1)
def menu() -> list[tuple[str, str, str | None]]:
    """(operator, its canonical words, the bound a number is needed for) of every operation."""
    rng = Random(0)
    found: list[tuple[str, str, str | None]] = []
    for name in FORMS:
        step = Step(name, dict(RECIPE_PARAMS.get(name, {})))
        found.append((name, say_step(step, "imperative", rng, 1), None))
    for (name, key), (_, keeping) in CONDITIONS.items():
        found.append((name, f"keep the text only if {keeping[0]}".replace("{n}", "N"), key))
    return found


def _chosen(row: dict[str, Any]) -> Step:
    """What the endpoint chose. Raises where that is not on the menu."""
    number = int(row["operation"])
    if number < 1:
        raise LookupError("not on the menu")
    name, _, key = menu()[number - 1]
    if key is None:
        return Step(name, dict(RECIPE_PARAMS.get(name, {})))
    return Step(name, {key: read_number(key, str(row["number"]))})


def numbers_kept(steps: Sequence[Step], text: str) -> bool:
    """Whether every threshold stands in the text, as a plain number."""
    plain = text.replace(",", "")
    for step in steps:
        for key, value in step.params.items():
            if isinstance(value, int | float) and (step.operator, key) in CONDITIONS:
                digits = re.sub(r"[^\d.]", "", say_number(key, value, Random(0)))
                if not re.search(rf"(?<![\d.]){re.escape(digits)}(?![\d]|\.\d)", plain):
                    return False
    return True


def _verdict(reply: str) -> str:
    """Why the judge refuses a paraphrase, or "": all five checks, `keep`, and a mean score of 3.5
    or more are wanted."""
    try:
        verdict = cast("dict[str, Any]", parse_json(reply))
        for name in CHECKS:
            if verdict[name] is not True:
                return name
        if str(verdict["verdict"]).strip().lower() != "keep":
            return "drop"
        scores = [float(verdict[name]) for name in SCORES]
        return "" if sum(scores) / len(scores) >= LEAST_SCORE else "low score"
    except (ValueError, LookupError, TypeError):
        return "no verdict"
