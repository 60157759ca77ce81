"""How operators are spoken: nouns of what a mapper takes out, sentences for what one turns into
something else, conditions of filters. No name of an operator or parameter occurs.

Phrases say what the executor does, not what its name suggests: links include e-mail addresses,
"long words" are punctuation-only tokens (see docs/operators.md).
"""

from __future__ import annotations

# (imperative, gerund, participle)
VERBS = (
    ("remove", "removing", "removed"),
    ("delete", "deleting", "deleted"),
    ("strip out", "stripping out", "stripped out"),
    ("take out", "taking out", "taken out"),
    ("erase", "erasing", "erased"),
    ("cut out", "cutting out", "cut out"),
    ("clear out", "clearing out", "cleared out"),
    ("eliminate", "eliminating", "eliminated"),
)
DETERMINERS = ("", "all ", "any ", "the ")

# Mapper -> plural nouns of what it takes out.
NOUNS: dict[str, tuple[str, ...]] = {
    "clean_email_mapper": (
        "e-mail addresses",
        "email addresses",
        "addresses of mailboxes",
        "mailbox addresses",
    ),
    "clean_ip_mapper": ("IP addresses", "internet protocol addresses", "numeric network addresses"),
    "clean_mac_mapper": ("MAC addresses", "hardware addresses", "network card addresses"),
    "clean_path_mapper": (
        "file paths",
        "file-system paths",
        "paths of files and folders",
        "directory paths",
    ),
    "clean_phone_mapper": ("phone numbers", "telephone numbers", "phone-like groups of digits"),
    "clean_id_card_mapper": (
        "identity card numbers",
        "18-character ID numbers",
        "national identity numbers",
    ),
    "clean_secret_mapper": (
        "values of passwords, keys and tokens (their names stay)",
        "secret values that follow a key name",
        "credential values (but not the key names)",
    ),
    "clean_channel_id_mapper": (
        "chat channel names and user identifiers",
        "messaging channel labels and open IDs",
        "identifiers of chat platforms",
    ),
    "clean_jwt_mapper": ("JSON web tokens", "signed web tokens", "three-part web tokens"),
    "clean_pem_mapper": (
        "PEM blocks",
        "key and certificate blocks between BEGIN and END lines",
        "armoured key blocks",
    ),
    "clean_links_mapper": (
        "web links and e-mail addresses",
        "URLs, mail addresses included",
        "hyperlinks of every kind (mail addresses too)",
    ),
    "clean_copyright_mapper": (
        "copyright comments and leading comment lines",
        "licence comments at the top",
        "opening licence headers",
    ),
    "clean_html_mapper": (
        "HTML tags (with entities decoded)",
        "markup tags (entities become characters)",
        "angle-bracket tags (decoding entities once)",
    ),
    "remove_comments_mapper": (
        "source comments",
        "comments in the source",
        "inline and full-line comments",
    ),
    "remove_header_mapper": (
        "lines before the first section heading",
        "parts ahead of the first section command",
        "preamble lines preceding the first heading",
    ),
    "remove_long_words_mapper": (
        "punctuation-only tokens",
        "tokens made of punctuation alone",
        "stand-alone runs of punctuation",
    ),
    "remove_repeat_sentences_mapper": (
        "repeated sentences",
        "duplicate sentences",
        "second occurrences of a sentence",
        "sentences that were said before",
    ),
    "remove_specific_chars_mapper": (
        "decorative bullet symbols",
        "ornamental symbols such as ◆ and ●",
        "bullet and box symbols",
    ),
    "remove_words_with_incorrect_substrings_mapper": (
        "words containing http, www, .com, href or //",
        "tokens with http, www, .com, href or // inside",
        "words that hold http, www, .com, href or a double slash",
    ),
    "remove_table_text_mapper": (
        "rows of plain-text tables",
        "table-like blocks of text",
        "columns of tabular text",
    ),
}

