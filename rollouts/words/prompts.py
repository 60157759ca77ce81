"""`prompts=…`: which words tasks are asked in, from a file, a folder, or a copy of a release."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.task import Task
from configs.loader import ConfigError
from rollouts.words.templates import Kind, Release, Words, of_release, ours, own

RELEASE = "release:"
NOT_COMPARABLE = "not comparable with published numbers"
# section → (the module with its `KIND`, the module with its `RELEASE`)
Places = Mapping[str, tuple[str, str]]


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
            kind = kind_of(self.places, name)
            found = [kind.ask(task, words) for task in found]
        return found

    def record(self, tasks: Iterable[Task]) -> dict[str, dict[str, str]]:
        """Whose words the tasks are asked in, by kind; of the kinds that ask one of them."""
        kinds = {name: kind_of(self.places, name) for name in self.places}
        found: dict[str, dict[str, str]] = {}
        for task in tasks:
            for name, kind in kinds.items():
                if name not in found and kind.asks(task):
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
    found: Kind = importlib.import_module(places[name][0]).KIND
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
    for name, (_, module) in places.items():
        release: Release = importlib.import_module(module).RELEASE
        for place in (folder, *inner):
            found = of_release(kind_of(places, name), release, place)
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
