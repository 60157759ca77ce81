"""The link mapper: two unrelated patterns, one a profile."""

from __future__ import annotations

import re
from collections.abc import Iterator

import regex

from rewards.gold.patterns import rx, std, sub_within

LINK_BENCH = (
    r"\b(?:https?|ftp)://[^\s<>()\[\]{}'\"`]+"
    r"|\bwww\d{0,3}\.[^\s<>()\[\]{}'\"`]+"
    r"|\b[a-z0-9][a-z0-9.-]+\.[a-z]{2,24}/[^\s<>()\[\]{}'\"`]*"
    r"|\bmailto:[A-Z0-9._%+-]+@[A-Z0-9.-]+\.[A-Z]{2,}"
    r"|\b[A-Z0-9._%+-]+@[A-Z0-9.-]+\.[A-Z]{2,}"
)
LINK_DJ = (
    r"(?i)\b((?:[a-z][\w-]+:(?:\/{1,3}|[a-z0-9%])|www\d{0,3}[.]|[a-z0-9.\-]+[.][a-z]{2,4}\/)"
    r"(?:[^\s()<>]+|\(([^\s()<>]+|(\([^\s()<>]+\)))*\))+"
    r"(?:\(([^\s()<>]+|(\([^\s()<>]+\)))*\)|[^\s`!()\[\]{};:\'\".,<>?«»“”‘’]))"
)


# Every `bench` link holds one of these; the first character class is what makes it fast to find.
_ANCHOR = (
    r"[:@wW.](?:(?<=:)//|(?<=@)|(?<=[wW])[wW]{2}\d{0,3}\."
    r"|(?<=\.)[a-zA-Z\u0080-\U0010ffff]{2,24}/)"
)
# No `bench` link holds one of these, so a link lies between two of them.
_BREAK = r"[ \t\n\r<>()\[\]{}'\"`]"


def _link_spans(text: str) -> Iterator[tuple[int, int]]:
    """The unbroken runs of characters around every anchor, each once."""
    last = 0
    anchors, breaks = std(_ANCHOR), std(_BREAK)
    before = rx("(?r)" + _BREAK)
    found = anchors.search(text)
    while found:
        left = before.search(text, last, found.start())
        start = left.end() if left else last
        right = breaks.search(text, found.end())
        last = right.start() if right else len(text)
        yield start, last
        found = anchors.search(text, last)


def clean_links(text: str, repl: str = "") -> str:
    return sub_within(std(LINK_BENCH, re.IGNORECASE), repl, text, _link_spans(text))


def clean_links_dj(text: str, repl: str = "") -> str:
    if ":" not in text and "/" not in text and "www" not in text.lower():
        return text
    return rx(LINK_DJ, regex.DOTALL).sub(repl, text)
