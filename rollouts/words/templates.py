"""Templates of the words around a task: what a file of them may hold, and how one is filled.

A file is YAML with a section for each kind of words; a section has one text a field. `{name}` in a
text is a place that is filled, `{{` and `}}` are braces. Which fields a kind has, and which
places a field may and must have, says its `Kind`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import string
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from assay.task import Task
from configs.loader import ConfigError, read_yaml

Source = Literal["ours", "own", "release"]


@dataclass(frozen=True)
class Slot:
    """A field of a section: the places that its text may have, and those that it must have. A text
    without places that must be there may be empty."""

    may: tuple[str, ...] = ()
    must: tuple[str, ...] = ()


@dataclass(frozen=True)
class Words:
    """The words of one kind: `texts` by field. `hash` is of texts and settings; `known` is the
    release with this hash, "" for another; `place` is where they were read. `settings` are numbers
    that a release's code fixes, such as the rows of a table that it shows."""

    name: str
    texts: Mapping[str, str]
    source: Source
    hash: str
    known: str = ""
    place: str = ""
    settings: Mapping[str, int] = field(default_factory=dict[str, int])

    def fill(self, name: str, **values: object) -> str:
        """Fill the places of a field's text with `values`, by name, and return it."""
        return filled(self.texts[name], values)

    def __getitem__(self, name: str) -> str:
        """The text of a field without places."""
        return filled(self.texts[name], {})

    def to_json(self) -> dict[str, str]:
        """For records: whose words these are. Not where they lie, which is another place on
        another machine."""
        return {"source": self.source, "hash": self.hash, "known": self.known}


@dataclass(frozen=True)
class Read:
    """What a release's copy gave: texts by field, numbers, and the sources of code beside them that
    decides what is sent."""

    texts: Mapping[str, str]
    settings: Mapping[str, int] = field(default_factory=dict[str, int])
    code: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """What has words, by the section's name. `ours` is the file of the default; `ask` asks a task
    in other words, where they are not put around it when its episode opens. `read` reads them out
    of a user's copy of a release, None where a folder holds none; `known` names releases by the
    hash of their words."""

    name: str
    slots: Mapping[str, Slot]
    ours: Path
    ask: Callable[[Task, Words], Task] = lambda task, words: task
    read: Callable[[Path], Read | None] = lambda folder: None
    known: Mapping[str, str] = field(default_factory=dict[str, str])


@lru_cache(maxsize=1024)
def parts(text: str) -> tuple[tuple[str, str | None], ...]:
    """(text, the place after it or None) of a template. Raises ValueError for one that is none."""
    found: list[tuple[str, str | None]] = []
    for before, name, form, conversion in string.Formatter().parse(text):
        if name is not None and (form or conversion or not name.isidentifier()):
            raise ValueError(f"{{{name}}} is no place; write one as {{name}}, a brace as {{{{")
        found.append((before, name))
    return tuple(found)


def filled(text: str, values: Mapping[str, object]) -> str:
    return "".join(
        before if name is None else f"{before}{values[name]}" for before, name in parts(text)
    )


def places(text: str) -> set[str]:
    """The places of a template."""
    return {name for _, name in parts(text) if name is not None}


def unfilled(template: str, text: str) -> dict[str, str] | None:
    """What stands at the places of a text that a template was filled to, None for another text."""
    pattern = "".join(
        re.escape(before) + ("" if name is None else f"(?P<{name}>.*?)")
        for before, name in parts(template)
    )
    found = re.fullmatch(pattern, text, re.DOTALL)
    return None if found is None else found.groupdict()


def escaped(text: str) -> str:
    """A text as a template without places."""
    return text.replace("{", "{{").replace("}", "}}")


