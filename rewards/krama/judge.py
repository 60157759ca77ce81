"""Judges of paraphrase: does an answer say the same as the target?

Three of them share one signature, `(prediction, target) -> Verdict`: a deterministic one (the
default; specification notes, section 6), a scripted one (tests and replayed verdicts), and any
OpenAI-compatible chat endpoint (`endpoint_judge`), which judges pipelines too.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from assay.thoughts import answer_after_thoughts

if TYPE_CHECKING:
    from assay.http_client import ChatEndpoint


class JudgeError(RuntimeError):
    """The judge failed: an infrastructure failure, never the answer's. Scores become None."""


class NoJudge(JudgeError):
    """There is no judge to ask (scripted `nokey`): the answer counts as not confirmed."""


@dataclass(frozen=True)
class Verdict:
    """`yes` is None when the reply said neither; `path` names the rule that decided."""

    yes: bool | None
    path: str


Judge = Callable[[str, str], Verdict]

_ARTICLES = frozenset({"a", "an", "the"})
_NEGATIONS = frozenset(
    (
        *("no", "not", "never", "none", "neither", "nor", "without", "cannot", "cant", "dont"),
        *("doesnt", "didnt", "isnt", "arent", "wasnt", "werent", "wont", "hasnt", "havent"),
    )
)
# Words that carry no fact of their own: articles, copulas, prepositions, conjunctions.
_STOP = _ARTICLES | frozenset(
    (
        *("is", "are", "was", "were", "be", "been", "being", "it", "its", "this", "that", "these"),
        *("those", "there", "of", "in", "on", "at", "to", "for", "by", "with", "from", "as", "and"),
        *("or", "but", "which", "who", "whose", "what", "has", "have", "had", "do", "does", "did"),
        *("than", "then", "so"),
    )
)
_POLES = {
    "yes": "yes",
    "true": "yes",
    "no": "no",
    "false": "no",
    "same": "same",
    "different": "different",
}
_ORDERED = frozenset({"than", "versus", "vs", "over", "before", "after", "exceeds", "exceed"})
_ITEMS = re.compile(r"[,;/|\n]|\band\b", re.I)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?|\.\d+")


@dataclass(frozen=True)
class _Reading:
    """One text, read once: two spellings, its words, its numbers, its pole."""

    joined: str  # punctuation deleted: "U.S." is "us"
    spaced: str  # punctuation a blank: "Atlanta-Sandy" is two words
    words: frozenset[str]
    content: tuple[str, ...]
    numbers: tuple[tuple[float, int], ...]
    negated: bool
    pole: str | None


def _squeeze(text: str, instead: str) -> list[str]:
    marks = [ord(c) for c in {*text} - {"%"} if unicodedata.category(c)[0] == "P"]
    kept = text.translate(dict.fromkeys(marks, instead))
    return [word for word in kept.split() if word not in _ARTICLES]


@lru_cache(maxsize=4096)
def _read(text: str) -> _Reading:
    folded = unicodedata.normalize("NFKC", text).lower()
    joined, spaced = _squeeze(folded, ""), _squeeze(folded, " ")
    words = frozenset(joined) | frozenset(spaced)
    numbers = Counter(float(found.replace(",", "")) for found in _NUMBER.findall(folded))
    bare = [w for w in spaced if w not in _STOP and not w[0].isdigit()]
    poles = {_POLES[w] for w in spaced if w in _POLES}
    pole = next(iter(poles)) if len(poles) == 1 else None
    if pole in ("yes", "no") and _POLES.get(spaced[0]) != pole:
        pole = None  # "there is no fire" is a statement, not a No
    return _Reading(
        " ".join(joined),
        " ".join(spaced),
        words,
        tuple(bare),
        tuple(sorted(numbers.items())),
        bool(words & _NEGATIONS),
        pole,
    )


