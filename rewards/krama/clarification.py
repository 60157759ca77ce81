"""Whether a message asks the user back instead of going on: decided by its words, without a judge.

The paper counts tasks in which a model should have asked for clarification and did not (24 % and
43 % of the tasks for two models), by a judge that reads traces (Cemri et al. 2025, mode 2.2).
Whether it should have asked cannot be decided by words; whether it did can.
"""

from __future__ import annotations

import re

from rewards.thoughts import answer_after_thoughts

MAX_CHARS = 200_000  # of a message
_SENTENCE = re.compile(r"[^.?!\n]+[.?!]*")
_VERBS = (
    r"(?:clarify|confirm|provide|specify|share|upload|attach|send|explain|advise|define|tell me|"
    r"let me know|give me|point me|indicate)\b"
)
_REQUEST = re.compile(
    r"\b(?:(?:could|can|would|will) you (?:please |kindly )?|(?:please|kindly) (?:also )?)"
    rf"{_VERBS}",
    re.IGNORECASE,
)
_CHOICE = re.compile(
    r"\b(?:(?:do|did|would|are|have) you (?:want|mean|prefer|like|intend|have|referring|"
    r"looking|able)|(?:should|shall|may|can) I|which (?:one|of these) (?:do|did|should))\b",
    re.IGNORECASE,
)
_NEED = re.compile(
    r"\b(?:I|we)(?: will|'ll| would|'d)? (?:first )?(?:need|require|must have|ask for|"
    r"am asking for|lack) (?:some |any |the )?(?:more |further |additional |missing )?"
    r"(?:clarification|clarity|information from you|details from you|context from you|input from "
    r"you)\b",
    re.IGNORECASE,
)


def asks_back(text: str) -> bool:
    """Whether a sentence outside code and thoughts asks the user for something, or needs
    clarification. Linear in the text. A question to oneself ("Which column holds the year?") is
    none."""
    return any(_asks(sentence) for sentence in _SENTENCE.findall(_prose(text[-MAX_CHARS:])))


def _asks(sentence: str) -> bool:
    if _REQUEST.search(sentence) or _NEED.search(sentence):
        return True
    return sentence.endswith("?") and _CHOICE.search(sentence) is not None


def _prose(text: str) -> str:
    """Without blocks of code, and without what a reasoning model thinks before it answers."""
    said = answer_after_thoughts(text)
    return "\n".join(said.split("```")[::2])
