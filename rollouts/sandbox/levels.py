"""Choosing the level of a machine: every layer is tried in a child before it is relied on."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from assay.confine import READ, encode, install_seccomp, landlock_abi, restrict_files
from rollouts.sandbox import jail
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.jail import JailPlan
from rollouts.sandbox.model import LEVELS, Level, Limits

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
    """In the first process of the namespaces: its own /proc, root and host name. Whether the code
    may have servers: only where few of their clients can wait, each with unread data."""
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
