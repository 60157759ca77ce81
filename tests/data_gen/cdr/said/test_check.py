"""Every operator's words against what it does: agreed changes stand, all others are named."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.cdr.domains import ALL_MAPPERS
from data_gen.cdr.facts import CALIBRATED_FILTERS
from data_gen.cdr.phrases import CONDITIONS, CONDITIONS_TO_THE_LETTER, TO_THE_LETTER
from data_gen.cdr.records import bound_mapper
from data_gen.cdr.said import filters
from data_gen.cdr.said.check import (
    FIGURES,
    LETTER,
    READINGS,
    UNSETTLED,
    decided_in,
    manner_of,
)
from rewards.gold import Step, bind


def changed(operator: str, text: str) -> str:
    step = bound_mapper(operator)
    return step.call(text, **step.params)


def judged(operator: str, text: str) -> int | str:
    """The manner of words that says the operator's own change of a text, or why none does."""
    return manner_of(operator, text, changed(operator, text))


def test_every_mapper_that_rows_are_built_from_has_a_reading() -> None:
    assert {*READINGS, FIGURES} == set(ALL_MAPPERS)
    assert {name: len(own) for name, own in LETTER.items()} | {FIGURES: 1} == {
        name: len(own) for name, own in TO_THE_LETTER.items()
    }
    assert {name for name, _ in CONDITIONS} == set(filters.COUNTS)
    assert {name for name, _ in CONDITIONS_TO_THE_LETTER} == set(filters.LETTER)


AS_SAID = [
    ("clean_channel_id_mapper", 'channel: "wecom" and ou_13353d83c9e641eb32877ef33c6f8ea0 here'),
    ("clean_copyright_mapper", "/* Copyright 2020 A. Baker */\nint x;"),
    ("clean_copyright_mapper", "# Licence: MIT\n# by A. Baker\nx = 1\n"),
    ("clean_email_mapper", "Write to jane.doe@example.org, please."),
    ("clean_html_mapper", '<p class="a">Fish &amp; <b>chips</b><br/></p><!-- end -->'),
    ("clean_id_card_mapper", "ID 11010519900307123X."),
    ("clean_ip_mapper", "from host 192.168.0.17 and e290:1:2:3:4:5:6:a:8080 now"),
    ("clean_jwt_mapper", "token eyJhbGci.eyJzdWIi.c2ln end"),
    ("clean_links_mapper", "see https://example.org/a?b=1 and jane@example.org now"),
    ("clean_mac_mapper", "eth0 00:1A:2b:3c:4D:5e up"),
    ("clean_path_mapper", "see /usr/local/bin/tool now"),
    ("clean_pem_mapper", "key:\n-----BEGIN KEY-----\nMIIB\n-----END KEY-----\n"),
    ("clean_phone_mapper", "Call (415) 555-0132 or +49.5293683692 today. My number is 4136137461."),
    ("clean_secret_mapper", "password = hunter2, user = bob"),
    ("expand_macro_mapper", "\\newcommand{\\x}{alpha}\nThe \\x, again."),
    (
        "extract_tables_from_html_mapper",
        "<p>x</p><table><tr><th>a</th><td>1</td></tr><tr><td>b c</td><td></td></tr></table>",
    ),
    ("fix_unicode_mapper", "schÃ¶n und grÃ¼n"),
    (
        FIGURES,
        "As \\ref{f} shows.\n\n\\begin{figure}\\includegraphics{a.png}\\caption{A cat}"
        "\\label{f}\\end{figure}",
    ),
    ("punctuation_normalization_mapper", "“Yes”, she’d said… 你好，世界！"),
    ("remove_bibliography_mapper", "Text.\n\\bibliography{refs}\nmore"),
    ("remove_comments_mapper", "\\section{A} % note\n% gone\n50\\% stay"),
    ("remove_header_mapper", "\\title{T}\n\\section{Intro}\nText"),
    ("remove_long_words_mapper", "a -- b & c ... d ====="),
    ("remove_repeat_sentences_mapper", "Yes it is. No. Yes it is. It weighs 4.5 kg."),
    ("remove_repeat_sentences_mapper", "It began in 2010. No. 5 won. It began in 2010."),
    ("remove_specific_chars_mapper", "◆ one ● two"),
    ("remove_words_with_incorrect_substrings_mapper", "go to www.site.com or href=x now"),
    ("whitespace_normalization_mapper", "\u00a0a\u3000b\t\tc\n"),
]


