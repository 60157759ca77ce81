"""Vectors made by hand from the definitions, one table for both profiles."""

from __future__ import annotations

from typing import Any

import pytest

from rewards.gold import Step, bind, execute

# (operator, profile, parameters, input, output)
MAPPERS: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("clean_email_mapper", "bench", {}, "a@Example.com", "a@Example.com"),
    ("clean_email_mapper", "bench", {}, "mail x@y.z1 now", "mail 1 now"),
    ("clean_email_mapper", "dj", {"repl": r"[\g<0>]"}, "(a@b.co)", "([a@b.co])"),
    ("clean_ip_mapper", "bench", {}, "256.1.2.3", "2"),
    ("clean_ip_mapper", "bench", {}, "1.2.3.300", "0"),
    ("clean_ip_mapper", "bench", {}, "::1 and fe80:1:2:3:4:5:6:7", "::1 and "),
    (
        "clean_mac_mapper",
        "bench",
        {},
        "00:11:22:33:44:55 and 0:11:22:33:44:55:66",
        " and 0:11:22:33:44:55:66",
    ),
    ("clean_secret_mapper", "bench", {}, "Authorization: Bearer abc", "Authorization:  abc"),
    ("clean_secret_mapper", "bench", {"repl": "1"}, 'password="x y"', 'password="1 y"'),
    ("clean_secret_mapper", "bench", {}, "token\n=\nabc.", "token\n=\n"),
    ("clean_path_mapper", "bench", {}, "http://a.com/x/y", "http:/"),
    ("clean_path_mapper", "bench", {}, "/tmp </p> /docs/a.html C:\\a\\b", "/tmp </p>  "),
    ("clean_path_mapper", "dj", {"repl": "P"}, "/tmp x/tmp =/etc/passwd", "P x/tmp =P"),
    ("clean_phone_mapper", "bench", {}, "in 1999 2000 we", "in  we"),
    ("clean_phone_mapper", "bench", {}, "+1 415-555-0132!", "!"),
    (
        "clean_phone_mapper",
        "dj",
        {},
        "13912345678 415-555-0132 +86 13912345678",
        " 415-555-0132 +86 ",
    ),
    ("clean_links_mapper", "bench", {}, "see http://a.b/c, me@x.org", "see  "),
    ("clean_links_mapper", "bench", {}, "Input/Output e.g/x config.yaml/x", "Input/Output e.g/x "),
    ("clean_links_mapper", "dj", {}, "key:value http://a.b/c, x", " , x"),
    ("clean_id_card_mapper", "bench", {}, "11010519900307123x!", "!"),
    ("clean_jwt_mapper", "bench", {}, "eyJa.b.c eyJ.b.c", " eyJ.b.c"),
    ("clean_pem_mapper", "bench", {}, "a\n-----BEGIN X-----\nq\n-----END Y-----b", "a\nb"),
    (
        "clean_channel_id_mapper",
        "bench",
        {"repl": "*"},
        "Channel: mail uid_0123456789abcdef",
        "Channel: * *",
    ),
    ("clean_copyright_mapper", "bench", {}, "x /* COPYRIGHT */ y /* z */", "x  y /* z */"),
    ("clean_copyright_mapper", "bench", {}, "/* none */\n# x", "/* none */\n# x"),
    ("clean_copyright_mapper", "bench", {}, "---\n\n# t\n--\n", ""),
    ("clean_html_mapper", "bench", {}, "a < b and c > d", "a  d"),
    ("clean_html_mapper", "bench", {}, "<p\n>&amp;lt;<!-- a\nb --></p>", "<p\n>&lt;"),
    ("fix_unicode_mapper", "bench", {}, "schÃ¶n\r\n&lt;p&gt;\n<&amp;", "schön\n<p>\n<&amp;"),
    ("fix_unicode_mapper", "bench", {"normalization": "NFD"}, "é", "e\u0301"),
    ("punctuation_normalization_mapper", "bench", {}, "１—…‘’", "\" - ...‘'"),
    ("remove_specific_chars_mapper", "bench", {"chars_to_remove": ["a", "bc", "|"]}, "abc|", "bc"),
    ("remove_specific_chars_mapper", "dj", {"chars_to_remove": "ab"}, "abc|", "c"),
    ("whitespace_normalization_mapper", "bench", {}, "\n\u3000a\t\tb\nc\u200b.\u00a0", "a  b\nc ."),
    ("remove_words_with_incorrect_substrings_mapper", "bench", {}, "a  WWW.x.org\tb", "a  \tb"),
    ("remove_words_with_incorrect_substrings_mapper", "bench", {}, "a// b", "a// b"),
    (
        "remove_words_with_incorrect_substrings_mapper",
        "dj",
        {},
        "a  WWW.x www.y\n\n\tb",
        "a WWW.x\nb",
    ),
    (
        "expand_macro_mapper",
        "bench",
        {},
        "\\newcommand{\\foo}{x}\n\\foo.",
        "\\newcommand{x}{x}\nx.",
    ),
    (
        "expand_macro_mapper",
        "bench",
        {},
        "\\def\\p{q}\n\\p\\p \\p",
        "\\def\\p{q}\nq\\p \\p".replace("\\def\\p{", "\\defq{"),
    ),
    (
        "remove_bibliography_mapper",
        "bench",
        {},
        "t\n\\bibliographystyle{a}\n\\appendix z",
        "t\n\\bibliographystyle{a}\n",
    ),
    (
        "remove_comments_mapper",
        "bench",
        {},
        "\\section{a}\n% x\nb \\% c % d",
        "\\section{a}\n\nb \\% c ",
    ),
    (
        "remove_comments_mapper",
        "bench",
        {"inline": False},
        "\\section{a}\n% x\nb % d",
        "\\section{a}\nb % d",
    ),
    ("remove_comments_mapper", "bench", {}, "# a\n\n  // b\nc", "c"),
    ("remove_comments_mapper", "dj", {}, "a%bc\n%\nx", "\nx"),
    ("remove_header_mapper", "bench", {}, "x\n\\section*[a]{b}\ny", "\\section*[a]{b}\ny"),
    ("remove_header_mapper", "bench", {}, "x \\paragraph{b} y", "x \\paragraph{b} y"),
    ("remove_long_words_mapper", "bench", {}, "a -- b | 'c'", "a  b  'c'"),
    ("remove_long_words_mapper", "bench", {"max_len": 3}, "(abc) abcd", "(abc) "),
    ("remove_long_words_mapper", "dj", {}, " a  --\n\n b\t\tc", "a --\nb\tc"),
    ("remove_repeat_sentences_mapper", "bench", {}, "A b. A b. C\nA b.", "A b. C\n"),
    ("remove_repeat_sentences_mapper", "bench", {}, "Да нет вот. Ну и вот", "Да нет вот."),
    ("remove_repeat_sentences_mapper", "bench", {"lowercase": True}, "Ab. aB. c", "Ab. c"),
    ("remove_table_text_mapper", "bench", {}, "T:\na 1\nb 2\nend of it all", "T:\nend of it all"),
]

