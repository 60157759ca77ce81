"""The launcher: exec'd with a built environment, closes itself in, imports the stack, and forks.

The outer process chooses the level by trying it, enters the namespaces and waits: when the pool's
process dies it kills the inner one. The inner one is pid 1 of its own pid namespace, hands each
call to an init that was forked ahead, and never runs the model's code. Where namespaces are in use
the stack is imported by a child of its own, the fork server, else by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from assay.confine import READ, encode, install_seccomp, landlock_abi, restrict_files
from rollouts.sandbox import inside, jail, transfer, usage, user_process
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.jail import JailPlan
from rollouts.sandbox.model import LEVELS, Level, Limits


def main(descriptor: int) -> None:
    """Entry point of the exec'd interpreter; `descriptor` is the pool's control socket."""
    control = socket.socket(fileno=descriptor)
    parent = os.getppid()
    request: dict[str, Any] = json.loads(control.recv(1 << 20))
    with _failure_told(control):
        os.umask(0o022)
        plan = choose_plan(request)
        if not plan.namespaces:
            plan = replace(plan, base=request["base"])
            os.mkdir(plan.base, 0o700)
        proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        enter_namespaces(plan, proc)
        inner = os.fork()
        if inner == 0:
            _inner(control, plan, request, proc)
        control.close()
        _guard(parent, inner, plan.base)


@contextlib.contextmanager
def _failure_told(control: socket.socket) -> Generator[None]:
    """Tell the other side what went wrong, and end this process: nothing here returns."""
    try:
        yield
    except BaseException:
        control.send(json.dumps({"failed": traceback.format_exc(limit=-4)[-8000:]}).encode())
    os._exit(1)


def _guard(parent: int, inner: int, base: str) -> NoReturn:
    """Wait for the inner process; kill it when the pool's process is gone. Leave nothing behind."""
    sc.prctl(sc.PR_SET_CHILD_SUBREAPER, 1)
    sc.prctl(sc.PR_SET_DUMPABLE, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while not os.waitpid(inner, os.WNOHANG)[0]:
        if os.getppid() != parent:
            os.kill(inner, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.2)
    _sweep_orphans(set())
    with contextlib.suppress(OSError):
        transfer.remove_tree(base)
    os._exit(0)


def _inner(control: socket.socket, plan: JailPlan, request: Any, proc: int) -> NoReturn:
    with _failure_told(control):
        sc.prctl(sc.PR_SET_PDEATHSIG, signal.SIGKILL)
        plan = replace(plan, listening=build_inside(plan, proc))
        sc.close_from_except((control.fileno(), proc))
        if not plan.own_proc:
            plan = replace(plan, proc=proc)
        server = 0
        if plan.namespaces:
            program = sc.build(sc.Policy(listening=plan.listening))
            plan = replace(plan, filter_code=encode(program))
            plan, server, report = _start_fork_server(control, plan, request["stack"], proc)
        else:
            os.environ["JOBLIB_MULTIPROCESSING"] = "0"  # its semaphores need a /dev/shm
            report = _warm_up(plan, request["stack"], proc)
        if plan.own_proc:
            os.close(proc)  # the outer one
        _settle_memory()
        control.send(json.dumps({"ready": report}).encode())
        _Loop(control, plan, request["spares"], server).run()
    raise AssertionError


def _settle_memory() -> None:
    """Nothing that is there now is looked at by the collector again, here or in a fork."""
    gc.collect()
    gc.freeze()
    sc.prctl(sc.PR_SET_DUMPABLE, 0)


def _warm_up(plan: JailPlan, stack: list[str], proc: int) -> dict[str, Any]:
    """Import the stack into this process; the report with what came of it.

    A fork copies one thread: with more of them a lock could stay shut in every call.
    """
    began = time.monotonic()
    sys.path[:] = [p for p in sys.path if os.path.exists(p)]
    versions: dict[str, str] = {}
    missing = dict(plan.report["missing"])
    for name in stack:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing[name] = f"not imported: {error}"
        if usage.own_threads(proc) != 1:
            raise RuntimeError(f"importing {name} starts threads; leave it out of sandbox.stack")
        top = sys.modules.get(name.partition(".")[0])
        if top is not None and hasattr(top, "__version__"):
            versions[top.__name__] = str(top.__version__)
    user_process.note_own_modules()
    took = time.monotonic() - began
    return {**plan.report, "stack": versions, "import_s": took, "missing": missing}


def _start_fork_server(
    control: socket.socket, plan: JailPlan, stack: list[str], proc: int
) -> tuple[JailPlan, int, dict[str, Any]]:
    """The fork server as a child; (plan with the way to it, its pid, the report)."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        with _failure_told(theirs):
            control.close()
            ours.close()
            theirs.send(json.dumps(_warm_up(plan, stack, proc)).encode())
            if plan.own_proc:
                os.close(proc)
            _settle_memory()
            gc.disable()  # each user process enables it again
            _ForkServer(plan, theirs).run()
    theirs.close()
    report: dict[str, Any] = json.loads(ours.recv(1 << 18) or b'{"failed": "it ended early"}')
    if "failed" in report:
        raise RuntimeError(report["failed"].strip().rpartition("\n")[2])
    return replace(plan, warm=ours.detach()), pid, report


def _own_pid_namespace(plan: JailPlan) -> int:
    path, at = ("/proc/self/ns/pid", None) if plan.own_proc else ("self/ns/pid", plan.proc)
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=at)


class _Events:
    """What a process that forks on request waits for: requests, and the ends of its children."""

    def __init__(self, requests: socket.socket) -> None:
        self.requests = requests
        self.wake, write = socket.socketpair()
        self.wake.setblocking(False)
        write.setblocking(False)
        signal.signal(signal.SIGCHLD, self._nothing)  # without a handler nothing is written
        signal.set_wakeup_fd(write.detach(), warn_on_full_buffer=False)
        self.poller = select.poll()
        self.poller.register(self.requests, select.POLLIN)
        self.poller.register(self.wake, select.POLLIN)

    @staticmethod
    def _nothing(*_: object) -> None: ...

    def wait(self) -> bool:
        """Until something happens; whether it is a request (or the end of those who make them)."""
        asked = self.requests.fileno() in [descriptor for descriptor, _ in self.poller.poll()]
        with contextlib.suppress(BlockingIOError):
            while self.wake.recv(4096):
                pass
        return asked


def _forget_children() -> None:
    """In a fresh fork: undo what `_Events` set."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _dead() -> Iterator[tuple[int, int, Any]]:
    """Children that have ended: pid, wait status, what they used."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.wait4(-1, os.WNOHANG))[0]:
            yield found


class _ForkServer:
    """It has imported the stack and forks user processes into jails made by others.

    A fork of the warm interpreter costs milliseconds (its page tables), a fork of the small
    launcher does not. So init comes from the launcher, and only the user process comes from here:
    into the pid namespace that init names, from where it enters init's mounts. This process never
    runs the model's code. It waits for its children and tells each one's init how that ended.
    """

    def __init__(self, plan: JailPlan, requests: socket.socket) -> None:
        self.plan, self.requests = plan, requests
        self.own_pid_ns = _own_pid_namespace(plan)
        self.running: dict[int, socket.socket] = {}
        self.events = _Events(requests)

    def run(self) -> NoReturn:
        """Fork on request until the launcher is gone."""
        while not self.events.wait() or self._request():
            for pid, status, used in _dead():
                end = self.running.pop(pid, None)
                if end is not None:
                    cpu = int((used.ru_utime + used.ru_stime) * 1e6)
                    with end, contextlib.suppress(OSError):  # init may be gone already
                        end.send(inside.EXIT.pack(status, cpu, used.ru_maxrss * 1024))
        os._exit(0)

    def _request(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self.requests, 16, 5)
        if not data:
            return False
        channel, end, pid_ns, *spaces = descriptors
        pid = -1
        try:
            sc.setns(pid_ns, sc.CLONE_NEWPID)
            pid = sc.fork()
            if pid == 0:
                self._become_user(channel, spaces)
        except OSError:
            pass  # that init has died meanwhile: closing its descriptors is the answer
        sc.setns(self.own_pid_ns, sc.CLONE_NEWPID)
        if pid > 0:
            self.running[pid] = socket.socket(fileno=os.dup(end))
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _become_user(self, channel: int, spaces: list[int]) -> NoReturn:
        try:
            _forget_children()
            sc.close_from_except({channel, self.plan.proc, *spaces})
            for space in spaces:
                sc.setns(space, 0)
                os.close(space)
            gc.enable()
            user_process.fork_of_warm(self.plan, channel)
        finally:
            os._exit(1)


@dataclass
class _Init:
    """One forked init, and the number of its call."""

    pid: int
    channel: socket.socket
    call: int = -1


class _Loop:
    """Hands each call to an init that was forked ahead, and forks the next one."""

    def __init__(self, control: socket.socket, plan: JailPlan, spares: int, server: int) -> None:
        self.control, self.plan, self.wanted, self.server = control, plan, spares, server
        self.own_pid_ns = _own_pid_namespace(plan) if plan.namespaces else -1
        self.spare: deque[_Init] = deque()
        self.running: dict[int, _Init] = {}
        self.events = _Events(control)

    def run(self) -> NoReturn:
        """Serve until the pool closes its end or the fork server has died."""
        self._refill()
        while (not self.events.wait() or self._message()) and self._reap():
            self._refill()
        for pid in [*(i.pid for i in self.spare), *self.running, *filter(None, [self.server])]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0):
                pass
        os._exit(0)

    def _refill(self) -> None:
        while len(self.spare) < self.wanted:
            self.spare.append(self._fork())

    def _message(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self.control, 1 << 16, 2)
        if not data:
            return False
        message: dict[str, Any] = json.loads(data)
        if message["op"] == "kill":
            for init in self.running.values():
                if init.call == message["id"]:
                    os.kill(init.pid, signal.SIGKILL)  # at most dead, not yet reaped
        elif descriptors:
            init = self.spare.popleft() if self.spare else self._fork()
            init.call = message["id"]
            self.running[init.pid] = init
            # if it is dead, the pool sees its end closed
            with init.channel, contextlib.suppress(OSError):
                socket.send_fds(init.channel, [b"call"], descriptors)
            for given in descriptors:
                os.close(given)
        return True

    def _fork(self) -> _Init:
        ours, theirs = socket.socketpair()
        if self.plan.namespaces:
            sc.unshare(sc.CLONE_NEWPID)
        pid = sc.fork() if self.plan.namespaces else os.fork()
        if pid == 0:
            try:
                _forget_children()
                sc.close_from_except({theirs.fileno(), self.plan.proc, self.plan.warm})
                inside.run_init(self.plan, theirs)
            finally:
                os._exit(1)
        if self.plan.namespaces:
            # a second unshare of the pid namespace fails unless we come back to our own
            sc.setns(self.own_pid_ns, sc.CLONE_NEWPID)
        theirs.close()
        return _Init(pid, ours)

    def _reap(self) -> bool:
        """Collect the dead; false when the fork server is among them."""
        for pid, _, _ in _dead():
            if pid == self.server:
                return False
            self.running.pop(pid, None)
            for init in [i for i in self.spare if i.pid == pid]:
                self.spare.remove(init)
                init.channel.close()
            if not self.plan.namespaces:
                _sweep_orphans({*self.running, *(i.pid for i in self.spare)})
                transfer.remove_tree(f"{self.plan.base}/{pid}")
        return True


def _sweep_orphans(keep: set[int]) -> None:
    """Without a pid namespace: kill what a dead init left, which has come to us as a subreaper."""
    try:
        proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        for _ in range(200):
            lost = [p for p in usage.children(proc, os.getpid()) if p not in keep]
            if not lost:
                return
            for pid in [*lost, *(d for p in lost for d in usage.descendants(proc, p))]:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            for pid in lost:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
    finally:
        os.close(proc)


# ---- the level of a machine: every layer is tried in a child before it is relied on

_NAMESPACES = sc.CLONE_NAMESPACES & ~sc.CLONE_NEWUSER
_PREFIX_PARTS = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg", "share/zoneinfo")
_MADE_ANEW = (jail.WORK, "/proc", jail.SHARED, jail.GIVEN, jail.KEPT)


def interpreter_paths() -> tuple[str, ...]:
    """This interpreter's own directories and libraries, and nothing else of its prefixes.

    A virtual environment may be made in the very directory that holds the data, so a prefix is
    never taken whole.
    """
    prefixes = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
    prefixes += [os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))]
    found: list[str] = []
    for prefix in dict.fromkeys([*prefixes, *map(os.path.realpath, prefixes)]):
        found += [os.path.join(prefix, part) for part in _PREFIX_PARTS]
    found += [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p.startswith("/")]
    with open("/proc/self/maps") as maps:
        found += [line.split(None, 5)[5].strip() for line in maps if ".so" in line and "/" in line]
    found += [os.path.realpath(path) for path in found if os.path.islink(path)]
    return tuple(dict.fromkeys(p for p in found if os.path.lexists(p)))


def covered(wanted: Iterable[str]) -> str:
    """Why a jail with mounts of its own cannot show one of `wanted`; empty when it can show all."""
    for path in wanted:
        if path in (jail.TMP, jail.SHM) or jail.below(path, _MADE_ANEW):
            return (
                f"the interpreter needs {path}, where every call has a directory of its own; put "
                "the interpreter or that library elsewhere, or ask for level confined"
            )
    return ""


def choose_plan(request: dict[str, Any]) -> JailPlan:
    """The plan of the best level that holds, or of the one that was asked for.

    Raises OSError when that is below the minimum, or when nothing holds.
    """
    missing: dict[str, str] = {}
    abi = _usable_landlock(request["landlock_abi"], missing)
    if problem := attempt(_try_seccomp):
        raise OSError(f"seccomp filters do not work here: {problem}")
    root = can_drop_root()
    forced: Level | None = request["level"]
    plan = JailPlan(
        namespaces=False,
        landlock_abi=abi,
        as_root=root,
        root_mounts=root and not attempt(lambda: sc.unshare(sc.CLONE_NEWNS)),
        interpreter=interpreter_paths(),
        shared=request["shared"],
        roots=tuple(request["roots"]),
    )
    level: Level = "limits"
    if forced in (None, "full"):
        if hidden := covered(plan.interpreter):
            raise OSError(hidden)
        for own_proc in (True, False):
            within = replace(plan, namespaces=True, own_proc=own_proc)
            problem = attempt(lambda plan=within: _in_namespaces(plan))
            if not problem:
                level, plan = "full", within
                break
            layer = "own_proc" if "mount proc" in problem else "user_ns"
            missing.setdefault(layer if own_proc else "mount_ns", problem)
    if level != "full" and forced in (None, "confined") and abi:
        level = "confined"
    reasons = "; ".join(f"{layer}: {why}" for layer, why in missing.items())
    if forced and forced != level:
        raise OSError(f"level {forced!r} does not hold here: {reasons}")
    if LEVELS.index(level) > LEVELS.index(request["min_level"]):
        raise OSError(
            f"this machine reaches sandbox level {level!r} and the configuration asks for at least "
            f"{request['min_level']!r} ({reasons}); enable what is missing, or ask for "
            f"min_level={level}"
        )
    if level == "limits":
        plan = replace(plan, landlock_abi=0)
    layers = {n: plan.namespaces for n in ("user_ns", "mount_ns", "pid_ns", "net_ns")}
    layers |= {"own_proc": plan.own_proc, "seccomp": True, "landlock_abi": plan.landlock_abi}
    uid = "root" if plan.as_root else "ordinary"
    report = {"level": level, "uid": uid, "layers": layers, "missing": missing}
    return replace(plan, report=report)


# Entering the namespaces, as the launcher does and as the trials do


def enter_namespaces(plan: JailPlan, proc: int) -> None:
    """Leave root and enter the namespaces; the next fork is pid 1 of the new ones."""
    if plan.root_mounts:
        sc.unshare(sc.CLONE_NEWNS)
        jail.private_mounts()
    if plan.namespaces:
        if plan.root_mounts:
            jail.build_root(plan, keep_proc=True)
    elif plan.as_root:
        # the calls' directories must belong to the id that we are about to take
        os.chown(plan.base, jail.ROOT_DROPS_TO + os.getpid(), -1)
        if plan.root_mounts:
            jail.reach([*plan.interpreter, *plan.shared.values()], plan.base)
    jail.drop_root()
    if plan.namespaces:
        jail.enter_user_namespace(_NAMESPACES, proc)


def build_inside(plan: JailPlan, proc: int) -> bool:
    """In the first process of the namespaces: its own /proc, root and host name. Returns whether
    the code may run servers. It may where the kernel bounds how many clients wait for one, because
    each of them holds data that nobody has read."""
    if not plan.namespaces:
        sc.prctl(sc.PR_SET_CHILD_SUBREAPER, 1)
        return False
    jail.private_mounts()
    if not plan.root_mounts:
        jail.build_root(plan, keep_proc=False)
    elif plan.own_proc:
        jail.mount_proc()
    else:
        sc.mount("tmpfs", "/proc", "tmpfs", sc.MS_RDONLY, "size=4k,mode=755")
    sc.call("sethostname", b"sandbox", 7)
    own = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY) if plan.own_proc else os.dup(proc)
    try:
        return jail.bound_backlog(own)
    finally:
        os.close(own)


# Trials


def attempt(step: Callable[[], object]) -> str:
    """Run `step` in a child; the empty string when it went well, else what went wrong."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        text = ""
        try:
            step()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        theirs.sendall(json.dumps(text).encode())
        os._exit(0)
    theirs.close()
    with ours:
        answer = ours.recv(1 << 16)
    _, status = os.waitpid(pid, 0)
    if not answer:
        return f"the trial ended with status {os.waitstatus_to_exitcode(status)}"
    return str(json.loads(answer))


def _usable_landlock(wanted: int | None, missing: dict[str, str]) -> int:
    """The version that works, at most `wanted`; 0 with the reason in `missing`."""
    abi = landlock_abi() if wanted is None else min(wanted, landlock_abi())
    if not abi:
        missing["landlock"] = "this kernel does not offer it"
    elif problem := attempt(lambda: _try_landlock(abi)):
        abi, missing["landlock"] = 0, problem
    return abi


def can_drop_root() -> bool:
    """Whether there is an id to give up; raises OSError where there is and it cannot be."""
    root = jail.is_root()
    if root and (problem := attempt(jail.drop_root)):
        raise OSError(f"root has to give its id up and cannot ({problem}); run as another user")
    if not root and os.geteuid() == 0 and attempt(_try_process_limit):
        raise OSError(
            "this is the node's own root in a user namespace that maps no other id: it cannot give "
            "its id up, and no limit on processes binds it; leave that namespace or run as another "
            "user"
        )
    return root


def _in_namespaces(plan: JailPlan) -> None:
    """Enter for real, and go as far as a call's init does."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    enter_namespaces(plan, proc)

    def inner() -> None:
        build_inside(plan, proc)
        sc.unshare(sc.CLONE_NEWNS)
        jail.mount_scratch(Limits(work_mb=1, work_files=100, tmp_mb=1, shm_mb=1))
        if plan.own_proc:
            jail.mount_proc()

    if problem := attempt(inner):
        raise OSError(problem)


def _try_process_limit() -> None:
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    try:
        pid = os.fork()
    except BlockingIOError:
        return
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    raise OSError("a process beyond the limit could be started")


def _try_landlock(abi: int) -> None:
    sc.prctl(sc.PR_SET_NO_NEW_PRIVS, 1)
    restrict_files(abi, [("/usr", READ)])
    os.listdir("/usr")
    with contextlib.suppress(PermissionError):
        os.listdir("/")
        raise OSError("a directory outside the rules could still be read")


def _try_seccomp() -> None:
    sc.prctl(sc.PR_SET_NO_NEW_PRIVS, 1)
    install_seccomp(encode(sc.build(sc.Policy())))
    try:
        sc.call("ptrace", 0, 0, ctypes.c_void_p(None), ctypes.c_void_p(None))
    except PermissionError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
