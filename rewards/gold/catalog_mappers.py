"""The mappers: name, domain, parameters and functions.

Adding one: a function in its domain's module, an entry here, its words in
`operators.yaml`, a line in the tests.
"""

from __future__ import annotations

from rewards.gold import figures, latex, links, privacy, rag, web
from rewards.gold.core import INF, Operator, Param
from rewards.gold.text import SYMBOLS

REPL = Param("repl", "text", "", "what a match becomes: a regular expression template")
LANG = Param("lang", "text", "en", "accepted for compatibility; the word rules do not use it")

PRIVACY = (
    Operator("clean_email_mapper", "mapper", "privacy", privacy.clean_email, (REPL,)),
    Operator("clean_ip_mapper", "mapper", "privacy", privacy.clean_ip, (REPL,)),
    Operator("clean_mac_mapper", "mapper", "privacy", privacy.clean_mac, (REPL,)),
    Operator("clean_secret_mapper", "mapper", "privacy", privacy.clean_secret, (REPL,)),
    Operator(
        "clean_path_mapper",
        "mapper",
        "privacy",
        privacy.clean_path,
        (REPL,),
        dj=privacy.clean_path_dj,
    ),
    Operator(
        "clean_phone_mapper",
        "mapper",
        "privacy",
        privacy.clean_phone,
        (REPL,),
        dj=privacy.clean_phone_dj,
    ),
    Operator("clean_id_card_mapper", "mapper", "privacy", privacy.clean_id_card, (REPL,)),
    Operator("clean_jwt_mapper", "mapper", "privacy", privacy.clean_jwt, (REPL,)),
    Operator("clean_pem_mapper", "mapper", "privacy", privacy.clean_pem, (REPL,)),
    Operator("clean_channel_id_mapper", "mapper", "privacy", privacy.clean_channel_id, (REPL,)),
)

WEB = (
    Operator(
        "clean_links_mapper", "mapper", "web", links.clean_links, (REPL,), dj=links.clean_links_dj
    ),
    Operator("clean_copyright_mapper", "mapper", "web", web.clean_copyright),
    Operator("clean_html_mapper", "mapper", "web", web.clean_html, (REPL,), dj=web.clean_html_dj),
    Operator(
        "extract_tables_from_html_mapper",
        "mapper",
        "web",
        web.extract_tables,
        (
            Param(
                "output_mode",
                "text",
                "meta",
                "`text` replaces; `meta` leaves the text alone",
                ("text", "meta"),
            ),
            Param("text_output_format", "text", "tsv", "layout of the tables", ("tsv",)),
            Param("include_header", "bool", True, "keep rows that have a direct `th` cell"),
            Param("retain_html_tags", "bool", False, "return the tables' markup instead"),
        ),
    ),
    Operator(
        "fix_unicode_mapper",
        "mapper",
        "web",
        web.fix_unicode,
        (
            Param(
                "normalization",
                "text",
                "NFC",
                "Unicode normal form of the result",
                ("NFC", "NFKC", "NFD", "NFKD"),
            ),
        ),
    ),
    Operator("punctuation_normalization_mapper", "mapper", "web", web.punctuation_normalization),
    Operator(
        "remove_specific_chars_mapper",
        "mapper",
        "web",
        web.remove_specific_chars,
        (Param("chars_to_remove", "text or list of text", SYMBOLS, "the characters to delete"),),
        dj=web.remove_specific_chars_dj,
    ),
    Operator("whitespace_normalization_mapper", "mapper", "web", web.whitespace_normalization),
    Operator(
        "remove_words_with_incorrect_substrings_mapper",
        "mapper",
        "web",
        rag.remove_words,
        (
            LANG,
            Param(
                "substrings",
                "list of text",
                rag.SUBSTRINGS,
                "what a deleted word contains; an empty list means the default",
            ),
        ),
        dj=rag.remove_words_dj,
    ),
)

LATEX = (
    Operator("expand_macro_mapper", "mapper", "latex", latex.expand_macro),
    Operator(
        "latex_figure_context_extractor_mapper",
        "mapper",
        "latex",
        figures.extract_figures,
        (
            Param(
                "output_mode",
                "text",
                "meta",
                "`text` replaces; `meta` leaves the text alone",
                ("text", "meta"),
            ),
            Param(
                "text_output_format",
                "text",
                "figure_context_blocks_v1",
                "layout of a block",
                ("figure_context_blocks_v1",),
            ),
            Param("citation_commands", "list of text", figures.CITATIONS, "commands that cite"),
        ),
    ),
    Operator("remove_bibliography_mapper", "mapper", "latex", latex.remove_bibliography),
    Operator(
        "remove_comments_mapper",
        "mapper",
        "latex",
        latex.remove_comments,
        (
            Param("doc_type", "text", "tex", "accepted for compatibility", ("tex",)),
            Param("inline", "bool", True, "delete from an unescaped `%` to the line end"),
            Param("multiline", "bool", True, "delete lines that start with `%`"),
        ),
        dj=latex.remove_comments_dj,
    ),
    Operator(
        "remove_header_mapper",
        "mapper",
        "latex",
        latex.remove_header,
        (Param("drop_no_head", "bool", True, "accepted; gold keeps texts without a header"),),
    ),
)

RAG = (
    Operator(
        "remove_long_words_mapper",
        "mapper",
        "rag",
        rag.remove_long_words,
        (
            Param("min_len", "int", 1, "shortest word to keep"),
            Param("max_len", "int", INF, "longest word to keep"),
        ),
        dj=rag.remove_long_words_dj,
    ),
    Operator(
        "remove_repeat_sentences_mapper",
        "mapper",
        "rag",
        rag.remove_repeat_sentences,
        (
            Param("lowercase", "bool", False, "ignore case when comparing"),
            Param(
                "ignore_special_character",
                "bool",
                True,
                "compare ASCII letters, digits, Chinese characters and spaces only",
            ),
            Param("min_repeat_sentence_length", "int", 2, "shorter sentences always stay"),
        ),
    ),
    Operator(
        "remove_table_text_mapper",
        "mapper",
        "rag",
        rag.remove_table_text,
        (
            Param("min_col", "int", 2, "fewest columns of a table"),
            Param("max_col", "int", 20, "most columns of a table"),
        ),
    ),
)
