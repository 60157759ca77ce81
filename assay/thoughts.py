"""What a reasoning model writes before its answer, set apart from the answer.

A thought is no part of an answer and costs nothing. Every scorer reads what is left: `score_answer`
sets thoughts apart for all families, and the scorers that are called with a bare text do so too;
so do the parser of tool calls and the agents that read code out of a message.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# How model families mark a thought: (opening, closing).
MARKS = (
    ("<think>", "</think>"),  # DeepSeek-R1, Qwen3, GLM, MiniMax, Nemotron, Phi-4, Step, EXAONE 4
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("[THINK]", "[/THINK]"),  # Magistral, Ministral
    ("◁think▷", "◁/think▷"),  # Kimi-VL
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # OpenThinker, Sky-T1
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),  # gpt-oss
    ("<|channel>thought", "<channel|>"),  # Gemma 4
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command R7B, Command A
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),  # EXAONE Deep
    ("<reasoning>", "</reasoning>"),
    ("<reflection>", "</reflection>"),
)
# The same in words. An answer may begin like this, so here a thought is what both stand around.
_WORDS = (
    (r"Here(?:'s| is) my thought process:", r"Here(?:'s| is) my response:"),  # Granite 3.2
    (r"Here are my reasoning steps:", r"\[BEGIN FINAL RESPONSE\]"),  # Apriel
    (r"analysis", r"assistantfinal"),  # gpt-oss, where its control tokens were left out
)
# A chat template may write the opening mark into the prompt; then only the closing one is sampled.
_OPENED_BY_TEMPLATES = (
    *("</think>", "</seed:think>", "[/THINK]", "◁/think▷", "</thought>", "<|END_THINKING|>"),
    *("<|channel|>final<|message|>", "[BEGIN FINAL RESPONSE]"),
)
# What some families put around the answer that follows a thought: Hunyuan; ERNIE and Granite 3.3;
# Reflection; OpenThinker; Command A.
WRAPS = (
    ("<answer>", "</answer>"),
    ("<response>", "</response>"),
    ("<output>", "</output>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
)
_ENDS = ("<|return|>", "<|end|>", "[END FINAL RESPONSE]")  # control tokens of gpt-oss and Apriel
_SPACE = re.compile(r"\s*")
_FENCE = re.compile(r"```[\w-]*[ \t]*\n\s*")
_FENCED = "```"
# What holds no mark is let through after a quick search: for a first character of one, which takes
# milliseconds in 100 MB, then for what stands in every mark.
_FIRST = ("<", "[", "◁")
_CONTROLS = ("<|", "[BEGIN FINAL")
_SIGNS = ("think", "THINK", "thought", "reasoning>", "reflection>", *_CONTROLS)


@dataclass(frozen=True)
class Parted:
    """A message in its two parts. `missing` is the mark that would close a thought that was begun
    and not closed: then there is no answer."""

    thought: str
    answer: str
    missing: str = ""

    @property
    def ended(self) -> bool:
        return not self.missing


def answer_after_thoughts(
    text: str, gold: str | Callable[[], str] = "", prompt: str | Callable[[], str] = ""
) -> str:
    """The part of a model's message that is its answer (see `parted`)."""
    return parted(text, gold, prompt).answer


def parted(
    text: str,
    gold: str | Callable[[], str] = "",
    prompt: str | Callable[[], str] = "",
    whole: Callable[[], Sequence[tuple[int, int]]] = tuple,
) -> Parted:
    """A model's message as thought and answer.

    Thoughts at the start are taken away, with the white space after them; so is one that ends the
    message. A closing mark that nothing opened ends a thought that the chat template began: what
    follows the last one is the answer. A thought that is not closed leaves no answer: "". What a
    family puts around its answer is taken off.

    A mark in quotes is spoken of, and one inside a place (start, end) that `whole` names is part
    of what stands there. Where `gold` holds a mark, it ends no thought that nothing opened, and
    where gold begins with one, it opens none; where `prompt` asks for tags around the answer, they
    stay. Functions are called only when the message holds a mark. Never raises for any `text`.
    """
    if not may_think(text):
        return Parted("", text)
    pairs = [pair for pair in MARKS if pair[0] in text or pair[1] in text]
    if not (pairs or _begins_in_words(text) or any(sign in text for sign in _CONTROLS)):
        return Parted("", text)
    right = gold if isinstance(gold, str) else gold()
    found = _Reading(text, pairs, right, whole())
    if missing := found.leading():
        return Parted(found.said(), "", missing)
    found.trailing()
    found.unopened()
    answer = text[found.at : found.end]
    asked = right + (prompt if isinstance(prompt, str) else prompt())
    answer = _unwrapped(answer, asked, bool(found.thoughts))
    if not found.thoughts and len(answer) == found.end - found.at:
        return Parted("", text)  # as it came, with its white space
    return Parted(found.said(), answer)


def may_think(text: str) -> bool:
    """Whether a message may hold a mark."""
    if _begins_in_words(text):
        return True
    return all(any(sign in text for sign in signs) for signs in (_FIRST, _SIGNS))


def _begins_in_words(text: str) -> bool:
    return text.startswith(("Here", "analysis"), _after_space(text, 0))


class _Pair:
    """Where the marks of one kind stand in a text. Those in quotes are `spoken` of."""

    def __init__(
        self, text: str, opening: str, closing: str, whole: Sequence[tuple[int, int]]
    ) -> None:
        self.opening, self.closing = opening, closing
        every = _spots(text, opening, closing, whole)
        spots = [(at, opens) for at, opens, spoken in every if not spoken]
        self.closings = [at for at, opens in spots if not opens]
        self.spoken = [at for at, opens, spoken in every if spoken and not opens]
        self.closed_at: dict[int, int] = {}  # an opening → its closing
        self.opened_at: dict[int, int] = {}  # a closing → its opening
        stack: list[int] = []
        for at, opens in spots:
            if opens:
                stack.append(at)
            elif stack:
                begin = stack.pop()
                self.closed_at[begin], self.opened_at[at] = at, begin


