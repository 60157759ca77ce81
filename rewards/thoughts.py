"""What a reasoning model writes before its answer, set apart from the answer.

A thought is no part of an answer and costs nothing. Every scorer reads what is left: `score_answer`
sets thoughts apart for all families, and the scorers that are called with a bare text do so too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# How model families mark a thought: (opening, closing).
MARKS = (
    ("<think>", "</think>"),  # DeepSeek-R1, Qwen3, GLM, MiniMax, Nemotron
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("[THINK]", "[/THINK]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi-VL
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # OpenThinker, Sky-T1
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),  # gpt-oss
    ("<|channel>thought", "<channel|>"),  # Gemma 4
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
)
# A chat template may write the opening mark into the prompt; then only the closing one is sampled.
_OPENED_BY_TEMPLATES = {"</think>", "</seed:think>", "[/THINK]", "◁/think▷"}
_SPACE = re.compile(r"\s*")
# What holds no mark is let through after a quick search: for a first character of one, which takes
# milliseconds in 100 MB, then for what stands in every mark.
_FIRST = ("<", "[", "◁")
_SIGNS = ("think", "THINK", "thought", "<reasoning>", "<|channel")


def answer_after_thoughts(text: str, gold: str | Callable[[], str] = "") -> str:
    """The part of a model's message that is its answer.

    Thoughts at the start are taken away, with the white space after them. A closing mark that
    nothing opened ends a thought that the chat template began. A thought that is not closed leaves
    no answer: "". A mark that `gold` holds is text like any other; a function is called only when
    the message holds a mark. Never raises for any `text`.
    """
    for signs in (_FIRST, _SIGNS):
        if not any(sign in text for sign in signs):
            return text
    marks = [pair for pair in MARKS if pair[0] in text or pair[1] in text]
    if not marks:
        return text
    right = gold if isinstance(gold, str) else gold()
    marks = [(a, b) for a, b in marks if a not in right and b not in right]
    at = begin = _after_space(text, 0)
    while pair := next((p for p in marks if text.startswith(p[0], at)), None):
        end = text.find(pair[1], at + len(pair[0]))
        if end < 0:
            return ""
        at = _after_space(text, end + len(pair[1]))
    for _, closing in marks:
        end = text.rfind(closing, at) if closing in _OPENED_BY_TEMPLATES else -1
        if end >= 0:
            at = _after_space(text, end + len(closing))
    return text if at == begin else text[at:]


def _after_space(text: str, at: int) -> int:
    """The first place from `at` on that is no white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at
