"""Privacy mappers: each replaces every match of a fixed pattern by `repl`, a template."""

from __future__ import annotations

import string

import regex

from rewards.gold.core import rx, std, sub_within

EMAIL = r"[A-Za-z0-9.\-+_]+@[a-z0-9.\-+_]+\.[a-z]+"
IP = (
    r"(?:(?:1[0-9][0-9]\.)|(?:2[0-4][0-9]\.)|(?:25[0-5]\.)|(?:[1-9][0-9]\.)|(?:[0-9]\.)){3}"
    r"(?:(?:1[0-9][0-9])|(?:2[0-4][0-9])|(?:25[0-5])|(?:[1-9][0-9])|(?:[0-9]))"
    r"|([\da-fA-F]{1,4}:){7}[\da-fA-F]{1,4}"
)
MAC = r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b"
SECRET = (
    r"(\b(?:api[_-]?key|apikey|secret|password|passwd|token|auth|authorization|credential"
    r"|license[_-]?key)\s*[:=]\s*[\"']?)([^\s\"',}\]]+)"
)
SECRET_WORDS = ("key", "secret", "passw", "token", "auth", "credential")
PATH_BENCH = (r'(?<!\w)(?:[A-Za-z]:\\|\\\\)[^\s<>"|?*]+', r"(?<!\w)/(?:[\w.-]+/)+[\w.-]*")
PATH_DJ = (
    r"(^|[\s\"'(\[=])(/(?:Users?|home|tmp|etc|var|opt|Applications)[^\s\"')\]]*"
    r"(?:/[^\s\"')\]]*)*)",
    r"(^|[\s\"'(\[=])([A-Za-z]:\\[^\s\"')\]]*(?:\\[^\s\"')\]]*)*)",
    r"(^|[\s\"'(\[=])(\\\\[^\s\"')\]]+)",
)
PHONE_BENCH = r"(?<![\w])(?:\+?\d{1,3}[\s.-]?)?(?:\(?\d{2,4}\)?[\s.-]?)?\d{3,4}[\s.-]?\d{4}(?![\w])"
PHONE_DJ = (r"\b1[3-9]\d{9}\b", r"\+\d{1,4}[-.\s]?\d{6,14}\b")
ID_CARD = r"\b[1-9]\d{5}(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}[\dXx]\b"
JWT = r"\beyJ[A-Za-z0-9_=-]+\.[A-Za-z0-9_=-]+\.[A-Za-z0-9_=-]+\b"
PEM = r"-----BEGIN [A-Z0-9 -]+-----[\s\S]*?-----END [A-Z0-9 -]+-----"
CHANNEL_NAME = (
    r"(\bchannel\s*[:=]\s*[\"']?|当前的\s*channel\s*[:：]\s*)"
    r"(feishu|dingtalk|wecom|wechat_work|email|mail|飞书|钉钉|企业微信|邮箱)\b"
)
CHANNEL_OPEN_ID = r"\bou_[0-9a-f]{32}\b"
CHANNEL_USER_ID = r"\b(ou_|u_|uid_)[0-9a-zA-Z_-]{16,64}\b"


# Conditions that every match meets, in forms that are fast to search for. Digits and spaces of
# other scripts are taken in by accepting any character outside ASCII.
_ANY_DIGIT = r"[0-9\u0080-\U0010ffff]"
_HAS_IPV4 = r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]"
_IP_RUN = r"[0-9a-fA-F:.\u0080-\U0010ffff][0-9a-fA-F:.\u0080-\U0010ffff]{6,}"
_HAS_MAC = r"[:-][0-9A-Fa-f]{2}[:-][0-9A-Fa-f]{2}[:-]"
_MAC_RUN = r"[0-9A-Fa-f:-][0-9A-Fa-f:-]{16,}"
_DIGIT_RUN = r"[+(\d][+()\d\s.-]{6,}"
_HAS_ID_CARD = r"[0-9][0-9]{16}"
_EMAIL_TAIL = r"@(?<=[A-Za-z0-9.\-+_]@)[a-z0-9.\-+_]+\.[a-z]+"
_EMAIL_LOCAL = string.ascii_letters + string.digits + ".-+_"


def _lowered(text: str) -> str:
    """Lower case in which every letter that a case-insensitive pattern accepts is that letter."""
    low = text.lower()
    if text.isascii():
        return low
    return low.replace("ſ", "s").replace("ı", "i").replace("i\u0307", "i")


