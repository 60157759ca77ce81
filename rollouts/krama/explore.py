"""A free agent over a lake: list, peek, read and run, until it answers (or its steps run out)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, cast

from assay.task import Task
from rollouts.environment import EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.krama.index import LakeIndex, describe, lines_of, snippet
from rollouts.krama.lake import LakeFolder
from rollouts.tool_calls import ToolCall, ToolSpec
from rollouts.tools import Ran, answer_calls, clip

if TYPE_CHECKING:
    from rollouts.environments import EnvironmentFactory

_LINES_MOST = 10**9  # no file here has more lines
_TEXT, _INT = {"type": "string"}, {"type": "integer"}


def _spec(name: str, about: str, required: list[str], **fields: Any) -> ToolSpec:
    return ToolSpec(name, about, {"type": "object", "properties": fields, "required": required})


TOOLS = (
    _spec(
        "list_files",
        "List the lake's files whose path matches a glob such as *2020*.csv.",
        [],
        pattern=_TEXT,
    ),
    _spec("peek", "Columns, types, odd cells and sample rows of a file.", ["path"], path=_TEXT),
    _spec(
        "read",
        "Lines of a text file, from a line number (1 is the first).",
        ["path"],
        path=_TEXT,
        start=_INT,
        lines=_INT,
    ),
    _spec(
        "run",
        "Run a Python script in a new process; the lake is in the folder data/. Print "
        "what you want to see. Variables are gone afterwards.",
        ["code"],
        code=_TEXT,
    ),
    _spec(
        "final_answer",
        "Hand in the answer, bare: a number, a text or a list. `found` may map "
        "the names of intermediate results to their values.",
        ["answer"],
        answer={"description": "number, text or list"},
        found={"type": "object"},
    ),
)

_RULES = (
    "Work in small steps: look at files before you trust them, run code, check what it printed, "
    "and revise. Expect dirty data. When you are sure, call final_answer once, with the bare "
    "answer, rounded only where the question says so."
)


class LakeAgent:
    """An `Environment` with five tools."""

    def __init__(self, task: Task, seed: int, shop: EnvironmentFactory) -> None:
        self._task = task
        self._lake = LakeFolder(task, seed, shop)
        self._specs = {spec.name: spec for spec in TOOLS}
        self._steps = 0
        self._read_bytes = 0

    async def open(self) -> EpisodeStart:
        await self._lake.open()
        *before, last = self._task.prompt
        index, tokens = self._lake.index, self._lake.settings.snippet_tokens
        shown = snippet(index, tokens // 4, str(last["content"]), rows=0)
        text = f"{last['content']}\n\n{_RULES}\n\nThe lake has {len(index)} files:\n{shown}"
        return EpisodeStart([*before, {"role": "user", "content": text}], TOOLS)

    async def reply(self, said: ModelTurn) -> Reply:
        """Answer every call of the message; a final answer ends the episode."""
        self._steps += 1
        found = await answer_calls(
            said, self._specs, self._run_call, refuse=str, over=lambda: bool(self._lake.response)
        )
        records = [
            {"name": row["name"], "kind": row["kind"], "characters": len(row["answer"])}
            for row in found.records
        ]
        return replace(found, records=records)

    async def close(self) -> EpisodeEnd:
        ended = "answered" if self._lake.response else "no_answer"
        read = self._read_bytes
        return self._lake.close(agent="lake agent", tries=self._steps, bytes_read=read, ended=ended)

    async def _run_call(self, call: ToolCall, arguments: dict[str, Any], left: float) -> Ran:
        before = self._lake.run_s
        text, kind = await self._call(call, arguments, left)
        return Ran(text, kind, self._lake.run_s - before)

    async def _call(
        self, call: ToolCall, arguments: Mapping[str, Any], left: float
    ) -> tuple[str, str]:
        """(what the model sees, `ok` or what went wrong); `left`: seconds that runs may take."""
        if call.name == "run":
            return await self._run(str(arguments["code"]), left)
        if call.name == "final_answer":
            return self._finish(arguments)
        if call.name == "list_files":
            return _listed(self._lake.index, str(arguments.get("pattern", "*"))), "ok"
        name = str(arguments["path"]).removeprefix("./").removeprefix("data/")
        if name not in self._lake.index:
            return f"there is no file {name!r}; list_files shows the names", "no_file"
        if call.name == "peek":
            return describe(name, self._lake.index[name]), "ok"
        if abs(int(arguments.get("start", 1))) > _LINES_MOST:
            return f"argument 'start' must be at most {_LINES_MOST}", "bad_arguments"
        return self._lines(name, arguments), "ok"

    async def _run(self, code: str, left: float) -> tuple[str, str]:
        if left <= 0:
            return "the time for runs is used up", "time_up"
        result = await self._lake.run(code, left)
        self._lake.code.append(code)
        most = self._lake.settings.feedback // 2
        shown = {"stdout": clip(result.stdout, most), "stderr": clip(result.stderr, most)}
        why = {"why": result.why} if result.why else {}
        row = {"status": result.status, **shown, **why}
        return json.dumps(row, ensure_ascii=False), result.status

    def _finish(self, arguments: Mapping[str, Any]) -> tuple[str, str]:
        self._lake.response = {"answer": arguments["answer"]}
        found: Any = arguments.get("found") or {}
        self._lake.values = list(cast("dict[str, Any]", found).values())
        return "received", "ok"

    def _lines(self, name: str, arguments: Mapping[str, Any]) -> str:
        start = max(1, int(arguments.get("start", 1)))
        count = max(1, min(int(arguments.get("lines", 40)), 200))
        note = self._lake.index[name]
        if note.kind not in ("text", "table", "records", "page"):
            return f"{name} is no text; use run with a library that reads it"
        lines = lines_of(self._lake.path / name, note, start, count)
        shown = [line.rstrip("\n")[:500] for line in lines]
        text = "\n".join(f"{start + i}: {line}" for i, line in enumerate(shown))
        self._read_bytes += len(text)
        return clip(text, self._lake.settings.feedback) or f"{name} ends before line {start}"


def _listed(index: LakeIndex, pattern: str) -> str:
    names = [n for n in index if fnmatch(n, pattern) or fnmatch(n.rpartition("/")[2], pattern)]
    shown = [f"data/{n} ({index[n].size} bytes)" for n in names[:200]]
    if len(names) > 200:
        shown.append(f"… and {len(names) - 200} more; give a narrower pattern")
    return "\n".join(shown) or f"no file matches {pattern!r}"