@pytest.mark.parametrize(("operator", "text"), AS_SAID)
def test_a_change_that_the_words_say_stands(operator: str, text: str) -> None:
    assert bound_mapper(operator).call(text, **bound_mapper(operator).params) != text
    assert judged(operator, text) == 0


OTHERWISE = [
    ("remove_repeat_sentences_mapper", "Box A weighs 2.5 kg. Box B weighs 3.5 kg. Done."),
    ("remove_repeat_sentences_mapper", "Mr. Maple came. Mr. Stone stayed."),
    ("remove_repeat_sentences_mapper", "Dr. Adams kam. Dr. Brown ging."),
    ("remove_repeat_sentences_mapper", "v1.2.3 is out. v2.2.3 is out."),
    ("remove_repeat_sentences_mapper", "<li>\nOne.\n</li>\n<li>\nTwo.\n</li>"),
    ("remove_repeat_sentences_mapper", "It costs $5. It costs 5."),
    ("clean_phone_mapper", "The war of 1914-1918 and 1939-1945."),
    ("clean_phone_mapper", "Seasons 2010 2011 2012."),
    ("clean_phone_mapper", "Population 1234567 in 2020."),
    ("clean_phone_mapper", "Price 1299.99 or 2500000 in total."),
    ("clean_phone_mapper", "call (735) 442-0411x3692 now"),
    ("clean_phone_mapper", "call +33 6 47 27 04 25 now"),
    ("clean_html_mapper", "If c < y and p > v then."),
    ("clean_html_mapper", "x<y, y>z"),
    ("clean_html_mapper", "inside <VirtualHost> only"),
    ("clean_html_mapper", "I &lt 3 &copy 2020"),
    ("clean_html_mapper", '<a href="x"\n title="y">z</a>'),
    ("clean_path_mapper", "See https://example.org/a/b now."),
    ("clean_path_mapper", "Saved in /home/ann/x.txt."),
    ("clean_path_mapper", "file ~/notes/a.md here"),
    ("clean_ip_mapper", "Version 10.2.3.4 of the tool."),
    ("clean_ip_mapper", "At 192.168.0.1234 it."),
    ("clean_ip_mapper", "oid 1.3.6.1.4.1 it"),
    ("clean_links_mapper", "Read https://example.org/a. Bye"),
    ("clean_email_mapper", "git@example.org:tool/x"),
    ("clean_secret_mapper", "The password: is needed."),
    ("clean_secret_mapper", "auth: Bearer Z0o1Jvsr9vc"),
    ("clean_secret_mapper", '{"password": "hunter2"}'),
    ("clean_copyright_mapper", "# Title\n\nText"),
    ("clean_copyright_mapper", "---\nslug: a\n---\n"),
    ("clean_id_card_mapper", "SSN 123-45-6789 and 11010519900307123X"),
    ("remove_comments_mapper", "\\url{a%20b}\n\\section{A}"),
    ("remove_comments_mapper", "# Heading\ntext"),
    ("remove_bibliography_mapper", "See \\appendix and more text after it"),
    ("remove_header_mapper", "Intro \\emph{x} \\section{A}\nB"),
    ("remove_long_words_mapper", "a = b < c"),
    ("remove_long_words_mapper", "one -- two • three"),
    ("remove_specific_chars_mapper", "◆ one • two"),
    ("remove_words_with_incorrect_substrings_mapper", "the HTTP protocol"),
    ("punctuation_normalization_mapper", "yes—no"),
    ("punctuation_normalization_mapper", "‘yes’"),
    ("punctuation_normalization_mapper", "１ word"),
    ("whitespace_normalization_mapper", " a\u200db"),
    ("fix_unicode_mapper", "she said “ok”"),
    ("fix_unicode_mapper", "the ﬁle"),
    ("fix_unicode_mapper", "a\r\nb"),
    ("expand_macro_mapper", "\\newcommand{\\a}{x}\n\\newcommand{\\b}{\\a y}\n\\b \\a."),
    ("extract_tables_from_html_mapper", "no table"),
    ("extract_tables_from_html_mapper", "<table><tr><td>a <b>b</b> c</td></tr></table>"),
    (FIGURES, "no figure"),
    ("clean_mac_mapper", "fingerprint 00:1A:2b:3c:4D:5e:6f:70"),
]


