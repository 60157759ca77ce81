"""An interpreter that an agent works in cell by cell, beside what its task is about: a lake as the
folder `data/`, or the task's own files."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.task import Task, derive_seed
from rollouts.environment import EnvironmentFailure, EpisodeEnd
from rollouts.krama import LAKE
from rollouts.krama.cell_loop import OUTPUTS
from rollouts.krama.lake import OUTPUT_KB, LakeFolder
from rollouts.python_tool import PREDICTION
from rollouts.sandbox.model import MIB, Limits, Result, SandboxError
from rollouts.sandbox.pool import Pool
from rollouts.sandbox.transfer import join

if TYPE_CHECKING:
    from rollouts.environments import EnvironmentFactory


_LOOP = Path(__file__).with_name("cell_loop.py").read_bytes()
FINAL = "final_answer.json"  # where a cell leaves an answer
_DAY_S = 24 * 3600.0


class Interpreter:
    """A Python in the sandbox whose variables stay from cell to cell: one call of `Pool.run`, which
    gets its cells through a socket. `prelude` is its first cell; `shared` is as in `Pool.run`.

    A cell that runs out of time or memory, or leaves, ends it.
    """

    def __init__(
        self,
        pool: Pool,
        files: Mapping[str, bytes],
        limits: Limits,
        seed: int,
        shared: Mapping[str, str] | None = None,
        prelude: str = "",
    ) -> None:
        self._pool, self._limits, self._shared = pool, limits, shared
        self._files, self._seed, self._prelude = files, seed, prelude
        self._half = max(1, limits.output_kb * 512)
        self._call: asyncio.Task[Result] | None = None
        self.ended = False

    async def run(self, code: str, fetch: Sequence[str] = ()) -> Result:
        """Run a cell in its `__main__`; SandboxError when the interpreter could not be had."""
        async with self._pool.turn:
            if self._call is None:
                self._call = await self._start()
            began = time.monotonic()
            try:
                result, self.ended = _read(await self._cell(self._call, code, fetch), fetch)
            except (LookupError, OSError, ValueError, TypeError, RecursionError):
                result, self.ended = await self._end(self._call), True
            took = time.monotonic() - began
        return replace(result, wall_s=took, layers=(await self._pool.report()).short())

    async def _start(self) -> asyncio.Task[Result]:
        ours, theirs = socket.socketpair()
        most = 2 * MIB + 2 * self._limits.fetch_total_mb * MIB
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=most)
        run = self._pool.run(
            _LOOP,
            self._files,
            (*OUTPUTS, PREDICTION, FINAL),
            replace(self._limits, wall_s=_DAY_S, cpu_s=_DAY_S),
            self._seed,
            stdin=theirs,
            shared=self._shared,
        )
        call = asyncio.create_task(run)
        call.add_done_callback(lambda _: theirs.close())
        if not await self._line(call, None):
            raise SandboxError((await call).why)
        if self._prelude:
            await self._cell(call, self._prelude, ())
        return call

    async def _cell(self, call: asyncio.Task[Result], code: str, fetch: Sequence[str]) -> bytes:
        most = self._limits.fetch_mb * MIB
        asked = {"code": code, "fetch": [*fetch], "half": self._half, "most": most}
        self._writer.write(json.dumps(asked).encode() + b"\n")
        return await self._line(call, self._limits.wall_s)

    async def _line(self, call: asyncio.Task[Result], most_s: float | None) -> bytes:
        """The interpreter's next line; nothing when it has ended or takes longer than `most_s`."""
        line = asyncio.ensure_future(self._reader.readline())
        await asyncio.wait({line, call}, timeout=most_s, return_when="FIRST_COMPLETED")
        if call.done():
            await asyncio.wait({line}, timeout=1)
        if not line.done():
            line.cancel()
            return b""
        return line.result()

    async def _end(self, call: asyncio.Task[Result]) -> Result:
        """How an interpreter ended that gave no answer to its cell, or none that can be read."""
        late = not call.done()
        self._writer.close()
        result = await call
        shown = [result.files.get(name, b"") for name in OUTPUTS]
        out, err = (join(d[: self._half], d[self._half :][-self._half :], len(d)) for d in shown)
        why = f"still running after {self._limits.wall_s:g} s" if late else result.why
        return replace(result, stdout=out, stderr=err + result.stderr, why=why)

    def close(self) -> None:
        """End the interpreter and all it started."""
        if self._call is not None:
            self._call.cancel()
            self._writer.close()


