"""The rollouts that `assay select` reads, on disk, and those that it keeps as a training set.

One pass puts them into a temporary database, which SQLite keeps on disk when it outgrows its cache
and which goes with the process. Lines are kept compressed, so that nothing is read twice.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from assay.console import Progress, licences_in
from assay.files import atomic_write
from assay.rows import Block, blocks, is_parquet, library, stored, write_groups, write_rows
from assay.task import TaskError, parse_object
from rollouts.chats import THOUGHTS, same_words, turns_of

UNREADABLE = "has a tool call that cannot be read"
SILENT = "says nothing"
NEEDED = ("task_id", "sample", "outcome", "reward", "track", "tokens", "messages")
# `kept.number` is the order in which rows are written; texts may hold half characters: bytes
_TABLES = """
PRAGMA cache_size=-65536;
PRAGMA journal_mode=off;
PRAGMA synchronous=off;
CREATE TABLE rollout (
    number INTEGER PRIMARY KEY, file, run, task, sample, track, said, tools, members, facts, line
);
CREATE TABLE kept (number INTEGER PRIMARY KEY, rollout, sample, rank);
"""
_KEPT = "kept JOIN rollout ON kept.rollout = rollout.number"


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


def _refuse(row: Mapping[str, Any], where: str) -> None:
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


class Store:
    """The rollouts of some files; use `read` once, then `groups` and `keep`."""

    def __init__(self) -> None:
        self._base = sqlite3.connect("", isolation_level=None)
        self._base.executescript(_TABLES)
        self._runs: dict[tuple[int, str], int] = {}
        self.rows = self.tasks = 0
        self.tracks, self.families = set[str](), set[str]()

    def read(self, names: Sequence[str], bar: Progress) -> list[str]:
        """Take every rollout of the files; returns their SHA-256. Raises `TaskError` naming file,
        line and field, and for a rollout that one run wrote twice."""
        digests: list[str] = []
        before = 0
        self._base.execute("BEGIN")
        for file, name in enumerate(names):
            rows, position = self.rows, 0
            for block in blocks([name]):
                added = self._block(file, block)
                position = block.position
                bar.add(added, place=before + position)
            before += position
            if self.rows == rows:
                raise TaskError(f"{name}: no rollouts in it")
            with stored(name) as data:
                digest = hashlib.sha256()
                while part := data.read(1 << 20):
                    digest.update(part)
            digests.append(digest.hexdigest())
        self._base.execute("CREATE INDEX by_task ON rollout (task, run, sample)")
        self._base.execute("COMMIT")
        twice = self._base.execute(
            "SELECT file, task, sample FROM rollout GROUP BY task, run, sample "
            "HAVING count(*) > 1 LIMIT 1"
        ).fetchone()
        if twice:
            raise TaskError(
                f"{names[twice[0]]}: task {_text(twice[1])} has sample {twice[2]} twice; give "
                "each run a --seed and a file of its own"
            )
        found = self._base.execute("SELECT count(DISTINCT task) FROM rollout")
        self.tasks = int(found.fetchone()[0])
        return digests

    def _block(self, file: int, block: Block) -> int:
        rows: list[tuple[Any, ...]] = []
        for number, line in enumerate(block.data.split(b"\n"), block.number):
            if line.strip():
                where = f"{block.source} line {number}"
                row = parse_object(line.decode("utf-8", "replace"), where)
                _refuse(row, where)
                run = self._runs.setdefault((file, repr(row.get("run_seed"))), len(self._runs))
                rows.append((file, run, *self._columns(row), zlib.compress(line, 1)))
        self._base.executemany(
            "INSERT INTO rollout VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        self.rows += len(rows)
        return len(rows)

    def _columns(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        messages, tools = kept_messages(row), row.get("tools")
        why = unlearnable(messages)
        said = json.dumps(messages, sort_keys=True) if why else same_words(messages)
        facts: dict[str, Any] = {
            "task_id": str(row["task_id"]),
            "outcome": None if row["outcome"] is None else float(row["outcome"]),
            "track": str(row["track"]),
            "family": str(row.get("family")),
            "licences": licences_in(row),
            "wall_s": float(row.get("wall_s") or 0.0),
            "tokens": row["tokens"],
            "calls": len(row.get("tool_calls") or ()),
            "unlearnable": why,
        }
        self.tracks.add(facts["track"])
        self.families.add(facts["family"])
        return (
            _bytes(facts["task_id"]),
            int(row["sample"]),
            _bytes(facts["track"]),
            _hash(said),
            _hash(json.dumps(tools, sort_keys=True)) if tools else None,
            " ".join(sorted({name for m in messages for name in m})),
            json.dumps(facts),
        )

    def groups(self) -> Iterator[list[dict[str, Any]]]:
        """The rollouts of each task, tasks by id, as the small rows that strategies read.

        Where two runs numbered samples alike, those of later runs get the next free numbers.
        """
        found = self._base.execute(
            "SELECT task, run, sample, number, file, said, facts FROM rollout "
            "ORDER BY task, run, sample"
        )
        for _, rows in groupby(found, key=lambda row: row[0]):
            group: list[dict[str, Any]] = []
            taken = 0
            for _, own in groupby(rows, key=lambda row: row[1]):
                for _, _, sample, number, file, said, facts in own:
                    about = {"number": number, "file": file, "said": said}
                    group.append(json.loads(facts) | about | {"sample": taken + sample})
                taken = group[-1]["sample"] + 1
            yield group

    def keep(self, row: Mapping[str, Any], rank: int = 0) -> None:
        """Note a row of `groups` as kept; `rank`: its place among those of its track."""
        self._base.execute(
            "INSERT INTO kept VALUES (NULL, ?, ?, ?)", (row["number"], row["sample"], rank)
        )

    def thin(self, of: str, order: str, most: int) -> int:
        """Of the kept rows with one value of `of` leave the first `most` by `order`; returns how
        many went."""
        return self._base.execute(
            f"DELETE FROM kept WHERE number IN (SELECT number FROM (SELECT kept.number, "
            f"row_number() OVER (PARTITION BY {of} ORDER BY {order}) AS place FROM {_KEPT}) "
            "WHERE place > ?)",
            (most,),
        ).rowcount

    def kept(self, what: str = "kept.number") -> list[tuple[Any, int]]:
        """(value, rows) of each different value that kept rows have."""
        found = self._base.execute(f"SELECT {what}, count(*) FROM {_KEPT} GROUP BY 1 ORDER BY 1")
        return [(_text(value) if isinstance(value, bytes) else value, n) for value, n in found]

    def kept_rows(self) -> Iterator[dict[str, Any]]:
        """The kept rollouts, each under its number over all runs, in the order they were kept."""
        found = self._base.execute(f"SELECT line, kept.sample FROM {_KEPT} ORDER BY kept.number")
        for line, sample in found:
            text = zlib.decompress(line).decode("utf-8", "replace")
            yield parse_object(text, "rollout") | {"sample": sample}

    def same_tools(self) -> Any:
        """The tools of the kept rows, if all of them offer the same ones; else None."""
        alike = len(self.kept("hex(tools)")) == 1
        return next(self.kept_rows()).get("tools") if alike else None


def _hash(text: str) -> bytes:
    return hashlib.sha1(text.encode()).digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


# --- kept rows as a training set: parquet, a row group at a time, or JSON lines

GROUP_ROWS = 1024  # of a row group
GROUP_TOKENS = 2 << 20  # or as many tokens


def write_training_set(
    rows: Iterable[Mapping[str, Any]],
    path: Path,
    tools: Sequence[Any] | None,
    members: Collection[str] = (),
) -> int:
    """One row a kept rollout, in the form that the name says; returns how many.

    `tools` are those of all rows, where all have the same ones. In parquet they stay nested, as
    verl wants them, where Arrow gives back what was written; it gives all structs of a list the
    same members, so that two tools would get each other's arguments. Else they are JSON text, which
    TRL reads as well. `members`: the fields that messages have; those nobody has get no column.
    """
    if not is_parquet(path):
        return write_rows(path, (_written(row, nested=True) for row in rows))
    arrow = library()
    nested = _nested_type(arrow, tools)
    call = {"id": "string", "type": "string", "function": {"name": "string", "arguments": "string"}}
    message: dict[str, Any] = {"role": "string", "content": "string"}
    more = {"tool_calls": [call]} | dict.fromkeys(
        ("tool_call_id", "name", "reasoning_content"), "string"
    )
    message |= {name: kind for name, kind in more.items() if name in members}
    columns = {
        **{"task_id": "string", "track": "string", "sample": "int64"},
        **{"outcome": "float64", "reward": "float64", "messages": [message]},
        **{"tools": "string" if nested is None else nested, "ids": ["int32"]},
        **{"loss_mask": ["int8"], "tokenizer": "string", "marks": ["int64"]},
        "licences": ["string"],
    }
    made = (_written(row, nested is not None) for row in rows)
    with atomic_write(path) as out:
        return write_groups(out, columns, _groups(made))


def _written(row: Mapping[str, Any], nested: bool) -> dict[str, Any]:
    """The fields of a row; the tools as they are where they are nested, else as JSON text."""
    tools: list[Any] = row.get("tools") or []
    return {
        "task_id": str(row["task_id"]),
        "track": str(row["track"]),
        "sample": int(row["sample"]),
        "outcome": float(row["outcome"]),
        "reward": float(row["reward"]),
        "messages": kept_messages(row),
        "tools": tools if nested else json.dumps(tools, ensure_ascii=False),
        "ids": list(row.get("ids") or ()),
        "loss_mask": list(row.get("loss_mask") or ()),
        "tokenizer": str(row.get("tokenizer") or ""),
        "marks": list(row.get("marks") or ()),
        "licences": list(licences_in(row)),
    }


def _nested_type(arrow: Any, tools: Sequence[Any] | None) -> Any:
    """The Arrow type that holds `tools` as they are; None where there is none."""
    if not tools or "{}" in json.dumps(tools):  # parquet has no empty struct
        return None
    try:
        made = arrow.array([tools])
    except arrow.ArrowException:  # a list of numbers and texts, say
        return None
    return made.type if made.to_pylist() == [tools] else None


def _groups(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    tokens = 0
    for row in rows:
        group.append(row)
        tokens += len(row["ids"])
        if len(group) >= GROUP_ROWS or tokens >= GROUP_TOKENS:
            yield group
            group, tokens = [], 0
    if group:
        yield group
