"""Reading a model's tagged answer, and the text normalisation answers are compared under.

Two readings of the same answer. `release` is the published scorer's and forgives everything: no
status means KEEP, no text tag means the whole response. `strict` is what training uses, because a
forgiving reading pays a model for never learning the format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rapidfuzz.distance import Levenshtein

Parsing = Literal["strict", "release"]
PARSINGS: tuple[Parsing, ...] = ("strict", "release")
ANALYSIS_MODES = ("plan_first", "state_aware")  # modes: an <analyze> block leads the answer

_RELEASE_STATUS = re.compile(r"<status>\s*(KEEP|DROP)\s*</status>", re.IGNORECASE)
_TEXT_OPENS = re.compile(r"<clean_text>", re.IGNORECASE)
_TEXT_CLOSES = re.compile(r"</clean_text>", re.IGNORECASE)
_STRICT = re.compile(r"\s*<status>([^<]*)</status>\s*<clean_text>(.*)</clean_text>\s*", re.DOTALL)
_TAGS = ("<status>", "</status>", "<clean_text>", "</clean_text>")
_BLANK_LINES = re.compile(r"\n{3,}")
_SPACES_BEFORE_MARKS = (" ,", " .", " ;", " :", " !", " ?")


@dataclass(frozen=True)
class Parsed:
    """What was read: `why` is `ok`, `no_answer` or `bad_status`; text is "" unless it is `ok`."""

    status: str
    text: str
    why: str = "ok"


def parse_release(output: str) -> Parsed:
    """The published reading; it always finds an answer.

    The text is the first match of `<clean_text>(.*?)</clean_text>`, found in two steps: the pattern
    as a whole is quadratic in openings that nothing closes.
    """
    status = _RELEASE_STATUS.search(output)
    opening = _TEXT_OPENS.search(output)
    closing = _TEXT_CLOSES.search(output, opening.end()) if opening else None
    text = output[opening.end() : closing.start()] if opening and closing else output.strip()
    return Parsed(status.group(1).upper() if status else "KEEP", text)


def parse_strict(output: str) -> Parsed:
    """Each of the four tags exactly once, in order, and nothing but whitespace around the pairs.

    `bad_status` is a well-formed answer whose status is neither KEEP nor DROP.
    """
    for tag in _TAGS:
        if output.count(tag) != 1:
            return Parsed("", "", "no_answer")
    match = _STRICT.fullmatch(output)
    if match is None:
        return Parsed("", "", "no_answer")
    status = match.group(1).strip()
    if status not in ("KEEP", "DROP"):
        return Parsed("", "", "bad_status")
    return Parsed(status, match.group(2))


def parse(output: str, parsing: str = "strict") -> Parsed:
    """Read an answer. Raises ValueError only for a `parsing` that does not exist."""
    if parsing not in PARSINGS:
        raise ValueError(f"parsing={parsing!r}: wanted one of {', '.join(PARSINGS)}")
    return parse_strict(output) if parsing == "strict" else parse_release(output)


def render(status: str, text: str) -> str:
    """Write the answer a model should have given; `parse(render(s, t))` gives back `s` and `t`."""
    return f"<status>{status}</status><clean_text>{text}</clean_text>"


def normalise_lines(text: str) -> str:
    """Bring line ends into one form (n1, spec section 12.1): one line ending, no trailing blanks,
    at most one empty line in a row, trimmed.

    By splitting, not by the pattern `[ \\t]+\\n`, which is quadratic on a long run of spaces.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    body = "\n".join([*(line.rstrip(" \t") for line in lines[:-1]), lines[-1]])
    return (_BLANK_LINES.sub("\n\n", body) if "\n\n\n" in body else body).strip()


def edit_distance(one: str, other: str) -> int:
    """Count the edits of one character each between two texts (Levenshtein).

    Texts are near to each other as a rule, and the hint, which changes no result, lets the library
    look there first.
    """
    return Levenshtein.distance(one, other, score_hint=abs(len(one) - len(other)))


def same_text(one: str, other: str) -> bool:
    """Tell whether two texts are equal after `normalise`."""
    if one == other:
        return True
    # It only takes away spaces, tabs and line ends, beside what stands around the whole: where
    # more differs, as in most wrong answers, counting tells sooner.
    return _solid(one) == _solid(other) and normalise(one) == normalise(other)


def _solid(text: str) -> int:
    """How many characters of a text no normalisation takes away."""
    text = text.strip()
    blanks = text.count(" ") + text.count("\n")
    return len(text) - blanks - text.count("\t") - text.count("\r")


def normalise(text: str) -> str:
    """Bring a text into the form that RS compares (n2, spec section 12.1): n1, then runs of
    spaces and tabs as one space and none before `, . ; : ! ?`."""
    text = normalise_lines(text).replace("\t", " ")
    while "  " in text:  # a run is halved every time
        text = text.replace("  ", " ")
    for pair in _SPACES_BEFORE_MARKS:  # no two spaces are left, so the order does not matter
        if pair in text:
            text = text.replace(pair, pair[1])
    return text
