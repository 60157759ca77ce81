"""DARE-bench's code tool: every call a fresh process in a fresh folder, files kept by name.

Spec section 5. The episode owns a work folder (in memory): it begins with the task's files, a call
loads what it lists from there and saves what it lists back. What fails before the code runs, and
everything the code prints, comes back as the tool's answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, cast

from rewards.seeds import derive_seed
from rewards.task import Task
from rollouts.call_arguments import fitting
from rollouts.environment import (
    Closing,
    EnvironmentFailure,
    ExecutorSettings,
    Opening,
    Reply,
    Said,
)
from rollouts.sandbox.model import MIB, Limits, Result
from rollouts.sandbox.pool import Pool
from rollouts.sandbox.session import FileStore
from rollouts.tools import ToolCall, ToolSpec

NAME = "python_executor"
PREDICTION = "prediction.csv"
_STATUS = {"ok": "Finished", "error": "Finished", "timeout": "TimeLimitExceeded"}


def tool_spec(settings: ExecutorSettings) -> ToolSpec:
    """The schema as the model sees it."""
    names = {"type": "array", "items": {"type": "string"}}
    strict = {"required": ["code", "files_to_load", "files_to_save"], "additionalProperties": False}
    if settings.brief:
        fields: dict[str, Any] = {
            "code": {"type": "string"},
            "files_to_load": names,
            "files_to_save": names,
        }
        return ToolSpec(NAME, "Run Python.", {"type": "object", "properties": fields, **strict})
    fields = {
        "code": {"type": "string", "description": "A Python script. Print what you want to see."},
        "files_to_load": {
            **names,
            "description": "Names of files in the work folder that the script opens; each "
            "is copied beside it before it starts. No other file is there.",
        },
        "files_to_save": {
            **names,
            "description": "Names of files the script writes that are to be kept in the "
            "work folder, for later calls or as the result.",
        },
    }
    about = (
        "Run a Python script in a new process and an empty folder. Variables and files that are "
        f"not saved are gone afterwards. At most {settings.run_s:g} seconds a run, "
        f"{settings.file_mb} MB a file, {settings.uses} uses in this conversation."
    )
    return ToolSpec(NAME, about, {"type": "object", "properties": fields, **strict})


class PythonExecutor:
    """An `Environment`: the work folder, and the runs in the sandbox."""

    def __init__(
        self,
        task: Task,
        seed: int,
        pool: Callable[[], Pool],
        load: Callable[[Task], Mapping[str, bytes]],
        settings: ExecutorSettings,
    ) -> None:
        self._task, self._seed, self._pool, self._load = task, seed, pool, load
        self._settings = settings
        self._spec = tool_spec(settings)
        self._inputs: Mapping[str, bytes] = {}
        self._saved = FileStore()
        self._calls = 0
        self._last = "none"  # how the last call went
        self._level: str | None = None  # of the sandbox

    async def open(self) -> Opening:
        self._inputs = self._load(self._task)
        self._saved = FileStore(
            file_mb=self._settings.file_mb,
            total_mb=self._settings.folder_mb,
        )
        return Opening(self._task.prompt, [self._spec])

    async def reply(self, said: Said) -> Reply:
        """Run every call of the message in order; no call ends the episode."""
        messages: list[dict[str, Any]] = []
        records: list[dict[str, Any]] = []
        errors: Counter[str] = Counter()
        seconds = 0.0
        for call in said.calls:
            answer, kind, took = await self._call(call, said.seconds - seconds)
            seconds += took
            self._last = kind
            if kind != "ok":
                errors[kind] += 1
            messages.append({"role": "tool", "name": NAME, "content": answer})
            records.append(
                {
                    "name": call.name,
                    "arguments": call.arguments,
                    "answer": answer,
                    "kind": kind,
                    "seconds": round(took, 6),
                }
            )
        return Reply(messages, False, records, errors, seconds)

    async def close(self) -> Closing:
        """The prediction, if there is one, and what a failure category needs to know."""
        files = {n: d for n, d in self._folder().items() if n == PREDICTION}
        self._inputs, self._saved = {}, FileStore()
        notes = {"last_call": self._last, "calls": self._calls, "sandbox": self._level}
        return Closing(files, notes)

    def _folder(self) -> Mapping[str, bytes]:
        """The work folder: what was saved, before the inputs of the same name."""
        return {**self._inputs, **self._saved.files}

    async def _call(self, call: ToolCall, left: float) -> tuple[str, str, float]:
        """(answer, kind, seconds): kind is `ok`, or what went wrong; `left`: seconds to run."""
        self._calls += 1
        if call.error:
            return _refusal(call.error), "bad_call", 0.0
        if call.name != NAME:
            return _refusal(f"there is no tool {call.name!r}; use {NAME}"), "unknown_tool", 0.0
        arguments, problem = fitting(self._spec, call)
        if problem:
            return _refusal(problem), "bad_arguments", 0.0
        load = cast("list[str]", arguments["files_to_load"])
        save = cast("list[str]", arguments["files_to_save"])
        if problem := self._file_problem(load, save):
            return _refusal(problem), "bad_files", 0.0
        if left <= 0:
            return _refusal("the time for tools is used up"), "time_up", 0.0
        folder = self._folder()
        result = await self._pool().run(
            str(arguments["code"]),
            {n: folder[n] for n in load},
            fetch=list(dict.fromkeys(save)),
            limits=self._limits(left),
            seed=derive_seed(self._seed, self._calls) % (1 << 32),
        )
        self._level = result.layers.get("level") or self._level
        if result.status == "sandbox_error":
            raise EnvironmentFailure(f"sandbox: {result.why}")
        fetched = {n: result.files[n] for n in save if n in result.files}
        refused = self._saved.add(fetched)
        lines = [_kept(name, refused.get(name, "")) for name in fetched]
        kind = {"ok": "ok", "error": "run_error"}.get(result.status, result.status)
        return _answer(result, lines), kind, result.wall_s

    def _file_problem(self, load: list[str], save: list[str]) -> str:
        for name in [*load, *save]:
            if "/" in name or "\\" in name or "\0" in name or name in ("", ".", ".."):
                return f"{name!r} is not a bare file name; give names without a folder"
            if any("\ud800" <= c <= "\udfff" for c in name):
                return f"{name!r} holds a lone surrogate; give names that UTF-8 can hold"
            if len(name.encode("utf-8", "replace")) > 255 or name == "main.py":
                return f"{name[:60]!r} cannot be used as a file name here"
        folder = self._folder()
        for name in load:
            if name not in folder:
                return f"file {name!r} is not in the work folder"
            if len(folder[name]) > self._settings.file_mb * MIB:
                return f"file {name!r} is larger than {self._settings.file_mb} MB"
        return ""

    def _limits(self, left: float) -> Limits:
        mb = self._settings.file_mb
        return Limits(
            wall_s=min(self._settings.run_s, left),
            file_mb=mb,
            fetch_mb=mb,
            fetch_total_mb=self._settings.folder_mb,
            work_mb=max(1024, 8 * mb),
            output_kb=self._settings.output_kb,
        )


def _refusal(why: str) -> str:
    return json.dumps({"Error": why}, ensure_ascii=False)


def _kept(name: str, problem: str) -> str:
    how = f"not saved: {problem}." if problem else "saved successfully."
    return f"File {name} {how}\n"


def _answer(result: Result, lines: list[str]) -> str:
    """The run as JSON; its time is left out, so that equal runs have equal answers."""
    out = result.stdout if not lines or result.stdout[-1:] in ("", "\n") else result.stdout + "\n"
    err = result.stderr
    status = _STATUS.get(result.status, "Error")
    if status != "Finished" and result.why:
        err = f"{err.rstrip()}\n{result.why}".lstrip()
    row = {
        "status": status,
        "return_code": result.exit_code,
        "stdout": out + "".join(lines),
        "stderr": err,
    }
    return json.dumps(row, ensure_ascii=False)
