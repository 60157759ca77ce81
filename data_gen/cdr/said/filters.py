"""What the conditions of filters say, counted in every way that their words allow.

A filter's row stands only where all ways of counting decide alike: whether a number is a word, or a
line end a character of its line, is not said.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import isqrt

Counts = Callable[[str], Iterable[float]]


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


def repeated_runs(text: str) -> Iterable[float]:
    """The share of the one run that occurs most often, and of all that occur again: how many are
    "the most repeated ones" is not said."""
    counts = _runs(text)
    again = [count for count in counts.values() if count > 1]
    total = max(1, counts.total())
    yield max(again, default=0) / total
    yield sum(again) / total


def _runs(text: str) -> Counter[str]:
    return Counter(text[at : at + 10] for at in range(len(text) - 9))


def commonest_runs(text: str) -> float:
    counts = _runs(text)
    most = counts.most_common(isqrt(len(counts)))
    return sum(count for _, count in most if count > 1) / max(1, counts.total())


def words_with_a_letter(text: str) -> float:
    return sum(any(map(str.isalpha, one)) for one in text.split())


def characters_a_line(text: str) -> float:
    return len(text) / max(1, text.count("\n") + (not text.endswith("\n")))


def words_again(text: str) -> float:
    words = [w for w in (t.strip(_AROUND) for t in text.lower().split()) if w]
    counts = Counter(tuple(words[at : at + 10]) for at in range(len(words) - 9))
    return sum(count for count in counts.values() if count > 1) / max(1, counts.total())


_AROUND = string.punctuation + string.digits

# Of the longer conditions, which leave one way of counting.
LETTER: dict[str, Callable[[str], float]] = {
    "average_line_length_filter": characters_a_line,
    "character_repetition_filter": commonest_runs,
    "word_repetition_filter": words_again,
    "words_num_filter": words_with_a_letter,
}
COUNTS: dict[str, Counts] = {
    "character_repetition_filter": repeated_runs,
    "text_length_filter": characters,
    "words_num_filter": words,
    "alphanumeric_filter": letters,
    "average_line_length_filter": mean_line,
    "maximum_line_length_filter": longest_line,
    "word_repetition_filter": repeated_words,
}
