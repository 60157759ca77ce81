"""The types everything else moves around: a task that carries its gold, an answer, and a score; and
the seeds of what is drawn for them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from assay.errors import TaskError
from assay.files import UNFINISHED
from assay.rows import json_line as json_line
from assay.rows import json_text as json_text
from assay.rows import parse_object as parse_object
from assay.rows import read_rows, write_rows

Message = dict[str, str]
write_jsonl = write_rows


class MachineError(TaskError):
    """The machine failed, not the request: the same command may well end. Exit status 1."""


class SavedAndStopped(Exception):
    """A run was asked to stop and has saved its state. `status`: what its command exits with, 75,
    or 130 where somebody interrupted it."""

    status = 75


@dataclass(frozen=True)
class Task:
    """One problem with the answer a program computed for it.

    `family` names the kind of task, which decides how it is scored (`assay/family.py`).
    `prompt` is a chat (list of `{"role", "content"}`), `tools` the names of tools the model may
    call, `gold` whatever the family's scorer needs, `files` what a sandbox may see (name → path),
    `group` the order group the task belongs to, `meta` domain, licence, source, difficulty.
    """

    id: str
    family: str
    track: str
    split: str
    prompt: list[Message]
    gold: dict[str, Any]
    tools: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict[str, str])
    group: str | None = None
    meta: dict[str, Any] = field(default_factory=dict[str, Any])

    def to_json(self) -> dict[str, Any]:
        """Plain data; `Task.from_json(task.to_json()) == task` and the key order is fixed."""
        return {name: getattr(self, name) for name in _FIELDS} | {"tools": list(self.tools)}

    @staticmethod
    def from_json(row: Mapping[str, Any], where: str = "task") -> Task:
        """Read one row. Raises `TaskError` naming `where` and the field that is wrong."""
        for name, kind in _FIELDS.items():
            value = row.get(name)
            if name not in row and name in _NEEDED:
                raise TaskError(f"{where}: field {name!r} is missing; every task needs it")
            if not isinstance(value, kind) and (value is not None or name in _NEEDED):
                got = type(value).__name__
                raise TaskError(f"{where}: field {name!r} is {got}, wanted {_KINDS[kind]}")
        words = [("tools", i, word) for i, word in enumerate(row.get("tools") or ())]
        words += [("files", name, path) for name, path in (row.get("files") or {}).items()]
        for name, place, word in words:
            if not isinstance(word, str):
                got = type(word).__name__
                raise TaskError(f"{where}: field {name!r}[{place!r}] is {got}, wanted text")
        return Task(
            id=row["id"],
            family=row["family"],
            track=row["track"],
            split=row["split"],
            prompt=[
                _message(m, f"{where}: field 'prompt'[{i}]") for i, m in enumerate(row["prompt"])
            ],
            gold=dict(row["gold"]),
            tools=tuple(row.get("tools") or ()),
            files=dict(row.get("files") or {}),
            group=row.get("group"),
            meta=dict(row.get("meta") or {}),
        )

    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON, without `split`: the same problem hashes the same."""
        row = {k: v for k, v in self.to_json().items() if k != "split"}
        text = json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_NEEDED = ("id", "family", "track", "split", "prompt", "gold")
# in the order of the row that `to_json` makes
_FIELDS: dict[str, type] = {
    **dict.fromkeys(("id", "family", "track", "split"), str),
    "prompt": list,
    "tools": list,
    "gold": dict,
    "files": dict,
    "group": str,
    "meta": dict,
}
_KINDS: dict[type, str] = {str: "text", list: "a list", dict: "an object"}


def _message(value: Any, where: str) -> Message:
    """One message of a chat: an object whose role and content are text."""
    if not isinstance(value, dict):
        got = type(value).__name__
        raise TaskError(f'{where} is {got}, wanted a message {{"role": …, "content": …}}')
    message = cast("dict[str, Any]", value)
    for name in ("role", "content"):
        if not isinstance(message.get(name), str):
            got = "missing" if name not in message else type(message[name]).__name__
            raise TaskError(f"{where}: its {name} is {got}, wanted text")
    return dict(message)


