"""A command in a process of its own, forked from this warm one, with a fault in it.

A fault at a moment counts what the command does to files (an audit hook), not seconds: moment 7 is
the same one on every machine, however busy it is. What reaches no hook (a write in native code) is
met by faults after a share of the undisturbed run's length.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "subprocess.Popen"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_SUBREAPER = 36  # prctl: processes whose parent dies become ours
LONGEST = 240.0  # seconds by the clock; on a busy machine most of them are waiting


@dataclass(frozen=True)
class Fault:
    """What happens to the process. `at`: the moment, counted in changes of files, when `do` is run
    in the process itself; where it raises OSError it is tried again at the next event. `after`:
    seconds after its start, when `strike` is called from outside with the process's number."""

    do: Callable[[], None] | None = None
    at: int = 0
    after: float = 0.0
    strike: Callable[[int], object] | None = None
    first: Callable[[], None] | None = None  # before the command begins
    on: str = ""  # count these audit events instead
    always: bool = False  # from the moment on, at every event


@dataclass(frozen=True)
class Ended:
    """How a command ended: a negative status is a signal's, None: it had not ended in time."""

    status: int | None
    said: str
    events: int = 0
    cpu: float = 0.0
    left: tuple[str, ...] = ()  # processes that were still there, by their command lines
    met: bool = True  # whether the fault happened at all
    wall: float = 0.0


@dataclass
class Running:
    """A command that was started."""

    pid: int
    folder: Path
    name: str
    status: int | None = None
    usage: Any = None
    begun: float = field(default_factory=time.monotonic)
    struck: bool = False


def adopt() -> None:
    """Whatever a command leaves running becomes a child of this process, which can see it."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def start(
    words: Sequence[str], folder: Path, fault: Fault | None = None, name: str = "run"
) -> Running:
    """`assay WORDS` in `folder`."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _command(words, folder, fault or Fault(), name)  # never returns
    return Running(pid, folder, name)


def stopped(run: Running, seconds: float = LONGEST) -> bool:
    """Wait until the process has stopped itself (SIGSTOP); False when it ended instead."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pid, status, usage = os.wait4(run.pid, os.WUNTRACED | os.WNOHANG)
        if pid and os.WIFSTOPPED(status):
            return True
        if pid:
            run.status, run.usage = os.waitstatus_to_exitcode(status), usage
            return False
        time.sleep(0.005)
    return False


def ended(run: Running, seconds: float = LONGEST, wait_left: float = 20.0) -> Ended:
    """Wait for the end; what outlives the command by `wait_left` seconds is ended and named."""
    until = time.monotonic() + seconds
    while run.usage is None and time.monotonic() < until:
        pid, status, usage = os.wait4(run.pid, os.WNOHANG)
        if pid:
            run.status, run.usage = os.waitstatus_to_exitcode(status), usage
        else:
            time.sleep(0.005)
    hung = run.usage is None
    if hung:
        os.kill(run.pid, signal.SIGKILL)
        _, _, run.usage = os.wait4(run.pid, 0)
    left = _left(wait_left)
    notes = run.folder / f".{run.name}.events"
    count, met = _noted(notes)
    notes.unlink(missing_ok=True)
    place = run.folder / f".{run.name}.said"
    said = place.read_text("utf-8", "replace")
    place.unlink()
    cpu = run.usage.ru_utime + run.usage.ru_stime
    wall = time.monotonic() - run.begun
    return Ended(None if hung else run.status, said, count, cpu, left, met or run.struck, wall)


def command(words: Sequence[str], folder: Path, fault: Fault | None = None) -> Ended:
    run = start(words, folder, fault)
    if fault is not None and fault.strike is not None:
        _strike(run, fault.after, fault.strike)
    return ended(run)


def _strike(run: Running, after: float, strike: Callable[[int], object]) -> None:
    while (left := run.begun + after - time.monotonic()) > 0:
        pid, status, usage = os.wait4(run.pid, os.WNOHANG)
        if pid:  # it had ended before
            run.status, run.usage = os.waitstatus_to_exitcode(status), usage
            return
        time.sleep(min(left, 0.005))
    run.struck = strike(run.pid) is not False


def _noted(notes: Path) -> tuple[int, bool]:
    """(events, whether the fault happened)."""
    try:
        words = notes.read_text().split()
    except OSError:
        words = []
    return int(words[0]) if words else 0, "met" in words


def _left(seconds: float) -> tuple[str, ...]:
    """Processes that a command left behind, after giving them time to end."""
    until = time.monotonic() + seconds
    while (there := _children()) and time.monotonic() < until:
        _reap()
        time.sleep(0.01)
    for pid in there:
        os.kill(pid, signal.SIGKILL)
    _reap()
    return tuple(there.values())


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _children() -> dict[int, str]:
    """Living children of this process that it did not start itself as a server."""
    _reap()
    found: dict[int, str] = {}
    mine = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for pid in map(int, mine):
        if pid in KEPT:
            continue
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            found[pid] = words.decode("utf-8", "replace")[:120].strip() or f"process {pid}"
        except OSError:
            continue
    return found


KEPT: set[int] = set()  # our own helpers


def _command(words: Sequence[str], folder: Path, fault: Fault, name: str) -> None:
    """The child: everything that `python -m assay WORDS` does, then out."""
    status = 1
    try:
        os.setsid()
        os.chdir(folder)
        out = os.open(f".{name}.said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        for number in (1, 2):
            os.dup2(out, number)
        sys.argv = ["assay", *words]
        import assay

        sys.modules["__main__"] = assay  # what spawned workers import
        notes = _Notes(Path.cwd() / f".{name}.events")
        if fault.first is not None:
            fault.first()
            notes.meet()
        _arm(fault, notes)
        try:
            status = assay.main()
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        notes.end()
        notes.close()
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            atexit._run_exitfuncs()
            threading._shutdown()  # type: ignore[attr-defined]
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


class _Notes:
    """What the parent has to know, written by descriptor: no event of its own."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self.count, self._met, self._pid, self.over = 0, "", os.getpid(), False

    def meet(self) -> None:
        self._met = "met"
        self._write()

    @property
    def done(self) -> bool:
        return bool(self._met)

    def miss(self) -> None:
        self._met = ""
        self._write()

    def _write(self) -> None:
        os.pwrite(self._fd, f"{self.count:08d} {self._met:<4}".encode(), 0)

    def end(self) -> None:
        if os.getpid() == self._pid:
            self._write()

    def close(self) -> None:
        self.over = True


