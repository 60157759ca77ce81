"""The operators that have a fast form, written the slow and obvious way, as an oracle for tests."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable
from typing import Any

import ftfy
import regex

from rewards.gold import filters, latex, privacy, rag, web
from rewards.gold.core import SPECIAL_BENCH, SPECIAL_DJ, merge_cells, split_cells

V0 = regex.V0


def words(text: str, special: frozenset[str], lower: bool) -> list[str]:
    found: list[str] = []
    for word in re.split("[ \n\t]", text):
        word = word.lower() if lower else word
        while word and word[0] in special:
            word = word[1:]
        while word and word[-1] in special:
            word = word[:-1]
        if word:
            found.append(word)
    return found


def char_rep(text: str, rep_len: int) -> float:
    counts = Counter(text[i : i + rep_len] for i in range(len(text) - rep_len + 1))
    if not counts:
        return 0.0
    ordered = sorted(counts.values(), reverse=True)
    top = min(int(math.sqrt(len(ordered))), sum(1 for c in ordered if c > 1))
    return sum(ordered[:top]) / sum(ordered)


def word_rep(text: str, rep_len: int, special: frozenset[str]) -> float:
    found = words(text, special, lower=True)
    counts = Counter(" ".join(found[i : i + rep_len]) for i in range(len(found) - rep_len + 1))
    repeated = sum(c for c in counts.values() if c > 1)
    return repeated / sum(counts.values()) if counts else 0.0


def ratio(text: str, belongs: Callable[[str], bool]) -> float:
    return sum(1 for c in text if belongs(c)) / len(text) if text else 0.0


def remove_words(text: str) -> str:
    def keep(match: re.Match[str]) -> str:
        core = match[0].strip(string.punctuation).lower()
        return "" if any(s in core for s in rag.SUBSTRINGS) else match[0]

    return re.sub(r"\S+", keep, text)


def remove_words_dj(text: str) -> str:
    strip = "".join(SPECIAL_DJ)
    cells = split_cells(text)
    return merge_cells(
        [
            [[w for w in c if not any(s in w.strip(strip) for s in rag.SUBSTRINGS)] for c in line]
            for line in cells
        ]
    )


def remove_long_words(text: str, min_len: int, max_len: int) -> str:
    def keep(match: re.Match[str]) -> str:
        return match[0] if min_len <= len(match[0].strip(string.punctuation)) <= max_len else ""

    return re.sub(r"\S+", keep, text)


def remove_repeat_sentences(text: str) -> str:
    seen: set[str] = set()
    lines: list[str] = []
    for line in text.split("\n"):
        for cut in (
            r"([.。！!？\?])([^’”])",
            r"(\.{6})([^’”])",
            r"(\…{2})([^’”])",
            r"([.。！!？\?\.{6}\…{2}][’”])([^’”])",
        ):
            line = regex.sub(cut, r"\1\n\2", line, flags=V0)
        kept = ""
        for sentence in line.split("\n") if line else []:
            key = regex.sub(r"[^a-zA-Z0-9\u4e00-\u9fa5\n\t ]", "", sentence.strip(), flags=V0)
            if len(key) < 2 or key not in seen:
                kept += sentence
                if len(key) >= 2:
                    seen.add(key)
        lines.append(kept)
    return "\n".join(lines)


def clean_copyright(text: str) -> str:
    comment = regex.search(r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/", text)
    if comment:
        named = regex.search("copyright", comment[0], flags=regex.IGNORECASE | V0)
        return text[: comment.start()] + text[comment.end() :] if named else text
    lines = text.split("\n")
    while lines and (not lines[0] or lines[0].startswith(("//", "#", "--"))):
        lines = lines[1:]
    return "\n".join(lines)


def remove_bibliography(text: str) -> str:
    start = (
        r"(\\appendix|\\begin\{references\}|\\begin\{REFERENCES\}|\\begin\{thebibliography\}"
        r"|\\bibliography\{.*\}).*$"
    )
    return regex.sub(start, "", text, flags=regex.DOTALL | V0)


def remove_header(text: str) -> str:
    head = rf"^(.*?)({latex.HEADERS})"
    return regex.sub(head, r"\2", text, flags=regex.DOTALL | V0)


def remove_comments(text: str, inline: bool, multiline: bool) -> str:
    is_tex = any(m in text for m in latex.TEX_MARKS)
    script = text.strip().startswith(("#", "//"))
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    if is_tex and inline:
        text = re.sub(r"(?<!\\)%.*$", "", text, flags=re.MULTILINE)
    if is_tex and multiline:
        text = re.sub(r"^%.*\n?", "", text, flags=re.MULTILINE)
    if not is_tex and script:
        text = re.sub(r"^\s*(?:#|//).*\n?", "", text, flags=re.MULTILINE)
    return text


def clean_html(text: str) -> str:
    import html

    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>\n]+>", "", text))


def _by_rx(*patterns: str, flags: int = 0, repl: str = "<{}>") -> Callable[[str], str]:
    def clean(text: str) -> str:
        for pattern in patterns:
            text = regex.sub(pattern, repl.format("X"), text, flags=flags | V0)
        return text

    return clean


def _by_re(*patterns: str, flags: int = 0) -> Callable[[str], str]:
    def clean(text: str) -> str:
        for pattern in patterns:
            text = re.sub(pattern, "<X>", text, flags=flags)
        return text

    return clean


AFTER_GROUP = "\\g<1><{}>"
IC = regex.IGNORECASE


def channel_id(text: str) -> str:
    text = _by_rx(privacy.CHANNEL_NAME, flags=IC, repl=AFTER_GROUP)(text)
    text = _by_rx(privacy.CHANNEL_OPEN_ID, flags=IC)(text)
    return _by_rx(privacy.CHANNEL_USER_ID)(text)


# (name, fast form, plain form); the fast forms of pattern operators get a visible replacement.
X: dict[str, Any] = {"repl": "<X>"}
PAIRS: list[tuple[str, Callable[[str], Any], Callable[[str], Any]]] = [
    ("email", lambda t: privacy.clean_email(t, **X), _by_rx(privacy.EMAIL)),
    ("ip", lambda t: privacy.clean_ip(t, **X), _by_rx(privacy.IP)),
    ("mac", lambda t: privacy.clean_mac(t, **X), _by_rx(privacy.MAC)),
    (
        "secret",
        lambda t: privacy.clean_secret(t, **X),
        _by_rx(privacy.SECRET, flags=IC, repl=AFTER_GROUP),
    ),
    ("path", lambda t: privacy.clean_path(t, **X), _by_re(*privacy.PATH_BENCH)),
    (
        "path dj",
        lambda t: privacy.clean_path_dj(t, **X),
        _by_rx(*privacy.PATH_DJ, repl=AFTER_GROUP),
    ),
    ("phone", lambda t: privacy.clean_phone(t, **X), _by_re(privacy.PHONE_BENCH)),
    ("phone dj", lambda t: privacy.clean_phone_dj(t, **X), _by_rx(*privacy.PHONE_DJ)),
    ("id card", lambda t: privacy.clean_id_card(t, **X), _by_rx(privacy.ID_CARD)),
    ("jwt", lambda t: privacy.clean_jwt(t, **X), _by_rx(privacy.JWT)),
    ("pem", lambda t: privacy.clean_pem(t, **X), _by_rx(privacy.PEM)),
    ("channel", lambda t: privacy.clean_channel_id(t, **X), channel_id),
    ("links", lambda t: web.clean_links(t, **X), _by_re(web.LINK_BENCH, flags=re.IGNORECASE)),
    ("links dj", lambda t: web.clean_links_dj(t, **X), _by_rx(web.LINK_DJ, flags=regex.DOTALL)),
    ("html", web.clean_html, clean_html),
    ("copyright", web.clean_copyright, clean_copyright),
    ("unicode", web.fix_unicode, ftfy.fix_text),
    (
        "unicode NFD",
        lambda t: web.fix_unicode(t, "NFD"),
        lambda t: ftfy.fix_text(t, normalization="NFD"),
    ),
    (
        "punctuation",
        web.punctuation_normalization,
        lambda t: "".join(web.PUNCTUATION.get(c, c) for c in t),
    ),
    ("bibliography", latex.remove_bibliography, remove_bibliography),
    ("header", latex.remove_header, remove_header),
    *(
        (
            f"comments {i} {m}",
            lambda t, i=i, m=m: latex.remove_comments(t, "tex", i, m),
            lambda t, i=i, m=m: remove_comments(t, i, m),
        )
        for i in (True, False)
        for m in (True, False)
    ),
    ("words", rag.remove_words, remove_words),
    ("words dj", rag.remove_words_dj, remove_words_dj),
    ("long words", rag.remove_long_words, lambda t: remove_long_words(t, 1, rag.INF)),
    (
        "long words 3-6",
        lambda t: rag.remove_long_words(t, 3, 6),
        lambda t: remove_long_words(t, 3, 6),
    ),
    ("sentences", rag.remove_repeat_sentences, remove_repeat_sentences),
    ("alnum", filters.alnum_ratio, lambda t: ratio(t, str.isalnum)),
    ("special", filters.special_char_ratio, lambda t: ratio(t, SPECIAL_BENCH.__contains__)),
    ("special dj", filters.special_char_ratio_dj, lambda t: ratio(t, SPECIAL_DJ.__contains__)),
    ("num", filters.num_words, lambda t: len(words(t, SPECIAL_BENCH, False))),
    ("num dj", filters.num_words_dj, lambda t: len(words(t, SPECIAL_DJ, False))),
    *(
        (
            f"char rep {n}",
            lambda t, n=n: filters.char_rep_ratio(t, n),
            lambda t, n=n: char_rep(t, n),
        )
        for n in (1, 2, 3, 5, 10)
    ),
    *(
        (
            f"word rep {n}",
            lambda t, n=n: filters.word_rep_ratio(t, n),
            lambda t, n=n: word_rep(t, n, SPECIAL_BENCH),
        )
        for n in (1, 2, 3)
    ),
    (
        "word rep dj",
        lambda t: filters.word_rep_ratio_dj(t, 2),
        lambda t: word_rep(t, 2, SPECIAL_DJ),
    ),
]
