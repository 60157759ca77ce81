"""A worded unit as the lines it adds to the files, all but the split that its tasks go to.

They are made where the unit is worded, so that the merge has only to put bytes together. Texts
that stand in several lines are encoded and kept once; their places, and that of the split, are
marked by control characters, which JSON never has as they are.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple

from assay.task import Task, json_line, json_text
from configs.cdr import InstructConfig
from data_gen.cdr.build_tables import facts_of
from data_gen.cdr.instruct import PromptVariant
from data_gen.cdr.rows import PlannedRow, Row, filter_of, tasks_of
from data_gen.cdr.write import Written

TRAIN, ELSEWHERE = "train", "heldout"  # splits in which a row's tasks differ
_TEXTS = ("input_text", "reference_text", "reference_text_full_run")
_SPLIT, *_MARKS = b"\0", b"\1", b"\2", b"\3"
_ESCAPED = [f"\\u000{place}".encode() for place in (1, 2, 3)]  # the marks of texts in JSON
_LIKE_MARKS = re.compile(r"[\0-\3]|\\u000")


@dataclass(frozen=True)
class Lines:
    """What some units add: lines by file, and counts."""

    files: list[tuple[str, bytes]]
    counts: Counter[str]


class Sizes(NamedTuple):
    """Bytes that a row adds: to the file of its track, to that of all prompts, as its `tasks`
    training tasks, and as its task in another split. The names of splits, which stand in every
    task, are not counted."""

    row: int
    prompts: int
    tasks: int
    training: int
    elsewhere: int

    def in_files(self, track: str, side: str) -> Iterator[tuple[str, int]]:
        """By file, of a row that goes to the split `side` ("": none): what `unpacked` gives."""
        yield f"tracks/{track}.jsonl", self.row
        if self.prompts:
            yield f"tracks_all_prompts/{track}.jsonl", self.prompts
        if side == TRAIN:
            yield f"{side}.jsonl", self.training + self.tasks * len(side)
        elif side:
            yield f"{side}.jsonl", self.elsewhere + len(side)


def joined(units: Sequence[Lines]) -> Lines:
    """Those of several units, each file once."""
    files: dict[str, list[bytes]] = {}
    counts: Counter[str] = Counter()
    for unit in units:
        counts.update(unit.counts)
        for name, lines in unit.files:
            files.setdefault(name, []).append(lines)
    return Lines([(name, b"".join(lines)) for name, lines in files.items()], counts)


def packed(
    unit: Sequence[PlannedRow], done: Written, config: InstructConfig
) -> tuple[bytes, list[Sizes]]:
    """A worded unit, whose instances have texts, and what its rows will add to the files."""
    texts: dict[bytes, int] = {}
    lines: list[bytes] = []
    rows: list[dict[str, Any]] = []
    sizes: list[Sizes] = []
    for place, (planned, row) in enumerate(zip(unit, done.rows, strict=True)):
        light = _without_texts(planned, row, done.pools[place])
        said = [b"" if light is row else _said(row[name] or "") for name in _TEXTS]
        tasks = tasks_of(planned, light, done.asked[place], TRAIN, config.mode)
        held = filter_of(planned)
        rows.append(
            {
                "track": row["source_track"],
                "status": row["reference_status"],
                "filters": ["any_filter", held] if held else ["no_filter"],
                "counted": [*_counted(row), *facts_of(row), *_told(done.told[place])],
                "styles": [[t.meta["style"], t.meta.get("wording", "")] for t in tasks],
                "texts": [texts.setdefault(text, len(texts)) for text in said],
            }
        )
        count = len(tasks)
        if count > 1:  # a group of their own, which the one of another split is not in
            tasks += tasks_of(planned, light, done.asked[place], ELSEWHERE, config.mode)
        made = [json_line(light)]
        if config.all_prompts:
            made.append(json_line(_all_prompts(light, done.pools[place])))
        made += map(_open_line, tasks)
        own = made if light is row else [_marked(line) for line in made]
        lines += own
        sizes.append(_sizes(own, said, count, config.all_prompts))
    head = {"rows": rows, "lengths": list(map(len, (*texts, *lines)))}
    return b"".join([json.dumps(head).encode(), b"\n", *texts, *lines]), sizes


def _sizes(lines: Sequence[bytes], texts: Sequence[bytes], tasks: int, prompts: bool) -> Sizes:
    """Of the lines of one row: the row, its prompts, its tasks."""
    filled = [
        len(line) + sum(line.count(m) * (len(t) - 1) for m, t in zip(_MARKS, texts, strict=True))
        for line in lines
    ]
    asked = [size - 1 for size in filled[1 + prompts :]]  # without the mark of the split
    return Sizes(filled[0], filled[1] if prompts else 0, tasks, sum(asked[:tasks]), asked[-1])


def unpacked(data: bytes, sides: Sequence[str], config: InstructConfig) -> Lines:
    """The lines of a unit whose rows go to these splits ("": none), rows first and then their
    tasks, and what they count as."""
    at = data.index(b"\n") + 1
    head: dict[str, Any] = json.loads(data[:at])
    ends = accumulate(head["lengths"], initial=at)
    parts = iter([data[start:end] for start, end in pairwise(ends)])
    rows: list[dict[str, Any]] = head["rows"]
    texts = list(islice(parts, 1 + max(place for row in rows for place in row["texts"])))
    files: list[tuple[str, bytes]] = []
    counts: Counter[str] = Counter()
    for row, side in zip(rows, sides, strict=True):
        places: list[int] = row["texts"]
        said = [texts[place] for place in places]
        styles: list[tuple[str, str]] = row["styles"]
        folders = ("tracks", "tracks_all_prompts")[: 1 + config.all_prompts]
        for folder in folders:
            files.append((f"{folder}/{row['track']}.jsonl", _filled(next(parts), said)))
        tasks = list(islice(parts, len(styles) + (len(styles) > 1)))
        if side != TRAIN:  # asked once, or not at all
            tasks, styles = (tasks[-1:], styles[:1]) if side else ([], [])
        else:
            tasks = tasks[: len(styles)]
        opened = (_filled(line, said).replace(_SPLIT, side.encode(), 1) for line in tasks)
        files += ((f"{side}.jsonl", line) for line in opened)
        counts.update(row["counted"])
        counts.update([f"split {side or 'unused'}", *_asked(row, side, styles)])
    return Lines(files, counts)


def _without_texts(planned: PlannedRow, row: Row, variants: Sequence[PromptVariant]) -> Row:
    """The row with marks for its texts; as it is where what else it says might be taken for marks,
    or where UTF-8 cannot hold it, so that whole lines are escaped."""
    record = planned.instance.record
    others = [record.id, record.source, record.licence, *(v.user_requirement for v in variants)]
    said = "".join([*others, *(row[name] or "" for name in _TEXTS)])
    if any(map(_LIKE_MARKS.search, others)) or not _in_utf8(said):
        return row
    marks = zip(_TEXTS, _MARKS, strict=True)
    return row | {name: mark.decode() for name, mark in marks if row[name] is not None}


def _in_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@lru_cache(maxsize=16)  # rows of a unit, and units of a document, share texts
def _said(text: str) -> bytes:
    """A text as it stands in a line."""
    return json_text(text)[1:-2]


def _open_line(task: Task) -> bytes:
    """The line of a task with a mark for its split."""
    line = json_line(replace(task, split="").to_json())
    before, mark, after = line.partition(b', "split": "')
    assert mark, "the split stands behind the track"
    return before + mark + _SPLIT + after


def _marked(line: bytes) -> bytes:
    for escaped, mark in zip(_ESCAPED, _MARKS, strict=True):
        line = line.replace(escaped, mark)
    return line


def _filled(line: bytes, texts: Sequence[bytes]) -> bytes:
    for mark, text in zip(_MARKS, texts, strict=True):
        line = line.replace(mark, text)
    return line


def _all_prompts(row: Row, variants: Sequence[PromptVariant]) -> Row:
    return row | {
        "prompt_variants": [v.to_json() for v in variants],
        "prompt_variant_count": len(variants),
        "selected_prompt_variant_indices": list(range(len(variants))),
        "prompt_sampling_policy": "all",
    }


def _counted(row: Row) -> Iterator[str]:
    yield "rows"
    yield f"track {row['source_track']}"
    yield f"domain {row['domain']}"
    yield f"status {row['reference_status']}"
    yield f"status of {row['source_track']} {row['reference_status']}"
    yield f"difficulty {row['difficulty_label']}"
    yield f"recipe_length {row['recipe_length']}"
    for name in sorted(set(row["operator_sequence"])):
        yield f"operator {name}"


def _told(told: str) -> Iterator[str]:
    if told:
        yield f"wording of result styles {told}"


def _asked(row: dict[str, Any], split: str, styles: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Of the tasks of a row, asked in some styles; these that describe the result say whether
    they do."""
    for style, wording in styles:
        if wording:
            yield f"result styles of {split} {wording}"
        yield f"tasks of {split} {row['track']}"
        yield f"styles of {split} {style}"
        for name in row["filters"]:
            yield f"filter and status of {split} {name}:{row['status']}"
