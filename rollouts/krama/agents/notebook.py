"""An interpreter that an agent works in cell by cell, beside what its task is about: a lake as the
folder `data/`, or the task's own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.seeds import derive_seed
from assay.task import Task
from rollouts.environment import EnvironmentFailure, EpisodeEnd
from rollouts.krama.folder import KEY, OUTPUT_KB, LakeFolder, closing
from rollouts.python_tool import PREDICTION
from rollouts.sandbox.model import Limits, Result
from rollouts.sandbox.pool import Session

if TYPE_CHECKING:
    from rollouts.environments import EnvironmentFactory


class Notebook:
    """Variables stay from cell to cell; a cell that runs out of time or memory ends them all.
    `prelude` is code that every interpreter begins with.

    Of a task with files the prediction is kept as the last cell left it, of a task with a lake the
    answer that the agent hands in.
    """

    def __init__(self, task: Task, seed: int, shop: EnvironmentFactory, prelude: str = "") -> None:
        self.task, self._seed, self._shop = task, seed, shop
        self.lake = LakeFolder(task, seed, shop) if KEY in task.files else None
        self.settings = settings = shop.settings
        self._limits = Limits(
            wall_s=settings.lake_run_s if self.lake else settings.run_s,
            output_kb=OUTPUT_KB if self.lake else settings.output_kb,
            file_mb=settings.file_mb,
            fetch_mb=settings.file_mb,
            fetch_total_mb=settings.folder_mb,
            work_mb=max(1024, 8 * settings.file_mb),
        )
        self._files: Mapping[str, bytes] = {}
        self._names: list[tuple[Path, int]] = []
        self._session: Session | None = None
        self._prelude, self._fresh = prelude, True
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
        self._end()
        self._prediction = None

    def _end(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session, self._fresh = None, True

    async def run(self, code: str, fetch: Sequence[str] = ()) -> Result:
        """Run a cell of the agent's. Raises `EnvironmentFailure` when the sandbox broke."""
        if self._prelude and self._fresh:
            await self._run(self._prelude, ())
        wanted = list(fetch) if self.lake is not None else [*fetch, PREDICTION]
        result = await self._run(code, wanted)
        self._runs += 1
        self._code.append(code)
        self._last = "run_error" if result.status == "error" else result.status
        if PREDICTION in result.files:
            self._prediction = result.files[PREDICTION]
        return result

    async def _run(self, code: str, fetch: Sequence[str]) -> Result:
        result = await self._opened().run(code, fetch)
        self._fresh = "interpreter_ended" in result.layers
        self._level = str(result.layers.get("level") or self._level)
        self._run_s += result.wall_s
        if result.status == "sandbox_error":
            raise EnvironmentFailure(f"sandbox: {result.why}")
        return result

    def _opened(self) -> Session:
        if self._session is None:
            seed = derive_seed(self._seed, self._runs) % (1 << 32)
            shared = self.lake.shared if self.lake is not None else None
            self._session = Session(self._shop.pool(), self._files, self._limits, seed, shared)
        return self._session

    def answer(self, value: Any) -> None:
        """Hand an answer in."""
        self._answer = {"answer": value}

    def close(self, agent: str, messages: int) -> EpisodeEnd:
        """What is left to be scored, and what it cost. `messages` that the model wrote."""
        self._end()
        done = bool(self._answer) if self.lake is not None else self._prediction is not None
        notes = {
            "agent": agent,
            "tries": messages,
            "runs": self._runs,
            "calls": self._runs,
            "run_s": round(self._run_s, 3),
            "sandbox": self._level,
            "last_call": self._last,
            "ended": "answered" if done else "no_answer",
        }
        code = "\n\n".join(self._code)
        if self.lake is not None:
            return closing(self._answer, self._answer, [], code, notes)
        left = {} if self._prediction is None else {PREDICTION: self._prediction}
        return EpisodeEnd(left, notes)


def output_of(result: Result) -> str:
    """What a cell showed: its output, and its error where it failed."""
    said = result.stdout
    if result.stderr.strip():
        said = f"{said.rstrip()}\n{result.stderr}".lstrip("\n")
    return f"{said.rstrip()}\n{result.why}".lstrip("\n") if result.why else said
