"""The user process: give everything away, then run the code as `python main.py` would."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib.machinery
import json
import linecache
import os
import random
import resource
import signal
import socket
import sys
import threading
import types
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, NoReturn

from rollouts.sandbox import cores, jail, scene, watch, wire
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.job import BEGUN, CLOSED, FAILED
from rollouts.sandbox.model import MIB, Limits
from rollouts.sandbox.scene import Place, Scene

# Our modules, which the code does not see. Filled before the fork: a walk through all names
# would touch, and so copy, megabytes of pages in every call.
OWN: dict[str, types.ModuleType] = {}  # kept alive: to take one apart touches pages too


def note_own_modules() -> None:
    names = [n for n in sys.modules if n == "rollouts" or n.startswith("rollouts.")]
    OWN.update({name: sys.modules[name] for name in names})


@dataclass(frozen=True)
class Streams:
    """Descriptors that become 0, 1, 2 of the user process. `ready` carries our own word to init and
    is gone before the code runs; `control` exists only in a session."""

    stdin: int
    stdout: int
    stderr: int
    ready: int
    control: int = -1


@dataclass(frozen=True)
class Order:
    """What the user process is told of its call."""

    limits: Limits
    seed: int | None
    argv: tuple[str, ...]

    @staticmethod
    def read(fields: Mapping[str, Any]) -> Order:
        return Order(Limits.checked(fields["limits"]), fields["seed"], tuple(fields["argv"]))


@dataclass(frozen=True)
class Ready:
    """Our own words to init, which the code cannot forge: the descriptor is gone before it runs."""

    descriptor: int

    def say(self, word: bytes) -> None:
        os.write(self.descriptor, word)

    def failed(self, error: BaseException) -> NoReturn:
        with contextlib.suppress(OSError):
            self.say(FAILED + f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:2000])
        os._exit(1)

    def close(self) -> None:
        os.close(self.descriptor)


def set_limits(limits: Limits, processes: int, base: int) -> None:
    """Hard limits equal soft ones, so they cannot be raised; memory counts on top of `base`."""
    cpu = limits.cpu_seconds
    wanted = {
        resource.RLIMIT_CPU: (cpu, cpu + 1),
        resource.RLIMIT_DATA: base + limits.memory_mb * MIB,
        resource.RLIMIT_FSIZE: min(limits.file_mb, limits.work_mb) * MIB,
        resource.RLIMIT_NOFILE: limits.descriptors,
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_CORE: 1,  # not 0, at which a handler behind a pipe still gets its dump
        resource.RLIMIT_STACK: 8 * MIB,
        resource.RLIMIT_MEMLOCK: 1 << 16,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_SIGPENDING: 1024,
    }
    for kind, value in wanted.items():
        soft, hard = value if isinstance(value, tuple) else (value, value)
        most = resource.getrlimit(kind)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(kind, (soft, hard))


def take_streams(streams: Streams, place: Place) -> tuple[int, int]:
    """No descriptor but ours, and into the work directory; returns (ready, control) as moved."""
    for number, source in enumerate((streams.stdin, streams.stdout, streams.stderr)):
        os.dup2(source, number)
    wanted = (streams.ready, streams.control)
    high = [fcntl.fcntl(d, fcntl.F_DUPFD_CLOEXEC, 10) if d >= 0 else -1 for d in wanted]
    placed = [-1, -1]
    for i, descriptor in enumerate(high):
        if descriptor >= 0:
            placed[i] = os.dup2(descriptor, 3 + i, inheritable=False)
        else:
            with contextlib.suppress(OSError):
                os.close(3 + i)
    sc.close_from(5)
    os.chdir(place.work)
    return placed[0], placed[1]


def step_in(stage: Scene, proc: int) -> int:
    """What needs no request: our own user namespace and session. Returns the bytes that
    RLIMIT_DATA counts already, which are the warm interpreter's."""
    sc.prctl(sc.PR_SET_DUMPABLE, 1)  # else our own /proc files are closed to us
    with contextlib.suppress(OSError):
        jail.write_proc(proc, "oom_score_adj", "1000")  # the kernel takes us before the trainer
    base = _private_bytes(proc)
    if stage.namespaces:
        jail.enter_user_namespace(0, proc)  # the process limit then counts this call alone
    else:
        sc.prctl(sc.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()  # no terminal
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)  # init ignores them, and that is inherited
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return base