def _spots(
    text: str, opening: str, closing: str, whole: Sequence[tuple[int, int]]
) -> list[tuple[int, bool, bool]]:
    """(place, whether it opens, whether it stands in quotes) of the marks, in order."""
    either = f"(?P<open>{re.escape(opening)})|{re.escape(closing)}"
    starts = [start for start, _ in whole]
    found: list[tuple[int, bool, bool]] = []
    for mark in re.finditer(either, text):
        start, end = mark.span()
        inside = bisect_right(starts, start) - 1
        if inside < 0 or start >= whole[inside][1]:
            quoted = text[start - 1 : start] in _QUOTES and text[end : end + 1] in _QUOTES
            found.append((start, mark["open"] is not None, quoted))
    return found


_QUOTES = ("'", '"', "`")


class _Reading:
    """A message being read: its answer lies between `at` and `end`."""

    def __init__(
        self,
        text: str,
        pairs: Sequence[tuple[str, str]],
        gold: str,
        whole: Sequence[tuple[int, int]],
    ) -> None:
        self.text = text
        self.at, self.end = _after_space(text, 0), len(text)
        self.thoughts: list[str] = []
        self._gold, self._begin = gold, gold.lstrip()
        self._pairs = [_Pair(text, a, b, whole) for a, b in pairs]
        self._held = {p.closing for p in self._pairs if p.opening in gold or p.closing in gold}

    def said(self) -> str:
        """All that was thought."""
        return "\n\n".join(filter(None, map(str.strip, self.thoughts)))

    def leading(self) -> str:
        """Pass over the thoughts at the start; the mark that is missing where one is not closed."""
        text = self.text
        while True:
            fence = _FENCE.match(text, self.at)
            at = fence.end() if fence else self.at
            pair = next((p for p in self._pairs if text.startswith(p.opening, at)), None)
            if pair is None or self._begun_by_gold(pair.opening, text[self.at : at]):
                self._in_words()
                return ""
            close = pair.closed_at.get(at, -1)
            if close < 0:  # a mark that the thought speaks of may have taken the one that closes
                close = _next(pair.closings, at, last=pair.closing not in self._held)
                close = close if close >= 0 else _next(pair.spoken, at, last=True)
            inside = at + len(pair.opening)
            self._take(inside, close if close >= 0 else self.end)
            if close < 0:
                return pair.closing
            self.at = _after_space(text, close + len(pair.closing))
            if fence and text.startswith(_FENCED, self.at):
                self.at = _after_space(text, self.at + len(_FENCED))

    def _begun_by_gold(self, opening: str, fence: str) -> bool:
        """Whether gold begins with a mark, in a fence or not: then it is text."""
        return self._begin.startswith((opening, fence + opening))

    def _in_words(self) -> None:
        """Pass over a thought that is marked in words."""
        for opening, closing in _WORDS:
            begun = re.compile(opening).match(self.text, self.at)
            ended = begun and re.compile(closing).search(self.text, begun.end())
            if begun and ended and not re.match(opening, self._begin):
                self._take(begun.end(), ended.start())
                self.at = _after_space(self.text, ended.end())
                break

    def trailing(self) -> None:
        """Leave out thoughts that follow the answer and end the message."""
        text, end = self.text, self._before_space(self.end)
        while pair := next(
            (p for p in self._pairs if text.endswith(p.closing, self.at, end)), None
        ):
            close = end - len(pair.closing)
            begin = pair.opened_at.get(close, -1)
            if pair.closing in self._held or _after_space(text, self.at) >= begin:
                return
            self._take(begin + len(pair.opening), close)
            self.end = end = self._before_space(begin)

    def _before_space(self, end: int) -> int:
        while end > self.at and self.text[end - 1].isspace():
            end -= 1
        return end

    def unopened(self) -> None:
        """Pass over thoughts that the template began, to the last mark that closes one."""
        for closing in _OPENED_BY_TEMPLATES:
            pair = next((p for p in self._pairs if p.closing == closing), None)
            if pair is None and (closing in self._gold or closing not in self.text):
                continue
            if closing in self._held:
                continue
            places = pair.closings if pair else [self.text.rfind(closing)]
            last = next((c for c in reversed(places) if self.at <= c < self.end), -1)
            if last >= 0:
                self._take(self.at, last)
                self.at = _after_space(self.text, last + len(closing))

    def _take(self, begin: int, end: int) -> None:
        self.thoughts.append(self.text[begin:end])


def _next(places: Sequence[int], after: int, last: bool) -> int:
    """The first or the last of some places that come after one; -1 for none."""
    at = bisect_right(places, after)
    return -1 if at == len(places) else places[-1 if last else at]


def _unwrapped(answer: str, asked: str, thought: bool) -> str:
    """An answer without what its family puts around it; `asked`: texts whose tags stay."""
    for end in _ENDS:
        whole = answer.rstrip()
        if whole.endswith(end) and end not in asked:
            answer = whole.removesuffix(end).rstrip()
    for opening, closing in WRAPS:
        if not answer.startswith(opening) or opening in asked or not (thought or "|" in opening):
            continue
        inner, found, rest = answer.removeprefix(opening).rpartition(closing)
        if found and not rest.strip():
            return inner.strip()
        if not found:  # cut before its end
            return rest.lstrip()
    return answer


def _after_space(text: str, at: int) -> int:
    """The first place from `at` on that is no white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at
