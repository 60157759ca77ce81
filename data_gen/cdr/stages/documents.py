"""Documents by number: their facts in columns, their texts when they are asked for."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Protocol

from configs.cdr import CdrConfig
from data_gen.cdr.records import Record
from data_gen.cdr.stages.facts import Facts


class Part(Protocol):
    """A run of documents; `base` is the number of its first one in the whole corpus."""

    @property
    def base(self) -> int: ...

    @property
    def facts(self) -> Facts: ...

    def record(self, place: int) -> Record:
        """The document at a place of the part, with its text."""
        ...

    def key(self, place: int) -> tuple[bytes, bytes]:
        """What its hashes are made of: (id, `id||source_name||url`)."""
        ...


class Documents:
    """All parts in corpus order."""

    def __init__(self, parts: Sequence[Part], count: int) -> None:
        self.parts, self.count = parts, count
        self._bases = [part.base for part in parts]

    def __len__(self) -> int:
        return self.count

    def part_of(self, number: int) -> Part:
        return self.parts[bisect.bisect_right(self._bases, number) - 1]

    def record(self, number: int) -> Record:
        part = self.part_of(number)
        return part.record(number - part.base)

    def usable(self, config: CdrConfig) -> Iterator[tuple[Part, Facts]]:
        """Parts with their facts, `read` narrowed to what tracks may be built from."""
        for part in self.parts:
            facts = part.facts
            yield part, facts.only(facts.usable(config))


def key_of(record: Record) -> tuple[bytes, bytes]:
    """(id, `id||source_name||url`) as bytes."""
    whole = f"{record.id}||{record.source_name}||{record.url}"
    return record.id.encode("utf-8", "surrogatepass"), whole.encode("utf-8", "surrogatepass")
