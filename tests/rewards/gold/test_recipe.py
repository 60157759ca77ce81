"""Recipes: what stops, what chains, what is refused, and what never depends on its neighbours; the
operators they are made of, held against the same written the slow and obvious way."""

from __future__ import annotations

import html
import math
import re
import string
from collections import Counter
from collections.abc import Callable
from typing import Any

import ftfy
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.gold import OPERATORS, GoldError, Step, execute, filters, latex, privacy, rag, web
from rewards.gold.catalog import described
from rewards.gold.core import SPECIAL_BENCH, SPECIAL_DJ, merge_cells, split_cells

# Fragments that operators look for, broken ones, and characters the two engines class differently.
FRAGMENTS = """
a@b.co A.b-c+d_e@x-y.example.org @a.b@c.de x@Y.com @ . .. ...... …… ’ ” ! ？ 。 Yes. No! a.b
1.2.3.4 256.1.2.3 1.2.3.300 10.0.0.1: fe80:1:2:3:4:5:6:7 1:2:3:4:5:6:7:8.1.2.3 ::1
٣:1:2:3:4:5:6:7 00:1A:2b:3c:4D:5e 00-1a-2b-3c-4d-5e-6f :00:11:22:33:44:55 00:11:22:33:44:55é
password=x Secret: 'abc' api_key="q,r" TOKEN:a} ſecret=1 authorization:\tBearer licenſe-key=z
apiKey=v /a/b /tmp /home/u/x.txt C:\\x\\y \\\\srv\\share é/a/b/c http://a.com/x/y (/etc/passwd)
="/var/log" 415-555-0132 +1 (415) 555 0132 1999 2000 20240131 +8613912345678 13912345678
²1234567 ٣٤٥٦٧٨٩ 11010519900307123X eyJa.eyJb.c -----BEGIN -----END KEY-----
ou_0123456789abcdef0123456789abcdef uid_0123456789abcdef channel:feishu CHANNEL\u202f=mail
https://e.org/a?b#c, ftp://x WWW2.a.b e.g/x co.uk/p mailto:A@B.CO www.x httpſ://y key:value
FOO://BAR <b> <!-- c --> </p> & &amp; &lt; < > &EACUTE; /* Copyright */ /**/ /*/ */ // # -- --
\\section{A} \\section*[a]{b} \\paragraph{x}\\subparagraph{y} \\begin{ \\% % %% \\appendix
\\bibliography{r} \\bibliography{ \\begin{references} schÃ¶n “q” ‘ ﬁ Ａ \u200b \u00a0 \u3000
\u2028 \x85 \x1c \x1f \x0b \x0c \r \t \n \n\n ● ◆ □ ½ ² _ ‿ é e\u0301 中文 ，。！ 😀 Σ ΑΣ. ß İ ı K ſ
--- === | http www.x.com .COM HREF // x//y 'href' aa aa aa The the THE it is it is it is 12 3.5
a1b
"""


PIECES = [*FRAGMENTS.replace("\n", " ").split(" "), " ", "\n", "", "  ", ". "]


TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=30).map(
    lambda parts: "".join(p + s for p, s in zip(parts, [" ", "", "\n"] * 10, strict=False))
)


WORDS = ["the", "it"]


def step(name: str, **params: Any) -> Step:
    if name in ("stopwords_filter", "flagged_words_filter"):
        params = {"word_list": WORDS} | params
    return Step(name, params)


# One of them can take seconds on adversarial text, which is what the deadline is for.
NAMES = [n for n in OPERATORS if n != "remove_table_text_mapper"]
RECIPES = st.lists(st.sampled_from(NAMES), max_size=6).map(lambda names: [step(n) for n in names])


@settings(max_examples=50)
@given(text=TEXTS, recipe=RECIPES)
def test_states_chain_and_keep_means_full_run(text: str, recipe: list[Step]) -> None:
    done = execute(text, recipe)
    mappers = [s for s in recipe if OPERATORS[s.operator].kind == "mapper"]
    assert done.states[0] == text
    for one, before, after in zip(mappers, done.states[:-1], done.states[1:], strict=True):
        assert execute(before, [one]).text == after
    assert done.full_run_text == done.states[-1]
    if done.status == "KEEP":
        assert done.text == done.full_run_text
        assert len(done.trace) == len(recipe)
    else:
        cut = recipe[: len(done.trace) - 1]
        assert execute(text, cut).text == done.text
        assert done.trace[-1]["status"] == "DROP"
    assert execute(text, recipe) == done


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ([Step("clean_emal_mapper")], "did you mean 'clean_email_mapper'"),
        ([Step("clean_email_mapper", {"rpl": ""})], "no parameter 'rpl'; did you mean 'repl'"),
        ([Step("clean_email_mapper", {"repl": 1})], "parameter repl=1 is not a string"),
        ([Step("text_length_filter", {"min_len": "9"})], "min_len='9' is not a number or null"),
        ([Step("text_length_filter", {"min_len": float("nan")})], "min_len=nan is not a number"),
        ([Step("text_length_filter", {"min_len": True})], "min_len=True is not a number"),
        ([Step("word_repetition_filter", {"rep_len": 0})], "rep_len=0 is not a whole number of 1"),
        ([Step("stopwords_filter")], "parameter 'word_list' is required"),
        ([Step("fix_unicode_mapper", {"normalization": "NFX"})], "choose one of 'NFC'"),
        ([Step("words_num_filter", {"tokenization": True})], "subword model"),
        ([Step("remove_specific_chars_mapper", {"chars_to_remove": ["z-a"]})], "character class"),
    ],
)
def test_bad_recipe_is_named(recipe: list[Step], message: str) -> None:
    with pytest.raises(GoldError) as caught:
        execute("text", recipe, "dj")
    assert message in str(caught.value)


def test_unknown_profile_is_named() -> None:
    with pytest.raises(GoldError, match="profile 'juicer' is unknown; choose one of bench, dj"):
        execute("x", [Step("clean_ip_mapper")], "juicer")  # type: ignore[arg-type]


def test_every_operator_is_described_with_an_example() -> None:
    for operator in OPERATORS.values():
        assert described(operator)["summary"].endswith(".")
        assert described(operator)["example"]["text"]
        assert (operator.dj is None) == ("difference" not in described(operator))


# --- the operators with a fast form, written the slow and obvious way

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


@pytest.mark.parametrize(("fast", "plain"), [p[1:] for p in PAIRS], ids=[p[0] for p in PAIRS])
@settings(max_examples=30)
@given(text=TEXTS)
def test_a_fast_form_gives_what_the_plain_definition_gives(
    fast: Callable[[str], Any], plain: Callable[[str], Any], text: str
) -> None:
    assert fast(text) == plain(text)
