"""The code in the user process: run as `python main.py` would, or cell by cell."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib.machinery
import linecache
import os
import random
import signal
import sys
import threading
import types
from types import CodeType
from typing import Any, NoReturn

from rollouts.sandbox.orders import Order, Ready
from rollouts.sandbox.scene import Place

# Our modules, which the code does not see. Filled before the fork: a walk through all names
# would touch, and so copy, megabytes of pages in every call.
OWN: dict[str, types.ModuleType] = {}  # kept alive: to take one apart touches pages too


def note_own_modules() -> None:
    names = [n for n in sys.modules if n.partition(".")[0] in ("assay", "rollouts")]
    OWN.update({name: sys.modules[name] for name in names})


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
