"""Privacy mappers: each replaces every match of a fixed pattern by `repl`, a template."""

from __future__ import annotations

import re

import regex

from rewards.gold.patterns import rx, std

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


def clean_email(text: str, repl: str = "") -> str:
    return rx(EMAIL).sub(repl, text) if "@" in text else text


def clean_ip(text: str, repl: str = "") -> str:
    return rx(IP).sub(repl, text)


def clean_mac(text: str, repl: str = "") -> str:
    return rx(MAC).sub(repl, text)


def clean_secret(text: str, repl: str = "") -> str:
    return rx(SECRET, regex.IGNORECASE).sub(r"\g<1>" + repl, text)


def clean_path(text: str, repl: str = "") -> str:
    if "\\" in text:
        text = std(PATH_BENCH[0]).sub(repl, text)
    return std(PATH_BENCH[1]).sub(repl, text) if "/" in text else text


def clean_path_dj(text: str, repl: str = "") -> str:
    for pattern in PATH_DJ:
        text = rx(pattern).sub(r"\g<1>" + repl, text)
    return text


def clean_phone(text: str, repl: str = "") -> str:
    return std(PHONE_BENCH).sub(repl, text)


def clean_phone_dj(text: str, repl: str = "") -> str:
    for pattern in PHONE_DJ:
        text = rx(pattern).sub(repl, text)
    return text


def clean_id_card(text: str, repl: str = "") -> str:
    return rx(ID_CARD).sub(repl, text)


def clean_jwt(text: str, repl: str = "") -> str:
    return rx(JWT).sub(repl, text) if "eyJ" in text else text


def clean_pem(text: str, repl: str = "") -> str:
    return rx(PEM, regex.MULTILINE).sub(repl, text) if "-----BEGIN " in text else text


def clean_channel_id(text: str, repl: str = "") -> str:
    text = rx(CHANNEL_NAME, regex.IGNORECASE).sub(r"\g<1>" + repl, text)
    text = rx(CHANNEL_OPEN_ID, regex.IGNORECASE).sub(repl, text)
    return rx(CHANNEL_USER_ID).sub(repl, text)


LINK_BENCH = (
    r"\b(?:https?|ftp)://[^\s<>()\[\]{}'\"`]+"
    r"|\bwww\d{0,3}\.[^\s<>()\[\]{}'\"`]+"
    r"|\b[a-z0-9][a-z0-9.-]+\.[a-z]{2,24}/[^\s<>()\[\]{}'\"`]*"
    r"|\bmailto:[A-Z0-9._%+-]+@[A-Z0-9.-]+\.[A-Z]{2,}"
    r"|\b[A-Z0-9._%+-]+@[A-Z0-9.-]+\.[A-Z]{2,}"
)
LINK_DJ = (
    r"(?i)\b((?:[a-z][\w-]+:(?:\/{1,3}|[a-z0-9%])|www\d{0,3}[.]|[a-z0-9.\-]+[.][a-z]{2,4}\/)"
    r"(?:[^\s()<>]+|\(([^\s()<>]+|(\([^\s()<>]+\)))*\))+"
    r"(?:\(([^\s()<>]+|(\([^\s()<>]+\)))*\)|[^\s`!()\[\]{};:\'\".,<>?«»“”‘’]))"
)


def clean_links(text: str, repl: str = "") -> str:
    return std(LINK_BENCH, re.IGNORECASE).sub(repl, text)


def clean_links_dj(text: str, repl: str = "") -> str:
    return rx(LINK_DJ, regex.DOTALL).sub(repl, text)
