"""Judges of paraphrase: does an answer say the same as the target?

Three of them share one signature, `(prediction, target) -> Verdict`: a deterministic one (the
default; specification notes, section 6), a scripted one (tests and replayed verdicts), and any
OpenAI-compatible chat endpoint (`EndpointJudge`, in `rewards.krama.judge_endpoint`).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache


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
    {
        "no",
        "not",
        "never",
        "none",
        "neither",
        "nor",
        "without",
        "cannot",
        "cant",
        "dont",
        "doesnt",
        "didnt",
        "isnt",
        "arent",
        "wasnt",
        "werent",
        "wont",
        "hasnt",
        "havent",
    }
)
# Words that carry no fact of their own: articles, copulas, prepositions, conjunctions.
_STOP = _ARTICLES | frozenset(
    {
        "is",
        "are",
        "was",
        "were",
        "be",
        "been",
        "being",
        "it",
        "its",
        "this",
        "that",
        "these",
        "those",
        "there",
        "of",
        "in",
        "on",
        "at",
        "to",
        "for",
        "by",
        "with",
        "from",
        "as",
        "and",
        "or",
        "but",
        "which",
        "who",
        "whose",
        "what",
        "has",
        "have",
        "had",
        "do",
        "does",
        "did",
        "than",
        "then",
        "so",
    }
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
    kept = "".join(instead if c != "%" and unicodedata.category(c)[0] == "P" else c for c in text)
    return [word for word in kept.split() if word not in _ARTICLES]


@lru_cache(maxsize=4096)
def _read(text: str) -> _Reading:
    folded = unicodedata.normalize("NFKC", text).lower()
    joined, spaced = _squeeze(folded, ""), _squeeze(folded, " ")
    words = frozenset(joined) | frozenset(spaced)
    numbers: Counter[float] = Counter()
    for found in _NUMBER.findall(folded):
        numbers[float(found.replace(",", ""))] += 1
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
        return Verdict(
            bool(want.spaced) or prediction.strip().lower() == target.strip().lower(), "equal"
        )
    if said.pole and want.pole and len(want.spaced.split()) <= 3:
        return Verdict(said.pole == want.pole, "pole")
    if said.numbers != want.numbers:
        return Verdict(False, "numbers")
    held = bool(want.words) and all(w in said.words for w in want.content)
    held = held and (bool(want.content) or bool(want.numbers))
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
    """Whether a text has so many words beside the target's that it may list candidates, as all
    names with blanks between them do."""
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