@pytest.mark.parametrize(("operator", "text"), OTHERWISE)
def test_a_change_that_the_short_words_do_not_say_is_found(operator: str, text: str) -> None:
    assert judged(operator, text) != 0


LONGER = [
    ("clean_copyright_mapper", "# Title\n\nText", 1),
    ("clean_html_mapper", "inside <VirtualHost> of {{< img a >}}<br>", 1),
    ("clean_links_mapper", "Read https://example.org/a. Bye (www.a.org/b)", 1),
    ("clean_path_mapper", "See https://example.org/a/b, ~/c/d.txt. or C:\\x\\y; now", 1),
    ("clean_phone_mapper", "Tel. 03 10 27 02 91, (02574) 60983 or (415) 555-0132.", 1),
    ("clean_secret_mapper", "auth: Bearer Z0o1Jvsr9vc, passwd='.", 1),
    (
        "extract_tables_from_html_mapper",
        "<table><tr><td>a <b>b</b> c</td></tr><tr><td>d<br>\ne</td></tr></table>",
        1,
    ),
    ("fix_unicode_mapper", "she said “schÃ¶n”", 1),
    ("fix_unicode_mapper", "donâ€™t √ºber itâ€śs", 1),
    ("fix_unicode_mapper", "the ﬁle Ａ &amp; b\r\n<c> &amp;", 2),
    (
        FIGURES,
        "\\begin{figure}\n% \\includegraphics{a.png}\n\\includegraphics{b.png}\\end{figure}",
        1,
    ),
    ("punctuation_normalization_mapper", "“yes”—‘no’，", 1),
    ("remove_comments_mapper", "\\url{a%20b}\n\\section{A} % see", 1),
    ("remove_header_mapper", "a \\emph{x} % \\section{A}\nB", 1),
    ("remove_long_words_mapper", "a = b – * c", 1),
    ("remove_repeat_sentences_mapper", "Notes\nIt is so.\n* Notes\nIt is, so!", 1),
    ("remove_repeat_sentences_mapper", "See data.example.gov or map.example.gov.", 2),
    ("remove_words_with_incorrect_substrings_mapper", "the HTTP protocol, .com. and //", 1),
    ("whitespace_normalization_mapper", " a\u200db\x84c", 1),
]


@pytest.mark.parametrize(("operator", "text", "manner"), LONGER)
def test_a_change_that_longer_words_alone_say_is_said_in_them(
    operator: str, text: str, manner: int
) -> None:
    assert changed(operator, text) != text
    assert judged(operator, text) == manner


