"""The filters: name, statistic, parameters, functions, and where the two profiles differ."""

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

_WORDS_DIFFER = "`dj` strips and counts a far larger set of special characters, emoji included."

FILTERS = (
    Operator(
        "alphanumeric_filter",
        "filter",
        "filter",
        "Share of letters and digits in the text.",
        filters.alnum_ratio,
        (*_bounds("ratio", 0.25, INF), SUBWORDS),
        stat_key="alnum_ratio",
        bounds=("min_ratio", "max_ratio"),
        example=("ab, c!", {"min_ratio": 0.6}),
    ),
    Operator(
        "average_line_length_filter",
        "filter",
        "filter",
        "Characters of the text, newlines included, over its number of lines.",
        filters.avg_line_length,
        _bounds("len", 10, INF),
        stat_key="avg_line_length",
        bounds=("min_len", "max_len"),
        example=("one\nthree", {"max_len": 90}),
    ),
    Operator(
        "character_repetition_filter",
        "filter",
        "filter",
        "Share of the most frequent character n-grams among all of them.",
        filters.char_rep_ratio,
        (REP_LEN, *_bounds("ratio", 0.0, 0.5)),
        stat_key="char_rep_ratio",
        bounds=("min_ratio", "max_ratio"),
        example=("abababab", {"rep_len": 2}),
    ),
    Operator(
        "maximum_line_length_filter",
        "filter",
        "filter",
        "Length of the longest line.",
        filters.max_line_length,
        _bounds("len", 10, INF),
        stat_key="max_line_length",
        bounds=("min_len", "max_len"),
        example=("one\nthree", {"max_len": 300}),
    ),
    Operator(
        "text_length_filter",
        "filter",
        "filter",
        "Number of characters (code points).",
        filters.text_len,
        _bounds("len", 10, INF),
        stat_key="text_len",
        bounds=("min_len", "max_len"),
        example=("short", {}),
    ),
    Operator(
        "word_repetition_filter",
        "filter",
        "filter",
        "Share of word n-grams that occur more than once.",
        filters.word_rep_ratio,
        (REP_LEN, *_bounds("ratio", 0.0, 0.5), LANG, SUBWORDS),
        dj=filters.word_rep_ratio_dj,
        difference=_WORDS_DIFFER,
        stat_key="word_rep_ratio",
        bounds=("min_ratio", "max_ratio"),
        example=("a b a b a", {"rep_len": 2}),
    ),
    Operator(
        "words_num_filter",
        "filter",
        "filter",
        "Number of words that are more than digits and punctuation.",
        filters.num_words,
        (*_bounds("num", 10, INF), LANG, SUBWORDS),
        dj=filters.num_words_dj,
        difference=_WORDS_DIFFER,
        stat_key="num_words",
        bounds=("min_num", "max_num"),
        example=("In 2024, two words -- or more", {"min_num": 5}),
    ),
    Operator(
        "special_characters_filter",
        "filter",
        "filter",
        "Share of characters that are punctuation, digits, white space or listed symbols.",
        filters.special_char_ratio,
        _bounds("ratio", 0.0, 0.25),
        dj=filters.special_char_ratio_dj,
        difference=_WORDS_DIFFER,
        stat_key="special_char_ratio",
        bounds=("min_ratio", "max_ratio"),
        example=("a1 b2", {}),
    ),
    Operator(
        "stopwords_filter",
        "filter",
        "filter",
        "Share of words that are in `word_list`, given in the recipe.",
        filters.listed_ratio,
        (_LISTED, *_bounds("ratio", 0.3, 1.0), LANG, SUBWORDS),
        dj=filters.listed_ratio_dj,
        difference=_WORDS_DIFFER,
        stat_key="stopwords_ratio",
        bounds=("min_ratio", "max_ratio"),
        example=("The cat", {"word_list": ["the", "a"]}),
    ),
    Operator(
        "flagged_words_filter",
        "filter",
        "filter",
        "Share of words that are in `word_list`, given in the recipe.",
        filters.listed_ratio,
        (_LISTED, *_bounds("ratio", 0.0, 0.045), LANG, SUBWORDS),
        dj=filters.listed_ratio_dj,
        difference=_WORDS_DIFFER,
        stat_key="flagged_words_ratio",
        bounds=("min_ratio", "max_ratio"),
        example=("some bad word", {"word_list": ["bad"]}),
    ),
)