# Mapper -> (imperative, gerund, statement, negative) of what it turns into something else.
SENTENCES: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "extract_tables_from_html_mapper": (
        (
            "reduce the page to its tables as tab-separated rows",
            "reducing the page to its tables as tab-separated rows",
            "the page is reduced to its tables as tab-separated rows",
            "nothing beside the tables as tab-separated rows",
        ),
        (
            "replace the page by its HTML tables with tabs between cells",
            "replacing the page by its HTML tables with tabs between cells",
            "the page is replaced by its HTML tables with tabs between cells",
            "nothing beside the HTML tables with tabs between cells",
        ),
        (
            "keep the tables alone, one line a row and a tab between cells",
            "keeping the tables alone, one line a row and a tab between cells",
            "the tables alone are kept, one line a row and a tab between cells",
            "nothing outside the tables, one line a row and a tab between cells",
        ),
    ),
    "expand_macro_mapper": (
        (
            "expand the macros without arguments",
            "expanding the macros without arguments",
            "the macros without arguments are expanded",
            "no macros without arguments left unexpanded",
        ),
        (
            "write out simple shorthand commands",
            "writing out simple shorthand commands",
            "simple shorthand commands are written out",
            "no simple shorthand commands left standing",
        ),
        (
            "substitute argument-free macros by their definitions",
            "substituting argument-free macros by their definitions",
            "argument-free macros are substituted by their definitions",
            "no argument-free macros in place of their definitions",
        ),
    ),
    "fix_unicode_mapper": (
        (
            "repair mis-decoded characters",
            "repairing mis-decoded characters",
            "mis-decoded characters are repaired",
            "no mis-decoded characters",
        ),
        (
            "fix the broken character encoding",
            "fixing the broken character encoding",
            "the broken character encoding is fixed",
            "no broken character encoding",
        ),
    ),
    "latex_figure_context_extractor_mapper": (
        (
            "reduce the paper to its figures with captions, images and citing paragraphs",
            "reducing the paper to its figures with captions, images and citing paragraphs",
            "the paper is reduced to its figures with captions, images and citing paragraphs",
            "nothing beside the figures with captions, images and citing paragraphs",
        ),
        (
            "replace the paper by one block a figure: label, caption, images, citing paragraphs",
            "replacing the paper by one block a figure: label, caption, images, citing paragraphs",
            "the paper is replaced by one block a figure: "
            "label, caption, images, citing paragraphs",
            "nothing beside one block a figure: label, caption, images, citing paragraphs",
        ),
        (
            "keep the figure blocks alone, each with the paragraphs that cite it",
            "keeping the figure blocks alone, each with the paragraphs that cite it",
            "the figure blocks alone are kept, each with the paragraphs that cite it",
            "nothing outside the figure blocks, each with the paragraphs that cite it",
        ),
    ),
    "punctuation_normalization_mapper": (
        (
            "turn typographic punctuation into plain ASCII marks",
            "turning typographic punctuation into plain ASCII marks",
            "typographic punctuation is turned into plain ASCII marks",
            "no typographic punctuation in place of plain ASCII marks",
        ),
        (
            "replace full-width and curly punctuation by its plain form",
            "replacing full-width and curly punctuation by its plain form",
            "full-width and curly punctuation is replaced by its plain form",
            "no full-width or curly punctuation instead of its plain form",
        ),
        (
            "normalise quotes, dashes and other marks to ASCII",
            "normalising quotes, dashes and other marks to ASCII",
            "quotes, dashes and other marks are normalised to ASCII",
            "no quotes, dashes or other marks outside ASCII",
        ),
    ),
    "remove_bibliography_mapper": (
        (
            "cut everything from the appendix or bibliography on",
            "cutting everything from the appendix or bibliography on",
            "everything from the appendix or bibliography on is cut",
            "nothing from the appendix or bibliography on",
        ),
        (
            "drop the reference list or appendix and what follows",
            "dropping the reference list or appendix and what follows",
            "the reference list or appendix and what follows are dropped",
            "no reference list or appendix and nothing that follows",
        ),
        (
            "end the text where the bibliography or an appendix starts",
            "ending the text where the bibliography or an appendix starts",
            "the text is ended where the bibliography or an appendix starts",
            "no text beyond where the bibliography or an appendix starts",
        ),
    ),
    "whitespace_normalization_mapper": (
        (
            "trim the ends and turn tabs and special spaces into plain ones",
            "trimming the ends and turning tabs and special spaces into plain ones",
            "the ends are trimmed and tabs and special spaces turned into plain ones",
            "no untrimmed ends, tabs or special spaces instead of plain ones",
        ),
        (
            "use ordinary blanks for tabs and exotic spaces, trimmed at both ends",
            "using ordinary blanks for tabs and exotic spaces, trimmed at both ends",
            "ordinary blanks are used for tabs and exotic spaces, trimmed at both ends",
            "no tabs or exotic spaces for ordinary blanks, trimmed at both ends",
        ),
        (
            "unify the kinds of blank space and trim the text",
            "unifying the kinds of blank space and trimming the text",
            "the kinds of blank space are unified and the text trimmed",
            "no mixed kinds of blank space and no untrimmed text",
        ),
    ),
}

