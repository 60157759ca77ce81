"""What became of the documents of a build: classes of documents, and each document refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from configs.cdr import InstanceConfig
from data_gen.cdr.records import Record
from data_gen.cdr.sources import Left, class_of
from data_gen.tally import Input

COUNTED = 100_000  # sources of a domain that are told apart
MOST_SOURCES = 12  # of a domain; more (a folder of text files) are one class


@dataclass
class Class:
    """Documents of one domain and source, or rows of one file that hold none."""

    documents: int = 0
    tasks: int = 0
    idle: int = 0  # usable documents that gave no task
    why: Counter[str] = field(default_factory=Counter[str])
    licences: Counter[str] = field(default_factory=Counter[str])

    def add(self, own: Class) -> None:
        self.documents += own.documents
        self.tasks += own.tasks
        self.idle += own.idle
        self.why += own.why
        self.licences += own.licences


def too_long(name: str, length: int, most: int, group: str, licence: str) -> Left:
    """A document above the limit of `instances.max_text_length`."""
    kind = f"longer than {most} characters (instances.max_text_length)"
    why = f"{length} characters long; the limit is {most}"
    return Left(name, why, kind, group, licence)


def too_plain(name: str, active: int, config: InstanceConfig, group: str, licence: str) -> Left:
    """A document that activates too few mappers to be used."""
    kind = f"fewer than {config.min_active} active mappers (instances.min_active)"
    why = f"{active} active mappers; {config.min_active} are wanted"
    return Left(name, why, kind, group, licence)


class Classes:
    """Classes of documents by domain and source, and files of rows that could not be read; one a
    domain where there are many sources, so that what is held does not grow with them."""

    def __init__(self) -> None:
        self._classes: dict[str, Class] = {}
        self._sources: dict[str, set[str]] = {}
        self._many: dict[str, Class] = {}

    def of(self, name: str) -> Class:
        domain, _, source = name.partition(" / ")
        sources = self._sources.setdefault(domain, set())
        if len(sources) < COUNTED:
            sources.add(source)
        if domain not in self._many and len(sources) > MOST_SOURCES:
            self._many[domain] = Class()
            for other in [one for one in self._classes if one.partition(" / ")[0] == domain]:
                self._many[domain].add(self._classes.pop(other))
        if domain in self._many:
            return self._many[domain]
        return self._classes.setdefault(name, Class())

    def inputs(self) -> list[Input]:
        """An input for each."""
        found = [_input(name, own) for name, own in self._classes.items()]
        for domain, own in self._many.items():
            count = len(self._sources[domain])
            more = " or more" if count >= COUNTED else ""
            found.append(_input(f"{domain} / {count}{more} sources", own))
        return found


def group_of(record: Record) -> str:
    """The class of documents that a record belongs to."""
    return class_of({"domain": record.label, "source": record.source})


def _input(name: str, own: Class) -> Input:
    why = [f"{count} {kind}" for kind, count in _ranked(own.why)]
    if own.idle:
        why.append(f"{own.idle} usable, but no task drew them")
    first = [licence for licence, _ in _ranked(own.licences)[:3]]
    more = f" and {len(own.licences) - 3} more" if len(own.licences) > 3 else ""
    return Input(name, own.tasks, tuple(why), ", ".join(first) + more)


def _ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    """Commonest first, ties alphabetically."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def refused(one: Left) -> Input:
    """A row of refused.jsonl for a document."""
    return Input(one.name, 0, (one.why,), one.licence)