def clean_email(text: str, repl: str = "") -> str:
    """Replaces e-mail addresses. A domain is matched up to its first upper-case letter."""
    if "@" not in text:
        return text
    if "\\" in repl:
        return rx(EMAIL).sub(repl, text)
    # Searching for the `@` and walking back beats trying a local part at every character.
    out: list[str] = []
    last = 0
    for found in std(_EMAIL_TAIL).finditer(text):
        before = text[last : found.start()].rstrip(_EMAIL_LOCAL)
        if last + len(before) == found.start():
            continue  # what stands before the @ went with the previous address
        out += (before, repl)
        last = found.end()
    return "".join((*out, text[last:])) if out else text


def clean_ip(text: str, repl: str = "") -> str:
    """Replaces IPv4 and full IPv6 addresses, without any boundary check."""
    if not (text.count(":") >= 7 or ("." in text and std(_HAS_IPV4).search(text))):
        return text
    runs = (m.span() for m in std(_IP_RUN).finditer(text))
    return sub_within(rx(IP), repl, text, runs)


def clean_mac(text: str, repl: str = "") -> str:
    """Replaces MAC addresses of six pairs joined by colons or hyphens."""
    if not std(_HAS_MAC).search(text):
        return text
    return sub_within(rx(MAC), repl, text, (m.span() for m in std(_MAC_RUN).finditer(text)))


def clean_secret(text: str, repl: str = "") -> str:
    """Replaces the value after a key such as `password` or `api_key` and `:` or `=`; the key,
    the separator and an opening quote stay."""
    low = _lowered(text)
    if not any(word in low for word in SECRET_WORDS):
        return text
    return rx(SECRET, regex.IGNORECASE).sub(r"\g<1>" + repl, text)


def clean_path(text: str, repl: str = "") -> str:
    """Replaces file system paths of two or more components, relative URLs included."""
    if ":\\" in text or "\\\\" in text:
        text = std(PATH_BENCH[0]).sub(repl, text)
    # The look-behind moved behind the slash: a pattern that starts with a letter is searched for.
    return std(r"/(?<!\w/)(?:[\w.-]+/)+[\w.-]*").sub(repl, text) if "/" in text else text


def clean_path_dj(text: str, repl: str = "") -> str:
    """`clean_path_mapper` in profile `dj`; operators.yaml says how it differs."""
    for literal, pattern in zip(("/", ":\\", "\\\\"), PATH_DJ, strict=True):
        if literal in text:
            text = rx(pattern).sub(r"\g<1>" + repl, text)
    return text


def clean_phone(text: str, repl: str = "") -> str:
    """Replaces phone-like digit groups, including undecorated 7 to 11 digit numbers."""
    runs = (m.span() for m in std(_DIGIT_RUN).finditer(text))
    return sub_within(std(PHONE_BENCH), repl, text, runs)


def clean_phone_dj(text: str, repl: str = "") -> str:
    """`clean_phone_mapper` in profile `dj`; operators.yaml says how it differs."""
    if std("1[3-9]" + _ANY_DIGIT + "{9}").search(text):
        text = rx(PHONE_DJ[0]).sub(repl, text)
    return rx(PHONE_DJ[1]).sub(repl, text) if "+" in text else text


def clean_id_card(text: str, repl: str = "") -> str:
    """Replaces 18-character identity card numbers that hold a plausible date."""
    if std(_HAS_ID_CARD if text.isascii() else _ANY_DIGIT * 17).search(text):
        return rx(ID_CARD).sub(repl, text)
    return text


def clean_jwt(text: str, repl: str = "") -> str:
    """Replaces JSON web tokens (`eyJ…`, three parts)."""
    return rx(JWT).sub(repl, text) if "eyJ" in text else text


def clean_pem(text: str, repl: str = "") -> str:
    """Replaces PEM blocks from a BEGIN line to the next END line."""
    return rx(PEM, regex.MULTILINE).sub(repl, text) if "-----BEGIN " in text else text


def clean_channel_id(text: str, repl: str = "") -> str:
    """Replaces chat channel names after `channel:` and open or user identifiers."""
    low = text.lower()
    if "channel" in low:
        text = rx(CHANNEL_NAME, regex.IGNORECASE).sub(r"\g<1>" + repl, text)
        low = text.lower()
    if "ou_" in low:
        text = rx(CHANNEL_OPEN_ID, regex.IGNORECASE).sub(repl, text)
    if "u_" in text or "uid_" in text:
        text = rx(CHANNEL_USER_ID).sub(repl, text)
    return text
