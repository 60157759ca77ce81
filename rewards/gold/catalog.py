"""Every operator: name, domain, parameters and functions.

Adding one: a function in its domain's module, an entry here, its words in
`operators.yaml`, a line in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.files import yaml_beside
from rewards.gold import filters, latex, privacy, rag, web
from rewards.gold.core import INF, Operator, Param
from rewards.gold.text import SYMBOLS

REPL = Param("repl", "text", "", "what a match becomes: a regular expression template")
LANG = Param("lang", "text", "en", "accepted for compatibility; the word rules do not use it")
SUBWORDS = Param("tokenization", "bool", False, "must stay false: gold used no subword model")
REP_LEN = Param("rep_len", "count", 10, "length of the counted n-grams")
WORD_LIST = Param(
    "word_list", "list of text", None, "the words that count, in lower case", (), True
)
OUTPUT_MODE = Param(
    "output_mode", "text", "meta", "`text` replaces; `meta` leaves the text alone", ("text", "meta")
)
RANGE = (
    Param("min_closed_interval", "bool", True, "whether a statistic equal to the minimum passes"),
    Param("max_closed_interval", "bool", True, "whether a statistic equal to the maximum passes"),
    Param("reversed_range", "bool", False, "keep what lies outside the bounds instead"),
)


def _mapper(
    name: str,
    domain: str,
    bench: Callable[..., str],
    *params: Param,
    dj: Callable[..., str] | None = None,
) -> Operator:
    return Operator(f"{name}_mapper", "mapper", domain, bench, params, dj)


def _filter(
    name: str,
    statistic: str,
    bench: Callable[..., float],
    bounds: tuple[str, float, float],
    first: tuple[Param, ...] = (),
    last: tuple[Param, ...] = (),
    dj: Callable[..., float] | None = None,
) -> Operator:
    """`bounds`: what the bounds are called (`min_LEN`, `max_LEN`) and their defaults; `first` and
    `last` are the parameters before and after them."""
    unit, low, high = bounds
    limits = (
        Param(f"min_{unit}", "number or none", low, "texts below are dropped; null checks nothing"),
        Param(
            f"max_{unit}", "number or none", high, "texts above are dropped; null checks nothing"
        ),
    )
    return Operator(
        f"{name}_filter",
        "filter",
        "filter",
        bench,
        (*first, *limits, *RANGE, *last),
        dj,
        statistic,
        (f"min_{unit}", f"max_{unit}"),
    )


_ALL = (
    _mapper("clean_email", "privacy", privacy.clean_email, REPL),
    _mapper("clean_ip", "privacy", privacy.clean_ip, REPL),
    _mapper("clean_mac", "privacy", privacy.clean_mac, REPL),
    _mapper("clean_secret", "privacy", privacy.clean_secret, REPL),
    _mapper("clean_path", "privacy", privacy.clean_path, REPL, dj=privacy.clean_path_dj),
    _mapper("clean_phone", "privacy", privacy.clean_phone, REPL, dj=privacy.clean_phone_dj),
    _mapper("clean_id_card", "privacy", privacy.clean_id_card, REPL),
    _mapper("clean_jwt", "privacy", privacy.clean_jwt, REPL),
    _mapper("clean_pem", "privacy", privacy.clean_pem, REPL),
    _mapper("clean_channel_id", "privacy", privacy.clean_channel_id, REPL),
    _mapper("clean_links", "web", web.clean_links, REPL, dj=web.clean_links_dj),
    _mapper("clean_copyright", "web", web.clean_copyright),
    _mapper("clean_html", "web", web.clean_html, REPL, dj=web.clean_html_dj),
    _mapper(
        "extract_tables_from_html",
        "web",
        web.extract_tables,
        OUTPUT_MODE,
        Param("text_output_format", "text", "tsv", "layout of the tables", ("tsv",)),
        Param("include_header", "bool", True, "keep rows that have a direct `th` cell"),
        Param("retain_html_tags", "bool", False, "return the tables' markup instead"),
    ),
    _mapper(
        "fix_unicode",
        "web",
        web.fix_unicode,
        Param(
            "normalization",
            "text",
            "NFC",
            "Unicode normal form of the result",
            ("NFC", "NFKC", "NFD", "NFKD"),
        ),
    ),
    _mapper("punctuation_normalization", "web", web.punctuation_normalization),
    _mapper(
        "remove_specific_chars",
        "web",
        web.remove_specific_chars,
        Param("chars_to_remove", "text or list of text", SYMBOLS, "the characters to delete"),
        dj=web.remove_specific_chars_dj,
    ),
    _mapper("whitespace_normalization", "web", web.whitespace_normalization),
    _mapper(
        "remove_words_with_incorrect_substrings",
        "web",
        rag.remove_words,
        LANG,
        Param(
            "substrings",
            "list of text",
            rag.SUBSTRINGS,
            "what a deleted word contains; an empty list means the default",
        ),
        dj=rag.remove_words_dj,
    ),
    _mapper("expand_macro", "latex", latex.expand_macro),
    _mapper(
        "latex_figure_context_extractor",
        "latex",
        latex.extract_figures,
        OUTPUT_MODE,
        Param(
            "text_output_format",
            "text",
            "figure_context_blocks_v1",
            "layout of a block",
            ("figure_context_blocks_v1",),
        ),
        Param("citation_commands", "list of text", latex.CITATIONS, "commands that cite"),
    ),
    _mapper("remove_bibliography", "latex", latex.remove_bibliography),
    _mapper(
        "remove_comments",
        "latex",
        latex.remove_comments,
        Param("doc_type", "text", "tex", "accepted for compatibility", ("tex",)),
        Param("inline", "bool", True, "delete from an unescaped `%` to the line end"),
        Param("multiline", "bool", True, "delete lines that start with `%`"),
        dj=latex.remove_comments_dj,
    ),
    _mapper(
        "remove_header",
        "latex",
        latex.remove_header,
        Param("drop_no_head", "bool", True, "accepted; gold keeps texts without a header"),
    ),
    _mapper(
        "remove_long_words",
        "rag",
        rag.remove_long_words,
        Param("min_len", "int", 1, "shortest word to keep"),
        Param("max_len", "int", INF, "longest word to keep"),
        dj=rag.remove_long_words_dj,
    ),
    _mapper(
        "remove_repeat_sentences",
        "rag",
        rag.remove_repeat_sentences,
        Param("lowercase", "bool", False, "ignore case when comparing"),
        Param(
            "ignore_special_character",
            "bool",
            True,
            "compare ASCII letters, digits, Chinese characters and spaces only",
        ),
        Param("min_repeat_sentence_length", "int", 2, "shorter sentences always stay"),
    ),
    _mapper(
        "remove_table_text",
        "rag",
        rag.remove_table_text,
        Param("min_col", "int", 2, "fewest columns of a table"),
        Param("max_col", "int", 20, "most columns of a table"),
    ),
    _filter(
        "alphanumeric", "alnum_ratio", filters.alnum_ratio, ("ratio", 0.25, INF), last=(SUBWORDS,)
    ),
    _filter("average_line_length", "avg_line_length", filters.avg_line_length, ("len", 10, INF)),
    _filter(
        "character_repetition",
        "char_rep_ratio",
        filters.char_rep_ratio,
        ("ratio", 0.0, 0.5),
        first=(REP_LEN,),
    ),
    _filter("maximum_line_length", "max_line_length", filters.max_line_length, ("len", 10, INF)),
    _filter("text_length", "text_len", filters.text_len, ("len", 10, INF)),
    _filter(
        "word_repetition",
        "word_rep_ratio",
        filters.word_rep_ratio,
        ("ratio", 0.0, 0.5),
        first=(REP_LEN,),
        last=(LANG, SUBWORDS),
        dj=filters.word_rep_ratio_dj,
    ),
    _filter(
        "words_num",
        "num_words",
        filters.num_words,
        ("num", 10, INF),
        last=(LANG, SUBWORDS),
        dj=filters.num_words_dj,
    ),
    _filter(
        "special_characters",
        "special_char_ratio",
        filters.special_char_ratio,
        ("ratio", 0.0, 0.25),
        dj=filters.special_char_ratio_dj,
    ),
    *(
        _filter(
            name,
            f"{name}_ratio",
            filters.listed_ratio,
            ("ratio", low, high),
            first=(WORD_LIST,),
            last=(LANG, SUBWORDS),
            dj=filters.listed_ratio_dj,
        )
        for name, low, high in (("stopwords", 0.3, 1.0), ("flagged_words", 0.0, 0.045))
    ),
)
OPERATORS: dict[str, Operator] = {operator.name: operator for operator in _ALL}

# What the benchmark's recipes pass to the only two mappers that take parameters there.
RECIPE_PARAMS: dict[str, dict[str, str]] = {
    "extract_tables_from_html_mapper": {"output_mode": "text", "text_output_format": "tsv"},
    "latex_figure_context_extractor_mapper": {
        "output_mode": "text",
        "text_output_format": "figure_context_blocks_v1",
    },
}


def described(operator: Operator) -> dict[str, Any]:
    """What an operator does, from `operators.yaml`: its `summary`, an `example`, and the
    `difference` of the profiles where there is one."""
    return yaml_beside(__file__, "operators.yaml")[operator.name]
