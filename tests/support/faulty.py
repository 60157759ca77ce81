"""`assay` commands in processes of their own, with a fault at a moment that is counted in changes
of files: moment 7 is the same one on every machine, however busy it is."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["train.cli.answers", "data_gen.demo.refinements"])


@dataclass(frozen=True)
class Fault:
    """A signal at the change of files `at`, or no file beyond `most` bytes."""

    signal: int = 0
    at: int = 0
    most: int = 0


@dataclass(frozen=True)
class Ended:
    """A negative status is a signal's. `changes`: of files, counted to the end."""

    status: int | None
    said: str
    changes: int


def start(words: Sequence[str], folder: Path, fault: Fault = Fault(), name: str = "run") -> Any:
    process: Any = _FORKED.Process(target=_command, args=(words, str(folder), fault, name))
    process.start()
    return process


def ended(process: Any, folder: Path, name: str = "run") -> Ended:
    process.join(120)
    said = (folder / f"{name}.said").read_text("utf-8", "replace")
    count = folder / f"{name}.changes"
    return Ended(process.exitcode, said, int(count.read_text()) if count.is_file() else 0)


def command(words: Sequence[str], folder: Path, fault: Fault = Fault()) -> Ended:
    return ended(start(words, folder, fault), folder)


def _command(words: Sequence[str], folder: str, fault: Fault, name: str) -> None:
    os.setsid()
    os.chdir(folder)
    said = os.open(f"{name}.said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(said, number)
    sys.argv = ["assay", *words]
    import assay

    sys.modules["__main__"] = assay  # what spawned workers import
    if fault.most:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.most, fault.most))
    count = _arm(fault, os.getcwd() + "/out")
    status: Any = 1
    with contextlib.suppress(SystemExit):
        status = assay.main()
    Path(f"{name}.changes").write_text(str(count[0]))
    sys.exit(status)


def _arm(fault: Fault, out: str) -> list[int]:
    """Count the changes below `out`, and send the signal at its moment."""
    count = [0]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        changes = event in _CHANGES
        if event == "open" and len(args) > 2:
            changes = bool(args[2] & _WRITES)
        path = os.fsdecode(args[0]) if changes and isinstance(args[0], str | bytes) else ""
        if path and os.path.abspath(path).startswith(out):
            count[0] += 1
            if count[0] == fault.at:
                os.kill(os.getpid(), fault.signal)

    sys.addaudithook(hook)
    return count
