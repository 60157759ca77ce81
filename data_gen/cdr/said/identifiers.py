"""Readings of the words for addresses, numbers and secrets: what a strict reader takes for one.

Each takes a text and gives it without what the words name; None where that is in doubt.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

from data_gen.cdr.said.texts import NAMES

Reading = Callable[[str], str | None]
Span = tuple[int, int]


def without(text: str, spans: Iterable[Span]) -> str:
    """A text without some spans, which rise and do not overlap."""
    kept: list[str] = []
    last = 0
    for start, end in spans:
        kept.append(text[last:start])
        last = end
    return "".join((*kept, text[last:]))


_MAIL = re.compile(
    r"(?<![A-Za-z0-9.!#$%&'*+/=?^_`{|}~-])[A-Za-z0-9_](?:[A-Za-z0-9._%+-]*[A-Za-z0-9_])?"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{2,}(?![A-Za-z0-9@_-]|\.\w)"
)
# A login of a machine or a store of code looks like an address and is none.
LOGIN = re.compile(r"://[^\s/@]*@|@[\w.-]+:[^\s]")


def mail(text: str) -> str | None:
    if "@" not in text:
        return text
    return None if LOGIN.search(text) else _MAIL.sub("", text)


_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = re.compile(rf"(?<![\w.])(?<![A-Za-z][-/]){_OCTET}(?:\.{_OCTET}){{3}}(?!\w|\.\d)")
_IPV6 = re.compile(
    r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}|:)?(?::[0-9A-Fa-f]{0,4}){2,7}"
    r"(?!\w|:(?!\d{1,5}(?![\w:]))[\w:])"  # a port may follow
)
# Numbers of releases and of headings have four parts too.
_NUMBERED = re.compile(
    r"(?:\b(?:versions?|ver|v|release|section|sect?|chapter|clause|article|rev|build)\b\.?|§)\s*\Z",
    re.IGNORECASE,
)
_HEADING = re.compile(r"(?m)^[ \t]*\d{1,2}(?:\.\d{1,2}){3}\.?[ \t]+[A-Z]")


def network(text: str) -> str | None:
    spans = list(_ipv4(text))
    if text.count(":") > 1:
        spans += _ipv6(text)
    return without(text, sorted(spans)) if spans else text


def _ipv4(text: str) -> Iterator[Span]:
    if text.count(".") < 3:
        return
    headings = {m.end() for m in _HEADING.finditer(text)}
    for found in _IPV4.finditer(text):
        before = text[max(0, found.start() - 12) : found.start()]
        heads = any(found.start() < end <= found.end() + 3 for end in headings)
        if not heads and not _NUMBERED.search(before):
            yield found.span()


def _ipv6(text: str) -> Iterator[Span]:
    for found in _IPV6.finditer(text):
        try:
            IPv6Address(found[0])
        except AddressValueError:
            continue
        if any(map(str.isalnum, found[0])):
            yield found.span()


_MAC = re.compile(
    r"(?<!\w)(?<!\w[:-])[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?!\w|[:-]\w)"
    r"|(?<![\w.])[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?!\w|\.\w)"
)


def hardware(text: str) -> str | None:
    return _MAC.sub("", text)


_PART = r"[^\s<>\"|?*\\:;,]"
_DRIVE = re.compile(
    rf"(?<!\w)(?:[A-Za-z]:\\{{1,2}}|\\\\(?=\w))(?:{_PART}+(?: {_PART}+)*\\{{1,2}})*{_PART}*"
)
_ROOTED = re.compile(
    r"(?<![\w/.~:<*$%&@#\\}\])?+=-])(?<![\w.:]/)/(?:[\w.-]+/)*[\w.-]*|(?<==)/(?:[\w.-]+/)+[\w.-]*"
)
_AT_HOME = re.compile(r"(?<![\w/.:])(?:~|\.{1,2})/(?:[\w.-]+/)*[\w.-]+")
_KNOWN_ROOTS = re.compile(
    r"/(?:usr|etc|var|home|tmp|opt|bin|sbin|lib|dev|proc|srv|mnt|root|Users|Library|Applications)\Z"
)
_ENDINGS = "|".join(NAMES["file_endings"])
_BESIDE = re.compile(
    rf"(?<![\w/.:@\\-])[\w-][\w.-]*/(?:[\w.-]+/)*[\w.-]*\.(?:{_ENDINGS})(?![\w/-])"
)
_ASKED = re.compile(
    r"(?:GET|POST|PUT|HEAD|DELETE|PATCH|OPTIONS) \"?\Z|(?:href|src|action)\s*=\s*[\"']?\Z"
)


def path(text: str) -> str | None:
    if "/" not in text and "\\" not in text:
        return text
    if "/" in text and (_AT_HOME.search(text) or _BESIDE.search(text)):
        return None  # a path that begins nowhere: whether its root goes alone is not said
    spans: list[Span] = []
    if "\\" in text:
        for found in _DRIVE.finditer(text):
            spans.append((found.start(), _ended(text, *found.span())))
    for found in _ROOTED.finditer(text) if "/" in text else ():
        end = _ended(text, *found.span())
        name = text[found.start() : end]
        parts = [part for part in name.split("/") if part]
        if not parts or not (parts[0][0].isalpha() or parts[0][0] in "._"):
            continue
        if len(parts) == 1 and not name.endswith("/") and not _KNOWN_ROOTS.match(name):
            continue
        if not _ASKED.search(text[max(0, found.start() - 12) : found.start()]):
            spans.append((found.start(), end))
    spans.sort()
    return without(text, spans)


def _ended(text: str, start: int, end: int) -> int:
    """The end of a name without the marks of the sentence around it."""
    while end > start and text[end - 1] in ".,;:!?'\")]}":
        end -= 1
    return end


_DIGITS = re.compile(r"\d")
_PHONE = re.compile(
    r"(?<![\w.+/=#-])(?:"
    r"\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,6}"
    r"|\+\d{8,15}"
    r"|(?:1[ .-])?\(\d{3}\)[ .-]?\d{3}[ .-]?\d{4}"
    r"|(?:1[ .-])?\d{3}[ .-]\d{3}[ .-]\d{4}"
    r"|\d{3}-\d{4}"
    r"|1[3-9]\d{9}"
    r")(?:[ ]?(?:x|ext\.?)[ ]?\d{1,6})?(?![\w/=-]|\.\d)"
)
_LABEL = re.compile(
    r"(?i)(?:\b(?:tel|telephone|phone|mobile|cell|fax|call|dial|number is|telefon|t[ée]l|handy)\b"
    r"[.\"']{0,2}\s{0,2}[:=]?\s{0,2}[\"']?|电话[:：]?\s?|手机[:：]?\s?)"
    r"([(+]?\d[\d ().+-]{5,20}\d)(?![\w/-]|\.\d)"
)


def phone(text: str) -> str | None:
    return without_phones(text)


def without_phones(text: str, alike: re.Pattern[str] | None = None) -> str:
    """Without numbers of telephones, those alone of a form where one is given."""
    found: list[Span] = []
    for span in _phones(text):
        if alike and not alike.fullmatch(text, *span):
            continue
        if not found or span[0] >= found[-1][1]:
            found.append(span)
    return without(text, found)


@lru_cache(maxsize=8)
def _phones(text: str) -> list[Span]:
    spans = {m.start(1): m.end(1) for m in _LABEL.finditer(text) if _is_long(m[1])}
    spans |= {m.start(): m.end() for m in _PHONE.finditer(text) if _is_long(m[0])}
    return sorted(spans.items())


def _is_long(number: str) -> bool:
    return 7 <= len(_DIGITS.findall(number)) <= 21


_CARD = re.compile(r"(?<![\w-])\d{17}[\dXx](?![\w-])")
_OTHER_CARD = re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])")


def card(text: str) -> str | None:
    if _OTHER_CARD.search(text):
        return None  # a number of another country: the words name it, too
    if any(not _has_birthday(m[0]) for m in _CARD.finditer(text)):
        return None
    return _CARD.sub("", text)


def _has_birthday(number: str) -> bool:
    try:
        return 1900 <= date(int(number[6:10]), int(number[10:12]), int(number[12:14])).year < 2100
    except ValueError:
        return False


_NAMED = re.compile(
    r"(?i)(?:password|passwd|passwort|passphrase|pwd|secret|token|credentials?|authorization"
    r"|(?:api|access|private|license)[_-]?key|(?<![a-z])auth)(?![a-z])[\w-]*"
    r"(?P<quote>[\"']?)\s*[:=]\s*(?P<open>[\"']?)(?P<value>[^\s\"',}\]]+)"
)
_SECRETIVE = ("passw", "passphrase", "pwd", "secret", "token", "credential", "auth", "key")


def secret(text: str) -> str | None:
    low = text.lower()
    if not any(word in low for word in _SECRETIVE):
        return text
    spans: list[Span] = []
    for found in _NAMED.finditer(text):
        value = found["value"]
        if value.lower() in ("bearer", "basic", "token"):
            return None  # the scheme stands before the secret
        if value.isalpha() and value.islower():
            return None  # prose, or a password that is a word
        if not any(c.isalnum() for c in value):
            return None
        start, end = found.span("value")
        spans.append((start, _ended(text, start, end)))
    return without(text, spans)


_TOKEN = re.compile(r"(?<![\w.-])eyJ[\w=-]+\.[\w=-]+\.[\w=-]+(?![\w=-]|\.\w)", re.ASCII)


def web_token(text: str) -> str | None:
    return _TOKEN.sub("", text)


_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 -]+)-----[^-]*(?:-(?!----END)[^-]*)*-----END \1-----")


def key_block(text: str) -> str | None:
    return _BLOCK.sub("", text)


_CHANNEL = re.compile(
    r"(?i)\bchannel\s*[:=]\s*[\"']?(feishu|dingtalk|wecom|wechat_work|email|mail)\b"
    r"|当前的\s*channel\s*[:：]\s*(飞书|钉钉|企业微信|邮箱|feishu|dingtalk|wecom|email|mail)"
)
_USER = re.compile(r"(?<![\w-])(?:ou_|uid_|u_)(?=[\w-]*[0-9])[0-9A-Za-z_-]{16,64}(?![\w-])")
_OTHER_USER = re.compile(
    r"(?i)\b(?:user[_ ]?id|open[_ ]?id|uid)\s*[:=]\s*[\"']?(?!ou_|uid_|u_)\w"
    r"|\bchannel(?:[_ ]?name)?\s*[:=]\s*[\"']?(?!feishu|dingtalk|wecom|wechat_work|e?mail)\w"
)


def chat(text: str) -> str | None:
    low = text.lower()
    if not any(part in low for part in ("channel", "u_", "uid", "user", "open")):
        return text
    if _OTHER_USER.search(text):
        return None
    spans = [m.span(m.lastindex or 0) for m in _CHANNEL.finditer(text)]
    spans += [m.span() for m in _USER.finditer(text)]
    return without(text, sorted(spans))


TOP = "|".join(NAMES["top_domains"])
_ADDRESS = r"[^\s<>\[\]{}'\"`]"
_LINK = re.compile(
    rf"(?i)\b[a-z][a-z0-9+.-]*://{_ADDRESS}+|\bwww\d{{0,3}}\.{_ADDRESS}+"
    rf"|(?<![\w@.-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:{TOP})/{_ADDRESS}*"
    rf"|\bmailto:(?={_ADDRESS}+@)"
)
_RUN = re.compile(rf"{_ADDRESS}{{5,}}")
_LINKED = re.compile(r"(?i)://|www|mailto:|\.[a-z]+/")


def link(text: str) -> str | None:
    if LOGIN.search(text):
        return None
    spans: list[Span] = []
    for run in _RUN.finditer(text):
        if not _LINKED.search(run[0]):
            continue
        for found in _LINK.finditer(text, *run.span()):
            start, end = found.span()
            spans.append((start, _link_end(text, start, end)))
    inside = _starts(spans)
    for found in _MAIL.finditer(text) if "@" in text else ():
        if not inside(found.start()):
            spans.append(found.span())
    spans.sort()
    return without(text, spans)


def _link_end(text: str, start: int, end: int) -> int:
    """Where a link ends: before the marks of the sentence and a bracket that it does not open."""
    depth = 0
    for at in range(start, end):
        if text[at] == "(":
            depth += 1
        elif text[at] == ")":
            depth -= 1
            if depth < 0:
                end = at
                break
    while end > start and text[end - 1] in ".,;:!?*|":
        end -= 1
    return end


def _starts(spans: list[Span]) -> Callable[[int], bool]:
    ordered = sorted(spans)

    def inside(at: int) -> bool:
        return any(start <= at < end for start, end in ordered)

    return inside


_PARTS = ("http", "www", ".com", "href", "//")
_ANY_PART = re.compile(r"http|www|\.com|href|//", re.IGNORECASE)
_TO_BLANK = re.compile(r"\S*")


def words_of_links(text: str) -> str | None:
    spans: list[Span] = []
    found = _ANY_PART.search(text)
    while found:
        start = found.start()
        while start and not text[start - 1].isspace():
            start -= 1
        rest = _TO_BLANK.match(text, found.end())
        end = rest.end() if rest else found.end()
        if not any(part in text[start:end] for part in _PARTS):
            return None  # whether capitals count is not said
        spans.append((start, end))
        found = _ANY_PART.search(text, end)
    return without(text, spans)


# --- the longer sentences, which say what the short ones leave open


_UP_TO_A_BREAK = r"[^\s<>()\[\]{}'\"`]"
_LINK_TO_A_BREAK = re.compile(
    rf"(?i)\b(?:https?|ftp)://{_UP_TO_A_BREAK}+|\bwww\d{{0,3}}\.{_UP_TO_A_BREAK}+"
    rf"|(?<![\w@.-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:{TOP})/{_UP_TO_A_BREAK}*"
    r"|(?:\bmailto:)?(?<![\w.%+-])[a-z0-9_][\w.%+-]*@(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}"
)


_OTHER_LINK = re.compile(r"(?i)\b(?!(?:https?|ftp)://)[a-z][a-z0-9+.-]*://")


def links_with_their_marks(text: str) -> str | None:
    """Without links up to the next blank, bracket or quote, and without addresses of mail; None
    where one is of no web."""
    unsettled = LOGIN.search(text) or _OTHER_LINK.search(text)
    return None if unsettled else _LINK_TO_A_BREAK.sub("", text)


_WINDOWS = re.compile(r"(?<!\w)(?:[A-Za-z]:\\|\\\\)[^\s<>\"|?*]+")
_SLASHED = re.compile(r"(?<!\w)/(?:[\w.-]+/)+[\w.-]*")


def slashed_names(text: str) -> str | None:
    """Without names between slashes, in addresses of the web too, and names on drives."""
    text = _WINDOWS.sub("", text) if "\\" in text else text
    return _SLASHED.sub("", text) if "/" in text else text


_VALUE = re.compile(
    r"(\b(?:api[_-]?key|secret|password|passwd|token|auth|authorization|credential|license[_-]?key)"
    r"\s*[:=]\s*[\"']?)[^\s\"',}\]]+",
    re.IGNORECASE,
)


def values_of_listed_names(text: str) -> str | None:
    """Without what follows one of the listed names and its : or =, to the next break."""
    return _VALUE.sub(r"\1", text)


def phones_of_the_usual_form(text: str) -> str | None:
    """Without numbers of telephones whose last group has four digits, or seven and more; those
    with an extension stay."""
    return without_phones(text, _USUAL)


_USUAL = re.compile(r"[\d+() .-]*(?<!\d)(?:\d{4}|\d{7,})")


_WORD = re.compile(r"\S+")


def words_of_links_in_any_case(text: str) -> str | None:
    """Without words that hold one of the parts between the marks at their ends, in any case."""
    return _WORD.sub(_unless_linked, text)


def _unless_linked(word: re.Match[str]) -> str:
    inside = word[0].strip(string.punctuation).casefold()
    return "" if any(part in inside for part in _PARTS) else word[0]