def checked(kind: Kind, section: Mapping[str, Any], where: str) -> dict[str, str]:
    """The texts of a section. Raises `ConfigError` for a field that is unknown, is missing or is no
    text, and for places that a text may not have or lacks."""
    for name in section:
        if name not in kind.slots:
            raise ConfigError(f"{where}: unknown field {name}; known are {', '.join(kind.slots)}")
    texts: dict[str, str] = {}
    for name, slot in kind.slots.items():
        if name not in section:
            raise ConfigError(f"{where}: field {name} is missing; copy the rest from {kind.ours}")
        text = section[name]
        if not isinstance(text, str):
            raise ConfigError(f"{where}: {name}: wanted a text, in quotes or after |-")
        texts[name] = text
        try:
            there = places(text)
        except ValueError as error:
            raise ConfigError(f"{where}: {name}: {error}") from None
        if unknown := sorted(there - {*slot.may, *slot.must}):
            known = ", ".join(f"{{{p}}}" for p in dict.fromkeys((*slot.must, *slot.may)))
            raise ConfigError(
                f"{where}: {name}: unknown place {{{unknown[0]}}}; known are {known or 'none'}"
            )
        if lacking := [place for place in slot.must if place not in there]:
            raise ConfigError(f"{where}: {name}: the text lacks {{{lacking[0]}}}")
    return texts


def hash_of(texts: Mapping[str, str], more: Iterable[Any] = ()) -> str:
    """SHA-256 of texts and what else decides what is sent, in hexadecimal. Fields that are empty do
    not count: a release stays known when a kind gets another one."""
    said = {name: text for name, text in texts.items() if text}
    whole = json.dumps([said, *more], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


def ours(kind: Kind) -> Words:
    """The words that Assay asks in where nothing else is said."""
    texts = _ours(kind.ours, kind.name)
    return Words(kind.name, texts, "ours", hash_of(texts)[:16], place=str(kind.ours))


@lru_cache(maxsize=16)
def _ours(path: Path, name: str) -> dict[str, str]:
    section = cast("Mapping[str, Any]", read_yaml(path)[name])
    return {field: str(text) for field, text in section.items()}


def own(kinds: Mapping[str, Kind], path: Path) -> dict[str, Words]:
    """The words of a file, by kind. Raises `ConfigError`."""
    found: dict[str, Words] = {}
    for name, section in read_yaml(path).items():
        if name not in kinds:
            raise ConfigError(f"{path}: unknown section {name}; known are {', '.join(kinds)}")
        if not isinstance(section, dict):
            raise ConfigError(f"{path}: {name}: wanted `field: text` lines")
        texts = checked(kinds[name], cast("dict[str, Any]", section), f"{path}: {name}")
        found[name] = Words(name, texts, "own", hash_of(texts)[:16], place=str(path))
    if not found:
        raise ConfigError(f"{path}: no section in it; wanted one of {', '.join(kinds)}")
    return found


def of_release(kind: Kind, folder: Path) -> Words | None:
    """The words of a user's copy of the release in `folder`, None where it holds none. Raises
    `ConfigError` naming file and line for a form that is not read."""
    try:
        read = kind.read(folder)
    except ConfigError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{folder}: its prompts have a form that is not read ({why})") from None
    if read is None:
        return None
    texts = checked(kind, read.texts, str(folder))
    code = [hashlib.sha256(text.encode()).hexdigest() for text in read.code]
    whole = hash_of(texts, [dict(read.settings), code])
    known = kind.known.get(whole, "")
    return Words(kind.name, texts, "release", whole[:16], known, str(folder), read.settings)


# ---- `prompts=…`: a file, a folder, or a copy of a release

RELEASE = "release:"
NOT_COMPARABLE = "not comparable with published numbers"


class Place(NamedTuple):
    """A kind of words that is not loaded yet: the module with its `KIND`, and whether a task is
    asked in them."""

    module: str
    asks: Callable[[Task], bool]


Places = Mapping[str, Place]  # by section


@dataclass(frozen=True)
class Prompts:
    """The words of a command, by kind; of a kind that `words` lacks, ours."""

    places: Places
    words: Mapping[str, Words] = field(default_factory=dict[str, Words])

    def of(self, name: str) -> Words:
        """The words of a kind."""
        return self.words.get(name) or ours(kind_of(self.places, name))

    def asked(self, tasks: Iterable[Task]) -> list[Task]:
        """Tasks asked in these words."""
        found = list(tasks)
        for name, words in self.words.items():
            ask, asks = kind_of(self.places, name).ask, self.places[name].asks
            found = [ask(task, words) if asks(task) else task for task in found]
        return found

    def record(self, tasks: Iterable[Task]) -> dict[str, dict[str, str]]:
        """Whose words the tasks are asked in, by kind; of the kinds that ask one of them."""
        found: dict[str, dict[str, str]] = {}
        for task in tasks:
            for name, place in self.places.items():
                if name not in found and place.asks(task):
                    found[name] = self.of(name).to_json()
        return found

    def inputs(self) -> dict[str, str]:
        """What a run's record keeps to know the words again, where they are not ours."""
        hashes = (f"{name} {words.hash}" for name, words in sorted(self.words.items()))
        return {"prompts": ", ".join(hashes)} if self.words else {}

    def settings(self, tasks: Iterable[Task]) -> dict[str, str]:
        """Hashes of the words that are not ours, by kind: what going on must find again."""
        record = self.record(tasks)
        return {name: said["hash"] for name, said in record.items() if said["source"] != "ours"}


def kind_of(places: Places, name: str) -> Kind:
    found: Kind = importlib.import_module(places[name].module).KIND
    return found


def prompts_of(places: Places, text: str, strict: bool = False) -> Prompts:
    """`prompts=TEXT`: a YAML file, a folder of such files, or `release:DIR`, a release's checkout
    or a folder of checkouts; "" for ours. A release that is not known is used with a warning, or
    with `strict` refused. Raises `ConfigError`."""
    if not text:
        return Prompts(places)
    path = Path(text.removeprefix(RELEASE)).expanduser()
    if not path.exists():
        raise ConfigError(f"prompts={text}: no such file or folder")
    if text.startswith(RELEASE):
        return Prompts(places, _released(places, text, path, strict))
    kinds = {name: kind_of(places, name) for name in places}
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"prompts={text}: no *.yaml in it; {RELEASE}{text} reads a release")
    words: dict[str, Words] = {}
    for file in files:
        found = own(kinds, file)
        if twice := sorted(found.keys() & words.keys()):
            raise ConfigError(f"{file}: section {twice[0]} is also in {words[twice[0]].place}")
        words |= found
    return Prompts(places, words)


