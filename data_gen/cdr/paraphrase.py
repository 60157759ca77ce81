"""Freer wordings from any OpenAI-compatible endpoint, accepted only when they can be proved.

A paraphrase is kept when its recipe is recovered from its own words (by our grammar where that
accounts for every character, else by the endpoint choosing, for each instruction in the text, from
a menu of all operations, which must give exactly the recipe with its numbers), and when the judge's
five checks of the specification's section 10 hold with a mean score of at least 3.5. What a model
says is never trusted for gold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from assay.http_client import ChatEndpoint
from data_gen.cdr.instruct import InstructionError, PromptVariant, read_instruction
from data_gen.cdr.language import read_number, say_number, say_step
from data_gen.cdr.phrases import CONDITIONS, NOUNS, SENTENCES
from rewards.cdr.json_answers import parse_json
from rewards.gold import RECIPE_PARAMS, Step

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


@dataclass(frozen=True)
class Candidate:
    """One wording an endpoint gave: `refused` says why it is not used, "" that it is.

    `steps` is the recipe that was recovered from an accepted one.
    """

    text: str
    refused: str = ""
    steps: tuple[Step, ...] = ()


def say(endpoint: ChatEndpoint, prompt: str, temperature: float = 0.0) -> str:
    """The text of one answer. Raises `EndpointError` when the endpoint gives none."""
    return endpoint.ask([{"role": "user", "content": prompt}], temperature=temperature).text


def menu() -> list[tuple[str, str, str | None]]:
    """(operator, its canonical words, the bound a number is needed for) of every operation."""
    rng = Random(0)
    found: list[tuple[str, str, str | None]] = []
    for name in (*NOUNS, *SENTENCES):
        step = Step(name, dict(RECIPE_PARAMS.get(name, {})))
        found.append((name, say_step(step, "imperative", rng, 1), None))
    for (name, key), (_, keeping) in CONDITIONS.items():
        found.append((name, f"keep the text only if {keeping[0]}".replace("{n}", "N"), key))
    return found


def recover(text: str, endpoint: ChatEndpoint) -> list[Step]:
    """The recipe of a paraphrase: by our grammar, else by the endpoint's choice from the menu.

    [] when it names none, or something that is not on the menu. Raises `EndpointError`.
    """
    try:
        return read_instruction(text)[0]
    except InstructionError:
        pass
    options = menu()
    listed = "\n".join(f"{i}. {words}" for i, (_, words, _) in enumerate(options, 1))
    answer = say(
        endpoint,
        "Which operations does this instruction ask for, in which order? Answer with a JSON list "
        'of {"operation": menu number, "number": the stated N as written, or null}. For anything '
        "that is not on the menu the menu number is 0.\n\n"
        f"Menu:\n{listed}\n\nInstruction:\n{text}",
    )
    try:
        rows: Any = parse_json(answer)
        return [_chosen(options, row) for row in cast("list[dict[str, Any]]", rows)]
    except (ValueError, LookupError, TypeError, OverflowError):
        return []


def _chosen(options: Sequence[tuple[str, str, str | None]], row: dict[str, Any]) -> Step:
    number = int(row["operation"])
    if number < 1:
        raise LookupError("not on the menu")
    name, _, key = options[number - 1]
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


def judged(text: str, base: PromptVariant, endpoint: ChatEndpoint) -> str:
    """Why the judge refuses a paraphrase, or "": all five checks, `keep`, and a mean score of 3.5
    or more are wanted. Raises `EndpointError` when there is no verdict."""
    answer = say(
        endpoint,
        "Judge the paraphrase of an instruction. Answer with one JSON object: the keys "
        f"{', '.join(CHECKS)} (true or false), {', '.join(SCORES)} (1 to 5) and verdict (keep or "
        f"drop). Its style should be: {base.style_label}. It will stand before the text it is "
        "about; the text, the answer format and the names of code are not for it to say.\n\n"
        f"Original:\n{base.user_requirement}\n\nParaphrase:\n{text}",
    )
    try:
        verdict = cast("dict[str, Any]", parse_json(answer))
        for name in CHECKS:
            if verdict[name] is not True:
                return f"judge: {name}"
        if str(verdict["verdict"]).strip().lower() != "keep":
            return "judge: drop"
        scores = [float(verdict[name]) for name in SCORES]
        return "" if sum(scores) / len(scores) >= LEAST_SCORE else "judge: low score"
    except (ValueError, LookupError, TypeError):
        return "judge: no verdict"


def paraphrase(steps: Sequence[Step], base: PromptVariant, endpoint: ChatEndpoint) -> Candidate:
    """One candidate for a variant in its style, accepted or refused. Raises `EndpointError` when
    the endpoint cannot be had: then nothing is known of it."""
    text = say(
        endpoint,
        f"Rewrite this instruction in the style '{base.style_label}'. Keep every operation, their "
        "order and every number; add nothing, name no code. Answer with the instruction alone."
        f"\n\n{base.user_requirement}",
        temperature=0.8,
    ).strip()
    return Candidate(text, *_proved(text, list(steps), base, endpoint))


def _proved(
    text: str, wanted: list[Step], base: PromptVariant, endpoint: ChatEndpoint
) -> tuple[str, tuple[Step, ...]]:
    """(why it is refused or "", the recipe that was recovered); cheap checks come first."""
    if not text or len(text) > MOST_CHARS:
        return "empty" if not text else "too long", ()
    if text == base.user_requirement:
        return "not changed", ()
    if _WRAPPER.search(text):
        return "parts of the request in it", ()
    if _CODE.search(text):
        return "names of code in it", ()
    if not numbers_kept(wanted, text):
        return "a number is missing", ()
    found = recover(text, endpoint)
    if found != wanted:
        return "another recipe was recovered" if found else "no recipe was recovered", ()
    return judged(text, base, endpoint), tuple(found)
