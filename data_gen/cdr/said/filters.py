"""What the conditions of filters say, counted in every way that their words allow.

A filter's row stands only where all ways of counting decide alike: whether a number is a word, or a
line end a character of its line, is not said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

Counts = Callable[[str], Iterable[float]]

_TOKEN = re.compile(r"\S+")


def characters(text: str) -> Iterable[float]:
    yield len(text)


def words(text: str) -> Iterable[float]:
    """Tokens with a letter, those with a letter or digit, and words within tokens."""
    tokens = text.split()
    yield sum(any(map(str.isalpha, one)) for one in tokens)
    yield sum(any(map(str.isalnum, one)) for one in tokens)


def letters(text: str) -> Iterable[float]:
    yield sum(map(str.isalnum, text)) / len(text) if text else 0.0


def mean_line(text: str) -> Iterable[float]:
    """With and without the line ends, of all lines and of those that hold something."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    full = [line for line in lines if line.strip()]
    if not full:
        yield 0.0
        return
    yield len(text) / len(lines)
    yield sum(map(len, lines)) / len(lines)
    yield sum(map(len, full)) / len(full)


def longest_line(text: str) -> Iterable[float]:
    yield max(map(len, text.split("\n")))


def repeated_words(text: str) -> Iterable[float]:
    """The share of all that occur again, with the first of them and without."""
    tokens = text.lower().split()
    for own in (tokens, [w for w in (t.strip("\"'.,;:!?()[]{}") for t in tokens) if w]):
        yield from _repeated(own, 10)


def _repeated(words: Sequence[str], size: int) -> Iterable[float]:
    total = len(words) - size + 1
    if total < 1:
        yield 0.0
        return
    counts = Counter(tuple(words[at : at + size]) for at in range(total))
    more = [count for count in counts.values() if count > 1]
    yield sum(more) / total
    yield (sum(more) - len(more)) / total


COUNTS: dict[str, Counts] = {
    "text_length_filter": characters,
    "words_num_filter": words,
    "alphanumeric_filter": letters,
    "average_line_length_filter": mean_line,
    "maximum_line_length_filter": longest_line,
    "word_repetition_filter": repeated_words,
}
