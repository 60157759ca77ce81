"""The filters: name, statistic, parameters and functions."""

from __future__ import annotations

from rewards.gold import filters
from rewards.gold.core import INF, Operator, Param

LANG = Param("lang", "text", "en", "accepted for compatibility; the word rules do not use it")
SUBWORDS = Param("tokenization", "bool", False, "must stay false: gold used no subword model")
REP_LEN = Param("rep_len", "count", 10, "length of the counted n-grams")
RANGE = (
    Param("min_closed_interval", "bool", True, "whether a statistic equal to the minimum passes"),
    Param("max_closed_interval", "bool", True, "whether a statistic equal to the maximum passes"),
    Param("reversed_range", "bool", False, "keep what lies outside the bounds instead"),
)


def _bounds(unit: str, low: float, high: float) -> tuple[Param, ...]:
    number = "number or none"
    return (
        Param(f"min_{unit}", number, low, "texts below are dropped; null checks nothing"),
        Param(f"max_{unit}", number, high, "texts above are dropped; null checks nothing"),
        *RANGE,
    )


_LISTED = Param("word_list", "list of text", None, "the words that count, in lower case", (), True)

FILTERS = (
    Operator(
        "alphanumeric_filter",
        "filter",
        "filter",
        filters.alnum_ratio,
        (*_bounds("ratio", 0.25, INF), SUBWORDS),
        stat_key="alnum_ratio",
        bounds=("min_ratio", "max_ratio"),
    ),
    Operator(
        "average_line_length_filter",
        "filter",
        "filter",
        filters.avg_line_length,
        _bounds("len", 10, INF),
        stat_key="avg_line_length",
        bounds=("min_len", "max_len"),
    ),
    Operator(
        "character_repetition_filter",
        "filter",
        "filter",
        filters.char_rep_ratio,
        (REP_LEN, *_bounds("ratio", 0.0, 0.5)),
        stat_key="char_rep_ratio",
        bounds=("min_ratio", "max_ratio"),
    ),
    Operator(
        "maximum_line_length_filter",
        "filter",
        "filter",
        filters.max_line_length,
        _bounds("len", 10, INF),
        stat_key="max_line_length",
        bounds=("min_len", "max_len"),
    ),
    Operator(
        "text_length_filter",
        "filter",
        "filter",
        filters.text_len,
        _bounds("len", 10, INF),
        stat_key="text_len",
        bounds=("min_len", "max_len"),
    ),
    Operator(
        "word_repetition_filter",
        "filter",
        "filter",
        filters.word_rep_ratio,
        (REP_LEN, *_bounds("ratio", 0.0, 0.5), LANG, SUBWORDS),
        dj=filters.word_rep_ratio_dj,
        stat_key="word_rep_ratio",
        bounds=("min_ratio", "max_ratio"),
    ),
    Operator(
        "words_num_filter",
        "filter",
        "filter",
        filters.num_words,
        (*_bounds("num", 10, INF), LANG, SUBWORDS),
        dj=filters.num_words_dj,
        stat_key="num_words",
        bounds=("min_num", "max_num"),
    ),
    Operator(
        "special_characters_filter",
        "filter",
        "filter",
        filters.special_char_ratio,
        _bounds("ratio", 0.0, 0.25),
        dj=filters.special_char_ratio_dj,
        stat_key="special_char_ratio",
        bounds=("min_ratio", "max_ratio"),
    ),
    Operator(
        "stopwords_filter",
        "filter",
        "filter",
        filters.listed_ratio,
        (_LISTED, *_bounds("ratio", 0.3, 1.0), LANG, SUBWORDS),
        dj=filters.listed_ratio_dj,
        stat_key="stopwords_ratio",
        bounds=("min_ratio", "max_ratio"),
    ),
    Operator(
        "flagged_words_filter",
        "filter",
        "filter",
        filters.listed_ratio,
        (_LISTED, *_bounds("ratio", 0.0, 0.045), LANG, SUBWORDS),
        dj=filters.listed_ratio_dj,
        stat_key="flagged_words_ratio",
        bounds=("min_ratio", "max_ratio"),
    ),
)
