"""Running a scorer that is not ours: under a deadline, and with its result checked."""

from __future__ import annotations

import contextlib
import ctypes
import math
import signal
import threading
from collections.abc import Generator
from types import FrameType
from typing import Any

from assay.family import Family, score_after_thoughts
from assay.task import Answer, Score, Task, TaskError, unscored

SECONDS = 10.0  # one call of a scorer


class Overtime(BaseException):
    """The deadline; not an `Exception`, so that a scorer's own handler does not swallow it."""


@contextlib.contextmanager
def deadline(seconds: float) -> Generator[None]:
    """Raise `Overtime` in this thread when the body takes longer.

    In the main thread by a timer signal, which also ends regular expressions; in another thread
    between two bytecodes.
    """
    if threading.current_thread() is threading.main_thread():
        with _by_signal(seconds):
            yield
        return
    thread = threading.get_ident()
    timer = threading.Timer(seconds, _interrupt, [thread])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _by_signal(seconds: float) -> Generator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise Overtime

    before = signal.signal(signal.SIGALRM, ring)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, before)


def _interrupt(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Overtime))


def guarded(family: Family, task: Task, answer: Answer, arguments: tuple[Any, ...]) -> Score:
    """The scorer's score, or no outcome with the reason that it failed.

    `TaskError` passes: gold that cannot be read is the task's fault, and stops the run.
    """
    try:
        with deadline(SECONDS):
            score = score_after_thoughts(family, task, answer, arguments)
    except TaskError:
        raise
    except Overtime:
        return unscored(f"scorer of {family.name} did not end within {SECONDS:g} s")
    except (Exception, SystemExit) as error:
        return unscored(f"scorer of {family.name} raised {type(error).__name__}: {error}"[:500])
    wrong = problem(score)
    return unscored(f"scorer of {family.name}: {wrong}") if wrong else score


def problem(score: object) -> str:
    """Why a scorer's result cannot be used; "" if it can."""
    if not isinstance(score, Score):
        return f"returned {type(score).__name__}; return a assay.task.Score"
    if score.outcome is None:
        return "" if score.reward is None else "a reward without an outcome; return both or none"
    for name, value in (("outcome", score.outcome), ("reward", score.reward)):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            return f"{name} is {value!r}; return a finite number"
    if not 0 <= score.outcome <= 1:
        return f"outcome is {score.outcome}; return a number from 0 to 1"
    return ""