NEVER = [
    ("remove_repeat_sentences_mapper", "Box A weighs 2.5 kg. Box B weighs 3.5 kg. Done."),
    ("remove_repeat_sentences_mapper", "Mr. Maple came. Mr. Stone stayed."),
    ("remove_repeat_sentences_mapper", "v1.2.3 is out. v2.2.3 is out."),
    ("remove_repeat_sentences_mapper", "See a.example.org or b.example.org today."),
    ("remove_repeat_sentences_mapper", "Die U.S. Armee. Die U.S. Bank."),
    ("clean_phone_mapper", "The war of 1914-1918 and 1939-1945."),
    ("clean_phone_mapper", "Seasons 2010 2011 2012."),
    ("clean_phone_mapper", "Population 1234567 in 2020."),
    ("clean_phone_mapper", "Port 18700\n1975-06-24 09:02:15"),
    ("clean_html_mapper", "If c < y and p > v then."),
    ("clean_html_mapper", "x<y, y>z"),
    ("clean_html_mapper", "curl < 7.77.0 and curl >= 7.88.0"),
    ("clean_ip_mapper", "Version 10.2.3.4 of the tool."),
    ("clean_html_mapper", "$\\left<S\\right>$"),
    ("remove_comments_mapper", "# Heading\ntext"),
    ("punctuation_normalization_mapper", "１ word"),
]


@pytest.mark.parametrize(("operator", "text"), NEVER)
def test_a_change_that_no_words_say_is_named(operator: str, text: str) -> None:
    assert changed(operator, text) != text
    assert isinstance(judged(operator, text), str)


@pytest.mark.parametrize("operator", sorted(ALL_MAPPERS))
@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from([text for _, text in AS_SAID + OTHERWISE] + ["\n", "<", " % "])))
def test_any_text_is_judged_and_an_operator_that_does_nothing_else_is_found_out(
    operator: str, pieces: list[str]
) -> None:
    text = " ".join(pieces)
    judged(operator, text)
    for number, longer in enumerate(LETTER.get(operator, ()), 1):
        if (to_the_letter := longer(text)) is not None:
            found = manner_of(operator, text, to_the_letter)
            assert isinstance(found, int) and found <= number
    reading = READINGS.get(operator)
    said = reading(text) if reading else None
    if said is not None and said != text:
        assert manner_of(operator, text, text) != 0
        assert manner_of(operator, text, said) == 0


def test_a_verdict_stands_where_all_ways_of_counting_agree_or_longer_words_say_one() -> None:
    few = Step("words_num_filter", {"min_num": 3})
    assert decided_in(few, "one two three four", True) == 0
    assert decided_in(few, "one two", False) == 0
    assert decided_in(few, "one two 3", False) == 1  # is 3 a word?
    assert decided_in(few, "one two 3", True) == UNSETTLED
    lines = Step("average_line_length_filter", {"max_len": 4})
    assert decided_in(lines, "abc\nabc\n", True) == 0
    assert decided_in(lines, "abcd\nabcd\n", False) == 1  # with its end a line has 5
    assert decided_in(lines, "abcd\nabcd\n", True) == UNSETTLED
    runs = Step("character_repetition_filter", {"max_ratio": 0.2})
    assert decided_in(runs, "abcdefghijklmnopqrstuvwxyz", True) == 0
    assert decided_in(runs, "-" * 40, False) == 0
    some = "abcdefghijk" * 4 + "0123456789zyxwvutsrqponml"  # 33 runs again, 14 of the commonest
    assert decided_in(runs, some, False) == 1
    letters = Step("alphanumeric_filter", {"min_ratio": 0.5})
    assert decided_in(letters, "ab--", False) == UNSETTLED


@pytest.mark.parametrize("name", CALIBRATED_FILTERS)
@given(st.text("ab 1.\n", max_size=60), st.integers(0, 40))
@settings(deadline=None, max_examples=40)
def test_a_filter_decides_as_its_longer_words_count(name: str, text: str, bound: int) -> None:
    operator = bind(Step(name)).operator
    low, high = operator.bounds
    share = low.endswith("ratio")
    step = Step(name, {low: None, high: bound / 40 if share else bound})
    keep, _ = bind(step).judge(text)
    manner = decided_in(step, text, keep)
    assert decided_in(step, text, not keep) != 0 or manner != 0
    if name == "character_repetition_filter":
        assert manner != UNSETTLED
