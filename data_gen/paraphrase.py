"""Freer wordings from any OpenAI-compatible endpoint, accepted only when they can be proved.

A paraphrase is kept when its recipe is recovered from its own words (by our grammar, or else by
the endpoint choosing, for each instruction in the text, from a menu of all operations, which must
give exactly the recipe with its numbers), and when the judge's five checks of the specification's
section 10 hold with a mean score of at least 3.5. What a model says is never trusted for gold.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from data_gen.instruct import PromptVariant
from rewards.cdr.json_score import parse_json
from rewards.cdr.language import read_number, read_steps, say_number, say_step
from rewards.cdr.phrases import CONDITIONS, NOUNS, SENTENCES
from rewards.gold import RECIPE_PARAMS, Step

CHECKS = ("functional_equivalence", "order_correct", "no_code_names", "thresholds_natural",
          "fits_wrapper")  # fmt: skip
SCORES = ("naturalness", "threshold_grounding", "clarity", "style_distinctiveness")
LEAST_SCORE = 3.5
_CODE = re.compile(r"_mapper|_filter|\bmin_|\bmax_|\b\w+_\w+\(", re.IGNORECASE)


class EndpointError(OSError):
    """The endpoint could not be had; nothing is known of the paraphrase."""


@dataclass(frozen=True)
class Endpoint:
    """`url` ends before `/chat/completions`; `key` is sent as a bearer token if there is one."""

    url: str
    model: str
    key: str = ""
    timeout: float = 60.0

    def ask(self, prompt: str, temperature: float = 0.0) -> str:
        """The answer's text. Raises `EndpointError`."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": temperature,
        }
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(
            self.url.rstrip("/") + "/chat/completions", json.dumps(body).encode(), headers
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as reply:
                data: Any = json.loads(reply.read())
            return str(data["choices"][0]["message"]["content"])
        except (urllib.error.URLError, TimeoutError, OSError, ValueError, LookupError) as error:
            raise EndpointError(f"{self.url}: {type(error).__name__}: {error}") from None


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


def recover(text: str, endpoint: Endpoint) -> list[Step]:
    """The recipe of a paraphrase by the endpoint's choice from the menu; [] when it names none."""
    options = menu()
    listed = "\n".join(f"{i}. {words}" for i, (_, words, _) in enumerate(options, 1))
    answer = endpoint.ask(
        "Which operations does this instruction ask for, in which order? Answer with a JSON list "
        'of {"operation": menu number, "number": the stated N as written, or null}.\n\n'
        f"Menu:\n{listed}\n\nInstruction:\n{text}"
    )
    try:
        rows: Any = parse_json(answer)
        steps: list[Step] = []
        for row in cast("list[dict[str, Any]]", rows):
            name, _, key = options[int(row["operation"]) - 1]
            if key is None:
                steps.append(Step(name, dict(RECIPE_PARAMS.get(name, {}))))
            else:
                steps.append(Step(name, {key: read_number(key, str(row["number"]))}))
        return steps
    except (ValueError, LookupError, TypeError):
        return []


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


def judged_well(text: str, base: str, endpoint: Endpoint) -> bool:
    """The judge's verdict: all five checks, `keep`, and a mean score of 3.5 or more."""
    answer = endpoint.ask(
        "Judge the paraphrase of an instruction. Answer with one JSON object: the keys "
        f"{', '.join(CHECKS)} (true or false), {', '.join(SCORES)} (1 to 5) and verdict (keep or "
        f"drop).\n\nOriginal:\n{base}\n\nParaphrase:\n{text}"
    )
    try:
        verdict = cast("dict[str, Any]", parse_json(answer))
        scores = [float(verdict[name]) for name in SCORES]
        checks = all(verdict[name] is True for name in CHECKS)
        keep = str(verdict["verdict"]).strip().lower() == "keep"
        return checks and keep and sum(scores) / len(scores) >= LEAST_SCORE
    except (ValueError, LookupError, TypeError):
        return False


def paraphrase(
    steps: Sequence[Step], base: PromptVariant, endpoint: Endpoint
) -> PromptVariant | None:
    """A proved paraphrase of one variant in its style, or None. Raises `EndpointError`."""
    text = endpoint.ask(
        f"Rewrite this instruction in the style '{base.style_label}'. Keep every operation, their "
        "order and every number; name no code. Answer with the instruction alone.\n\n"
        f"{base.user_requirement}",
        temperature=0.8,
    ).strip()
    wanted = list(steps)
    if not text or _CODE.search(text) or not numbers_kept(wanted, text):
        return None
    if read_steps(text) != wanted and recover(text, endpoint) != wanted:
        return None
    if not judged_well(text, base.user_requirement, endpoint):
        return None
    return PromptVariant(base.style_id, base.style_label, text)
