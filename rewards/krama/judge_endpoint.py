"""Judges behind any OpenAI-compatible chat endpoint: of paraphrases, and of pipelines."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.http_client import ChatEndpoint, EndpointError
from assay.thoughts import answer_after_thoughts
from rewards.krama.judge import JudgeError, Verdict

KEY_ENV = "ASSAY_JUDGE_KEY"  # the environment variable with the judge's key
_SYSTEM = (
    "You compare a candidate answer with a reference answer to the same question. Reply with one "
    "word: Yes when the candidate states the same facts as the reference, No otherwise."
)
_DESIGN = (
    "You review data pipelines. Reply with one word, Yes or No: does the code implement the "
    "functionality?"
)
_WORD = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


def yes_or_no(endpoint: ChatEndpoint, system: str, user: str) -> tuple[bool, str]:
    """(the verdict, how it was found): the odds of Yes against No where the endpoint gives
    log-probabilities, else the first of the two words. Raises `JudgeError` without a verdict."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    odds = {"logprobs": True, "top_logprobs": 20}
    try:
        try:
            found = endpoint.ask(messages, max_tokens=16, **odds)
        except EndpointError as error:
            if error.status not in (400, 422) or "logprobs" not in error.body:
                raise
            found = endpoint.ask(messages, max_tokens=16)
    except EndpointError as error:
        raise JudgeError(str(error)) from None
    weighed = _odds(found.choice)
    if weighed is not None:
        return weighed > 0, "endpoint_odds"
    word = _WORD.search(answer_after_thoughts(found.text))
    if word is None:
        raise JudgeError(f"the judge said neither yes nor no: {found.text[:80]!r}")
    return word.group(1).lower() == "yes", "endpoint_word"


def judged_coverage(steps: Sequence[str], code: str, endpoint: ChatEndpoint) -> float | None:
    """Share of the key functionalities that code covers, by an endpoint's verdicts, one request a
    step, as CodeJudge asks; None without any. Raises `JudgeError`."""
    asked = [step for step in steps if step.strip()]
    if not asked:
        return None
    if not code.strip():
        return 0.0
    hits = 0
    for step in asked:
        shown = json.dumps({"functionality": step, "code": code[:60_000]})
        yes, _ = yes_or_no(endpoint, _DESIGN, f"{shown}\n\nImplemented? Yes or No.")
        hits += yes
    return hits / len(asked)


@dataclass
class EndpointJudge:
    """Asks for one word and weighs Yes against No, as ParaPluie does, where the endpoint gives
    log-probabilities; else the first yes or no of the reply counts. Verdicts are remembered."""

    endpoint: ChatEndpoint
    known: dict[tuple[str, str], Verdict] = field(default_factory=dict[tuple[str, str], Verdict])

    def __call__(self, prediction: str, target: str) -> Verdict:
        key = (prediction, target)
        if key not in self.known:
            self.known[key] = self._ask(prediction, target)
        return self.known[key]

    def _ask(self, prediction: str, target: str) -> Verdict:
        if prediction.strip() == target.strip():
            return Verdict(True, "equal")
        # a wall between data and instructions, and a bound on what one answer may cost
        shown = json.dumps({"reference": target, "candidate": prediction[:20_000]})
        said = yes_or_no(self.endpoint, _SYSTEM, f"{shown}\n\nSame facts? Yes or No.")
        return Verdict(*said)


def _odds(choice: Mapping[str, Any]) -> float | None:
    """log P(Yes) - log P(No) over the first token's alternatives; None when not given."""
    try:
        first = choice["logprobs"]["content"][0]["top_logprobs"]
        mass = {"yes": 0.0, "no": 0.0}
        for row in first:
            word = str(row["token"]).strip().lower()
            if word in mass:
                mass[word] += math.exp(float(row["logprob"]))
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    if not mass["yes"] and not mass["no"]:
        return None
    return math.log(mass["yes"] or 1e-30) - math.log(mass["no"] or 1e-30)
