"""Whether a step does to a text what its words say, no more and no less."""

from __future__ import annotations

from typing import Any

from data_gen.cdr.said import filters, identifiers, latex, markup, prose
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
    "expand_macro_mapper": latex.macros_written_out,
    "extract_tables_from_html_mapper": markup.tables,
    "fix_unicode_mapper": prose.decoded_right,
    "punctuation_normalization_mapper": prose.plain_marks,
    "remove_bibliography_mapper": latex.until_bibliography,
    "remove_comments_mapper": latex.without_comments,
    "remove_header_mapper": latex.from_heading,
    "remove_long_words_mapper": prose.marks_alone,
    "remove_repeat_sentences_mapper": prose.repeats,
    "remove_specific_chars_mapper": prose.bullets,
    "remove_words_with_incorrect_substrings_mapper": identifiers.words_of_links,
    "whitespace_normalization_mapper": prose.blanks,
}
FIGURES = "latex_figure_context_extractor_mapper"


def changed_as_said(operator: str, before: str, after: str) -> str:
    """Why a mapper's change of a text is not what its words say, in a few words; "" where it is.

    Mappers without words of the benchmark's are not judged.
    """
    if operator == FIGURES:
        return "" if latex.shows_figures(before, after) else "shows other figures than it says"
    reading = READINGS.get(operator)
    if reading is None:
        return ""
    said = reading(before)
    if said == after:
        return ""
    if said is None:
        return "is not settled by its words"
    if len(after) < len(said):
        return "takes out more than its words say"
    return "leaves what its words name" if len(after) > len(said) else "changes another thing"


def decided_as_said(step: Step, text: str, keep: bool) -> str:
    """Why a filter's verdict is not the one of its words however they are counted; "" where it
    is."""
    counts = filters.COUNTS.get(step.operator)
    if counts is None:
        return ""
    low, high = (step.params.get(name) for name in OPERATORS[step.operator].bounds)
    verdicts = {_within(count, low, high) for count in counts(text)}
    return "" if verdicts == {keep} else "decides by a count that its words do not settle"


def _within(count: float, low: Any, high: Any) -> bool:
    return (low is None or count >= low) and (high is None or count <= high)