# (operator, profile, parameters, input, statistic, status)
FILTERS: list[tuple[str, str, dict[str, Any], str, float, str]] = [
    ("alphanumeric_filter", "bench", {}, "", 0.0, "DROP"),
    ("alphanumeric_filter", "bench", {"min_ratio": 0.5}, "a½_-", 0.5, "KEEP"),
    ("average_line_length_filter", "bench", {"max_len": 90}, "abc\u2028de", 3.0, "DROP"),
    ("maximum_line_length_filter", "bench", {"min_len": 3}, "a\x0bbcd\n", 3, "KEEP"),
    (
        "character_repetition_filter",
        "bench",
        {"rep_len": 2, "max_ratio": 0.5},
        "ababab",
        0.6,
        "DROP",
    ),
    ("character_repetition_filter", "bench", {}, "short", 0.0, "KEEP"),
    ("text_length_filter", "bench", {"min_len": 2, "min_closed_interval": False}, "é😀", 2, "DROP"),
    (
        "text_length_filter",
        "bench",
        {"min_len": 2, "max_len": None, "reversed_range": True},
        "ab",
        2,
        "KEEP",
    ),
    ("word_repetition_filter", "bench", {"rep_len": 2}, "A b a B c", 0.5, "KEEP"),
    ("words_num_filter", "bench", {"min_num": 2}, "2024 -- a\u00a0b c.", 2, "KEEP"),
    ("words_num_filter", "bench", {"min_num": 2}, "a 😀", 2, "KEEP"),
    ("words_num_filter", "dj", {"min_num": 2}, "a 😀", 1, "DROP"),
    ("special_characters_filter", "bench", {}, "a1 □😀", 0.6, "DROP"),
    ("special_characters_filter", "dj", {"max_ratio": None}, "a1 □😀", 0.6, "KEEP"),
    ("stopwords_filter", "bench", {"word_list": ["the"]}, "The THE cat 12", 2 / 3, "KEEP"),
    ("flagged_words_filter", "bench", {"word_list": ["bad"]}, "(Bad) cat", 0.5, "DROP"),
]


