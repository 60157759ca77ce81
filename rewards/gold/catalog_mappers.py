"""The mappers: name, domain, parameters, functions, and where the two profiles differ.

Adding one: a function in its domain's module, an entry here, a line in the tests.
"""

from __future__ import annotations

from rewards.gold import figures, latex, links, privacy, rag, web
from rewards.gold.core import INF, Operator, Param
from rewards.gold.text import SYMBOLS

REPL = Param("repl", "text", "", "what a match becomes: a regular expression template")
LANG = Param("lang", "text", "en", "accepted for compatibility; the word rules do not use it")

PRIVACY = (
    Operator(
        "clean_email_mapper",
        "mapper",
        "privacy",
        "Replaces e-mail addresses; an upper-case letter in the domain ends the match.",
        privacy.clean_email,
        (REPL,),
        example=("Write to jane.doe@example.org, please.", {"repl": "[EMAIL]"}),
    ),
    Operator(
        "clean_ip_mapper",
        "mapper",
        "privacy",
        "Replaces IPv4 and full IPv6 addresses, without any boundary check.",
        privacy.clean_ip,
        (REPL,),
        example=("ping 192.168.0.17 now", {}),
    ),
    Operator(
        "clean_mac_mapper",
        "mapper",
        "privacy",
        "Replaces MAC addresses of six pairs joined by colons or hyphens.",
        privacy.clean_mac,
        (REPL,),
        example=("eth0 00:1A:2b:3c:4D:5e up", {}),
    ),
    Operator(
        "clean_secret_mapper",
        "mapper",
        "privacy",
        "Replaces the value after a key such as `password` or `api_key` and `:` or `=`; the key, "
        "the separator and an opening quote stay.",
        privacy.clean_secret,
        (REPL,),
        example=("password = hunter2, user = bob", {"repl": "***"}),
    ),
    Operator(
        "clean_path_mapper",
        "mapper",
        "privacy",
        "Replaces file system paths of two or more components, relative URLs included.",
        privacy.clean_path,
        (REPL,),
        dj=privacy.clean_path_dj,
        difference="`bench` takes drive, UNC and any multi-component slash path; `dj` takes paths "
        "under a few known roots (`/home`, `/tmp`, `/etc` …), drives and UNC, only after the text "
        "start, white space, a quote or an opening bracket.",
        example=("see /usr/local/bin/tool and /tmp", {}),
    ),
    Operator(
        "clean_phone_mapper",
        "mapper",
        "privacy",
        "Replaces phone-like digit groups, including undecorated 7 to 11 digit numbers.",
        privacy.clean_phone,
        (REPL,),
        dj=privacy.clean_phone_dj,
        difference="`bench` takes many international shapes (and pairs of years); `dj` takes "
        "eleven-digit mobile numbers starting with 1 and `+` country-code numbers.",
        example=("Call +1 415-555-0132 today", {}),
    ),
    Operator(
        "clean_id_card_mapper",
        "mapper",
        "privacy",
        "Replaces 18-character identity card numbers that hold a plausible date.",
        privacy.clean_id_card,
        (REPL,),
        example=("ID 11010519900307123X.", {"repl": "[ID]"}),
    ),
    Operator(
        "clean_jwt_mapper",
        "mapper",
        "privacy",
        "Replaces JSON web tokens (`eyJ…`, three parts).",
        privacy.clean_jwt,
        (REPL,),
        example=("token eyJhbGci.eyJzdWIi.c2ln end", {}),
    ),
    Operator(
        "clean_pem_mapper",
        "mapper",
        "privacy",
        "Replaces PEM blocks from a BEGIN line to the next END line.",
        privacy.clean_pem,
        (REPL,),
        example=("key:\n-----BEGIN KEY-----\nMIIB\n-----END KEY-----\n", {"repl": "[PEM]"}),
    ),
    Operator(
        "clean_channel_id_mapper",
        "mapper",
        "privacy",
        "Replaces chat channel names after `channel:` and open or user identifiers.",
        privacy.clean_channel_id,
        (REPL,),
        example=("channel: feishu, uid_0123456789abcdef", {}),
    ),
)

