"""An index of rollouts on disk: what strategies ask of each, and where it lies.

A first pass over the files writes the small fields to a temporary database, which SQLite keeps on
disk when it outgrows its cache and which goes with the process. Nothing else of a rollout is held.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any

from assay.console import Progress, licences_in
from assay.rows import Block, blocks
from assay.task import TaskError, parse_object
from data_gen.selection.spool import Spool
from data_gen.selection.strategies import SILENT, UNREADABLE
from rollouts.chats import THOUGHTS, same_words, turns_of

NEEDED = ("task_id", "sample", "outcome", "reward", "track", "tokens", "messages")
CACHE_KIB = 64 * 1024
_FIELDS = (
    "task, run, sample, outcome, track, family, licence, wall_s, tokens, calls, said, tools, "
    "unlearnable, members, file, start, size"
)


@dataclass(frozen=True)
class Place:
    """Where a rollout's line is, and the hash of its tools."""

    file: int
    start: int
    size: int
    tools: bytes


def kept_messages(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every message up to the model's last one: role and content, and where they are there the
    calls, what they are answered by, and what was thought before."""
    messages = [_kept(m) for m in row["messages"]]
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
    return messages


def _kept(message: Mapping[str, Any]) -> dict[str, Any]:
    role, older = str(message["role"]), message.get("function_call")
    kept: dict[str, Any] = {
        "role": "tool" if role == "function" else role,
        "content": str(message.get("content") or ""),
    }
    if calls := message.get("tool_calls") or (older and [{"function": older}]):
        kept["tool_calls"] = [_kept_call(call) for call in calls]
    kept |= {k: str(message[k]) for k in ("tool_call_id", "name") if message.get(k)}
    thoughts = [message[k] for k in THOUGHTS if isinstance(message.get(k), str) and message[k]]
    return kept | ({"reasoning_content": thoughts[0]} if thoughts else {})


def _kept_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """As OpenAI writes one: the arguments are JSON text, so that Arrow cannot mix those of
    different tools."""
    inner: Mapping[str, Any] = call.get("function") or {}
    arguments = inner.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    function = {"name": str(inner.get("name") or ""), "arguments": text}
    return {"id": str(call.get("id") or ""), "type": "function", "function": function}


def unlearnable(messages: Sequence[Mapping[str, Any]]) -> str:
    """Why nothing right can be learned from what the model says in kept messages; "" where it
    can."""
    try:
        turns = [turn for m in messages for turn in turns_of(m, "")]
    except TaskError:
        return UNREADABLE
    return "" if any(turn.says for turn in turns if turn.role == "assistant") else SILENT


def checked(row: Mapping[str, Any], where: str) -> None:
    """Raise `TaskError` naming `where` for a row that is no rollout to train on."""
    for name in NEEDED:
        if name not in row:
            raise TaskError(
                f"{where}: field {name!r} is missing; give a file that `assay rollout` wrote"
            )
    if row.get("published"):
        raise TaskError(
            f"{where}: task {row['task_id']} is a published benchmark task (or its gold is "
            "doubted); select from rollouts of generated tasks, and keep it for `assay eval`"
        )


class Index:
    """The rollouts of some files; use `read` once, then `groups`."""

    def __init__(self) -> None:
        self._base = sqlite3.connect("", isolation_level=None)
        for setting in (f"cache_size=-{CACHE_KIB}", "journal_mode=off", "synchronous=off"):
            self._base.execute(f"PRAGMA {setting}")
        self._base.execute(f"CREATE TABLE rollout ({_FIELDS})")
        self._base.execute(
            "CREATE TABLE kept (number INTEGER PRIMARY KEY, task, track, tools, said, members, "
            "file, start, size, sample)"
        )
        self._runs: dict[tuple[int, str], int] = {}
        self.rows = 0

    def read(self, names: Sequence[str], spool: Spool, bar: Progress) -> list[str]:
        """Index every rollout of the files; returns their SHA-256. Raises `TaskError` naming file,
        line and field, and for a rollout that one run wrote twice."""
        digests: list[str] = []
        before = 0
        self._base.execute("BEGIN")
        for number, name in enumerate(names):
            digest, rows, position = hashlib.sha256(), self.rows, 0
            for block in blocks([name]):
                self._block(number, block, spool.start(number, block))
                position = block.position
                bar.add(self.rows - rows, place=before + position)
                rows = self.rows
            before += position
            for part in spool.stored(number):
                digest.update(part)
            digests.append(digest.hexdigest())
            if not self._base.execute(
                "SELECT 1 FROM rollout WHERE file = ? LIMIT 1", (number,)
            ).fetchone():
                raise TaskError(f"{name}: no rollouts in it")
        self._base.execute("CREATE INDEX by_task ON rollout (task, run, sample)")
        self._base.execute("COMMIT")
        self._refuse_twice(names)
        return digests

    def _block(self, file: int, block: Block, start: int) -> None:
        rows: list[tuple[Any, ...]] = []
        for number, line in enumerate(block.data.split(b"\n"), block.number):
            if line.strip():
                where = f"{block.source} line {number}"
                row = parse_object(line.decode("utf-8", "replace"), where)
                checked(row, where)
                run = self._runs.setdefault((file, repr(row.get("run_seed"))), len(self._runs))
                rows.append((*_small(row, run), file, start, len(line)))
            start += len(line) + 1
        marks = ", ".join("?" * 17)
        self._base.executemany(f"INSERT INTO rollout VALUES ({marks})", rows)
        self.rows += len(rows)

    def _refuse_twice(self, names: Sequence[str]) -> None:
        twice = self._base.execute(
            "SELECT file, task, sample FROM rollout GROUP BY task, run, sample "
            "HAVING count(*) > 1 LIMIT 1"
        ).fetchone()
        if twice:
            raise TaskError(
                f"{names[twice[0]]}: task {_text(twice[1])} has sample {twice[2]} twice; give "
                "each run a --seed and a file of its own"
            )

    def values(self, field: str) -> list[str]:
        """The different tracks, families or licences, sorted."""
        found = self._base.execute(f"SELECT DISTINCT {field} FROM rollout")
        return sorted(_text(value) for (value,) in found)

    def tasks(self) -> int:
        return int(self._base.execute("SELECT count(DISTINCT task) FROM rollout").fetchone()[0])

    def groups(self) -> Iterator[list[dict[str, Any]]]:
        """The rollouts of each task, tasks by id, as the small rows that strategies read.

        Where two runs numbered samples alike, those of later runs get the next free numbers.
        """
        found = self._base.execute(f"SELECT {_FIELDS} FROM rollout ORDER BY task, run, sample")
        for task, rows in groupby(found, key=lambda row: row[0]):
            group: list[dict[str, Any]] = []
            taken = 0
            for _, own in groupby(rows, key=lambda row: row[1]):
                made = [_row(task, taken, row) for row in own]
                taken = max(row["sample"] for row in made) + 1
                group += made
            yield group

    def keep(self, row: Mapping[str, Any], once: bool = False) -> int | None:
        """Note a row of `groups` as kept; returns its number, None with `once` where one that says
        the same is kept already."""
        place: Place = row["place"]
        if once:
            self._base.execute("CREATE INDEX IF NOT EXISTS by_said ON kept (said)")
            same = self._base.execute("SELECT 1 FROM kept WHERE said = ?", (row["said"],))
            if same.fetchone():
                return None
        made = self._base.execute(
            "INSERT INTO kept VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                _bytes(row["task_id"]),
                _bytes(row["track"]),
                place.tools,
                row["said"],
                row["members"],
                place.file,
                place.start,
                place.size,
                row["sample"],
            ),
        )
        return made.lastrowid

    def forget(self, number: int) -> None:
        """Keep a row no longer."""
        self._base.execute("DELETE FROM kept WHERE number = ?", (number,))

    def kept(self, different: str = "number") -> int:
        """How many rows are kept, or how many different values of a field they have."""
        found = self._base.execute(f"SELECT count(DISTINCT {different}) FROM kept")
        return int(found.fetchone()[0])

    def kept_tracks(self) -> dict[str, int]:
        found = self._base.execute("SELECT track, count(*) FROM kept GROUP BY track ORDER BY track")
        return {_text(track): count for track, count in found}

    def kept_members(self) -> set[str]:
        """The fields that messages of kept rows have."""
        found = self._base.execute("SELECT DISTINCT members FROM kept")
        return {name for (members,) in found for name in members.split()}

    def places(self) -> Iterator[tuple[Place, int]]:
        """Where each kept row lies, and its sample number, in the order they were kept."""
        found = self._base.execute(
            "SELECT file, start, size, tools, sample FROM kept ORDER BY number"
        )
        for file, start, size, tools, sample in found:
            yield Place(file, start, size, tools), sample

    def same_tools(self) -> Place | None:
        """A kept row, if all of them offer the same tools; None if they do not or offer none."""
        if self.kept("tools") != 1:
            return None
        place, _ = next(self.places())
        return place if place.tools else None


def _small(row: Mapping[str, Any], run: int) -> tuple[Any, ...]:
    outcome = row["outcome"]
    messages = kept_messages(row)
    why = unlearnable(messages)
    said = json.dumps(messages, sort_keys=True) if why else same_words(messages)
    return (
        _bytes(row["task_id"]),
        run,
        int(row["sample"]),
        None if outcome is None else float(outcome),
        _bytes(row["track"]),
        _bytes(row.get("family")),
        _bytes("\n".join(licences_in(row))),
        float(row.get("wall_s") or 0.0),
        row["tokens"],
        len(row.get("tool_calls") or ()),
        hashlib.sha1(said.encode()).digest(),
        hash_of_tools(row),
        why,
        " ".join(sorted({name for m in messages for name in m})),
    )


def hash_of_tools(row: Mapping[str, Any]) -> bytes:
    """Equal for rows that offer the same tools; empty for a row that offers none."""
    tools = row.get("tools")
    text = json.dumps(tools, sort_keys=True)
    return hashlib.sha1(text.encode()).digest() if tools else b""


def _row(task: bytes, taken: int, found: tuple[Any, ...]) -> dict[str, Any]:
    _, _, sample, outcome, track, family, licence, wall_s, tokens, calls, said = found[:11]
    tools, why, members, file, start, size = found[11:]
    return {
        "task_id": _text(task),
        "sample": taken + sample,
        "outcome": outcome,
        "track": _text(track),
        "family": _text(family),
        "licences": _text(licence).split("\n"),
        "wall_s": wall_s,
        "tokens": tokens,
        "tool_calls": range(calls),
        "said": said,
        "unlearnable": why,
        "members": members,
        "place": Place(file, start, size, tools),
    }


def _bytes(value: object) -> bytes:
    """Text as SQLite sorts and keeps it: lone surrogates too."""
    return str(value).encode("utf-8", "surrogatepass")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


def refuse_unknown(field: str, wanted: Collection[str], there: Sequence[str]) -> None:
    """Raise `TaskError` for a wanted name (or pattern) that no rollout has."""
    named = {name: name.removeprefix("!") for name in wanted}
    if gone := [n for n, bare in named.items() if not any(fnmatchcase(one, bare) for one in there)]:
        raise TaskError(f"no rollout has {field} {gone[0]!r}; there is {', '.join(there)}")
