"""The first map: read documents, find what they activate, keep their facts and pack their texts."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.console import Progress
from assay.files import atomic_write
from assay.workers import WorkerPool
from data_gen.cdr.inputs import group_of
from data_gen.cdr.records import active_mappers
from data_gen.cdr.sources import Found, Row, class_of, found_in, is_licensed, record_of
from data_gen.cdr.stages.arrays import Array, save_arrays
from data_gen.cdr.stages.documents import key_of
from data_gen.cdr.stages.facts import facts_of, mappers_of
from data_gen.cdr.stages.parts import LONG, UNLICENSED, USED, Columns
from data_gen.cdr.stages.work import Work, opened

CHUNK = 32  # documents of one job
Job = tuple[Path, int, list[tuple[Row, int, int, int]]]  # folder, part, (row, state, piece, number)


@dataclass(frozen=True)
class Scanned:
    """A chunk of a part: its columns, and the packed rows and hash keys of its documents."""

    part: int
    columns: dict[str, Array]
    texts: list[bytes]
    keys: list[bytes]
    groups: list[tuple[str, str]]  # class of documents, licence


def scan_shard(work: Work, shard: int, crew: WorkerPool) -> None:
    """Write the facts of a shard; parts that are there already are kept."""
    if work.is_done("facts", shard):
        return
    folder = work.stage("facts", shard)
    folder.mkdir(parents=True, exist_ok=True)
    reader = _Reader(work, shard)
    packed = any(piece.source.is_packed for piece in reader.pieces)
    total = 0 if packed else sum(piece.stop - piece.start for piece in reader.pieces)
    waiting: list[Scanned] = []
    with Progress("facts", "documents") as progress:
        for scanned in crew.map(scan_chunk, reader.jobs(progress, total)):
            if waiting and scanned.part != waiting[0].part:
                reader.write(waiting)
                waiting = []
            waiting.append(scanned)
        if waiting:
            reader.write(waiting)
    reader.write_last()
    work.finish("facts", shard, reader.record())


class _Reader:
    """Goes through a shard's rows, hands out those of parts that are not there yet."""

    def __init__(self, work: Work, shard: int) -> None:
        self._work, self._folder = work, work.stage("facts", shard)
        self.pieces = work.pieces(shard)
        self.counts: list[int] = []
        self._problems: dict[int, list[dict[str, str]]] = {}

    def _path(self, part: int) -> Path:
        return self._folder / f"{part:05d}.facts"

    def jobs(self, progress: Progress, total: int) -> Iterator[Job]:
        places = {id(piece): number for number, piece in enumerate(self.pieces)}
        chunk: list[tuple[Row, int, int, int]] = []
        part, seen, length = 0, 0, 0
        config = self._work.config
        for found in found_in(self.pieces, config.fields, config.encoding):
            if found.row is None:
                self._problems.setdefault(part, []).append(asdict(found.left()))
                continue
            if len(self.counts) <= part:
                self.counts.append(0)
            self.counts[part] += 1
            seen += 1
            length += len(found.row["text"])
            if not self._path(part).is_file():
                chunk.append((*self._judged(found), places[id(found.piece)], found.number))
            if chunk and (len(chunk) == CHUNK or self.counts[part] == self._work.part):
                yield self._work.folder, part, chunk
                chunk = []
            if seen % CHUNK == 0:
                progress.add(CHUNK, seen * total // length)
            if self.counts[part] == self._work.part:
                part += 1
        if chunk:
            yield self._work.folder, part, chunk
        progress.add(seen % CHUNK)

    def _judged(self, found: Found) -> tuple[Row, int]:
        """The row and its state; of what is not used the text's length stays, not the text."""
        row = found.row or {}
        config = self._work.config
        licensed = is_licensed(row, config.licences)
        long = len(row["text"]) > config.instances.max_text_length
        if licensed and not long:
            return row, USED
        short = {name: value for name, value in row.items() if name != "text"}
        return short | {"chars": len(row["text"])}, LONG if licensed else UNLICENSED

    def write(self, chunks: list[Scanned]) -> None:
        """The files of a part: texts first, the columns say that it is whole."""
        part = chunks[0].part
        path = self._path(part)
        texts = [text for chunk in chunks for text in chunk.texts]
        keys = [key for chunk in chunks for key in chunk.keys]
        with atomic_write(path.with_suffix(".texts")) as out:
            out.writelines(texts)
        names = chunks[0].columns
        columns = {name: np.concatenate([c.columns[name] for c in chunks]) for name in names}
        groups = [group for chunk in chunks for group in chunk.groups]
        named = list(dict.fromkeys(groups))
        codes = {group: code for code, group in enumerate(named)}
        left = json.dumps(self._problems.get(part, [])).encode()
        arrays = columns | {
            "text_at": np.cumsum([0, *map(len, texts)], dtype=np.int64),
            "key_at": np.cumsum([0, *map(len, keys)], dtype=np.int64),
            "keys": np.frombuffer(b"".join(keys), np.uint8),
            "left": np.frombuffer(left, np.uint8),
            "group": np.array([codes[group] for group in groups], np.int32),
            "groups": np.frombuffer(json.dumps(named).encode(), np.uint8),
        }
        save_arrays(path, arrays)

    def write_last(self) -> None:
        """A part of problems alone, where rows without a document end a shard."""
        part = len(self.counts)
        if self._problems.get(part):
            self.counts.append(0)
            self.write([scan_chunk((self._work.folder, part, []))])

    def record(self) -> dict[str, Any]:
        return {"counts": self.counts, "pieces": len(self.pieces)}


def scan_chunk(job: Job) -> Scanned:
    folder, part, rows = job
    config = opened(folder).config
    mappers = mappers_of(config)
    records = [
        record_of(
            row | {"text": row.get("text", "")},
            active_mappers(row["text"], config.scan_profile, mappers) if state == USED else [],
            config.domains,
        )
        for row, state, _, _ in rows
    ]
    facts = facts_of(records, config)
    lengths = [row.get("chars", len(row.get("text", ""))) for row, *_ in rows]
    keys = [key_of(record) for record in records]
    return Scanned(
        part,
        {name: getattr(facts, name) for name in Columns}
        | {
            "chars": np.array(lengths, np.int64),
            "state": np.array([state for _, state, _, _ in rows], np.uint8),
            "ident": np.array([_ident(name) for name, _ in keys], np.uint64),
            "id_length": np.array([len(name) for name, _ in keys], np.int32),
            "piece": np.array([piece for _, _, piece, _ in rows], np.int32),
            "number": np.array([number for _, _, _, number in rows], np.int64),
        },
        [zlib.compress(json.dumps(row).encode(), 1) for row, *_ in rows],
        [key for _, key in keys],
        [
            (group_of(record) if state == USED else class_of(row), record.licence)
            for record, (row, state, _, _) in zip(records, rows, strict=True)
        ],
    )


def _ident(name: bytes) -> int:
    return int.from_bytes(hashlib.sha1(name).digest()[:8], "little")
