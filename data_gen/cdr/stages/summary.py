"""What is said of the documents of a build, from their facts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import numpy as np

from data_gen.cdr.inputs import Classes, refused, too_long, too_plain
from data_gen.cdr.out import Unsaid
from data_gen.cdr.sources import TWICE, Found, Left, unlicensed
from data_gen.cdr.stages.documents import Documents
from data_gen.cdr.stages.facts import bits_set
from data_gen.cdr.stages.merges import disk, problems
from data_gen.cdr.stages.parts import LONG, UNLICENSED, USED
from data_gen.cdr.stages.work import Work, sharded
from data_gen.tally import Input


def left_out(work: Work, documents: Documents) -> Iterator[Left]:
    """Everything that is not used, kind by kind, each in corpus order."""
    yield from rows_left(work, documents)
    limits = work.config.instances
    for part in disk(documents):
        for place in part.places(LONG):
            length = int(part.facts.chars[place])
            yield too_long(part.id(place), length, limits.max_text_length, *part.group(place))
    for part in disk(documents):
        active = bits_set(part.facts.active)
        for place in part.places(USED):
            if active[place] < limits.min_active:
                yield too_plain(part.id(place), int(active[place]), limits, *part.group(place))


def rows_left(work: Work, documents: Documents) -> Iterator[Left]:
    """Rows that hold no document, that are there twice, or of another licence."""
    for row in problems(work, documents):
        yield Left(**row)
    for shard, part in sharded(work, disk(documents)):
        pieces = work.pieces(shard)
        columns = part.arrays["piece"], part.arrays["number"]
        for place in part.twice.tolist():
            piece, number = (int(column[place]) for column in columns)
            found = Found(pieces[piece], "row", number, None)
            yield found.left(f"id {part.id(place)!r} occurs twice", TWICE)
    for part in disk(documents):
        for place in part.places(UNLICENSED):
            yield unlicensed(part.row(place))


def classes_of(work: Work, documents: Documents, tasks_of: Mapping[str, int]) -> Classes:
    """The documents by domain and source. `tasks_of`: rows that a document gave."""
    classes = Classes()
    drawn = set(tasks_of)
    for part in disk(documents):
        used = np.array(part.places(USED), np.int64)
        groups = json.loads(part.arrays["groups"].tobytes())
        codes = part.arrays["group"][used]
        usable = part.facts.usable(work.config)[used]
        for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
            name, licence = groups[int(code)]
            classes.of(name).documents += int(count)
            classes.of(name).licences[licence] += int(count)
        for place, code in zip(used[usable].tolist(), codes[usable].tolist(), strict=True):
            own = classes.of(groups[code][0])
            if (name := part.id(place)) in drawn:
                own.tasks += tasks_of[name]
            else:
                own.idle += 1
    for one in left_out(work, documents):
        own = classes.of(one.group)
        own.why[one.kind] += 1
        own.licences[one.licence] += 1
    return classes


def unsaid_rows(unsaid: Mapping[tuple[str, str], Unsaid]) -> list[Input]:
    """A row of refused.jsonl for every way in which an operator does what its words do not say."""
    return [
        Input(operator, 0, (f"{own.rows} rows in no split: it {does}; first {own.document}",))
        for (operator, does), own in unsaid.items()
    ]


def members(work: Work, documents: Documents) -> Iterator[Input]:
    """A row of refused.jsonl for everything that is not used."""
    return map(refused, left_out(work, documents))
