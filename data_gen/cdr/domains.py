"""CDR-Bench's four domains: their operators in execution order, and which one a record is of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from assay.task import TaskError

# Name in a corpus -> the benchmark's internal name, which ids and keys are made with.
INTERNAL = {"web": "web", "latex": "arxiv", "rag": "knowledge_base", "privacy": "pii"}
LABELS = {internal: label for label, internal in INTERNAL.items()}

# Execution order inside a recipe (spec section 5).
MAPPERS: dict[str, tuple[str, ...]] = {
    "web": (
        "clean_copyright_mapper",
        "clean_html_mapper",
        "clean_links_mapper",
        "extract_tables_from_html_mapper",
        "fix_unicode_mapper",
        "punctuation_normalization_mapper",
        "remove_specific_chars_mapper",
        "remove_words_with_incorrect_substrings_mapper",
        "whitespace_normalization_mapper",
    ),
    "arxiv": (
        "clean_copyright_mapper",
        "expand_macro_mapper",
        "fix_unicode_mapper",
        "latex_figure_context_extractor_mapper",
        "punctuation_normalization_mapper",
        "remove_bibliography_mapper",
        "remove_comments_mapper",
        "remove_header_mapper",
    ),
    "knowledge_base": (
        "fix_unicode_mapper",
        "remove_long_words_mapper",
        "remove_repeat_sentences_mapper",
    ),
    "pii": (
        "clean_email_mapper",
        "clean_ip_mapper",
        "clean_path_mapper",
        "clean_phone_mapper",
        "clean_id_card_mapper",
        "clean_secret_mapper",
        "clean_channel_id_mapper",
        "clean_jwt_mapper",
        "clean_pem_mapper",
        "clean_mac_mapper",
        "clean_links_mapper",
        "remove_words_with_incorrect_substrings_mapper",
    ),
}
ALL_MAPPERS = tuple(sorted({name for names in MAPPERS.values() for name in names}))
FILTERS = (
    "alphanumeric_filter",
    "average_line_length_filter",
    "character_repetition_filter",
    "flagged_words_filter",
    "maximum_line_length_filter",
    "stopwords_filter",
    "text_length_filter",
    "word_repetition_filter",
    "words_num_filter",
)
# Their word lists are not public, and no released task uses them.
LISTED_FILTERS = ("flagged_words_filter", "stopwords_filter")
# Mappers of the construction that the paper's Table 4 does not list.
NOT_IN_PAPER = (
    "clean_channel_id_mapper",
    "clean_id_card_mapper",
    "clean_jwt_mapper",
    "clean_pem_mapper",
)
# The paper's 29 operators: 22 mappers and 7 filters (Table 4).
PAPER = frozenset({*ALL_MAPPERS, *FILTERS} - {*NOT_IN_PAPER, *LISTED_FILTERS})


def chosen_operators(only: Sequence[str]) -> frozenset[str]:
    """The operators that the setting `operators.only` names: `paper` stands for the paper's 29,
    nothing for all. Raises `TaskError` for a name that no task can be made of."""
    known = frozenset({*ALL_MAPPERS, *FILTERS} - {*LISTED_FILTERS})
    if not only:
        return known
    for name in only:
        if name != "paper" and name not in known:
            raise TaskError(
                f"operators.only names {name!r}; give `paper`, or operators such as "
                f"{', '.join(sorted(known)[:3])} (rewards/gold/operators.yaml)"
            )
    named = frozenset(name for name in only if name != "paper")
    return named | PAPER if "paper" in only else named


def internal_name(domain: str) -> str:
    """The benchmark's name of a domain given by either name; other names stay as they are."""
    return INTERNAL.get(domain, domain)


def label(domain: str) -> str:
    """The corpus's name of a domain given by either name."""
    return LABELS.get(domain, domain)


def execution_order(domain: str, operators: Iterable[str]) -> tuple[str, ...]:
    """The domain's own mappers in configured order, then foreign ones alphabetically."""
    chosen = set(operators)
    own = [name for name in MAPPERS.get(internal_name(domain), ()) if name in chosen]
    return (*own, *sorted(chosen.difference(own)))


def rank_domains(
    active: Collection[str], source: str, passed_filters: int = 0, order: Sequence[str] = ()
) -> list[str]:
    """Internal domain names, best first, for a record's active mappers (spec section 5).

    Compared in this order, more is better: active mappers of the domain, those of that domain
    only, being the source domain, shared active mappers, passed filters; then the given order.
    """
    names = list(order) or list(MAPPERS)
    owners = {op: sum(op in MAPPERS[d] for d in MAPPERS) for op in ALL_MAPPERS}

    def score(domain: str) -> tuple[int, ...]:
        own = [op for op in MAPPERS[domain] if op in active]
        only = sum(owners[op] == 1 for op in own)
        return (len(own), only, int(domain == source), len(own), len(own) - only, passed_filters)

    return sorted(names, key=lambda d: (*(-n for n in score(d)), names.index(d)))


def assign_domain(active: Collection[str], source: str) -> str | None:
    """The best domain with at least one active mapper, or None."""
    best = rank_domains(active, internal_name(source))[0]
    return best if any(op in active for op in MAPPERS[best]) else None
