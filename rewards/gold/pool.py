"""Ordered execution of row batches in worker processes, each row under a deadline.

The operating system kills a process when a row's processor time runs out, in the middle of a
regular expression if need be. The rows of a batch that killed one are executed again alone, which
tells the row that kills.
"""

from __future__ import annotations

import json
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from assay.task import json_line
from assay.workers import WorkerPool
from rewards.gold.rows import RowExecutor, row_id

Key = TypeVar("Key")
Batch = tuple[str, int, list[bytes]]  # what lines are called, number of the first, lines


class Executed(NamedTuple):
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
        self._pool = WorkerPool(workers, _start, (deadline, options), apart=True, kill=True)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.__exit__(kind, error, trace)

    def run(
        self, batches: Iterable[tuple[Key, int, list[bytes]]], named: bool = False
    ) -> Iterator[tuple[Key, list[Executed]]]:
        """Answers of every batch (key, first line number, lines), in order. With `named` the key
        is the input's name, and stands in the errors.

        Holds a few batches a worker at a time.
        """
        keys = deque[Key]()

        def jobs() -> Iterator[Batch]:
            for key, number, lines in batches:
                keys.append(key)
                yield f"{key} line".replace("\n", " ") if named else "line", number, lines

        for answers in self._pool.map(_execute, jobs(), died=self._one_by_one):
            yield keys.popleft(), answers

    def _one_by_one(self, batch: Batch, status: int) -> list[Executed]:
        where, number, lines = batch
        if len(lines) > 1:
            rows = [(where, number + i, [line]) for i, line in enumerate(lines)]
            return [a for row in rows for a in self._pool.run(_execute, row, self._one_by_one)]
        error = f"{where} {number}: infrastructure: {self._why_died(status)}"
        return [Executed(json_line({"id": _id_in(lines[0]), "error": error}), False)]

    def _why_died(self, status: int) -> str:
        if status == -signal.SIGPROF:
            return (
                f"timeout: the row took more than {self._deadline:g} s of processor time; "
                "raise --deadline to wait longer"
            )
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return f"the worker process died ({name}) at this row"


_executor = RowExecutor()  # of this process, and how long a row may take
_deadline = 0.0


def _start(deadline: float, options: dict[str, Any]) -> None:
    global _executor, _deadline
    _executor, _deadline = RowExecutor(**options), deadline
    os.dup2(2, 1)  # what a library prints is no row
    # Python would turn this into an exception; the default action ends the process instead.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)


def _execute(batch: Batch) -> list[Executed]:
    """The answers to the lines of a batch, each under the deadline."""
    where, first, lines = batch
    answers: list[Executed] = []
    for number, line in enumerate(lines, first):
        signal.setitimer(signal.ITIMER_PROF, _deadline)
        answers.append(Executed(*_executor.line(line, f"{where} {number}")))
        signal.setitimer(signal.ITIMER_PROF, 0)
    return answers


def _id_in(line: bytes) -> Any:
    try:
        return row_id(json.loads(line))
    except (ValueError, RecursionError):
        return None