WEB = (
    Operator(
        "clean_links_mapper",
        "mapper",
        "web",
        "Replaces web, FTP and bare-domain links; in `bench` e-mail addresses too.",
        links.clean_links,
        (REPL,),
        dj=links.clean_links_dj,
        difference="`dj` removes any `word:x` (namespaces, `key:value`), stops before trailing "
        "punctuation and balances parentheses; `bench` takes e-mail addresses and keeps trailing "
        "`.,;` in the link.",
        example=("Read https://example.org/a?b=1. Bye", {"repl": "[LINK]"}),
    ),
    Operator(
        "clean_copyright_mapper",
        "mapper",
        "web",
        "Cuts the first C-style comment if it mentions copyright; without such a comment, drops "
        "the leading lines that are empty or start with `//`, `#` or `--`.",
        web.clean_copyright,
        example=("# licence\n\ncode = 1\n# kept", {}),
    ),
    Operator(
        "clean_html_mapper",
        "mapper",
        "web",
        "Removes markup and decodes entities once.",
        web.clean_html,
        (REPL,),
        dj=web.clean_html_dj,
        difference="`bench` deletes comments and tags by pattern, so script content stays; `dj` "
        "turns list items into `*` lines and returns the parsed document's text, whatever `repl`.",
        example=("<p>Fish &amp; <b>chips</b></p>", {}),
    ),
    Operator(
        "extract_tables_from_html_mapper",
        "mapper",
        "web",
        "Replaces a page by its tables as tab-separated rows; a page without a table is unchanged.",
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
        example=("<p>x</p><table><tr><th>a</th><td>1</td></tr></table>", {"output_mode": "text"}),
    ),
    Operator(
        "fix_unicode_mapper",
        "mapper",
        "web",
        "Repairs mis-decoded text with ftfy: mojibake, curly quotes, ligatures, widths, line ends.",
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
        example=("schÃ¶n, she said \u201cok\u201d", {}),
    ),
    Operator(
        "punctuation_normalization_mapper",
        "mapper",
        "web",
        "Maps full-width and typographic punctuation to ASCII, one character at a time.",
        web.punctuation_normalization,
        example=("你好，世界！—…", {}),
    ),
    Operator(
        "remove_specific_chars_mapper",
        "mapper",
        "web",
        "Deletes the listed characters.",
        web.remove_specific_chars,
        (Param("chars_to_remove", "text or list of text", SYMBOLS, "the characters to delete"),),
        dj=web.remove_specific_chars_dj,
        difference="`dj` joins the characters by `|` into an unescaped character class, so `|` "
        "goes as well and ranges or negation are possible.",
        example=("◆ one ● two | three", {}),
    ),
    Operator(
        "whitespace_normalization_mapper",
        "mapper",
        "web",
        "Strips the text and maps tabs and Unicode spaces to plain spaces; newlines stay and runs "
        "are not collapsed.",
        web.whitespace_normalization,
        example=("\u00a0a\u3000b\t\tc\n", {}),
    ),
    Operator(
        "remove_words_with_incorrect_substrings_mapper",
        "mapper",
        "web",
        "Deletes words that contain one of the substrings; texts over 80,000 characters are "
        "returned as they are.",
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
        difference="`bench` ignores case, strips ASCII punctuation and leaves all white space; "
        "`dj` is case-sensitive, strips the special characters and normalises white space.",
        example=("go to www.site.com now", {}),
    ),
)

LATEX = (
    Operator(
        "expand_macro_mapper",
        "mapper",
        "latex",
        "Expands argument-free `\\newcommand` and `\\def` macros, definition lines included.",
        latex.expand_macro,
        example=("\\def\\x{alpha}\nThe \\x, again.", {}),
    ),
    Operator(
        "latex_figure_context_extractor_mapper",
        "mapper",
        "latex",
        "Replaces a paper by one block a figure: label, caption, images and citing paragraphs; "
        "without a figure that has an image the text is unchanged.",
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
        example=(
            "As \\ref{f} shows.\n\n\\begin{figure}\\includegraphics{a.png}\\caption{A cat}"
            "\\label{f}\\end{figure}",
            {"output_mode": "text"},
        ),
    ),
    Operator(
        "remove_bibliography_mapper",
        "mapper",
        "latex",
        "Deletes everything from the first appendix or bibliography command on.",
        latex.remove_bibliography,
        example=("Text.\n\\bibliography{refs}\nmore", {}),
    ),
    Operator(
        "remove_comments_mapper",
        "mapper",
        "latex",
        "Deletes TeX comments; in `bench` also HTML comments, and `#` or `//` lines elsewhere.",
        latex.remove_comments,
        (
            Param("doc_type", "text", "tex", "accepted for compatibility", ("tex",)),
            Param("inline", "bool", True, "delete from an unescaped `%` to the line end"),
            Param("multiline", "bool", True, "delete lines that start with `%`"),
        ),
        dj=latex.remove_comments_dj,
        difference="`bench` first decides whether the text is TeX and keeps the character before "
        "`%`; `dj` deletes that character too (even a newline) and knows no other comments.",
        example=("\\section{A} % note\n% gone\nb", {}),
    ),
    Operator(
        "remove_header_mapper",
        "mapper",
        "latex",
        "Deletes what precedes the first sectioning command; without one nothing changes.",
        latex.remove_header,
        (Param("drop_no_head", "bool", True, "accepted; gold keeps texts without a header"),),
        example=("\\title{T}\n\\section{Intro}\nText", {}),
    ),
)

RAG = (
    Operator(
        "remove_long_words_mapper",
        "mapper",
        "rag",
        "Deletes words whose length without punctuation is outside the limits; by default only "
        "words that are nothing but punctuation.",
        rag.remove_long_words,
        (
            Param("min_len", "int", 1, "shortest word to keep"),
            Param("max_len", "int", INF, "longest word to keep"),
        ),
        dj=rag.remove_long_words_dj,
        difference="`bench` strips ASCII punctuation before measuring and keeps white space; `dj` "
        "measures the word first and normalises white space.",
        example=("a -- b === c", {}),
    ),
    Operator(
        "remove_repeat_sentences_mapper",
        "mapper",
        "rag",
        "Keeps the first of each repeated sentence; texts over 80,000 characters are returned as "
        "they are.",
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
        example=("Yes it is. No. Yes it is. Done.", {}),
    ),
    Operator(
        "remove_table_text_mapper",
        "mapper",
        "rag",
        "Deletes runs of two or more lines with the same number of columns.",
        rag.remove_table_text,
        (
            Param("min_col", "int", 2, "fewest columns of a table"),
            Param("max_col", "int", 20, "most columns of a table"),
        ),
        example=("Scores:\nann 1\nbob 2\nThat was all of it.", {}),
    ),
)