# Mapper -> forms that say more than those above, one tuple a manner; each is a plural noun as in
# NOUNS or four moods as in SENTENCES. The manner of the forms above is 0, and these are 1, 2, …:
# `data_gen.cdr.said` has what each of them promises, and asks a task in the first one that is true.
TO_THE_LETTER: dict[str, tuple[tuple[str | tuple[str, str, str, str], ...], ...]] = {
    "clean_copyright_mapper": (
        (
            "leading lines that are empty or begin with //, # or --",
            "lines at the top that are empty or start with //, # or --",
        ),
    ),
    "clean_html_mapper": (
        (
            "HTML comments and anything in angle brackets that close on their line (with entities "
            "decoded)",
            "comments of HTML, tags and whatever else stands between < and > within a line "
            "(entities become characters)",
        ),
    ),
    "clean_links_mapper": (
        (
            "web links up to the next blank, bracket or quote, and e-mail addresses",
            "URLs with whatever hangs on them up to a blank, bracket or quote (mail addresses too)",
        ),
    ),
    "clean_path_mapper": (
        (
            "paths (a slash, one or more names that each end in a slash and perhaps a last name, "
            "also in web addresses, names being of letters, digits, dots, hyphens and _; or a "
            'drive with :\\ or two backslashes and all up to a blank or one of < > " | ? *; but '
            "none with a letter, digit or _ right before it)",
            "runs of a slash, one or more names with a slash behind and perhaps another name (of "
            "letters, digits, dots, hyphens and _, in web addresses too) and whatever follows a "
            'drive with :\\ or two backslashes (up to a blank or one of < > " | ? *, these '
            "beginnings included), where no letter, digit or _ touches them in front",
        ),
    ),
    "clean_phone_mapper": (
        (
            "phone numbers whose last group has four digits or at least seven (those with an "
            "extension stay)",
            "telephone numbers that have no extension and end in a group of four digits or of "
            "seven and more",
        ),
    ),
    "clean_secret_mapper": (
        (
            "characters up to a blank, quote, comma, ] or } that follow a : or = after password, "
            "passwd, secret, token, auth, authorization, credential, apikey or licensekey (_ or - "
            "may stand inside), blanks and an opening quote left in place",
            "values, whatever they are, behind a : or = after password, passwd, secret, token, "
            "auth, authorization, credential, api_key or license_key (or with - or nothing for the "
            "_), up to a blank, quote, comma, ] or } (blanks and a quote before them stay)",
        ),
    ),
    "extract_tables_from_html_mapper": (
        (
            (
                "keep the tables alone (one line a row and a tab between cells, the pieces of "
                "text in a cell trimmed and joined without a blank; a page without tables stays"
                " as it is)",
                "keeping the tables alone (one line a row and a tab between cells, the pieces "
                "of text in a cell trimmed and joined without a blank; a page without tables "
                "stays as it is)",
                "the tables alone are kept (one line a row and a tab between cells, the pieces "
                "of text in a cell trimmed and joined without a blank; a page without tables "
                "stays as it is)",
                "nothing outside the tables (one line a row and a tab between cells, the pieces"
                " of text in a cell trimmed and joined without a blank; a page without tables "
                "stays as it is)",
            ),
        ),
    ),
    "fix_unicode_mapper": (
        (
            (
                "mend garbled characters and straighten quotes",
                "mending garbled characters and straightening quotes",
                "garbled characters are mended and quotes straightened",
                "no garbled characters or curled quotes",
            ),
            (
                "repair mis-decoded characters and turn curly quotes into straight ones",
                "repairing mis-decoded characters and turning curly quotes into straight ones",
                "mis-decoded characters are repaired and curly quotes turned into straight ones",
                "no mis-decoded characters and no curly quotes in place of straight ones",
            ),
        ),
        (
            (
                "repair mis-decoded characters, straighten quotes, split ligatures, narrow wide "
                "letters, compose accents, end lines in line feeds alone and decode the entities "
                "above the first line with a <",
                "repairing mis-decoded characters, straightening quotes, splitting ligatures, "
                "narrowing wide letters, composing accents, ending lines in line feeds alone and "
                "decoding the entities above the first line with a <",
                "mis-decoded characters are repaired, quotes straightened, ligatures split, wide "
                "letters narrowed, accents composed, lines ended in line feeds alone and the "
                "entities above the first line with a < decoded",
                "no mis-decoded characters, curled quotes, ligatures, wide letters, loose accents, "
                "carriage returns or, above the first line with a <, entities",
            ),
        ),
    ),
    "latex_figure_context_extractor_mapper": (
        (
            (
                "reduce the paper to its figures with captions, images and citing paragraphs "
                "(figures in comments count, and a paper without images stays as it is)",
                "reducing the paper to its figures with captions, images and citing paragraphs "
                "(figures in comments count, and a paper without images stays as it is)",
                "the paper is reduced to its figures with captions, images and citing "
                "paragraphs (figures in comments count, and a paper without images stays as it "
                "is)",
                "nothing beside the figures with captions, images and citing paragraphs "
                "(figures in comments count, and a paper without images stays as it is)",
            ),
        ),
    ),
    "punctuation_normalization_mapper": (
        (
            (
                "turn “ ” „ « » 「 」 《 》 into straight double quotes, ’ and ´ into "
                "apostrophes, … into three full stops, – into a hyphen, — into a hyphen "
                "between two added blanks and Chinese or full-width marks into plain ones, "
                "and nothing else",
                "turning “ ” „ « » 「 」 《 》 into straight double quotes, ’ and ´ into "
                "apostrophes, … into three full stops, – into a hyphen, — into a hyphen "
                "between two added blanks and Chinese or full-width marks into plain ones, "
                "and nothing else",
                "the marks “ ” „ « » 「 」 《 》 are turned into straight double quotes, ’ "
                "and ´ into apostrophes, … into three full stops, – into a hyphen, — into a "
                "hyphen between two added blanks and Chinese or full-width marks into plain "
                "ones, and nothing else",
                "no “ ” „ « » 「 」 《 》 for straight double quotes, ’ or ´ for "
                "apostrophes, … for three full stops, – for a hyphen, — for a hyphen between "
                "two added blanks or Chinese or full-width marks for plain ones, other "
                "characters unchanged",
            ),
        ),
    ),
    "remove_comments_mapper": (
        (
            "HTML comments, and % signs without a backslash right before them, each with the rest "
            "of its line, even in a web address",
            "comments of HTML and whatever follows a % in its line, the % included, unless a "
            "backslash stands right before it",
        ),
    ),
    "remove_header_mapper": (
        (
            "lines and parts of a line before the first part, chapter or section command (of any "
            "depth, in a comment too)",
            "characters ahead of the first sectioning command, one in a comment included",
        ),
    ),
    "remove_long_words_mapper": (
        (
            "tokens made of ASCII punctuation and signs alone (such as - or =)",
            "stand-alone runs of ASCII punctuation (* # $ + < = > among it)",
        ),
    ),
    "remove_repeat_sentences_mapper": (
        (
            "repeated sentences (the end of a line ends one, too, and letters, digits and blanks "
            "alone are compared)",
            "sentences or last parts of lines that were there before (only letters, digits and "
            "blanks are compared)",
        ),
        (
            "repeated sentences (the end of a line ends one, and so does a . ! or ? between two "
            "words, even in a web address or the name of a file; letters, digits and blanks alone "
            "are compared)",
            "sentences or last parts of lines that were there before (only letters, digits and "
            "blanks are compared, and a . ! or ? between two words ends a sentence, too, as in a "
            "web address)",
        ),
    ),
    "remove_words_with_incorrect_substrings_mapper": (
        (
            "words that hold http, www, .com, href or // between the marks at their ends (in "
            "capitals too)",
            "tokens with http, www, .com, href or // inside (whatever their case, and not counting "
            "punctuation at both ends)",
        ),
    ),
    "whitespace_normalization_mapper": (
        (
            (
                "trim the ends and turn each tab, U+0084, U+00A0, U+2000 to U+200D, U+202F, "
                "U+205F, U+2060, U+3000 or U+FFFC into a plain space",
                "trimming the ends and turning each tab, U+0084, U+00A0, U+2000 to U+200D, "
                "U+202F, U+205F, U+2060, U+3000 or U+FFFC into a plain space",
                "the ends are trimmed and each tab, U+0084, U+00A0, U+2000 to U+200D, U+202F, "
                "U+205F, U+2060, U+3000 or U+FFFC is turned into a plain space",
                "no untrimmed ends and no tab, U+0084, U+00A0, U+2000 to U+200D, U+202F, "
                "U+205F, U+2060, U+3000 or U+FFFC for a plain space",
            ),
        ),
    ),
}

