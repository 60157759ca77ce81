"""An index of a whole lake, kept by content, and a snippet of it that fits a token budget.

Files are looked at once; what was found is stored under the content's hash, and a file whose
size, time and inode are unchanged is not even read again. Many files that are alike (a year or a
station each) are shown as one group, so that a lake of thousands still fits.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from rollouts.krama.scan import FileNote, scan
from rollouts.machine import cache_folder

VERSION = 2  # of what `scan` finds; another number makes every note anew
CHARS_A_TOKEN = 3.5  # a cautious mean over tables; budgets are upper bounds in this measure


@dataclass(frozen=True)
class LakeIndex:
    """Every file of a lake with what it holds, sorted by path. `read` counts the files whose
    content had to be read this time."""

    files: dict[str, FileNote]
    read: int = 0


def _store(folder: Path) -> sqlite3.Connection:
    folder.mkdir(parents=True, exist_ok=True)
    store = sqlite3.connect(folder / "lakes.sqlite", timeout=60)
    with suppress(sqlite3.OperationalError):  # another process is at the same; its mode serves us
        store.execute("PRAGMA journal_mode=WAL")
    store.execute("PRAGMA synchronous=OFF")  # a cache: what is lost is found again
    store.execute("CREATE TABLE IF NOT EXISTS seen (path TEXT PRIMARY KEY, stat TEXT, hash TEXT)")
    store.execute("CREATE TABLE IF NOT EXISTS notes (hash TEXT PRIMARY KEY, note TEXT)")
    return store


def index_lake(folder: Path, cache: Path | None = None) -> LakeIndex:
    """Look at every file below `folder`. Raises OSError for a folder that cannot be read."""
    root = os.path.realpath(folder)
    found = sorted(os.path.join(at, name) for at, _, names in os.walk(root) for name in names)
    files: dict[str, FileNote] = {}
    read = 0
    with closing(_store(cache or cache_folder())) as store, store:
        prefix = root + os.sep
        rows = store.execute(
            "SELECT seen.path, stat, seen.hash, note FROM seen JOIN notes USING (hash) "
            "WHERE seen.path >= ? AND seen.path < ?",
            (prefix, prefix + "\U0010ffff"),
        )
        known = {path: (stat, note) for path, stat, _, note in rows}
        for path in found:
            info = os.stat(path)
            stat = f"{VERSION} {info.st_size} {info.st_mtime_ns} {info.st_ino}"
            old = known.get(path)
            if old is None or old[0] != stat:
                note = _look(store, Path(path), stat)
                read += 1
            else:
                note = old[1]
            files[os.path.relpath(path, root).replace(os.sep, "/")] = FileNote.from_json(
                json.loads(note)
            )
    return LakeIndex(files, read)


def _look(store: sqlite3.Connection, path: Path, stat: str) -> str:
    with open(path, "rb") as file:
        content = hashlib.file_digest(file, "blake2b").hexdigest()[:40]
    digest = f"{VERSION}-{path.suffix.lower()}-{content}"
    row = store.execute("SELECT note FROM notes WHERE hash = ?", (digest,)).fetchone()
    note = str(row[0]) if row else json.dumps(scan(path).to_json())
    store.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (digest, note))
    store.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (str(path), stat, digest))
    return note


@dataclass(frozen=True)
class Group:
    """Files that differ by numbers in the name alone and hold the same columns."""

    pattern: str
    names: tuple[str, ...]
    note: FileNote


def groups(index: LakeIndex) -> list[Group]:
    """The lake's files in groups, in order of their first file."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, note in index.files.items():
        head, _, tail = name.rpartition("/")
        pattern = re.sub(r"\d+", "#", head) + "/" + re.sub(r"\d+", "#", tail)
        key = (pattern.lstrip("/"), note.kind, *(c.name for c in note.columns))
        found.setdefault(key, []).append(name)
    return [Group(key[0], tuple(names), index.files[names[0]]) for key, names in found.items()]


