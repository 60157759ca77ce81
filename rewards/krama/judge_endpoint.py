"""A paraphrase judge behind any OpenAI-compatible chat endpoint."""

from __future__ import annotations

import json
import math
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rewards.krama.judge import JudgeError, Verdict

_SYSTEM = (
    "You compare a candidate answer with a reference answer to the same question. Reply with one "
    "word: Yes when the candidate states the same facts as the reference, No otherwise."
)
_WORD = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


def post_json(url: str, body: Mapping[str, Any], key: str, seconds: float) -> dict[str, Any]:
    """One POST; raises OSError or ValueError for whatever goes wrong on the way."""
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=seconds) as reply:
        found: Any = json.loads(reply.read())
    if not isinstance(found, dict):
        raise ValueError("the reply is not an object")
    return cast("dict[str, Any]", found)


@dataclass
class Endpoint:
    """Where to ask. `url` ends before `/chat/completions`; `key` may be empty."""

    url: str
    model: str
    key: str = ""
    seconds: float = 60.0
    tries: int = 4

    def chat(self, messages: Sequence[Mapping[str, str]], **options: Any) -> dict[str, Any]:
        """The first choice of a reply at temperature 0. Raises `JudgeError` after `tries`."""
        body = {"model": self.model, "messages": list(messages), "temperature": 0} | options
        url = self.url.rstrip("/") + "/chat/completions"
        why = ""
        for attempt in range(self.tries):
            if attempt:
                time.sleep(min(2.0**attempt, 20.0))
            try:
                choices = post_json(url, body, self.key, self.seconds)["choices"]
                return cast("dict[str, Any]", choices[0])
            except urllib.error.HTTPError as error:
                why = f"HTTP {error.code}"
                if error.code < 500 and error.code != 429:
                    break
            except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
                why = str(error) or type(error).__name__
        raise JudgeError(f"{url}: {why}")


@dataclass
class EndpointJudge:
    """Asks for one word and weighs Yes against No, as ParaPluie does, where the endpoint gives
    log-probabilities; else the first yes or no of the reply counts. Verdicts are remembered."""

    endpoint: Endpoint
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
        messages = [
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": f"{shown}\n\nSame facts? Yes or No."},
        ]
        choice = self.endpoint.chat(messages, max_tokens=16, logprobs=True, top_logprobs=20)
        odds = _odds(choice)
        if odds is not None:
            return Verdict(odds > 0, "endpoint_odds")
        text = _content(choice)
        found = _WORD.search(text)
        if found is None:
            raise JudgeError(f"the judge said neither yes nor no: {text[:80]!r}")
        return Verdict(found.group(1).lower() == "yes", "endpoint_word")


def _content(choice: Mapping[str, Any]) -> str:
    try:
        return str(choice["message"]["content"] or "")
    except (KeyError, TypeError):
        return ""


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
