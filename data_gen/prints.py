"""What a check compares of every row of a file of tasks, as numbers, streamed in chunks.

A chunk is worked out by itself (by a worker process), and keeps 136 bytes a text: a 64-bit hash of
what it says and a MinHash signature. Ids, documents and recipes stay as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.family import family_of
from assay.fingerprints import TableMarks
from assay.marks import contents, normal
from assay.rows import blocks
from assay.task import Task, TaskError, refuse_unfinished, with_absolute_files
from data_gen.demo.passages import canonical_hash
from data_gen.overlap import Fingerprint, fingerprint, signature, values_of

PARTS = ("contents", "inputs", "references")
_EMPTY = canonical_hash("")
Hashes, Signs = NDArray[np.uint64], NDArray[np.uint16]


@dataclass(frozen=True)
class Lines:
    """Lines of a file, the first of which has this number."""

    path: str
    first: int
    lines: tuple[bytes, ...]


@dataclass(frozen=True)
class Texts:
    """T texts: `owner` (T,) the row of the chunk, `exact` (T,) a hash; `signs` (S, 64) signatures
    of those that are long enough, which are the texts `signed` (S,)."""

    owner: NDArray[np.int64]
    exact: Hashes
    signed: NDArray[np.int64]
    signs: Signs

    @staticmethod
    def of(found: Sequence[tuple[int, int, bytes | None]]) -> Texts:
        """(row, hash, signature if it is long enough) of every text, as arrays."""
        signed = [place for place, (*_, sign) in enumerate(found) if sign is not None]
        return Texts(
            np.array([row for row, *_ in found], dtype=np.int64),
            np.array([exact for _, exact, _ in found], dtype=np.uint64),
            np.array(signed, dtype=np.int64),
            values_of([sign for *_, sign in found if sign is not None]),
        )


@dataclass(frozen=True)
class Prints:
    """What is compared of the R rows of a chunk. `tables`: each distinct table once, `has` (row,
    table) pairs. `document` and `recipe` are "" where a row has none."""

    ids: list[str]
    parts: Mapping[str, Texts]
    tables: list[TableMarks] = field(default_factory=list[TableMarks])
    has: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    documents: list[str] = field(default_factory=list[str])
    recipes: list[str] = field(default_factory=list[str])


def chunks_of(path: Path) -> Iterator[Lines]:
    """A file in pieces of some lines."""
    refuse_unfinished(path)
    for block in blocks([str(path)]):
        yield Lines(str(path), block.number, tuple(block.data.split(b"\n")))


def tasks_in(chunk: Lines) -> Iterator[Task]:
    """The tasks of a chunk of a tasks file or of a benchmark's row file, their files located.
    Raises `TaskError` naming file and line."""
    root = Path(chunk.path).parent
    for number, line in enumerate(chunk.lines, chunk.first):
        where = f"{chunk.path} line {number}"
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise TaskError(f"{where}: not valid JSON ({error})") from None
        if not isinstance(row, dict):
            raise TaskError(f"{where}: wanted a JSON object")
        if "gold" in row:
            yield with_absolute_files(Task.from_json(row, where), root)  # pyright: ignore[reportUnknownArgumentType]
        elif "input_text" in row:
            yield _of_row(row, number)  # pyright: ignore[reportUnknownArgumentType]


def _of_row(row: Mapping[str, Any], number: int) -> Task:
    """A row of the release as a task with what is compared of it."""
    gold: dict[str, Any] = {
        "input_text": row["input_text"],
        "text": row.get("reference_text") or "",
        "operators": row.get("operator_sequence") or [],
    }
    return Task(
        str(row.get("instance_id", number)),
        "refinement",
        str(row.get("source_track", "")),
        "other",
        [],
        gold,
        meta={"document": row.get("source_record_id")},
    )


def prints_of(chunk: Lines) -> Prints:
    """The work of one process. Raises `TaskError` for a row that cannot be read and for a family
    that is not known."""
    said_here: list[tuple[int, int, bytes | None]] = []
    prints: list[tuple[int, Fingerprint]] = []
    made = Prints([], {})
    tables: dict[TableMarks, int] = {}
    for row, task in enumerate(tasks_in(chunk)):
        family_of(task)
        made.ids.append(task.id)
        for content in contents(task):
            if isinstance(content, TableMarks):
                if content:
                    made.has.append((row, tables.setdefault(content, len(tables))))
            elif said := normal(content):
                said_here.append((row, _hash(said), signature(content)))
        print_ = fingerprint(task) if "input_text" in task.gold else None
        if print_ is not None:
            prints.append((row, print_))
        document = task.meta.get("document")
        made.documents.append("" if document is None else str(document))
        made.recipes.append("" if print_ is None else print_.recipe)
    made.tables.extend(tables)
    return Prints(
        made.ids,
        {
            "contents": Texts.of(said_here),
            "inputs": compared(prints, "input"),
            "references": compared(prints, "reference"),
        },
        made.tables,
        made.has,
        made.documents,
        made.recipes,
    )


@lru_cache(maxsize=4096)
def _hash(text: str) -> int:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


def compared(prints: Iterable[tuple[int, Fingerprint]], part: str) -> Texts:
    """The inputs or references (`part`) of rows, but for those without a letter."""
    said = ((row, getattr(one, part), getattr(one, f"{part}_signature")) for row, one in prints)
    return Texts.of([(row, _hash(text), sign) for row, text, sign in said if text != _EMPTY])