def start(
    stage: Scene, place: Place, order: Order, streams: Streams, proc: int, source: bytes
) -> NoReturn:
    """In a fork of init: all between the fork and the code."""
    ready = Ready(streams.ready)
    try:
        base = step_in(stage, proc)
        processes = order.limits.processes + _tasks_of_user(proc)
        descriptor, control = take_streams(streams, place)
        ready = Ready(descriptor)
        set_limits(order.limits, processes, base)
        scene.confine(stage, place)
        ready.say(CLOSED)
        _begin(order, place, ready, control, source)
    except BaseException as error:
        ready.failed(error)


def stand_by(stage: Scene, descriptor: int) -> NoReturn:
    """In a fork of the warm process, inside the jail: close in, then wait for init's word.

    Only what the call may see is left for later, where a shared directory changes the rules.
    """
    channel = socket.socket(fileno=descriptor)
    proc = stage.proc if stage.proc >= 0 else os.open("/proc", os.O_RDONLY | os.O_CLOEXEC)
    place = scene.place_of(stage)
    base, outer = step_in(stage, proc), watch.own_pid(proc)
    if not stage.shared:
        scene.confine(stage, place)
    channel.send(json.dumps([os.getpid(), outer]).encode())
    data, given, _, _ = socket.recv_fds(channel, 2, 5)
    if not data:
        os._exit(0)  # never needed
    ready = Ready(given[3])
    try:
        order = Order.read(wire.receive_header(channel))
        channel.detach()  # closed with the others; its number may then belong to the code
        taken, control = take_streams(Streams(*given), place)
        ready = Ready(taken)
        set_limits(order.limits, order.limits.processes, base)
        if stage.shared:
            scene.confine(stage, place)
        ready.say(CLOSED)
        with open(f"{place.work}/main.py", "rb") as file:
            source = file.read()
        _begin(order, place, ready, control, source)
    except BaseException as error:
        ready.failed(error)


def _private_bytes(proc: int) -> int:
    """What RLIMIT_DATA already counts: the warm interpreter's own memory."""
    return int(watch.read(proc, "self/statm").split()[5]) * resource.getpagesize()


def _tasks_of_user(proc: int) -> int:
    """Threads that our id already has on the node: without a namespace the limit counts them."""
    mine, total = os.getuid(), 0
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                status = watch.read(proc, f"{name}/status")
            except watch.Shut:
                continue
            uid = status.partition(b"\nUid:")[2].split(None, 1)[:1]
            if uid == [str(mine).encode()]:
                total += int(status.partition(b"\nThreads:")[2].split(None, 1)[0])
    return total


def seed_generators(seed: int | None) -> None:
    """The legacy generators were copied by the fork: two calls would draw the same numbers."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        # None would do the same, through half a megabyte of other code
        fresh = int.from_bytes(os.urandom(4), "big")
        numpy.random.seed(fresh if seed is None else seed % (1 << 32))


def shadowed(work: str) -> bool:
    """Whether a module beside the code bears the name of one that is already imported here."""
    names = [e.name.removesuffix(".py") for e in os.scandir(work) if _importable(e)]
    return any(name in sys.modules for name in names)


def _compiles(source: bytes, path: str) -> bool:
    """Code that does not is left to a fresh interpreter, whose words for it differ from ours."""
    try:
        compile(source, path, "exec", dont_inherit=True)
    except BaseException:
        return False
    return True


def _importable(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(".py") or entry.is_dir()


def become_main(path: str, arguments: list[str]) -> types.ModuleType:
    """A fresh `__main__`, and `sys` as a new interpreter has it."""
    for name in OWN:
        sys.modules.pop(name, None)
    _show_init_as_parent()
    main = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__.update(
        __file__=path,
        __builtins__=sys.modules["builtins"],
        __loader__=loader,
        __cached__=None,
        __annotations__={},
    )
    sys.modules["__main__"] = main
    sys.argv = ["main.py", *arguments]
    sys.orig_argv = [sys.executable, "main.py", *arguments]
    sys.path.insert(0, os.path.dirname(path))
    return main


def _show_init_as_parent() -> None:
    """Our real parent lies outside of the jail and is shown as 0, a number that `kill` reads as
    "my whole group": a program that signals its parent would end itself."""
    outside = os.getppid
    if outside() == 0:
        for module in (os, sys.modules["posix"]):
            module.__dict__["getppid"] = lambda: outside() or 1


def execute(source: bytes, path: str, main: types.ModuleType, leave: bool = True) -> int:
    """Run the code; the exit status that `python main.py` would have. Minus 2: by SIGINT.

    With `leave` false a SystemExit is passed on.
    """
    try:
        code: CodeType = compile(source, path, "exec", dont_inherit=True)
    except BaseException:
        return report_exception(strip=99)
    try:
        exec(code, main.__dict__)
    except SystemExit as end:
        if not leave:
            raise
        return exit_status(end)
    except BaseException:
        return report_exception(strip=1)
    return 0


def report_exception(strip: int) -> int:
    """Print what the interpreter prints, without our own frames."""
    kind, value, trace = sys.exc_info()
    for _ in range(strip):
        trace = trace.tb_next if trace is not None else None
    if kind is None or value is None:
        return 1
    value.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = kind, value, trace
    try:
        sys.excepthook(kind, value, trace)
    except SystemExit as end:
        return exit_status(end)
    except BaseException:
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(*sys.exc_info())  # type: ignore[arg-type]
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(kind, value, trace)
    return -2 if isinstance(value, KeyboardInterrupt) else 1


def exit_status(end: SystemExit) -> int:
    """As the interpreter reads `SystemExit.code`: nothing is 0, other objects are printed."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF if abs(end.code) < 1 << 63 else 0xFF
    with contextlib.suppress(Exception):
        print(end.code, file=sys.stderr)
    return 1


