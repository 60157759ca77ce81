"""The user process of one call: it closes itself in, says so, and runs the code as `python main.py`
would."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib.machinery
import json
import os
import random
import re
import resource
import signal
import socket
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any, NoReturn

from rollouts.sandbox import jail, transfer
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.jail import Folders, JailPlan
from rollouts.sandbox.model import MIB, Limits
from rollouts.sandbox.usage import Shut, own_pid, read_proc

# What the user process says of itself before the code runs; it cannot be said afterwards.
# CLOSED: the jail is closed. BEGUN: nothing is left of ours that could fail. FAILED, with the
# reason: our own set-up went wrong, so that the exit status says nothing about the code.
CLOSED, BEGUN, FAILED = b"k", b"r", b"!"
# Our modules, which the code does not see. Filled before the fork: a walk through all names
# would touch, and so copy, megabytes of pages in every call.
OWN: dict[str, types.ModuleType] = {}  # kept alive: to take one apart touches pages too

_TASKS = re.compile(rb"\nUid:\s+(\d+)\s.*\nThreads:\s+(\d+)", re.DOTALL)
READY = 3  # where we speak to init; gone before the code runs, so the code cannot forge a word


def _failed(error: BaseException) -> NoReturn:
    """Our own set-up went wrong: tell init, and end."""
    with contextlib.suppress(OSError):
        text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        os.write(READY, FAILED + text[:2000])
    os._exit(1)


def note_own_modules() -> None:
    """In the warm interpreter: which modules are ours and are to be hidden from the code."""
    names = [n for n in sys.modules if n.partition(".")[0] in ("assay", "rollouts")]
    OWN.update({name: sys.modules[name] for name in names})


# Before the code


def fork_of_init(
    plan: JailPlan, folders: Folders, request: Mapping[str, Any], given: Sequence[int], proc: int
) -> NoReturn:
    """In a fork of init, where there are no namespaces: all between the fork and the code. `given`
    are descriptors: standard input, output, error, and one for our own word to init."""
    base = _enter(plan, proc)
    _go(plan, folders, request, given, base, _tasks_of_user(proc), confined=False)


def fork_of_warm(plan: JailPlan, descriptor: int) -> NoReturn:
    """In a fork of the warm process, inside the jail: close in, then wait for init's word.

    Only what the call may see is left for later, where a shared directory changes the rules.
    """
    channel = socket.socket(fileno=descriptor)
    proc = plan.proc if plan.proc >= 0 else os.open("/proc", os.O_RDONLY | os.O_CLOEXEC)
    folders = jail.folders_of(plan)
    base, outer = _enter(plan, proc), own_pid(proc)
    if not plan.shared:
        jail.confine(plan, folders)
    channel.send(json.dumps([os.getpid(), outer]).encode())
    data, given, _, _ = socket.recv_fds(channel, 2, 5)
    if not data:
        os._exit(0)  # never needed
    request = transfer.receive_header(channel)
    channel.detach()  # closed with the others; its number may then belong to the code
    _go(plan, folders, request, given, base, 0, confined=not plan.shared)


def _enter(plan: JailPlan, proc: int) -> int:
    """What needs no request: our own user namespace and session. Returns the bytes that
    RLIMIT_DATA counts already, which are the warm interpreter's."""
    sc.prctl(sc.PR_SET_DUMPABLE, 1)  # else our own /proc files are closed to us
    with contextlib.suppress(OSError):
        jail.write_proc(proc, "self/oom_score_adj", "1000")  # the kernel takes us first
    base = int(read_proc(proc, "self/statm").split()[5]) * resource.getpagesize()
    if plan.namespaces:
        jail.enter_user_namespace(0, proc)  # the process limit then counts this call alone
    else:
        sc.prctl(sc.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()  # no terminal
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)  # init ignores them, and that is inherited
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return base


def _go(
    plan: JailPlan,
    folders: Folders,
    request: Mapping[str, Any],
    given: Sequence[int],
    base: int,
    beside: int,
    confined: bool,
) -> NoReturn:
    """The last of our own steps, then the code. `beside`: processes that the limit counts, too."""
    for number, source in enumerate(given[:3]):
        os.dup2(source, number)
    if given[3] != READY:
        os.dup2(given[3], READY)
    os.set_inheritable(READY, False)
    sc.close_from_except({READY})
    try:
        os.chdir(folders.work)
        limits = Limits(**request["limits"])
        _set_limits(limits, limits.processes + beside, base)
        if not confined:
            jail.confine(plan, folders)
        os.write(READY, CLOSED)
        path = f"{folders.work}/main.py"
        with open(path, "rb") as file:
            code = file.read()
        # one by one: `update` asks abstract base classes, and that touches half a megabyte
        for name, place in (("HOME", folders.work), ("TMPDIR", folders.tmp), ("PWD", folders.work)):
            os.environ[name] = place
        arguments: list[str] = request["argv"]
        os.write(READY, BEGUN)
    except BaseException as error:
        _failed(error)
    _run(code, path, arguments, request["seed"])