# (filter, bound) -> (what is true of a rejected text, what of a kept one); {n} is the number.
CONDITIONS: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("text_length_filter", "min_len"): (
        ("it has fewer than {n} characters", "it is shorter than {n} characters"),
        ("it has at least {n} characters", "it is {n} or more characters long"),
    ),
    ("words_num_filter", "min_num"): (
        ("it has fewer than {n} words", "it holds under {n} words"),
        ("it has at least {n} words", "it holds {n} words or more"),
    ),
    ("alphanumeric_filter", "min_ratio"): (
        (
            "less than {n} of its characters are letters or digits",
            "letters and digits make up less than {n} of it",
        ),
        (
            "at least {n} of its characters are letters or digits",
            "letters and digits make up at least {n} of it",
        ),
    ),
    ("average_line_length_filter", "max_len"): (
        (
            "its lines average more than {n} characters",
            "the mean line length is above {n} characters",
        ),
        (
            "its lines average at most {n} characters",
            "the mean line length stays within {n} characters",
        ),
    ),
    ("maximum_line_length_filter", "max_len"): (
        ("some line is longer than {n} characters", "its longest line exceeds {n} characters"),
        ("no line is longer than {n} characters", "its longest line stays within {n} characters"),
    ),
    ("character_repetition_filter", "max_ratio"): (
        (
            "more than {n} of its ten-character runs are the most repeated ones",
            "the commonest repeated ten-character runs make up over {n}",
        ),
        (
            "at most {n} of its ten-character runs are the most repeated ones",
            "the commonest repeated ten-character runs make up no more than {n}",
        ),
    ),
    ("word_repetition_filter", "max_ratio"): (
        (
            "more than {n} of its ten-word sequences are repeats",
            "repeated ten-word sequences make up over {n}",
        ),
        (
            "at most {n} of its ten-word sequences are repeats",
            "repeated ten-word sequences make up no more than {n}",
        ),
    ),
}

