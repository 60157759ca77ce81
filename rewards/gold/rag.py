"""Mappers that remove words or sentences."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from rewards.gold.filters import STRIP_DJ
from rewards.gold.patterns import rx, std
from rewards.gold.text import MAX_GUARDED_LENGTH, merge_cells, split_cells

NO_LIMIT = 9223372036854775807
SUBSTRINGS = ("http", "www", ".com", "href", "//")


def remove_long_words(text: str, min_len: int = 1, max_len: int = NO_LIMIT) -> str:
    low, high = min_len or 1, max_len or NO_LIMIT

    def keep(match: re.Match[str]) -> str:
        word = match[0]
        return word if low <= len(word.strip(string.punctuation)) <= high else ""

    return std(r"\S+").sub(keep, text)


def remove_long_words_dj(text: str, min_len: int = 1, max_len: int = NO_LIMIT) -> str:
    def fits(word: str) -> bool:
        if min_len <= len(word) <= max_len:
            return True
        return len(word) > max_len and min_len <= len(word.strip(STRIP_DJ)) <= max_len

    return merge_cells([[[w for w in c if fits(w)] for c in line] for line in split_cells(text)])


def remove_words(text: str, lang: str = "en", substrings: Sequence[str] = SUBSTRINGS) -> str:
    if len(text) > MAX_GUARDED_LENGTH:
        return text
    lowered = [s.lower() for s in (substrings or SUBSTRINGS)]

    def keep(match: re.Match[str]) -> str:
        core = match[0].strip(string.punctuation).lower()
        return "" if any(s in core for s in lowered) else match[0]

    return std(r"\S+").sub(keep, text)


def remove_words_dj(text: str, lang: str = "en", substrings: Sequence[str] = SUBSTRINGS) -> str:
    if len(text) > MAX_GUARDED_LENGTH:
        return text
    wanted = substrings or SUBSTRINGS

    def fits(word: str) -> bool:
        core = word.strip(STRIP_DJ)
        return not any(s in core for s in wanted)

    return merge_cells([[[w for w in c if fits(w)] for c in line] for line in split_cells(text)])


CUTS = (
    r"([.。！!？\?])([^’”])",
    r"(\.{6})([^’”])",
    r"(\…{2})([^’”])",
    r"([.。！!？\?\.{6}\…{2}][’”])([^’”])",
)


def _sentences(line: str) -> list[str]:
    for cut in CUTS:
        line = rx(cut).sub(r"\1\n\2", line)
    return line.split("\n")


def remove_repeat_sentences(
    text: str,
    lowercase: bool = False,
    ignore_special_character: bool = True,
    min_repeat_sentence_length: int = 2,
) -> str:
    if len(text) > MAX_GUARDED_LENGTH:
        return text
    seen: set[str] = set()
    lines: list[str] = []
    for line in text.split("\n"):
        kept: list[str] = []
        for sentence in _sentences(line) if line else ():
            key = sentence.strip()
            if lowercase:
                key = key.lower()
            if ignore_special_character:
                key = rx(r"[^a-zA-Z0-9\u4e00-\u9fa5\n\t ]").sub("", key)
            if len(key) < min_repeat_sentence_length:
                kept.append(sentence)
            elif key not in seen:
                seen.add(key)
                kept.append(sentence)
        lines.append("".join(kept))
    return "\n".join(lines)


def remove_table_text(text: str, min_col: int = 2, max_col: int = 20) -> str:
    for i in range(min_col - 1, max_col):
        text = rx(rf"(?<=\n)((\S+?)([ |\t](\S+?)){{{i}}}\n+){{2,}}").sub("", text)
    return text