def _released(places: Places, text: str, folder: Path, strict: bool) -> dict[str, Words]:
    inner = sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    words: dict[str, Words] = {}
    for name in places:
        for place in (folder, *inner):
            found = of_release(kind_of(places, name), place)
            if found is None:
                continue
            if name in words:
                raise ConfigError(
                    f"prompts={text}: {words[name].place} and {place} are both releases with words "
                    f"of {name}; name one of them"
                )
            words[name] = found
            if found.known:
                continue
            said = f"prompts={text}: {place} is no release that Assay knows ({name}, words "
            said += f"{found.hash})"
            if strict:
                raise ConfigError(f"{said}; leave --strict out to use its words as they are")
            print(f"{said}; its words are used as they are", file=sys.stderr)
    if not words:
        raise ConfigError(
            f"prompts={text}: no release whose words are known lies there; give the folder of a "
            "checkout of its repository"
        )
    return words


def lines(record: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each different source in what `Prompts.record` gave."""
    yield from dict.fromkeys(map(line, record.values()))


def line(said: Mapping[str, str]) -> str:
    """Whose words these are, and whether numbers compare."""
    if said["source"] == "ours":
        return f"asked in Assay's words: {NOT_COMPARABLE}"
    if said["source"] == "own":
        return f"asked in words of one's own ({said['hash']}): {NOT_COMPARABLE}"
    known = said["known"] or f"one that Assay does not know, words {said['hash']}"
    return f"asked in the release's words ({known})"


def in_short(record: Mapping[str, Mapping[str, str]] | None) -> str:
    """For a comparison of two evaluations; one without a record was asked in ours."""
    said = {s["known"] or f"{s['source']} {s['hash']}" for s in (record or {}).values()}
    ours_ = all(s["source"] == "ours" for s in (record or {}).values())
    return "ours" if ours_ else ", ".join(sorted(said))