# The same of longer conditions, which say how it is counted: manner 1.
CONDITIONS_TO_THE_LETTER: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("words_num_filter", "min_num"): (
        ("it has fewer than {n} words, numbers and signs alone not counted",),
        ("it has at least {n} words, numbers and signs alone not counted",),
    ),
    ("average_line_length_filter", "max_len"): (
        ("it has more than {n} characters to a line on average, line ends included",),
        ("it has at most {n} characters to a line on average, line ends included",),
    ),
    ("character_repetition_filter", "max_ratio"): (
        (
            "of its D different ten-character runs the √D (rounded down) that occur most often, "
            "less those that occur once, make up more than {n} of all its ten-character runs",
        ),
        (
            "of its D different ten-character runs the √D (rounded down) that occur most often, "
            "less those that occur once, make up at most {n} of all its ten-character runs",
        ),
    ),
    ("word_repetition_filter", "max_ratio"): (
        (
            "more than {n} of its sequences of ten words (in small letters, without the digits and "
            "marks around them) occur more than once",
        ),
        (
            "at most {n} of its sequences of ten words (in small letters, without the digits and "
            "marks around them) occur more than once",
        ),
    ),
}

# Frames of a filter by mood: (for a rejecting condition, for a keeping one); {c} is the condition.
FILTER_FRAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "imperative": (
        ("reject the text if {c}", "drop it if {c}", "discard it when {c}"),
        ("keep the text only if {c}", "let it pass only if {c}", "accept it only when {c}"),
    ),
    "gerund": (
        ("rejecting the text if {c}", "dropping it if {c}"),
        ("keeping the text only if {c}", "accepting it only when {c}"),
    ),
    "statement": (
        ("the text is rejected if {c}", "it is dropped when {c}"),
        ("the text is kept only if {c}", "it is accepted only when {c}"),
    ),
    "negative": (
        ("no acceptance if {c}", "no passing of the text when {c}"),
        ("no acceptance unless {c}", "no passing of the text unless {c}"),
    ),
}
MOODS = tuple(FILTER_FRAMES)
