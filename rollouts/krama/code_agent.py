# smolagents is an extra: where it is absent, a type checker cannot know what comes out of it.
# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false
"""smolagents' CodeAgent as an environment: its own loop and prompts, from its package.

The agent runs in a thread of its own. What it asks its model for becomes a message of the episode,
so that any engine answers it and all of it is counted; its code runs in the sandbox, in one
interpreter, beside the lake or the task's files. Without a web: its tools list and read files.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import math
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.syntax import parse_python
from assay.task import Task, TaskError
from assay.thoughts import answer_after_thoughts
from configs.loader import read_yaml
from rollouts.environment import EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.krama.lake import without_nan
from rollouts.krama.notebook import FINAL, Notebook, output_of
from rollouts.sandbox.model import Result
from rollouts.tool_calls import json_value, too_deep

if TYPE_CHECKING:
    from rollouts.environments import EnvironmentFactory

_SHOWN = "_shown.txt"  # where a cell leaves the value of its last expression
_WORDS = read_yaml(Path(__file__).with_name("words.yaml"))["smolagents"]


# --- what its code may call: sent as source, so each needs the standard library alone ------------


def list_files(pattern: str = "*") -> str:
    """Lists the files whose path or name matches a glob, one a line with their size.

    Args:
        pattern: A glob such as *2020*.csv.
    """
    import fnmatch
    import os

    found: list[str] = []
    for folder, _, names in os.walk("."):
        for name in set(names) - {"main.py", ".stdout", ".stderr"}:
            path = os.path.join(folder, name)[2:]
            if fnmatch.fnmatch(path, pattern) or fnmatch.fnmatch(name, pattern):
                found.append(f"{path} ({os.path.getsize(path)} bytes)")
    more = [f"and {len(found) - 200} more; give a narrower pattern"] if len(found) > 200 else []
    return "\n".join(sorted(found)[:200] + more) or f"no file matches {pattern!r}"


def read_file(path: str, start: int = 1, lines: int = 40) -> str:
    """Reads lines of a text file.

    Args:
        path: The file's path, as list_files shows it.
        start: The number of the first line; 1 is the file's first.
        lines: How many lines, 200 at most.
    """
    import itertools

    first, count = max(1, int(start)), max(1, min(int(lines), 200))
    with open(path, encoding="utf-8", errors="replace") as file:
        part = itertools.islice(file, first - 1, first - 1 + count)
        shown = [f"{first + i}: {line.rstrip()[:500]}" for i, line in enumerate(part)]
    return "\n".join(shown) or f"{path} ends before line {first}"


def final_answer(answer: Any = None) -> None:
    """Hands the answer in and ends the work.

    Args:
        answer: The answer, bare.
    """
    import json

    def plain(value: Any) -> Any:  # numpy's and pandas' values; anything else as its text
        for name in ("tolist", "to_dict"):
            if callable(make := getattr(value, name, None)):
                return make()
        return str(value)

    text = json.dumps(answer, default=plain, skipkeys=True)
    with open("final_answer.json", "w", encoding="utf-8") as file:
        file.write(text)
    raise SystemExit(0)


def prelude() -> str:
    """What every interpreter begins with: the functions that the agent's code may call."""
    parts = [inspect.getsource(f) for f in (list_files, read_file, final_answer)]
    return "\n".join(["from __future__ import annotations", "from typing import Any", *parts])


def question_of(task: Task, notebook: Notebook) -> str:
    """The task as an agent is given it."""
    asked = str(task.prompt[-1]["content"])
    if notebook.lake is not None:
        return _WORDS["lake"].format(question=asked)
    names = ", ".join(name for name, _ in notebook.files())
    return _WORDS["table"].format(question=asked, files=names)


# the conversation that the agent wants a message to; at its end None, or what broke it
Event = list[dict[str, str]] | BaseException | None


class _Stopped(BaseException):
    """The episode is over: the agent's thread ends, whatever it is doing."""


