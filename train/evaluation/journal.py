# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The journal of an evaluation: every finished episode is on disk, and a killed run goes on.

`rows.jsonl` has a line an answer; `eval.json` says what was asked and how. A folder that holds
another evaluation is refused. Answers without an outcome are not kept: they are asked again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rewards.files import write_bytes
from rewards.journal import Appender, end_journal, key_of, read_journal, rewrite_journal
from rewards.task import Task, TaskError, json_text
from train.evaluation.identity import digest

Row = dict[str, Any]
ROWS, RECORD = "rows.jsonl", "eval.json"


class Journal:
    """`with Journal(out, tasks, settings) as journal`: `done` are the rows of an earlier start,
    `write` keeps one more."""

    def __init__(self, out: Path, tasks: Sequence[Task], settings: Mapping[str, Any]) -> None:
        self.path = out / ROWS
        record: dict[str, Any] = {
            "settings": dict(settings),
            "tasks": digest(tasks),
            "count": len(tasks),
        }
        begun = _read_record(out / RECORD)
        if begun is None and self.path.is_file():
            raise TaskError(f"{self.path} belongs to no evaluation; give another --out")
        if begun is not None and not (self.path.is_file() and self.path.stat().st_size):
            begun = None  # it ended before its first answer
        if begun is not None:
            refuse_other(out, begun, json.loads(json_text(record)))
        out.mkdir(parents=True, exist_ok=True)
        if begun is None:
            write_bytes(out / RECORD, json_text(record, indent=1))
        self._record = record if begun is None else dict(begun)
        self._place = out / RECORD
        rows = [row for row in read_journal(self.path) if row.get("outcome") is not None]
        self.done = {key_of(row, self.path): row for row in rows}

    def __enter__(self) -> Journal:
        self._rows = Appender(self.path).__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rows.__exit__(kind, error, trace)

    def write(self, row: Row) -> None:
        """Keep a row that has an outcome."""
        if row["outcome"] is not None:
            self._rows.add([row])

    def note(self, about: Mapping[str, str]) -> None:
        """Keep what answers now: a run that goes on may meet another version or number format."""
        before = self.answered_by
        if dict(about) not in before:
            self._record["answered_by"] = [*before, dict(about)]
            write_bytes(self._place, json_text(self._record, indent=1))

    @property
    def answered_by(self) -> list[dict[str, str]]:
        """What has answered in this and earlier starts, each once."""
        return list(self._record.get("answered_by") or [])

    def finish(self, rows: Sequence[Row]) -> None:
        """All rows in the tasks' order, in place of the order in which they came."""
        rewrite_journal(self.path, rows)
        end_journal(self.path)


def _read_record(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        return None
    except ValueError:
        raise TaskError(f"{path}: not valid JSON; give another --out") from None


def refuse_other(
    out: Path, begun: Mapping[str, Any], now: Mapping[str, Any], option: str = "--out"
) -> None:
    """Raises `TaskError` where a folder holds an evaluation with other settings or, if `now` names
    them, of other tasks."""
    old, new = begun.get("settings") or {}, now["settings"]
    changed = sorted(k for k in {*old, *new} if old.get(k) != new.get(k))
    if changed:
        told = ", ".join(f"{k}{_from_to(old.get(k), new.get(k))}" for k in changed)
        raise TaskError(
            f"{out} holds an evaluation with another {told}; put it back to go on, or give another "
            f"{option}"
        )
    if "tasks" in now and begun.get("tasks") != now["tasks"]:
        raise TaskError(
            f"{out} holds answers to other tasks ({begun.get('count')} there, {now['count']} "
            f"here); give another {option}"
        )


def _from_to(old: Any, new: Any) -> str:
    """ " (was embedded, is vllm)", for what can be said in a few words."""
    was, now = (str(value) for value in (old, new))
    return f" (was {was}, is {now})" if len(was) + len(now) < 60 and was and now else ""
