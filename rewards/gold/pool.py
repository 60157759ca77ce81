"""Ordered execution of row batches in worker processes that can be killed."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeVar, cast

from assay.task import MachineError, json_line
from rewards.gold.rows import row_id
from rewards.gold.worker import ONE_BY_ONE, TOGETHER, read_frame, write_frame

Key = TypeVar("Key")
_ROOT = str(Path(__file__).resolve().parents[2])
# The child finds this very code, whatever its working directory or the way we were started.
_CHILD = (
    "import sys; sys.path.insert(0, sys.argv[1]); from rewards.gold.worker import serve; serve()"
)


@dataclass(frozen=True)
class Executed:
    """One row's answer: a JSON line, and whether the row was executed."""

    line: bytes
    good: bool


class Pool:
    """`workers` child processes; use as a context manager.

    `deadline` is processor seconds a row may take: a busy machine never turns a good row into a
    failed one. A row that kills its worker is answered with an `infrastructure:` error and its id.
    """

    def __init__(self, workers: int, deadline: float, options: dict[str, Any]) -> None:
        self._deadline = deadline
        self._options = json.dumps(options | {"deadline": deadline}).encode()
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._workers = [self._spawn() for _ in range(workers)]
        for worker in self._workers:
            self._await(worker)
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="gold")

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            for worker in self._workers:
                worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            self._stop(worker)

    def run(
        self, batches: Iterable[tuple[Key, int, list[bytes]]], named: bool = False
    ) -> Iterator[tuple[Key, list[Executed]]]:
        """Answers of every batch (key, first line number, lines), in order. With `named` the key
        is the input's name, and stands in the errors.

        Holds at most three batches a worker at a time.
        """
        waiting: deque[tuple[Key, Future[list[Executed]]]] = deque()
        for key, number, lines in batches:
            where = f"{key} line".replace("\n", " ") if named else "line"
            waiting.append((key, self._threads.submit(self._batch, where, number, lines)))
            if len(waiting) >= 3 * len(self._workers):
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()

    def _batch(self, where: str, number: int, lines: list[bytes]) -> list[Executed]:
        answers: list[Executed] = []
        worker = self._idle.get()
        how = TOGETHER
        while len(answers) < len(lines):
            at = len(answers)
            head = b"%s %d %s" % (how, number + at, where.encode("utf-8", "surrogateescape"))
            self._ask(worker, head, lines[at:], answers)
            if len(answers) < len(lines):
                if how == ONE_BY_ONE:
                    why = self._why_died(worker.wait())
                    line, place = lines[len(answers)], number + len(answers)
                    error = f"{where} {place}: infrastructure: {why}"
                    answers.append(Executed(json_line({"id": _id_in(line), "error": error}), False))
                how = ONE_BY_ONE  # the next death tells the row
                worker = self._replaced(worker)
        self._idle.put(worker)
        return answers

    def _replaced(self, worker: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """A fresh worker in the place of one that died."""
        self._stop(worker)
        fresh = self._spawn()
        self._await(fresh)
        self._workers[self._workers.index(worker)] = fresh
        return fresh

    def _ask(
        self,
        worker: subprocess.Popen[bytes],
        head: bytes,
        lines: list[bytes],
        answers: list[Executed],
    ) -> None:
        """Append the answers to `lines`, fewer if the worker dies."""
        payload = head + b"\n" + b"\n".join(lines)
        try:
            write_frame(cast("BinaryIO", worker.stdin), payload)
        except BrokenPipeError:
            return
        for _ in lines:
            frame = read_frame(cast("BinaryIO", worker.stdout))
            if frame is None:
                return
            answers.append(Executed(frame[1:], frame[:1] == b"+"))

    def _why_died(self, status: int) -> str:
        if status == -signal.SIGPROF:
            return (
                f"timeout: the row took more than {self._deadline:g} s of processor time; "
                "raise --deadline to wait longer"
            )
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return f"the worker process died ({name}) at this row"

    def _spawn(self) -> subprocess.Popen[bytes]:
        worker = subprocess.Popen(
            [sys.executable, "-c", _CHILD, _ROOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        write_frame(cast("BinaryIO", worker.stdin), self._options)
        return worker

    def _await(self, worker: subprocess.Popen[bytes]) -> None:
        # Without this a worker that cannot even start would fail every row of the input.
        if read_frame(cast("BinaryIO", worker.stdout)) is None:
            raise MachineError(
                f"a worker process ended with status {worker.wait()} before its first row; its "
                "message stands above"
            )

    def _stop(self, worker: subprocess.Popen[bytes]) -> None:
        """Close the pipes, which ends an idle worker, and wait for it."""
        cast("BinaryIO", worker.stdin).close()
        worker.wait()
        cast("BinaryIO", worker.stdout).close()


def _id_in(line: bytes) -> Any:
    try:
        return row_id(json.loads(line))
    except (ValueError, RecursionError):
        return None