class CodeAgent:
    """An `Environment`. It takes `steps` actions at most; one more message then answers."""

    def __init__(self, task: Task, seed: int, shop: EnvironmentFactory) -> None:
        self._notebook, self._steps = Notebook(task, seed, shop, prelude()), shop.settings.steps
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._stopped = self._answered = False
        self._version, self._messages, self.printed = "", 0, ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seconds = 0.0
        self._records: list[dict[str, Any]] = []
        self._errors: Counter[str] = Counter()

    async def open(self) -> EpisodeStart:
        await self._notebook.open()
        run = self.prepared(question_of(self._notebook.task, self._notebook))
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._work, args=(run,), daemon=True).start()
        return EpisodeStart(await self._wanted() or [])  # no agent ends before it has asked

    async def reply(self, said: ModelTurn) -> Reply:
        """Give the message to the agent; what it asks next, or the end."""
        self._messages += 1
        self._seconds, self._records, self._errors = 0.0, [], Counter()
        self._said.put(answer_after_thoughts(said.text))
        wanted = await self._wanted()
        counted = Reply(records=self._records, errors=self._errors, seconds=self._seconds)
        if wanted is None:
            return replace(counted, done=True)
        return replace(counted, messages=wanted[tail(wanted) :], context=wanted)

    async def close(self) -> EpisodeEnd:
        self._stopped = True
        self._said.put(None)
        return self._notebook.close(f"smolagents CodeAgent {self._version}", self._messages)

    async def _wanted(self) -> list[dict[str, str]] | None:
        """The conversation that goes on, None at the end. Raises what broke the agent."""
        event = await self._events.get()
        if isinstance(event, BaseException):
            raise event
        return event

    # --- in the agent's thread ---------------------------------------------------------------

    def _work(self, run: Callable[[], object]) -> None:
        try:
            said = run()
            if not self._answered:  # out of steps: the message that the agent asked for instead
                self._notebook.answer(str(said))
            self._tell(None)
        except _Stopped:
            return
        except BaseException as error:
            self._tell(error)

    def _tell(self, event: Event) -> None:
        if self._loop is not None and not self._stopped:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def ask(self, messages: list[dict[str, str]]) -> str:
        """The model's message to a conversation."""
        self._tell(messages)
        said = self._said.get()
        if said is None:
            raise _Stopped
        return said

    def run_cell(self, code: str) -> tuple[Any, str, bool]:
        """(value of the last expression or the answer, what was printed, whether it is the answer).
        Raises RuntimeError with what the cell's error says."""
        if self._stopped or self._loop is None:
            raise _Stopped
        shown = showing(code)
        work = self._notebook.run(shown or code, [FINAL, _SHOWN] if shown else [FINAL])
        try:
            result: Result = asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except Exception as error:  # the sandbox broke: no matter of the agent's
            self._tell(error)
            raise _Stopped from None
        self._seconds += result.wall_s
        ended = FINAL in result.files
        kind = "ok" if ended or result.status == "ok" else result.status
        self._records.append({"kind": kind, "seconds": round(result.wall_s, 3)})
        if kind != "ok":
            self._errors[kind] += 1
        self.printed = result.stdout  # also of a cell that failed
        if ended:
            value = read_answer(result.files[FINAL])
            self._answered = True
            self._notebook.answer(value)
            return value, result.stdout, True
        if result.status != "ok":
            raise RuntimeError(output_of(Result("error", stderr=result.stderr, why=result.why)))
        value = result.files.get(_SHOWN, b"").decode("utf-8", "replace") or None
        return value, result.stdout, False

    def step_done(self, step: Any, agent: Any = None) -> None:
        """Count replies in which the agent found no code."""
        if type(getattr(step, "error", None)).__name__ == "AgentParsingError":
            self._errors["no_code"] += 1
            self._records.append({"kind": "no_code"})

    # --- of the package ----------------------------------------------------------------------

    def prepared(self, question: str) -> Callable[[], object]:
        """The agent, ready to be run on a question. Raises `TaskError` without the package."""
        try:
            import smolagents
            from smolagents import models
            from smolagents.agents import CodeAgent
            from smolagents.local_python_executor import CodeOutput, PythonExecutor
            from smolagents.tools import tool
        except ImportError:
            raise TaskError(
                "krama.agent=smolagents: the package is not installed; install the extra `agents` "
                "(pip install 'smolagents>=1.26,<2')"
            ) from None
        self._version = str(smolagents.__version__)
        outer = self

        class Model(models.Model):
            """The episode's model."""

            def generate(
                self,
                messages: list[Any],
                stop_sequences: list[str] | None = None,
                response_format: dict[str, str] | None = None,
                tools_to_call_from: list[Any] | None = None,
                **_: Any,
            ) -> Any:
                rows = models.get_clean_message_list(
                    messages, models.tool_role_conversions, flatten_messages_as_text=True
                )
                said = outer.ask([_plain(row) for row in rows])
                cut = models.remove_content_after_stop_sequences(said, stop_sequences)
                return models.ChatMessage(role=models.MessageRole.ASSISTANT, content=cut)

        class Executor(PythonExecutor):
            """The sandbox."""

            @property
            def state(self) -> Mapping[str, Any]:
                return {"_print_outputs": outer.printed}

            def send_tools(self, tools: Mapping[str, Any]) -> None:
                """They are in the interpreter already."""

            def send_variables(self, variables: Mapping[str, Any]) -> None:
                """There are none."""

            def __call__(self, code_action: str) -> Any:
                value, logs, final = outer.run_cell(code_action)
                return CodeOutput(output=value, logs=logs, is_final_answer=final)

        agent = CodeAgent(
            tools=[tool(list_files), tool(read_file)],
            model=Model(),
            executor=Executor(),
            additional_authorized_imports=["*"],
            max_steps=self._steps,
            step_callbacks=[self.step_done],
            verbosity_level=smolagents.LogLevel.OFF,
        )
        return functools.partial(agent.run, question)


