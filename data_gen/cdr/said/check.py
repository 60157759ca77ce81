"""Whether a step does to a text what its words say, no more and no less."""

from __future__ import annotations

from typing import Any

from data_gen.cdr.said import filters, identifiers, letter, markup, prose
from data_gen.cdr.said.identifiers import Reading
from rewards.gold import OPERATORS, Step

READINGS: dict[str, Reading] = {
    "clean_channel_id_mapper": identifiers.chat,
    "clean_copyright_mapper": markup.without_licence,
    "clean_email_mapper": identifiers.mail,
    "clean_html_mapper": markup.without_tags,
    "clean_id_card_mapper": identifiers.card,
    "clean_ip_mapper": identifiers.network,
    "clean_jwt_mapper": identifiers.web_token,
    "clean_links_mapper": identifiers.link,
    "clean_mac_mapper": identifiers.hardware,
    "clean_path_mapper": identifiers.path,
    "clean_pem_mapper": identifiers.key_block,
    "clean_phone_mapper": identifiers.phone,
    "clean_secret_mapper": identifiers.secret,
    "expand_macro_mapper": markup.macros_written_out,
    "extract_tables_from_html_mapper": markup.tables,
    "fix_unicode_mapper": prose.decoded_right,
    "punctuation_normalization_mapper": prose.plain_marks,
    "remove_bibliography_mapper": markup.until_bibliography,
    "remove_comments_mapper": markup.without_comments,
    "remove_header_mapper": markup.from_heading,
    "remove_long_words_mapper": prose.marks_alone,
    "remove_repeat_sentences_mapper": prose.repeats,
    "remove_specific_chars_mapper": prose.bullets,
    "remove_words_with_incorrect_substrings_mapper": identifiers.words_of_links,
    "whitespace_normalization_mapper": prose.blanks,
}
# Of the longer sentences, manner by manner, as in `data_gen.cdr.phrases.TO_THE_LETTER`.
LETTER: dict[str, tuple[Reading, ...]] = {
    "clean_copyright_mapper": (letter.lines_at_the_top,),
    "clean_html_mapper": (letter.angle_brackets,),
    "clean_links_mapper": (letter.links_with_their_marks,),
    "clean_path_mapper": (letter.slashed_names,),
    "clean_phone_mapper": (letter.phones_of_the_usual_form,),
    "clean_secret_mapper": (letter.values_of_listed_names,),
    "extract_tables_from_html_mapper": (letter.tables_of_pieces,),
    "fix_unicode_mapper": (letter.quotes_straight, letter.characters_plain),
    "punctuation_normalization_mapper": (letter.listed_marks,),
    "remove_comments_mapper": (letter.percent_signs,),
    "remove_header_mapper": (letter.from_any_heading,),
    "remove_long_words_mapper": (letter.ascii_marks,),
    "remove_repeat_sentences_mapper": (letter.repeated_pieces, letter.repeated_parts),
    "remove_words_with_incorrect_substrings_mapper": (letter.words_of_links,),
    "whitespace_normalization_mapper": (letter.listed_blanks,),
}
OTHER_FIGURES = "shows other figures than it says"
UNSETTLED = "decides by a count that its words do not settle"
FIGURES = "latex_figure_context_extractor_mapper"
_PARTS = (FIGURES, "extract_tables_from_html_mapper")


def manner_of(operator: str, before: str, after: str) -> int | str:
    """The first manner of a mapper's words that says its change of a text: 0 for the short ones.
    Where none does, why its short ones do not, in a few words; mappers without words of the
    benchmark's are not judged."""
    if operator == FIGURES:
        shown = (markup.shows_figures(before, after, in_detail) for in_detail in (False, True))
        return next((manner for manner, ok in enumerate(shown) if ok), OTHER_FIGURES)
    if operator not in READINGS:
        return 0
    said = READINGS[operator](before)
    if said == after:
        return 0
    for manner, reading in enumerate(LETTER.get(operator, ()), 1):
        if reading(before) == after:
            return manner
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
        return markup.shows_figures(before, after, bool(manner))
    if operator not in READINGS:
        return True
    reading = LETTER[operator][manner - 1] if manner else READINGS[operator]
    return reading(before) == after


def decided_in(step: Step, text: str, keep: bool) -> int | str:
    """The manner of a filter's words that say its verdict: 0 for the short ones, if all ways of
    counting that they allow decide alike. Where no words do, why."""
    low, high = (step.params.get(name) for name in OPERATORS[step.operator].bounds)
    if {_within(count, low, high) for count in filters.COUNTS[step.operator](text)} == {keep}:
        return 0
    count = filters.LETTER.get(step.operator)
    return 1 if count and _within(count(text), low, high) == keep else UNSETTLED


def _within(count: float, low: Any, high: Any) -> bool:
    return (low is None or count >= low) and (high is None or count <= high)
