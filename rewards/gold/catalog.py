"""Every operator: name, domain, parameters and functions.

Adding one: a function in its domain's module, an entry here, its words in
`operators.yaml`, a line in the tests.
"""

from __future__ import annotations

import inspect
from ast import literal_eval
from collections.abc import Callable
from typing import Any

from assay.files import yaml_beside
from rewards.gold import filters, latex, privacy, rag, web
from rewards.gold.core import INF, TYPES, Operator, Param

RANGE = (
    Param("min_closed_interval", "bool", True),
    Param("max_closed_interval", "bool", True),
    Param("reversed_range", "bool", False),
)
LAST = ("lang", "tokenization")  # parameters that a filter names after its bounds
_NAMES = {hint: name for name, (_, _, *hints) in TYPES.items() for hint in hints}


def _params(function: Callable[..., Any]) -> list[Param]:
    """The parameters of an operator's function behind its text, as its signature has them: the
    type, the default, and of a `Literal` the choices."""
    found: list[Param] = []
    for p in [*inspect.signature(function).parameters.values()][1:]:
        if p.kind is p.KEYWORD_ONLY:  # given by the profile
            continue
        hint, required = str(p.annotation), p.default is p.empty  # annotations are not evaluated
        choices: tuple[str, ...] = ()
        if hint.startswith("Literal["):
            hint, choices = "str", literal_eval(hint.removeprefix("Literal").replace("]", ",]"))
        default = None if required else p.default
        found.append(Param(p.name, _NAMES[hint], default, tuple(choices), required))
    return found


def _mapper(
    name: str,
    bench: Callable[..., str],
    dj: Callable[..., str] | None = None,
    domain: str = "",
) -> Operator:
    """`domain` is the module of its function, unless another is given."""
    domain = domain or bench.__module__.rpartition(".")[2]
    return Operator(f"{name}_mapper", "mapper", domain, bench, tuple(_params(bench)), dj)


def _filter(
    name: str,
    statistic: str,
    bench: Callable[..., float],
    bounds: tuple[str, float, float],
    dj: Callable[..., float] | None = None,
) -> Operator:
    """`bounds`: what the bounds are called (`min_LEN`, `max_LEN`) and their defaults."""
    unit, low, high = bounds
    names = (f"min_{unit}", f"max_{unit}")
    limits = [Param(n, "number or none", v) for n, v in zip(names, (low, high), strict=True)]
    own = _params(bench)
    first, last = ([p for p in own if (p.name in LAST) is late] for late in (False, True))
    params = (*first, *limits, *RANGE, *last)
    return Operator(f"{name}_filter", "filter", "filter", bench, params, dj, statistic, names)


_ALL = (
    _mapper("clean_email", privacy.clean_email),
    _mapper("clean_ip", privacy.clean_ip),
    _mapper("clean_mac", privacy.clean_mac),
    _mapper("clean_secret", privacy.clean_secret),
    _mapper("clean_path", privacy.clean_path, privacy.clean_path_dj),
    _mapper("clean_phone", privacy.clean_phone, privacy.clean_phone_dj),
    _mapper("clean_id_card", privacy.clean_id_card),
    _mapper("clean_jwt", privacy.clean_jwt),
    _mapper("clean_pem", privacy.clean_pem),
    _mapper("clean_channel_id", privacy.clean_channel_id),
    _mapper("clean_links", web.clean_links, web.clean_links_dj),
    _mapper("clean_copyright", web.clean_copyright),
    _mapper("clean_html", web.clean_html, web.clean_html_dj),
    _mapper("extract_tables_from_html", web.extract_tables),
    _mapper("fix_unicode", web.fix_unicode),
    _mapper("punctuation_normalization", web.punctuation_normalization),
    _mapper("remove_specific_chars", web.remove_specific_chars, web.remove_specific_chars_dj),
    _mapper("whitespace_normalization", web.whitespace_normalization),
    _mapper("remove_words_with_incorrect_substrings", rag.remove_words, rag.remove_words_dj, "web"),
    _mapper("expand_macro", latex.expand_macro),
    _mapper("latex_figure_context_extractor", latex.extract_figures),
    _mapper("remove_bibliography", latex.remove_bibliography),
    _mapper("remove_comments", latex.remove_comments, latex.remove_comments_dj),
    _mapper("remove_header", latex.remove_header),
    _mapper("remove_long_words", rag.remove_long_words, rag.remove_long_words_dj),
    _mapper("remove_repeat_sentences", rag.remove_repeat_sentences),
    _mapper("remove_table_text", rag.remove_table_text),
    _filter("alphanumeric", "alnum_ratio", filters.alnum_ratio, ("ratio", 0.25, INF)),
    _filter("average_line_length", "avg_line_length", filters.avg_line_length, ("len", 10, INF)),
    _filter("character_repetition", "char_rep_ratio", filters.char_rep_ratio, ("ratio", 0.0, 0.5)),
    _filter("maximum_line_length", "max_line_length", filters.max_line_length, ("len", 10, INF)),
    _filter("text_length", "text_len", filters.text_len, ("len", 10, INF)),
    _filter(
        "word_repetition",
        "word_rep_ratio",
        filters.word_rep_ratio,
        ("ratio", 0.0, 0.5),
        filters.word_rep_ratio_dj,
    ),
    _filter("words_num", "num_words", filters.num_words, ("num", 10, INF), filters.num_words_dj),
    _filter(
        "special_characters",
        "special_char_ratio",
        filters.special_char_ratio,
        ("ratio", 0.0, 0.25),
        filters.special_char_ratio_dj,
    ),
    *(
        _filter(
            name,
            f"{name}_ratio",
            filters.listed_ratio,
            ("ratio", low, high),
            filters.listed_ratio_dj,
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


def meaning(operator: Operator, param: Param) -> str:
    """What a parameter of an operator means, in words, from `operators.yaml`."""
    shared = yaml_beside(__file__, "operators.yaml")["parameters"]
    own = described(operator).get("parameters", {})
    return own.get(param.name) or shared[param.name]
