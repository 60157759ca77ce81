"""Code that is not ours (families, scorers, tools): called with a deadline, loaded by name."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import importlib.util
import signal
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

from assay.task import TaskError

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
    timer = threading.Timer(seconds, interrupt_thread, [thread])
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


def interrupt_thread(thread: int) -> None:
    """Raise `Overtime` in the thread of that ident, between two of its bytecodes."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Overtime))


# ---- loading what a user names on the command line: an object of a file or of a module


def load_object(spec: str, default: str, option: str) -> tuple[Any, str]:
    """(what `FILE.py[:NAME]` or `pkg.module[:NAME]` names, where it came from).

    `default` is the name where none is said; None is returned for a name that is not there.
    Raises `TaskError` naming `option` for a file that cannot be loaded.
    """
    place, _, name = spec.partition(":")
    name = name or default
    if place.endswith(".py"):
        return getattr(_of_file(Path(place), option), name, None), f"{Path(place).resolve()}:{name}"
    return getattr(_of_name(place, spec, option), name, None), f"{place}:{name}"


def _of_name(name: str, spec: str, option: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever the user's module raises
        raise TaskError(
            f"{option} {spec}: {_said(error)}; give FILE.py or pkg.module:NAME"
        ) from None


def _of_file(path: Path, option: str) -> Any:
    """The module of a file, made once per process, so that its classes have one identity."""
    path = path.resolve()
    name = f"assay_family_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise TaskError(f"{option} {path}: no such file")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses of the file look their module up while it runs
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # a file may call sys.exit
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        when = "" if isinstance(error, TaskError) else " while it was loaded"
        raise TaskError(f"{option} {path}: {_said(error)}{when}") from None
    return module


def _said(error: BaseException) -> str:
    if isinstance(error, TaskError):  # a sentence that names the place already
        return str(error)
    line = ""
    trace = error.__traceback__
    while trace is not None:
        line = f" (line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{line}"
