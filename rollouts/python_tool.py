"""DARE-bench's code tool: every call a fresh process in a fresh folder, files kept by name.

Spec section 5. The episode owns a work folder (in memory): it begins with the task's files, a call
loads what it lists from there and saves what it lists back. What fails before the code runs, and
everything the code prints, comes back as the tool's answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.task import Message, Task, derive_seed
from configs.loader import ConfigError
from rollouts.environment import EnvironmentFailure, EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.sandbox.model import MIB, Result
from rollouts.sandbox.pool import FileStore
from rollouts.tool_calls import ToolCall, ToolSpec, object_schema
from rollouts.tools import TIME_UP, Ran, Refused, answer_calls
from rollouts.words.templates import Kind, Slot, Words, ours

if TYPE_CHECKING:
    from rollouts.environments import EnvironmentFactory, ToolSettings

NAME = "python_executor"
PREDICTION = "prediction.csv"
ARGUMENTS = ("code", "files_to_load", "files_to_save")
_SAVED = "saved successfully."
_STATUS = {"ok": "Finished", "error": "Finished", "timeout": "TimeLimitExceeded"}

KIND = Kind(
    NAME,
    {
        "system": Slot(),
        "user": Slot((), ("question",)),
        "tool": Slot(("seconds", "megabytes", "uses")),
        **{name: Slot() for name in ARGUMENTS},
        "brief": Slot(),
        "strict": Slot(),
    },
    Path(__file__).with_suffix(".yaml"),
)


def words_of(settings: ToolSettings) -> Words:
    """The words that the tool is told in."""
    return settings.words.get(NAME) or ours(KIND)


def tool_spec(settings: ToolSettings) -> ToolSpec:
    """The schema as the model sees it. Raises `ConfigError` for `brief` in words without it."""
    words = words_of(settings)
    if settings.brief:
        if not words["brief"]:
            raise ConfigError("brief: these words have no short description; leave brief out")
        return ToolSpec(NAME, words["brief"], parameters({}))
    bounds = {"seconds": f"{settings.run_s:g}", "megabytes": settings.file_mb}
    about = words.fill("tool", **bounds, uses=settings.uses)
    shape = parameters({name: words[name] for name in ARGUMENTS})
    return ToolSpec(NAME, about, shape, strict=bool(words["strict"]))


def parameters(said: Mapping[str, str]) -> dict[str, Any]:
    """The JSON schema of the tool's arguments, with what is said of each, if anything."""
    text, names = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
    fields = {
        name: {**shape, **({"description": said[name]} if said.get(name) else {})}
        for name, shape in zip(ARGUMENTS, (text, names, names), strict=True)
    }
    return object_schema(fields, ARGUMENTS)


def first_messages(task: Task, words: Words) -> list[Message]:
    """The task's messages in these words: its last one is the question."""
    *before, last = task.prompt
    said = [*before, {**last, "content": words.fill("user", question=last["content"])}]
    if words["system"] and said[0]["role"] != "system":
        said = [{"role": "system", "content": words["system"]}, *said]
    return said


class PythonExecutor:
    """An `Environment`: the work folder, and the runs in the sandbox."""

    def __init__(self, task: Task, seed: int, shop: EnvironmentFactory) -> None:
        self._task, self._seed, self._shop, self._settings = task, seed, shop, shop.settings
        self._spec = tool_spec(shop.settings)
        self._inputs: Mapping[str, bytes] = {}
        self._saved = FileStore({}, shop.settings.file_mb, shop.settings.folder_mb)
        self._calls = 0
        self._last = "none"  # how the last call went
        self._level: str | None = None  # of the sandbox

    async def open(self) -> EpisodeStart:
        self._inputs = self._shop.files(self._task)
        return EpisodeStart(first_messages(self._task, words_of(self._settings)), [self._spec])

    async def reply(self, said: ModelTurn) -> Reply:
        """Run every call of the message in order; no call ends the episode."""
        found = Reply()
        for call in said.calls:
            self._calls += 1  # a run's seed depends on it
            one = replace(said, calls=[call], seconds=said.seconds - found.seconds)
            made = await answer_calls(one, {NAME: self._spec}, self._run, refuse=_refusal)
            self._last = str(made.records[0]["kind"])
            found = found.then(made)
        return replace(found, messages=[{**m, "name": NAME} for m in found.messages])

    async def close(self) -> EpisodeEnd:
        """The prediction, if there is one, and what a failure category needs to know."""
        files = {n: d for n, d in self._folder().items() if n == PREDICTION}
        self._inputs, self._saved.files = {}, {}
        notes = {"last_call": self._last, "calls": self._calls, "sandbox": self._level}
        return EpisodeEnd(files, notes)

    def _folder(self) -> Mapping[str, bytes]:
        """The work folder: what was saved, before the inputs of the same name."""
        return {**self._inputs, **self._saved.files}

    async def _run(self, call: ToolCall, arguments: dict[str, Any], left: float) -> Ran:
        load: list[str] = arguments["files_to_load"]
        save: list[str] = arguments["files_to_save"]
        if problem := self._file_problem(load, save):
            raise Refused("bad_files", problem)
        if left <= 0:
            raise Refused("time_up", TIME_UP)
        folder = self._folder()
        result = await self._shop.pool().run(
            str(arguments["code"]),
            {n: folder[n] for n in load},
            fetch=list(dict.fromkeys(save)),
            limits=self._settings.limits(min(self._settings.run_s, left)),
            seed=derive_seed(self._seed, self._calls) % (1 << 32),
        )
        self._level = result.layers.get("level") or self._level
        if result.status == "sandbox_error":
            raise EnvironmentFailure(f"sandbox: {result.why}")
        fetched = {n: result.files[n] for n in save if n in result.files}
        refused = self._saved.add(fetched)
        lines = [
            f"File {name} {f'not saved: {refused[name]}.' if name in refused else _SAVED}\n"
            for name in fetched
        ]
        kind = {"ok": "ok", "error": "run_error"}.get(result.status, result.status)
        return Ran(_answer(result, lines), kind, result.wall_s)

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


def _refusal(why: str) -> str:
    return json.dumps({"Error": why}, ensure_ascii=False)


def _answer(result: Result, lines: list[str]) -> str:
    """The run as JSON; its time is left out, so that equal runs have equal answers."""
    out = result.stdout if not lines or result.stdout[-1:] in ("", "\n") else result.stdout + "\n"
    err = result.stderr
    status = _STATUS.get(result.status, "Error")
    if status != "Finished" and result.why:
        err = f"{err.rstrip()}\n{result.why}".lstrip()
    streams = {"stdout": out + "".join(lines), "stderr": err}
    row = {"status": status, "return_code": result.exit_code, **streams}
    return json.dumps(row, ensure_ascii=False)