def title(group: Group) -> str:
    """One line on a group: names, kind, size, rows, and how to read it."""
    if len(group.names) == 1:
        name = f"data/{group.names[0]}"
    elif len(group.names) <= 3:
        name = ", ".join(f"data/{n}" for n in group.names)
    else:
        ends = f"data/{group.names[0]} … data/{group.names[-1]}"
        name = f"{len(group.names)} files data/{group.pattern} ({ends})"
    note = group.note
    size = f"{note.size / 1e6:.1f} MB" if note.size > 99_999 else f"{note.size / 1e3:.1f} kB"
    text = f"{name}: {note.kind}, {size}"
    if note.rows is not None:
        text += f", {note.rows} rows"
    if note.kind == "table" and note.header > 1:
        text += f", column names in line {note.header}"
    if note.delimiter == "\t":
        text += ", separated by tabs"
    if note.encoding not in ("", "utf-8"):
        text += f", encoding {note.encoding}"
    return text + (f", sheets: {', '.join(note.parts)}" if note.parts else "")


def _schema(note: FileNote, most: int) -> str:
    shown: list[str] = []
    for column in note.columns[:most]:
        text = f"{column.name or '(no name)'}: {column.kind}"
        extra = [column.note] if column.note else []
        extra += [f"{column.missing} empty"] if column.missing else []
        extra += [f"also {', '.join(column.odd)}"] if column.odd else []
        shown.append(text + (f" ({'; '.join(extra)})" if extra else ""))
    if len(note.columns) > most:
        shown.append(f"and {len(note.columns) - most} more columns")
    return "  columns: " + " | ".join(shown) if shown else ""


def describe(name: str, note: FileNote) -> str:
    """Everything an index knows of one file, within a few thousand characters."""
    lines = [title(Group(name, (name,), note)), _schema(note, 80)]
    lines += [f"  {row[:300]}" for row in note.head]
    return "\n".join(line for line in lines if line)


def _words(text: str) -> set[str]:
    return {w for w in re.findall(r"[a-z]{3,}|\d{4}", text.lower()) if w not in ("the", "and")}


def snippet(
    index: LakeIndex,
    budget: int,
    question: str = "",
    rows: int = 3,
    heads: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """A description of the lake of at most `budget` tokens (about; see CHARS_A_TOKEN).

    First every group's name, then columns with their types and odd cells, then up to `rows`
    sample rows; groups that share words with the question come first in line for the budget.
    The text is ordered by file name. `heads` are rows by file, where more are shown than an index
    keeps (rollouts/krama/more_rows.py).
    """
    room = int(budget * CHARS_A_TOKEN) - 40  # for the line that counts what is left out
    wanted = _words(question)
    listed = groups(index)
    rank = sorted(
        range(len(listed)),
        key=lambda i: (-len(wanted & _words(" ".join(_spoken(listed[i])))), i),
    )
    lines: list[list[str]] = [[] for _ in listed]

    def add(place: int, text: str) -> None:
        nonlocal room
        if text and len(text) + 1 <= room:
            lines[place].append(text)
            room -= len(text) + 1

    for place in rank:
        add(place, title(listed[place]))
    for most in (12, 60):
        for place in rank:
            note = listed[place].note
            if most == 12 or (len(note.columns) > 12 and len(lines[place]) == 2):
                text = _schema(note, most)
                if most == 60 and len(text) - len(lines[place][1]) <= room:
                    room += len(lines[place].pop()) + 1
                if lines[place]:
                    add(place, text)
    for number in range(rows):
        for place in rank:
            head = (heads or {}).get(listed[place].names[0], listed[place].note.head)
            if number < len(head) and lines[place]:
                add(
                    place,
                    f"  {'row' if listed[place].note.columns else 'line'}: {head[number][:300]}",
                )
    shown = [line for block in lines for line in block]
    left = sum(len(g.names) for g, block in zip(listed, lines, strict=True) if not block)
    if left:
        shown.append(f"… and {left} more files")
    return "\n".join(shown)


def _spoken(group: Group) -> Sequence[str]:
    return [
        group.names[0].replace("_", " "),
        *(c.name.replace("_", " ") for c in group.note.columns),
    ]
