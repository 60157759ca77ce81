"""A list of tools as an environment: calls are checked, run under a deadline, and answered."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import json
import math
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rollouts.context import Context
from rollouts.environment import EnvironmentFailure, EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.sandbox.errors import SandboxError
from rollouts.tool_calls import ToolCall
from rollouts.tools import Tool

TOOL_CALLS = "tool_calls.json"  # among the files to score: every call and what it returned
_REPORT = 8_000  # characters of a traceback that are kept, its end
_BROKEN = (EnvironmentFailure, SandboxError)


class Overtime(BaseException):
    """Ends a thread whose tool ran too long; no `Exception`, so that the tool cannot catch it."""


class Toolbox:
    """An `Environment` over tools of one's own.

    Calls of a message run in order. What a tool returns is the answer: text as it is, anything
    else as JSON. What it raises is an error to the model and a bug report in the record, never the
    end of the episode; only a broken sandbox is.
    """

    def __init__(self, tools: Sequence[Tool], context: Context, output_kb: int = 64) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._context, self._most = context, output_kb * 1024
        self._calls: list[dict[str, Any]] = []

    async def open(self) -> EpisodeStart:
        return EpisodeStart(self._context.task.prompt, [tool.spec for tool in self._tools.values()])

    async def reply(self, said: ModelTurn) -> Reply:
        """Answer every call of the message, until the tools' seconds are used up."""
        messages: list[dict[str, Any]] = []
        records: list[dict[str, Any]] = []
        errors: Counter[str] = Counter()
        spent = 0.0
        for call in said.calls:
            started = time.perf_counter()
            answer, kind, report = await self._answer(call, said.seconds - spent)
            took = time.perf_counter() - started
            spent += took
            if kind != "ok":
                errors[kind] += 1
            messages.append({"role": "tool", "name": call.name or "unknown", "content": answer})
            row = {"name": call.name, "arguments": call.arguments, "answer": answer, "kind": kind}
            self._calls.append(row)
            records.append({**row, "seconds": round(took, 6), **report})
            if self._context.finished:
                break
        return Reply(messages, self._context.finished, records, errors, spent)

    async def close(self) -> EpisodeEnd:
        """The files that tools left, and every call as JSON."""
        files = await asyncio.to_thread(self._context.close)
        if self._calls:
            said = json.dumps(self._calls, ensure_ascii=False)
            files.setdefault(TOOL_CALLS, said.encode("utf-8", "surrogatepass"))
        notes = {"sandbox": self._context.level} if self._context.level else {}
        return EpisodeEnd(files, notes)

    async def _answer(self, call: ToolCall, left: float) -> tuple[str, str, dict[str, str]]:
        """(what the model sees, `ok` or what went wrong, a bug report)."""
        if call.error:
            return f"error: {call.error}", "bad_call", {}
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools)
            return f"error: there is no tool {call.name!r}; use {known}", "unknown_tool", {}
        arguments, problem = tool.fitted({**call.arguments, **call.spelled})
        if problem:
            return f"error: {problem}", "bad_arguments", {}
        if left <= 0:
            return "error: the time for tools is used up", "time_up", {}
        if tool.context:
            arguments[tool.context] = self._context
        seconds = min(self._context.run_s, left)
        try:
            return self._clip(_worded(await _run(tool, arguments, seconds))), "ok", {}
        except _BROKEN:
            raise
        except TimeoutError as error:
            if error.args[:1] != (_LATE,):
                return self._bug(error)
            return f"error: {tool.name} did not end within {seconds:g} s", "timeout", {}
        except (Exception, SystemExit) as error:
            return self._bug(error)

    def _bug(self, error: BaseException) -> tuple[str, str, dict[str, str]]:
        report = "".join(traceback.format_exception(error))[-_REPORT:]
        said = self._clip(f"error: {type(error).__name__}: {error}")
        return said, "tool_error", {"bug": report}

    def _clip(self, text: str) -> str:
        if len(text) <= self._most:
            return text
        return f"{text[: self._most]}\n… {len(text) - self._most} characters left out"


_LATE = "the tool's deadline"


async def _run(tool: Tool, arguments: dict[str, Any], seconds: float) -> Any:
    """The tool's result. Raises what it raises, and TimeoutError(_LATE) past the deadline."""
    bound: float | None = None if math.isinf(seconds) else seconds
    limit = asyncio.timeout(bound)
    try:
        async with limit:
            if inspect.iscoroutinefunction(tool.function):
                return await tool.function(**arguments)
            return await _in_thread(partial(tool.function, **arguments))
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(_LATE) from None
        raise


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Run a plain function in a thread that neither blocks the loop nor the end of the process.

    A cancellation stops it between two bytecodes; one that waits inside C is left behind.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((result, error))

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    thread = threading.Thread(target=work, name="assay-tool", daemon=True)
    thread.start()
    try:
        result, error = await done
    except asyncio.CancelledError:
        _stop(thread)
        raise
    if error is not None:
        raise error
    return result


def _stop(thread: threading.Thread) -> None:
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(Overtime)
        )


def _worded(result: Any) -> str:
    """What the model sees of a result."""
    if isinstance(result, str):
        return result
    if result is None:
        return "done"
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(result)
