"""Documents on disk: columns that are read when they are asked for, texts one at a time."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from configs.cdr import CdrConfig
from data_gen.cdr.records import Record
from data_gen.cdr.sources import Row, record_of
from data_gen.cdr.stages.arrays import Array, Arrays
from data_gen.cdr.stages.facts import DOMAINS, Facts, names_of

USED, LONG, UNLICENSED = range(3)  # state of a document
Columns = ("chars", "domain", "active", "changes", "english", "stats")


class DiskPart:
    """A run of documents on disk. Columns are read when they are first asked for."""

    def __init__(
        self,
        path: Path,
        base: int,
        count: int,
        config: CdrConfig,
        twice: Array,
        others: dict[int, str],
    ) -> None:
        self.path, self.base, self.count = path, base, count
        self._config = config
        self._others = others  # ids in place of those that a document of another file has, by place
        self.twice = twice  # places of documents whose id was there before

    @cached_property
    def arrays(self) -> Arrays:
        return Arrays(self.path)

    @property
    def facts(self) -> Facts:
        return self._facts

    @cached_property
    def _facts(self) -> Facts:
        columns = {name: self.arrays.load(name) for name in Columns}
        read = self.arrays.load("state") == USED
        read[self.twice] = False
        return Facts(**columns, read=read)

    @cached_property
    def _keys(self) -> tuple[list[int], list[int], bytes]:
        starts, lengths = self.arrays["key_at"].tolist(), self.arrays["id_length"].tolist()
        return starts, lengths, self.arrays["keys"].tobytes()

    def key(self, place: int) -> tuple[bytes, bytes]:
        starts, lengths, data = self._keys
        start = starts[place]
        stop = start + lengths[place]
        name, rest = data[start:stop], data[stop : starts[place + 1]]
        if place in self._others:
            name = self._others[place].encode("utf-8", "surrogatepass")
        return name, name + rest

    def id(self, place: int) -> str:
        return self.key(place)[0].decode("utf-8", "surrogatepass")

    def row(self, place: int) -> Row:
        """The corpus row; without `text` when the document is not used."""
        start, stop = self.arrays["text_at"][place : place + 2].tolist()
        with open(self.path.with_suffix(".texts"), "rb") as file:
            file.seek(start)
            row: Row = json.loads(zlib.decompress(file.read(stop - start)))
        return row | {"id": self._others[place]} if place in self._others else row

    def places(self, state: int) -> list[int]:
        """Places of the documents in a state, but those that are there twice."""
        own = np.array(self.arrays["state"] == state)
        own[self.twice] = False
        return np.flatnonzero(own).tolist()

    def group(self, place: int) -> tuple[str, str]:
        """(class of documents, licence) of a document."""
        name, licence = self._groups[int(self.arrays["group"][place])]
        return name, licence

    @cached_property
    def _groups(self) -> list[list[str]]:
        return json.loads(self.arrays["groups"].tobytes())

    def record(self, place: int) -> Record:
        active = list(names_of(int(self.facts.active[place])))
        return record_of(self.row(place), active, self._config.domains)

    def light(self, place: int) -> Record:
        """The record without its text."""
        facts = self.facts
        domain = DOMAINS[int(facts.domain[place])]
        return Record(self.id(place), domain, "", chars=int(facts.chars[place]))

    def let_go(self) -> None:
        """Forget what was read."""
        for name in ("arrays", "_facts", "_keys", "_groups"):
            self.__dict__.pop(name, None)


class DiskParts(Sequence[DiskPart]):
    """The parts of a build; at most `kept` of them hold their columns at a time."""

    def __init__(self, parts: Sequence[DiskPart], kept: int) -> None:
        self._parts, self._kept = parts, kept
        self._open: dict[int, DiskPart] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: int) -> DiskPart:  # type: ignore[override]
        part = self._parts[index]
        self._open.pop(index, None)
        self._open[index] = part
        while len(self._open) > self._kept:
            self._open.pop(next(iter(self._open))).let_go()
        return part