# from here an outcome counts as right: one that is computed may fall short of 1 by a rounding
RIGHT = 1 - 1e-9


@dataclass(frozen=True)
class Answer:
    """What an episode hands in.

    `text` is the model's last message, `truncated` whether that was cut off by a token limit,
    `files` what the environment collected (name to bytes), and `failure` why the *infrastructure*
    broke; with one, there is no outcome, whatever else is here.
    """

    text: str = ""
    truncated: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    failure: str | None = None


@dataclass(frozen=True)
class Score:
    """How good an answer is, and why.

    `outcome` is the benchmark's own metric in [0, 1], or None when the scorer or the
    infrastructure failed (never a wrong answer). `reward` is the shaped number RL sees; it is
    None exactly when `outcome` is. `parts` are its named components.
    """

    outcome: float | None
    reward: float | None
    parts: dict[str, float] = field(default_factory=dict[str, float])
    why: str = "ok"

    @staticmethod
    def of(right: bool) -> Score:
        """1 for a right answer and 0 for a wrong one, as outcome and as reward."""
        return Score(float(right), float(right), {}, "ok" if right else "wrong")

    def to_json(self) -> dict[str, Any]:
        names = ("outcome", "reward", "parts", "why")
        return {name: getattr(self, name) for name in names}


def unscored(why: str) -> Score:
    """The scorer or the infrastructure failed: no outcome, which is not a wrong answer."""
    return Score(None, None, {}, why)


def read_tasks(path: str | Path) -> list[Task]:
    """All tasks of a file (`assay.rows`), in order. Raises `TaskError` naming file, line and field,
    and for a file of a build that was killed while it replaced an older one."""
    refuse_unfinished(path)
    return [Task.from_json(row, where) for where, row in read_rows(path)]


def with_absolute_files(task: Task, root: Path) -> Task:
    """Make the paths in `task.files` absolute, in a copy of the task. `root` is the folder of the
    tasks file, where relative paths start; nothing is opened."""
    if not task.files:
        return task
    return replace(task, files={n: str((root / p).resolve()) for n, p in task.files.items()})


def with_relative_files(task: Task, home: Path) -> Task:
    """The task with every file named relative to the folder of its tasks file, which can then be
    moved together with what it names."""
    here = os.path.realpath(home)
    files = {n: os.path.relpath(os.path.realpath(p), here) for n, p in task.files.items()}
    return replace(task, files=files)


def refuse_unfinished(path: str | Path) -> None:
    """Raise `TaskError` when `path`, a folder or a file below one, belongs to a build that was
    killed while its files took the places of older ones."""
    place = Path(path).absolute()
    for folder in (place, place.parent, place.parent.parent):
        if (folder / UNFINISHED).exists():
            raise TaskError(
                f"{folder}: a build was killed while it put its files here, so they may be of two "
                "builds; run the same `assay tasks` command again"
            )


# in `Task.meta` of a task that came without its gold: `assay push --without-gold`
GOLD_LEFT_OUT = "gold_left_out"


def refuse_without_gold(tasks: Iterable[Task], where: str | Path) -> None:
    """Raise `TaskError` for a task that came without its gold: answers can be taken, not scored."""
    for task in tasks:
        if task.meta.get(GOLD_LEFT_OUT):
            raise TaskError(
                f"{where}: task {task.id} came without its gold; take answers to it with "
                "`assay rollout`, and have them scored by whoever pushed the set"
            )


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed from named parts such as (run seed, task id, sample, turn): from what is being
    sampled, never from when.

    The same parts give the same seed in every process and Python version; parts are joined
    with a separator that cannot occur in a decimal number, so ("a", 1) and ("a1",) differ.
    """
    text = "\x1f".join(f"{type(p).__name__}:{p}" for p in parts)
    return (
        int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
        >> 1
    )