def finish(status: int, main: types.ModuleType) -> NoReturn:
    """Join threads, run exit hooks, drop globals, flush: the order of an interpreter's end."""
    for step in (_join_threads, _run_exit_hooks, _flush, lambda: _clear(main)):
        try:
            step()
        except BaseException:
            status = 120 if step is _flush else status
    with contextlib.suppress(BaseException):
        _flush()
    ctypes.CDLL(None).fflush(None)
    if status == -2:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


def _join_threads() -> None:
    module: Any = threading
    module._shutdown()


def _run_exit_hooks() -> None:
    hooks: Any = atexit
    hooks._run_exitfuncs()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def _clear(main: types.ModuleType) -> None:
    """Objects held by globals run their `__del__`, underscored names first."""
    space = main.__dict__
    for name in list(space):
        if name.startswith("_") and not name.startswith("__"):
            space[name] = None
    for name in list(space):
        if name != "__builtins__":
            space[name] = None
    gc.collect()


def set_places(place: Place) -> None:
    # one by one: `update` asks abstract base classes, and that touches half a megabyte
    for name, path in (("HOME", place.work), ("TMPDIR", place.tmp), ("PWD", place.work)):
        os.environ[name] = path


def _begin(order: Order, place: Place, ready: Ready, control: int, source: bytes) -> NoReturn:
    """The last of our own steps, then the code."""
    set_places(place)
    cores.use(order.limits.threads)
    with contextlib.suppress(OSError):
        sc.rename_process("python", "main.py", *order.argv)
    ready.say(BEGUN)
    if control >= 0:
        ready.close()
        run_cells(place, order.seed, control)
    run(source, place, order, ready)


def run(source: bytes, place: Place, order: Order, ready: Ready) -> NoReturn:
    """The whole life of the user process after it was confined.

    Compiling is the code's own doing: it may end the interpreter. A new one that cannot be started
    is not, so `ready` stays open until then; it does not outlive the exec.
    """
    path = f"{place.work}/main.py"
    if shadowed(place.work) or not _compiles(source, path):
        try:
            os.execv(sys.executable, [sys.executable, "main.py", *order.argv])
        except OSError as error:
            error.filename = sys.executable
            ready.failed(error)
    ready.close()
    main = become_main(path, list(order.argv))
    seed_generators(order.seed)
    finish(execute(source, path, main), main)


def run_cells(place: Place, seed: int | None, control: int) -> NoReturn:
    """A session: run each cell in the same `__main__` and say so on `control`."""
    main = become_main(f"{place.work}/main.py", [])
    seed_generators(seed)
    said, number = b"\0", 0
    while True:
        _flush()
        os.write(control, said)
        size = int.from_bytes(_exactly(control, 8), "big")
        source = _exactly(control, size)
        number += 1
        path = f"<cell {number}>"
        lines = source.decode("utf-8", "replace").splitlines(keepends=True)
        linecache.cache[path] = (len(source), None, lines, path)
        try:
            status = execute(source, path, main, leave=False)
        except SystemExit as end:
            finish(exit_status(end), main)
        said = b"\1" if status else b"\0"


def _exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(descriptor, size - len(data))
        if not part:
            os._exit(0)  # init hung up
        data += part
    return data