def _plain(row: Mapping[str, Any]) -> dict[str, str]:
    role = row["role"]
    return {"role": str(getattr(role, "value", role)), "content": str(row["content"])}


def showing(code: str) -> str | None:
    """The code, which also leaves the value of its last expression in a file, as the package's own
    remote interpreters show it; None for code that ends in no expression."""
    try:
        body = parse_python(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not body or not isinstance(last := body[-1], ast.Expr):
        return None
    if isinstance(last.value, ast.Starred):
        return None  # no expression by itself
    lines = [line.encode() for line in code.splitlines(keepends=True)]
    end = last.end_lineno or last.lineno
    if last.col_offset and lines[last.lineno - 1][: last.col_offset].strip():
        return None  # behind a semicolon
    before, after = b"".join(lines[: last.lineno - 1]), b"".join(lines[end:])
    value = b"".join(lines[last.lineno - 1 : end]).strip().rstrip(b";")
    shown = f"""
with open({_SHOWN!r}, "w", encoding="utf-8", errors="replace") as __assay_file:
    __assay_file.write("" if __assay_value is None else str(__assay_value))
"""
    return (before + b"__assay_value = (" + value + b"\n)\n" + after).decode() + shown


def read_answer(data: bytes) -> Any:
    """The answer that the interpreter left; its text where it is none that can be scored."""
    text = data.decode("utf-8", "replace")
    value = json_value(text, text[:10_000])
    if too_deep(value):
        return text[:10_000]
    return without_nan(value) if not isinstance(value, float) or math.isfinite(value) else None


def tail(messages: Sequence[Mapping[str, str]]) -> int:
    """Where what follows the model's last message begins."""
    return max((i + 1 for i, m in enumerate(messages) if m["role"] == "assistant"), default=0)