def deterministic(prediction: str, target: str) -> Verdict:
    """Same, opposite or missing facts, by five rules in order (specification notes, section 6),
    with two guards beside the fourth: a list of alternatives and exchanged sides of a comparison
    do not say the target.

    Equal once folded; both are yes/no (true/false, same/different) words; the numbers differ; all
    content words of the target are in a prediction at most four times as long, and no side alone
    is negated; else no. Cost: linear in the texts.
    """
    if len(prediction) > 64 * len(target) + 4096:  # chatter: rule 4 could never hold
        return Verdict(False, "too_long")
    said, want = _read(prediction), _read(target)
    alike = said.joined == want.joined or said.spaced == want.spaced
    if alike and said.numbers == want.numbers:  # without the numbers, "1.5" would equal "15"
        same = bool(want.spaced) or prediction.strip().lower() == target.strip().lower()
        return Verdict(same, "equal")
    if said.pole and want.pole and len(want.spaced.split()) <= 3:
        return Verdict(said.pole == want.pole, "pole")
    if said.numbers != want.numbers:
        return Verdict(False, "numbers")
    held = bool(want.content or want.numbers) and said.words.issuperset(want.content)
    if held and _hedges(prediction, target):
        return Verdict(False, "several answers")
    if held and want.words & _ORDERED and not _in_order(want.content, said.content):
        return Verdict(False, "order")
    if held and said.negated == want.negated and len(said.spaced) <= 4 * len(want.spaced):
        return Verdict(True, "words")
    return Verdict(False, "words")


def _hedges(prediction: str, target: str) -> bool:
    """Whether the prediction lists alternatives: it says "or" where the target does not, or has
    two more items than it. One more may be an apposition ("Atlanta, Georgia")."""
    if re.search(r"\bor\b", prediction, re.I) and not re.search(r"\bor\b", target, re.I):
        return True
    return len(_ITEMS.findall(prediction)) >= len(_ITEMS.findall(target)) + 2


_ASIDE = 2  # content words that an answer may have beside those of a short target


def says_much_more(prediction: str, target: str) -> bool:
    """Tell whether a text has so many words beside the target's that it may list candidates, as
    all names with blanks between them do."""
    said, want = _read(prediction).content, _read(target).content
    return (Counter(said) - Counter(want)).total() > max(_ASIDE, len(want) // 2)


def _in_order(wanted: tuple[str, ...], said: tuple[str, ...]) -> bool:
    """Whether the words of `wanted` stand in `said` in this order."""
    left = iter(said)
    return all(word in left for word in wanted)


def scripted(mode: str) -> Judge:
    """A judge that always answers the same, as the conformance vectors need.

    Modes: `yes`, `no`, `casefold_equal` (yes when equal after strip and lower case), `garbage`,
    `error` and `filter` (no verdict), `nokey` (cannot be built: raises `NoJudge` when asked).
    Raises ValueError for another mode.
    """
    if mode not in ("yes", "no", "casefold_equal", "garbage", "error", "filter", "nokey"):
        raise ValueError(f"judge {mode!r}: wanted yes, no or null")

    def judge(prediction: str, target: str) -> Verdict:
        if mode == "casefold_equal":
            return Verdict(prediction.strip().lower() == target.strip().lower(), "scripted")
        if mode == "nokey":
            raise NoJudge("the scripted judge has no credentials")
        return Verdict({"yes": True, "no": False}.get(mode), "scripted")

    return judge


# ---- judges behind an endpoint

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
    """Ask an endpoint a question of yes or no: (the verdict, how it was found), by the odds of Yes
    against No where the endpoint gives log-probabilities, else by the first of the two words.

    Raises `JudgeError` without a verdict.
    """
    from assay.http_client import EndpointError  # an exported task has no judge behind a URL

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
    """Ask an endpoint which of the key functionalities code covers, one request a step, as
    CodeJudge asks; the share in [0, 1], None without any. Raises `JudgeError`."""
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


def endpoint_judge(endpoint: ChatEndpoint) -> Judge:
    """Make a judge that asks an endpoint for one word and weighs Yes against No, as ParaPluie does,
    where it gives log-probabilities; else the first yes or no of the reply counts. Verdicts are
    remembered. The judge raises `JudgeError` without one."""

    @cache
    def judge(prediction: str, target: str) -> Verdict:
        if prediction.strip() == target.strip():
            return Verdict(True, "equal")
        # a wall between data and instructions, and a bound on what one answer may cost
        shown = json.dumps({"reference": target, "candidate": prediction[:20_000]})
        return Verdict(*yes_or_no(endpoint, _SYSTEM, f"{shown}\n\nSame facts? Yes or No."))

    return judge


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


@lru_cache(maxsize=8)
def judge_of(url: str, model: str) -> Judge:
    """Make the judge of paraphrases: an endpoint, or without a URL the deterministic one.
    Cached."""
    if not url:
        return deterministic
    from assay.http_client import ChatEndpoint

    return endpoint_judge(ChatEndpoint(url, model, KEY_ENV))