def _read(line: bytes, fetch: Sequence[str]) -> tuple[Result, bool]:
    """What a line tells of its cell, and whether that ended the interpreter. Raises ValueError,
    LookupError or TypeError for one that the loop did not write."""
    told = json.loads(line)
    status, files = int(told["status"]), dict[str, str | None](told["files"])
    out, err = (
        join(base64.b64decode(head), base64.b64decode(tail), int(size))
        for head, tail, size in (told["out"], told["err"])
    )
    return Result(
        "error" if status else "ok",
        status,
        stdout=out,
        stderr=err,
        files={n: base64.b64decode(d) for n, d in files.items() if n in fetch and d is not None},
        why=f"exit status {status}" if status else "",
    ), bool(told["ended"])


class Notebook:
    """Variables stay from cell to cell; a cell that runs out of time or memory ends them all.
    `prelude` is code that every interpreter begins with.

    Of a task with files the prediction is kept as the last cell left it, of a task with a lake the
    answer that the agent hands in.
    """

    def __init__(self, task: Task, seed: int, shop: EnvironmentFactory, prelude: str = "") -> None:
        self.task, self._seed, self._shop = task, seed, shop
        self.lake = LakeFolder(task, seed, shop) if LAKE in task.files else None
        self.settings = settings = shop.settings
        seconds = settings.lake_run_s if self.lake else settings.run_s
        self._limits = settings.limits(seconds, OUTPUT_KB if self.lake else 0)
        self._files: Mapping[str, bytes] = {}
        self._names: list[tuple[Path, int]] = []
        self._interpreter: Interpreter | None = None
        self._prelude = prelude
        self._prediction: bytes | None = None
        self._answer: dict[str, Any] = {}
        self._runs, self._run_s, self._last = 0, 0.0, "none"
        self._level: str | None = None
        self._code: list[str] = []

    async def open(self) -> None:
        """Look at the files, and be ready for a first cell."""
        if self.lake is not None:
            await self.lake.open(indexed=False)
            below = self.lake.path.rglob("*")
            self._names = sorted((p, p.stat().st_size) for p in below if p.is_file())
        else:
            self._files = self._shop.files(self.task)

    def files(self) -> list[tuple[str, int]]:
        """(path as a cell opens it, bytes) of every file that the task brings."""
        if self.lake is None:
            return sorted((name, len(data)) for name, data in self._files.items())
        home = self.lake.path
        return [(f"data/{p.relative_to(home).as_posix()}", size) for p, size in self._names]

    def restart(self) -> None:
        """Forget all variables and all files that cells made."""
        if self._interpreter is not None:
            self._interpreter.close()
        self._interpreter = self._prediction = None

    async def run(self, code: str, fetch: Sequence[str] = ()) -> Result:
        """Run a cell of the agent's. Raises `EnvironmentFailure` when the sandbox broke."""
        lost = self._interpreter is not None and self._interpreter.ended
        if self._interpreter is None or lost:
            seed = derive_seed(self._seed, self._runs) % (1 << 32)
            shared = self.lake.shared if self.lake is not None else None
            self._interpreter = Interpreter(
                self._shop.pool(), self._files, self._limits, seed, shared, self._prelude
            )
        wanted = list(fetch) if self.lake is not None else [*fetch, PREDICTION]
        try:
            result = await self._interpreter.run(code, wanted)
        except SandboxError as error:
            raise EnvironmentFailure(f"sandbox: {error}") from None
        self._level = str(result.layers.get("level") or self._level)
        self._run_s += result.wall_s
        if result.status == "sandbox_error":
            raise EnvironmentFailure(f"sandbox: {result.why}")
        if lost:
            note = "the interpreter had ended: this cell began with a new one"
            result = replace(result, why=f"{result.why}; {note}".removeprefix("; "))
        self._runs += 1
        self._code.append(code)
        self._last = "run_error" if result.status == "error" else result.status
        if PREDICTION in result.files:
            self._prediction = result.files[PREDICTION]
        return result

    def answer(self, value: Any) -> None:
        """Hand an answer in."""
        self._answer = {"answer": value}

    def close(self, agent: str, messages: int) -> EpisodeEnd:
        """What is left to be scored, and what it cost. `messages` that the model wrote."""
        prediction = self._prediction
        self.restart()
        done = bool(self._answer) if self.lake is not None else prediction is not None
        cost = {"runs": self._runs, "calls": self._runs, "run_s": round(self._run_s, 3)}
        end = {"last_call": self._last, "ended": "answered" if done else "no_answer"}
        notes = {"agent": agent, "tries": messages, **cost, "sandbox": self._level, **end}
        if self.lake is not None:
            self.lake.response, self.lake.code = self._answer, self._code
            return self.lake.close(**notes)
        return EpisodeEnd({} if prediction is None else {PREDICTION: prediction}, notes)


def output_of(result: Result) -> str:
    """What a cell showed: its output, and its error where it failed."""
    said = result.stdout
    if result.stderr.strip():
        said = f"{said.rstrip()}\n{result.stderr}".lstrip("\n")
    return f"{said.rstrip()}\n{result.why}".lstrip("\n") if result.why else said
