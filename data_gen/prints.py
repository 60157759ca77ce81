"""What a check compares of every row of a file of tasks, as numbers, streamed in chunks.

A chunk is worked out by itself (by a worker process), and keeps 136 bytes a text: a 64-bit hash of
what it says and a MinHash signature. Ids, documents and recipes stay as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.rows import blocks
from data_gen.demo.passages import canonical_hash
from data_gen.overlap import PERMUTATIONS, fingerprint, signature
from rewards.families import family_of
from rewards.laws import contents, normal
from rewards.mixing import spread
from rewards.table_marks import TableMarks
from rewards.task import Task, TaskError, refuse_unfinished, with_absolute_files

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
    texts: dict[str, _Texts] = {part: _Texts() for part in PARTS}
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
                texts["contents"].add(row, _hash(said), signature(content))
        print_ = fingerprint(task) if "input_text" in task.gold else None
        if print_ is not None:
            texts["inputs"].add(row, _hash(print_.input), print_.input_signature, print_.input)
            one = print_.reference
            texts["references"].add(row, _hash(one), print_.reference_signature, one)
        document = task.meta.get("document")
        made.documents.append("" if document is None else str(document))
        made.recipes.append("" if print_ is None else print_.recipe)
    made.tables.extend(tables)
    return Prints(
        made.ids,
        {part: found.packed() for part, found in texts.items()},
        made.tables,
        made.has,
        made.documents,
        made.recipes,
    )


@lru_cache(maxsize=4096)
def _hash(text: str) -> int:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


class _Texts:
    """Texts of one part while a chunk is read."""

    def __init__(self) -> None:
        self._owner: list[int] = []
        self._exact: list[int] = []
        self._signed: list[int] = []
        self._signs: list[bytes] = []

    def add(self, row: int, exact: int, sign: bytes | None, said: str = "") -> None:
        if said == _EMPTY:  # no letter in it
            return
        if sign is not None:
            self._signed.append(len(self._owner))
            self._signs.append(sign)
        self._owner.append(row)
        self._exact.append(exact)

    def packed(self) -> Texts:
        whole = np.frombuffer(b"".join(self._signs), dtype="<u8").reshape(-1, PERMUTATIONS)
        return Texts(
            np.asarray(self._owner, dtype=np.int64),
            np.asarray(self._exact, dtype=np.uint64),
            np.asarray(self._signed, dtype=np.int64),
            # 16 bits of each: spread, for the low bits of two products may agree for ever
            spread(whole).astype(np.uint16),
        )
