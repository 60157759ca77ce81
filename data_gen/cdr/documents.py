"""What became of the documents of a build: classes of documents, and each document refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from configs.cdr import InstanceConfig
from data_gen.cdr.records import Record
from data_gen.cdr.sources import Left, Row, class_of
from data_gen.inputs import Input

MOST_SOURCES = 12  # of a domain; more (a folder of text files) are one class


@dataclass
class _Class:
    documents: int = 0
    tasks: int = 0
    idle: int = 0  # usable documents that gave no task
    why: Counter[str] = field(default_factory=Counter[str])
    licences: Counter[str] = field(default_factory=Counter[str])


def too_long(rows: Iterable[Row], most: int) -> Iterator[Left]:
    """The rows above the limit of `instances.max_text_length`."""
    kind = f"longer than {most} characters (instances.max_text_length)"
    for row in rows:
        if len(row["text"]) > most:
            why = f"{len(row['text'])} characters long; the limit is {most}"
            yield Left(row["id"], why, kind, class_of(row), row["licence"])


def too_plain(records: Iterable[Record], config: InstanceConfig) -> Iterator[Left]:
    """The documents that activate too few mappers to be used."""
    kind = f"fewer than {config.min_active} active mappers (instances.min_active)"
    for record in records:
        if len(record.active) < config.min_active:
            why = f"{len(record.active)} active mappers; {config.min_active} are wanted"
            yield Left(record.id, why, kind, _group(record), record.licence)


def inputs_of(
    records: Sequence[Record], left: Sequence[Left], tasks_of: Mapping[str, int]
) -> list[Input]:
    """An input per class of documents (domain and source), and per file of rows that could not be
    read. `tasks_of`: rows that a document gave."""
    classes: defaultdict[str, _Class] = defaultdict(_Class)
    gone = {one.name for one in left}
    for record in records:
        own = classes[_group(record)]
        own.documents += 1
        own.tasks += tasks_of.get(record.id, 0)
        own.idle += record.id not in tasks_of and record.id not in gone
        own.licences[record.licence] += 1
    for one in left:
        classes[one.group].why[one.kind] += 1
        classes[one.group].licences[one.licence] += 1
    merged: dict[str, _Class] = {}
    sources = Counter(name.partition(" / ")[0] for name in classes)
    for name, own in classes.items():
        domain = name.partition(" / ")[0]
        many = sources[domain] > MOST_SOURCES
        _add(
            merged.setdefault(f"{domain} / {sources[domain]} sources" if many else name, _Class()),
            own,
        )
    return [_input(name, own) for name, own in merged.items()]


def _group(record: Record) -> str:
    return class_of({"domain": record.label, "source": record.source})


def _add(to: _Class, own: _Class) -> None:
    to.documents += own.documents
    to.tasks += own.tasks
    to.idle += own.idle
    to.why += own.why
    to.licences += own.licences


def _input(name: str, own: _Class) -> Input:
    why = [f"{count} {kind}" for kind, count in own.why.most_common()]
    if own.idle:
        why.append(f"{own.idle} usable, but no task drew them")
    first = [licence for licence, _ in own.licences.most_common(3)]
    more = f" and {len(own.licences) - 3} more" if len(own.licences) > 3 else ""
    return Input(name, own.tasks, tuple(why), ", ".join(first) + more)


def refused(left: Iterable[Left]) -> Iterator[Input]:
    """A row of refused.jsonl for each document."""
    for one in left:
        yield Input(one.name, 0, (one.why,), one.licence)