def _set_limits(limits: Limits, processes: int, base: int) -> None:
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


def _tasks_of_user(proc: int) -> int:
    """Threads that our id already has on the node: without a namespace the limit counts them."""
    total = 0
    for name in filter(str.isdigit, os.listdir(proc)):
        with contextlib.suppress(Shut):
            found = _TASKS.search(read_proc(proc, f"{name}/status"))
            if found is not None and int(found[1]) == os.getuid():
                total += int(found[2])
    return total


# The code


def _run(source: bytes, path: str, arguments: Sequence[str], seed: int | None) -> NoReturn:
    """Compiling is the code's own doing: it may end the interpreter. A new one that cannot be
    started is not, so READY stays open until then; it does not outlive the exec."""
    if _shadowed(os.path.dirname(path)) or not _compiles(source, path):
        try:
            os.execv(sys.executable, [sys.executable, "main.py", *arguments])
        except OSError as error:
            error.filename = sys.executable
            _failed(error)
    os.close(READY)
    main = _become_main(path, arguments)
    _seed_generators(seed)
    _finish(_execute(source, path, main), main)


def _seed_generators(seed: int | None) -> None:
    """The legacy generators were copied by the fork: two calls would draw the same numbers."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        # None would do the same, through half a megabyte of other code
        fresh = int.from_bytes(os.urandom(4), "big")
        numpy.random.seed(fresh if seed is None else seed % (1 << 32))


def _shadowed(work: str) -> bool:
    """Whether a module beside the code bears the name of one that is already imported here."""
    with os.scandir(work) as entries:
        return any(
            entry.name.removesuffix(".py") in sys.modules
            for entry in entries
            if entry.name.endswith(".py") or entry.is_dir()
        )


def _compiles(source: bytes, path: str) -> bool:
    """Code that does not is left to a fresh interpreter, whose words for it differ from ours."""
    try:
        compile(source, path, "exec", dont_inherit=True)
    except BaseException:
        return False
    return True


def _become_main(path: str, arguments: Sequence[str]) -> types.ModuleType:
    """A fresh `__main__`, and `sys` as a new interpreter has it."""
    for name in OWN:
        sys.modules.pop(name, None)
    # Our real parent lies outside of the jail and is shown as 0, a number that `kill` reads as
    # "my whole group": a program that signals its parent would end itself.
    outside = os.getppid
    if outside() == 0:
        for module in (os, sys.modules["posix"]):
            module.__dict__["getppid"] = lambda: outside() or 1
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __builtins__=sys.modules["builtins"],
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        __cached__=None,
        __annotations__={},
    )
    sys.modules["__main__"] = main
    sys.argv = ["main.py", *arguments]
    sys.orig_argv = [sys.executable, "main.py", *arguments]
    sys.path.insert(0, os.path.dirname(path))
    return main


def _execute(source: bytes, path: str, main: types.ModuleType) -> int:
    """Run the code; the exit status that `python main.py` would have. Minus 2: by SIGINT."""
    try:
        code: CodeType = compile(source, path, "exec", dont_inherit=True)
    except BaseException:
        return _report_exception(strip=99)
    try:
        exec(code, main.__dict__)
    except SystemExit as end:
        return _exit_status(end)
    except BaseException:
        return _report_exception(strip=1)
    return 0


def _report_exception(strip: int) -> int:
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
        return _exit_status(end)
    except BaseException:
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(*sys.exc_info())  # type: ignore[arg-type]
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(kind, value, trace)
    return -2 if isinstance(value, KeyboardInterrupt) else 1


def _exit_status(end: SystemExit) -> int:
    """As the interpreter reads `SystemExit.code`: nothing is 0, other objects are printed."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF if abs(end.code) < 1 << 63 else 0xFF
    with contextlib.suppress(Exception):
        print(end.code, file=sys.stderr)
    return 1


def _finish(status: int, main: types.ModuleType) -> NoReturn:
    """Join threads, run exit hooks, drop globals, flush: the order of an interpreter's end."""
    interpreter: tuple[Any, Any] = (threading, atexit)
    hooks = (interpreter[0]._shutdown, interpreter[1]._run_exitfuncs, _flush, lambda: _clear(main))
    for step in hooks:
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
