"""Mappers that remove words or sentences."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from rewards.gold.core import (
    INF,
    MAX_GUARDED_LENGTH,
    SPECIAL_DJ,
    merge_cells,
    rx,
    split_cells,
    std,
)

SUBSTRINGS = ("http", "www", ".com", "href", "//")


_STRIP_DJ = "".join(sorted(SPECIAL_DJ))
_PUNCTUATION = re.escape(string.punctuation)
# A token of nothing but ASCII punctuation. The look-behind follows the first character so that
# the search can start at punctuation; possessive, because giving back never helps.
_ONLY_PUNCTUATION = rf"[{_PUNCTUATION}](?<!\S.)[{_PUNCTUATION}]*+(?!\S)"


def _strip_dj(word: str) -> str:
    # Stripping by 1,600 characters is slow, and nearly every word starts and ends with a letter.
    if word and (word[0] in SPECIAL_DJ or word[-1] in SPECIAL_DJ):
        return word.strip(_STRIP_DJ)
    return word


def remove_long_words(text: str, min_len: int = 1, max_len: int = INF) -> str:
    """Deletes words whose length without punctuation is outside the limits; by default only
    words that are nothing but punctuation."""
    low, high = min_len or 1, max_len or INF
    if low == 1 and high >= len(text):
        return std(_ONLY_PUNCTUATION).sub("", text)

    def keep(match: re.Match[str]) -> str:
        word = match[0]
        return word if low <= len(word.strip(string.punctuation)) <= high else ""

    return std(r"\S+").sub(keep, text)


def remove_long_words_dj(text: str, min_len: int = 1, max_len: int = INF) -> str:
    """`remove_long_words_mapper` in profile `dj`; operators.yaml says how it differs."""

    def fits(word: str) -> bool:
        if min_len <= len(word) <= max_len:
            return True
        return len(word) > max_len and min_len <= len(_strip_dj(word)) <= max_len

    if min_len <= 1 and max_len >= len(text):
        return merge_cells(split_cells(text))
    return merge_cells([[[w for w in c if fits(w)] for c in line] for line in split_cells(text)])


def _has_substring(token: str, lowered: Sequence[str]) -> bool:
    core = token.strip(string.punctuation).lower()
    return any(s in core for s in lowered)


def remove_words(text: str, lang: str = "en", substrings: Sequence[str] = SUBSTRINGS) -> str:
    """Deletes words that contain one of the substrings; texts over 80,000 characters are
    returned as they are."""
    if len(text) > MAX_GUARDED_LENGTH:
        return text
    lowered = [s.lower() for s in (substrings or SUBSTRINGS)]
    if "Σ" in text:  # the one letter whose lower case depends on its neighbours
        return std(r"\S+").sub(lambda m: "" if _has_substring(m[0], lowered) else m[0], text)
    low = text.lower()
    if not any(s in low for s in lowered):
        return text
    # A token that contains a deleted token is deleted too, so looking for the deleted ones from
    # left to right finds exactly their own places.
    out: list[str] = []
    last = 0
    for token in text.split():
        if _has_substring(token, lowered):
            start = text.index(token, last)
            out.append(text[last:start])
            last = start + len(token)
    return "".join((*out, text[last:]))


def remove_words_dj(text: str, lang: str = "en", substrings: Sequence[str] = SUBSTRINGS) -> str:
    """`remove_words_with_incorrect_substrings_mapper` in profile `dj`; operators.yaml says how
    it differs."""
    if len(text) > MAX_GUARDED_LENGTH:
        return text
    wanted = substrings or SUBSTRINGS

    def fits(word: str) -> bool:
        return not any(s in word for s in wanted) or not any(s in _strip_dj(word) for s in wanted)

    cells = split_cells(text)
    if any(s in text for s in wanted):
        cells = [[[w for w in c if fits(w)] for c in line] for line in cells]
    return merge_cells(cells)


# A sentence ends at one of these when another character than a closing quote follows; that
# character opens the next sentence and, being consumed, cannot itself end one.
_MARKS = ".。！!？?"
_SENTENCE = rf"(?s:.)[^{_MARKS}]*(?:[{_MARKS}](?=[’”]|\Z)[^{_MARKS}]*)*[{_MARKS}]?"
_AFTER_DOTS = r"(\…{2})([^’”])"
_AFTER_QUOTE = r"([.。！!？\?\.{6}\…{2}][’”])([^’”])"
_NOT_KEY = r"[^a-zA-Z0-9\u4e00-\u9fa5\n\t ]"
_KEY_TABLE = {i: None for i in range(128) if not (chr(i).isalnum() or chr(i) in "\n\t ")}


def _sentences(line: str) -> list[str]:
    """The reference's four substitutions. Its second never applies: the first leaves no more
    than two full stops in a row."""
    # A stand-in for the consumed character lets the first sentence use the same pattern.
    parts: list[str] = std(_SENTENCE).findall("x" + line)
    parts[0] = parts[0][1:]
    if "……" in line or "’" in line or "”" in line:
        joined = std(_AFTER_DOTS).sub(r"\1\n\2", "\n".join(parts))
        return std(_AFTER_QUOTE).sub(r"\1\n\2", joined).split("\n")
    return parts


def _key(sentence: str, lowercase: bool, only_plain: bool) -> str:
    key = sentence.strip()
    if lowercase:
        key = key.lower()
    if not only_plain:
        return key
    return key.translate(_KEY_TABLE) if key.isascii() else std(_NOT_KEY).sub("", key)


def remove_repeat_sentences(
    text: str,
    lowercase: bool = False,
    ignore_special_character: bool = True,
    min_repeat_sentence_length: int = 2,
) -> str:
    """Keeps the first of each repeated sentence; texts over 80,000 characters are returned as
    they are."""
    if len(text) > MAX_GUARDED_LENGTH:
        return text
    seen: set[str] = set()
    lines: list[str] = []
    for line in text.split("\n"):
        kept = ""
        for sentence in _sentences(line) if line else ():
            key = _key(sentence, lowercase, ignore_special_character)
            if len(key) < min_repeat_sentence_length:
                kept += sentence
            elif key not in seen:
                seen.add(key)
                kept += sentence
        lines.append(kept)
    return "\n".join(lines)


def remove_table_text(text: str, min_col: int = 2, max_col: int = 20) -> str:
    """Deletes runs of two or more lines with the same number of columns."""
    for i in range(min_col - 1, max_col):
        text = rx(rf"(?<=\n)((\S+?)([ |\t](\S+?)){{{i}}}\n+){{2,}}").sub("", text)
    return text
