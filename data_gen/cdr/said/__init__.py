"""Whether a step does to a text what its words say, no more and no less, read apart from the
operators.

An operator may do more or less than the sentence that asks for it. Here each sentence is taken by
its letter: a reading gives the text that the words lead to, or None where the words do not settle
it. A task is asked in the words that lead to its gold. A row whose gold no words lead to is no
training row.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isqrt
from typing import Any

from data_gen.cdr.said import identifiers, texts
from data_gen.cdr.said.identifiers import Reading
from data_gen.cdr.said.texts import is_comment
from rewards.gold import OPERATORS, Step

# Of every mapper that is judged what its words say, manner by manner: the short ones, then those to
# the letter, as in `data_gen.cdr.instruct.TO_THE_LETTER`.
READINGS: dict[str, tuple[Reading, ...]] = {
    "clean_channel_id_mapper": (identifiers.chat,),
    "clean_copyright_mapper": (texts.without_licence, texts.lines_at_the_top),
    "clean_email_mapper": (identifiers.mail,),
    "clean_html_mapper": (texts.without_tags, texts.angle_brackets),
    "clean_id_card_mapper": (identifiers.card,),
    "clean_ip_mapper": (identifiers.network,),
    "clean_jwt_mapper": (identifiers.web_token,),
    "clean_links_mapper": (identifiers.link, identifiers.links_with_their_marks),
    "clean_mac_mapper": (identifiers.hardware,),
    "clean_path_mapper": (identifiers.path, identifiers.slashed_names),
    "clean_pem_mapper": (identifiers.key_block,),
    "clean_phone_mapper": (identifiers.phone, identifiers.phones_of_the_usual_form),
    "clean_secret_mapper": (identifiers.secret, identifiers.values_of_listed_names),
    "expand_macro_mapper": (texts.macros_written_out,),
    "extract_tables_from_html_mapper": (texts.tables, texts.tables_of_pieces),
    "fix_unicode_mapper": (texts.decoded_right, texts.quotes_straight, texts.characters_plain),
    "punctuation_normalization_mapper": (texts.plain_marks, texts.listed_marks),
    "remove_bibliography_mapper": (texts.until_bibliography,),
    "remove_comments_mapper": (texts.without_comments, texts.percent_signs),
    "remove_header_mapper": (texts.from_heading, texts.from_any_heading),
    "remove_long_words_mapper": (texts.marks_alone, texts.ascii_marks),
    "remove_repeat_sentences_mapper": (texts.repeats, texts.repeated_pieces, texts.repeated_parts),
    "remove_specific_chars_mapper": (texts.bullets,),
    "remove_words_with_incorrect_substrings_mapper": (
        identifiers.words_of_links,
        identifiers.words_of_links_in_any_case,
    ),
    "whitespace_normalization_mapper": (texts.blanks, texts.listed_blanks),
}
OTHER_FIGURES = "shows other figures than it says"
UNSETTLED = "decides by a count that its words do not settle"
FIGURES = "latex_figure_context_extractor_mapper"
_PARTS = (FIGURES, "extract_tables_from_html_mapper")


def manner_of(operator: str, before: str, after: str) -> int | str:
    """The first manner of a mapper's words that says its change of a text: 0 for the short ones.
    Where none does, why its short ones do not, in a few words; mappers without words of the
    benchmark's are not judged."""
    manners = 2 if operator == FIGURES else len(READINGS.get(operator, (None,)))
    for manner in range(manners):
        if says(operator, manner, before, after):
            return manner
    if operator == FIGURES:
        return OTHER_FIGURES
    said = READINGS[operator][0](before)
    if said is None:
        return "is not settled by its words"
    if len(after) < len(said):
        return "takes out more than its words say"
    return "leaves what its words name" if len(after) > len(said) else "changes another thing"


def holds(operator: str, manner: int, text: str) -> bool:
    """Whether by a manner of a mapper's words a text has nothing left that the mapper sees to. Of
    mappers that leave a part of a text alone this is not asked: what they made is that part."""
    return operator in _PARTS or says(operator, manner, text, text)


def says(operator: str, manner: int, before: str, after: str) -> bool:
    """Whether a manner of a mapper's words says its change of a text."""
    if operator == FIGURES:
        return shows_figures(before, after, bool(manner))
    if operator not in READINGS:
        return True
    return READINGS[operator][manner](before) == after


def decided_in(step: Step, text: str, keep: bool) -> int | str:
    """The manner of a filter's words that say its verdict: 0 for the short ones, if all ways of
    counting that they allow decide alike. Where no words do, why."""
    low, high = (step.params.get(name) for name in OPERATORS[step.operator].bounds)
    if {_within(count, low, high) for count in COUNTS[step.operator](text)} == {keep}:
        return 0
    count = COUNTED_TO_THE_LETTER.get(step.operator)
    return 1 if count and _within(count(text), low, high) == keep else UNSETTLED


def _within(count: float, low: Any, high: Any) -> bool:
    return (low is None or count >= low) and (high is None or count <= high)


# --- figures of LaTeX, of which the words are judged by what is shown

_FIGURE = re.compile(r"\\begin\{(figure\*?|wrapfigure)\}.*?\\end\{\1\}", re.DOTALL)
_IMAGE = re.compile(r"\\includegraphics\*?\s*(?:\[[^\]]*\])?\{([^}]+)\}")
_BEFORE_IMAGE = re.compile(r"(?m)^(.*)\\includegraphics")
_BLOCK = re.compile(r"(?:\A|\n\n)Figure \d+\n")


def shows_figures(before: str, after: str, in_detail: bool = False) -> bool:
    """Whether the second text is the figures of the first: every image, and captions and
    paragraphs as they stand there. Of a text that has images in comments, or none, it is not,
    unless those in comments count too and a text without stays as it is (`in_detail`)."""
    if in_detail and "\\includegraphics" not in before:
        return before == after
    figures = [m[0] for m in _FIGURE.finditer(before)]
    images = [name.strip() for one in figures for name in _IMAGE.findall(one)]
    if not images or any(not _IMAGE.search(one) for one in figures):
        return False
    if not in_detail and any(map(is_comment, _BEFORE_IMAGE.findall(before))):
        return False
    blocks = [block for block in _BLOCK.split(after) if block]
    shown = [name for block in blocks for name in _listed(block, "Images:", "Citing Paragraphs:")]
    if shown != images:
        return False
    said = [line for block in blocks for line in _fields(block)]
    return all(value in before for value in said)


def _listed(block: str, first: str, last: str) -> list[str]:
    inside = block.partition(f"\n{first}\n")[2].partition(f"\n{last}\n")[0]
    return [line.removeprefix("- ").strip() for line in inside.split("\n") if line.strip("- ")]


def _fields(block: str) -> Iterator[str]:
    head, _, citing = block.partition("\nCiting Paragraphs:\n")
    caption = head.partition("\nCaption: ")[2].partition("\nImages:")[0]
    yield caption.partition("\nParent Label: ")[0]
    for paragraph in re.split(r"(?m)^- ", citing):
        if (said := paragraph.strip()) != "-":  # which stands for none
            yield said


# --- what the conditions of filters say, counted in every way that their words allow: whether a
# number is a word, or a line end a character of its line, is not said

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
COUNTED_TO_THE_LETTER: dict[str, Callable[[str], float]] = {
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
