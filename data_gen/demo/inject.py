"""Putting things to clean into real prose, so that every mapper of a recipe has work to do.

A woven text holds one private-use character per item, and each item knows what it looks like and
what its operator should leave of it. The intended text after any number of steps is therefore
known without running an operator; a task is kept only when the gold executor agrees with it, which
throws out every case where an operator would also eat something the instruction did not mean.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

T = TypeVar("T")
_FIRST_MARK = 0xE000
_MARK = re.compile("[\ue000-\ue0ff]")


@dataclass(frozen=True)
class Item:
    """`shown` is what the input has, `left` what `operator` leaves of it."""

    operator: str
    shown: str
    left: str


@dataclass(frozen=True)
class Woven:
    """Prose with marks, and the items the marks stand for, in order of creation."""

    body: str
    items: tuple[Item, ...] = ()

    def render(self, done: Iterable[str] = ()) -> str:
        """The text as it should be once the operators in `done` have run."""
        finished = frozenset(done)

        def text(match: re.Match[str]) -> str:
            item = self.items[ord(match.group()) - _FIRST_MARK]
            return item.left if item.operator in finished else item.shown

        return _MARK.sub(text, self.body)

    def add(self, body: str, item: Item) -> Woven:
        """`body` has a NUL where the new item goes."""
        mark = chr(_FIRST_MARK + len(self.items))
        return Woven(body.replace("\0", mark, 1), (*self.items, item))


def pick(rng: Random, options: Sequence[T]) -> T:
    """One option; through `random()` alone, whose sequence no Python version has changed."""
    return options[int(rng.random() * len(options))]


_NAMES = ("ana", "omar", "lin", "kate", "ravi", "tom", "mia", "joe", "sara", "ben", "eva", "paul")
_LAST = ("diaz", "brown", "chen", "novak", "smith", "rossi", "kim", "lopez", "jones", "meyer")
_SITES = ("example.com", "example.org", "example.net", "acme.io", "globex.com", "initech.org")
_WORDS = ("news", "help", "docs", "login", "guide", "archive", "files", "team", "report", "data")
_ROOTS = ("/home", "/var", "/etc", "/tmp", "/opt", "/usr")
_BULLETS = ("◆", "●", "■", "►", "▲", "❖")
_RUNS = ("---", "***", "===", "~~~", "|", "--", "+++", "...")
_ODD_SPACES = ("\u00a0", "\u2003", "\u3000")  # a tab would not count: answers may differ in tabs
_LETTERS = "abcdefghkmnpqrstuvwxyz23456789"


def _email(rng: Random) -> str:
    name = pick(rng, _NAMES)
    if rng.random() < 0.5:
        name += pick(rng, (".", "_")) + pick(rng, _LAST)
    return f"{name}@{pick(rng, _SITES)}"


def _link(rng: Random) -> str:
    start = pick(rng, ("https://", "http://", "https://www.", "www."))
    return start + pick(rng, _SITES) + pick(rng, ("", "/" + pick(rng, _WORDS)))


def _ip(rng: Random) -> str:
    start = pick(rng, ("192.0.2", "198.51.100", "203.0.113", "10.0.0", "192.168.1"))
    return f"{start}.{2 + int(rng.random() * 250)}"


def _phone(rng: Random) -> str:
    tail = f"555-01{int(rng.random() * 100):02d}"
    return pick(rng, ("", "212-", "(312) ", "+1 415-")) + tail


def _mac(rng: Random) -> str:
    return ":".join(f"{int(rng.random() * 256):02x}" for _ in range(6))


def _path(rng: Random) -> str:
    ending = pick(rng, (".txt", ".log", ".csv", ""))
    return f"{pick(rng, _ROOTS)}/{pick(rng, _NAMES)}/{pick(rng, _WORDS)}{ending}"


def _flagged_word(rng: Random) -> str:
    name = pick(rng, ("acme", "globex", "initech", "hooli"))
    return pick(rng, (f"www.{name}.org", f"http:{name}", f"{name}.com", f"{name}.com.au"))


def _gap(woven: Woven, rng: Random, inside: bool = False) -> str:
    """The body with " \\0 " between two words (or, unless `inside`, at an end)."""
    words = woven.body.split(" ")
    low, high = (1, len(words) - 1) if inside and len(words) > 2 else (0, len(words))
    at = low + int(rng.random() * (high - low + 1))
    return " ".join([*words[:at], "\0", *words[at:]])


def _word_item(operator: str, make: Callable[[Random], str]) -> Callable[[Woven, Random], Woven]:
    """A weaver that puts a made word into a gap; the operator leaves nothing of it."""

    def weave(woven: Woven, rng: Random) -> Woven:
        return woven.add(_gap(woven, rng), Item(operator, make(rng), ""))

    return weave


def _weave_secret(woven: Woven, rng: Random) -> Woven:
    value = "".join(pick(rng, list(_LETTERS)) for _ in range(6))
    key = pick(rng, ("password: ", "token=", "secret: ", "api_key="))
    return woven.add(_gap(woven, rng), Item("clean_secret_mapper", key + value, key))


def _weave_html(woven: Woven, rng: Random) -> Woven:
    """A pair of tags around one to three words."""
    words = woven.body.split(" ")
    count = min(len(words), 1 + int(rng.random() * 3))
    at = int(rng.random() * (len(words) - count + 1))
    tag = pick(rng, ("b", "i", "em", "code", "u"))
    inner = " ".join(words[at : at + count])
    body = " ".join([*words[:at], f"\0{inner}\x01", *words[at + count :]])
    woven = woven.add(body, Item("clean_html_mapper", f"<{tag}>", ""))
    return woven.add(woven.body.replace("\x01", "\0"), Item("clean_html_mapper", f"</{tag}>", ""))


def _weave_punctuation(woven: Woven, rng: Random) -> Woven:
    """Typographic marks where the prose has plain ones; a quoted word where it has none."""
    name = "punctuation_normalization_mapper"
    before = woven
    for plain, fancy in (("'", "’"), ("...", "…")):
        while plain in woven.body:
            woven = woven.add(woven.body.replace(plain, "\0", 1), Item(name, fancy, plain))
    for fancy in "“”" * (woven.body.count('"') // 2):
        woven = woven.add(woven.body.replace('"', "\0", 1), Item(name, fancy, '"'))
    if woven is not before and rng.random() < 0.5:
        return woven
    words = woven.body.split(" ")
    at = int(rng.random() * len(words))
    match = re.fullmatch(r"(.*\w)(\W*)", words[at])
    if match is None or _MARK.search(words[at]):
        return woven
    words[at] = f"\0{match.group(1)}\x01{match.group(2)}"
    woven = woven.add(" ".join(words), Item(name, "“", '"'))
    return woven.add(woven.body.replace("\x01", "\0"), Item(name, "”", '"'))


def _weave_bullets(woven: Woven, rng: Random) -> Woven:
    bullet = pick(rng, _BULLETS)
    item = Item("remove_specific_chars_mapper", bullet, "")
    for _ in range(1 + int(rng.random() * 2)):
        woven = woven.add(_gap(woven, rng), item)
    return woven


def _weave_repeat(woven: Woven, rng: Random) -> Woven:
    """One sentence said twice in a row; only in prose nothing else was woven into yet."""
    if woven.items or "\n" in woven.body:
        return woven
    sentences = re.split(r"(?<=[.!?]) ", woven.body)
    sentence = pick(rng, sentences)
    if sentence[-1] not in ".!?":
        return woven
    item = Item("remove_repeat_sentences_mapper", f"{sentence} {sentence}", sentence)
    return woven.add(woven.body.replace(sentence, "\0", 1), item)


def _weave_space(woven: Woven, rng: Random) -> Woven:
    spaces = [m.start() for m in re.finditer(r"(?<=\w) (?=\w)", woven.body)]
    if not spaces:
        return woven
    at = pick(rng, spaces)
    item = Item("whitespace_normalization_mapper", pick(rng, _ODD_SPACES), " ")
    return woven.add(woven.body[:at] + "\0" + woven.body[at + 1 :], item)


# Mapper -> how to give it work. The order is the order of weaving, not of execution: repeats
# first, because an item inside only one of two copies would make them differ.
WEAVERS: dict[str, Callable[[Woven, Random], Woven]] = {
    "remove_repeat_sentences_mapper": _weave_repeat,
    "clean_html_mapper": _weave_html,
    "punctuation_normalization_mapper": _weave_punctuation,
    "whitespace_normalization_mapper": _weave_space,
    "clean_email_mapper": _word_item("clean_email_mapper", _email),
    "clean_links_mapper": _word_item("clean_links_mapper", _link),
    "clean_ip_mapper": _word_item("clean_ip_mapper", _ip),
    "clean_phone_mapper": _word_item("clean_phone_mapper", _phone),
    "clean_mac_mapper": _word_item("clean_mac_mapper", _mac),
    "clean_path_mapper": _word_item("clean_path_mapper", _path),
    "clean_secret_mapper": _weave_secret,
    "remove_words_with_incorrect_substrings_mapper": _word_item(
        "remove_words_with_incorrect_substrings_mapper", _flagged_word
    ),
    "remove_long_words_mapper": _word_item(
        "remove_long_words_mapper", lambda rng: pick(rng, _RUNS)
    ),
    "remove_specific_chars_mapper": _weave_bullets,
}


def weave(body: str, operators: Iterable[str], rng: Random) -> Woven:
    """`body` with at least one item for each operator (if its weaver finds a place)."""
    wanted = frozenset(operators)
    woven = Woven(body)
    for name, weaver in WEAVERS.items():
        if name in wanted:
            woven = weaver(woven, rng)
    return woven


def before_sentence(sentence: str, operator: str, rng: Random) -> Woven:
    """`sentence` with one item of `operator` in front of it, or for tags around its first word:
    the sentence as it was comes back when the operator has run."""
    if operator == "clean_html_mapper":
        tag = pick(rng, ("b", "i", "em", "code", "u"))
        first, _, rest = sentence.partition(" ")
        woven = Woven(f"\0{first}\x01 {rest}").add(
            f"\0{first}\x01 {rest}", Item(operator, f"<{tag}>", "")
        )
        return woven.add(woven.body.replace("\x01", "\0"), Item(operator, f"</{tag}>", ""))
    item = next(i for i in WEAVERS[operator](Woven("x"), rng).items)
    return Woven("").add(f"\0 {sentence}", item)


def weave_markup(markup: str) -> Woven:
    """Real inline tags and entities as items of `clean_html_mapper`."""
    woven = Woven(markup)
    while match := re.search(r"<[^>\n]+>|&(?:#\d+|\w+);", woven.body):
        found = match.group()
        left = "" if found.startswith("<") else html.unescape(found)
        body = woven.body[: match.start()] + "\0" + woven.body[match.end() :]
        woven = woven.add(body, Item("clean_html_mapper", found, left))
        if len(woven.items) > 60:
            break
    return woven


def wrap(woven: Woven, width: int) -> Woven:
    """Lines of about `width` shown characters, never broken before an item: deleting one that
    starts a line would leave a space there that no reader of the instruction expects."""
    lines: list[str] = []
    line = ""
    for word in woven.body.split(" "):
        shown = len(Woven(f"{line} {word}", woven.items).render())
        if line and shown > width and not _MARK.match(word):
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return Woven("\n".join([*lines, line]), woven.items)


def frame(woven: Woven, rng: Random) -> Woven:
    """The text between two rules of `=` or `-`, as a banner in a plain-text file."""
    rule = pick(rng, ("=", "-", "*")) * pick(rng, (64, 80, 96))
    return Woven(f"{rule}\n{woven.body}\n{rule}", woven.items)