@pytest.mark.parametrize(("operator", "profile", "params", "text", "wanted"), MAPPERS)
def test_mapper_vector(
    operator: str, profile: str, params: dict[str, Any], text: str, wanted: str
) -> None:
    assert execute(text, [Step(operator, params)], profile).text == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(("operator", "profile", "params", "text", "statistic", "status"), FILTERS)
def test_filter_vector(
    operator: str, profile: str, params: dict[str, Any], text: str, statistic: float, status: str
) -> None:
    keep, stats = bind(Step(operator, params), profile).judge(text)  # type: ignore[arg-type]
    assert (list(stats.values()), "KEEP" if keep else "DROP") == ([statistic], status)


def test_long_texts_pass_two_mappers_untouched() -> None:
    text = "www.x.org. " * 8000
    for operator in (
        "remove_repeat_sentences_mapper",
        "remove_words_with_incorrect_substrings_mapper",
    ):
        assert execute(text, [Step(operator)]).text == text
        assert execute(text[:80_000], [Step(operator)]).text != text[:80_000]


def test_tables_become_rows_and_blank_line_between_tables() -> None:
    page = "<p>x<TABLE><tr><th> a </th><td>b<i> c</i></td></tr><tr></tr></TABLE><table><tr><td>d"
    text = {"output_mode": "text"}
    step = "extract_tables_from_html_mapper"
    assert execute(page, [Step(step, text)]).text == "a\tbc\n\nd"
    assert execute(page, [Step(step)]).text == page
    assert execute(page, [Step(step, {**text, "include_header": False})]).text == "d"
    assert execute("<table></table>", [Step(step, text)]).text == ""


def test_figures_with_sub_figures_carry_their_parent() -> None:
    paper = (
        "See \\ref{p} and \\cref{x, a}.\n\nNothing.\n\n\\begin{figure}[t]"
        "\\subfloat[One]{\\includegraphics{1.png}\\label{a}}\\subfloat{\\label{b}}"
        "\\caption{Both {of} them}\\label{p}\\end{figure}"
    )
    step = Step("latex_figure_context_extractor_mapper", {"output_mode": "text"})
    assert execute(paper, [step]).text == (
        "Figure 1\nLabel: a\nCaption: One\nParent Label: p\nParent Caption: Both {of} them\n"
        "Images:\n- 1.png\nCiting Paragraphs:\n- See \\ref{p} and \\cref{x, a}."
    )