def _arm(fault: Fault, notes: _Notes) -> None:
    """Count events, and let `fault.do` happen at its moment."""
    owner, here, busy = os.getpid(), os.getcwd(), [False]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if busy[0] or notes.over or os.getpid() != owner:
            return
        if event != fault.on if fault.on else not _changes(event, args, here):
            return
        notes.count += 1
        if fault.do is None or not fault.at or notes.count < fault.at:
            return
        if notes.done and not fault.always:
            return
        busy[0] = True
        try:
            notes.meet()
            fault.do()
        except OSError:
            notes.miss()
        finally:
            busy[0] = False

    sys.addaudithook(hook)


def _changes(event: str, args: tuple[Any, ...], here: str) -> bool:
    """Whether an audit event says that something in the command's folder is about to change."""
    if event in _EVENTS:
        return event == "subprocess.Popen" or _inside(args[0], here)
    if event != "open" or not args:
        return False
    mode, flags = (args[1], args[2]) if len(args) > 2 else (None, 0)
    writes = any(c in mode for c in "wax+") if isinstance(mode, str) else bool(flags & _WRITES)
    return writes and _inside(args[0], here)


def _inside(path: Any, here: str) -> bool:
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    return isinstance(path, str) and os.path.abspath(path).startswith(here + "/")


def send(number: int) -> Callable[[], None]:
    """A signal to the process itself."""

    def do() -> None:
        os.kill(os.getpid(), number)

    return do


def kill_worker(pid: int, oldest: bool = False) -> bool:
    """End the newest process that another one has started, as the kernel does for want of memory;
    False when there is none."""
    found = _offspring(pid)
    for one in found if oldest else reversed(found):
        try:
            os.kill(one, signal.SIGKILL)
            return True
        except OSError:
            continue
    return False


def _offspring(pid: int) -> list[int]:
    try:
        found = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*found, *(deeper for child in found for deeper in _offspring(child))]


def limit_memory(more: int) -> Callable[[], None]:
    """The process may take `more` bytes of address space beyond what it has."""

    def do() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + more
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    return do


def limit_files(most: int) -> Callable[[], None]:
    """No file may grow beyond `most` bytes (EFBIG): where no small disk can be mounted."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def jump(seconds: float) -> Callable[[], None]:
    """Every clock of the process jumps; time itself goes on."""

    def do() -> None:
        for name in ("time", "monotonic") if seconds > 0 else ("time",):
            true: Callable[[], float] = getattr(time, name)
            setattr(time, name, lambda true=true: true() + seconds)

    return do


def obey_modes() -> None:
    """From now on the modes of files hold for this process too, if it is root's."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then the upper halves
    if libc.capget(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    for capability in (1, 2, 3):  # DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
        for part in range(3):
            sets[part] &= ~(1 << capability)
    if libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")
