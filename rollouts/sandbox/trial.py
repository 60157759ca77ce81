"""Choosing the level: every layer is tried in a child before it is relied on."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from assay.confine import READ, encode, install_seccomp, landlock_abi, restrict_files
from rollouts.sandbox import filter as seccomp
from rollouts.sandbox import interpreter, jail, mounts
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.model import LEVELS, NAMESPACED, Level

_NAMESPACES = (
    sc.CLONE_NEWNS
    | sc.CLONE_NEWPID
    | sc.CLONE_NEWNET
    | sc.CLONE_NEWIPC
    | sc.CLONE_NEWUTS
    | sc.CLONE_NEWCGROUP
)


@dataclass(frozen=True)
class Choice:
    """The level that was chosen and what it stands on."""

    level: Level
    landlock_abi: int
    reads: tuple[str, ...]
    as_root: bool
    root_mounts: bool  # real root builds the new root before it drops its id
    own_proc: bool
    report: dict[str, Any]

    @property
    def namespaces(self) -> bool:
        return self.level in NAMESPACED


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


def choose(request: dict[str, Any]) -> Choice:
    """The best level that holds, or the forced one; raises when it is below the minimum."""
    missing: dict[str, str] = {}
    abi = _landlock(request["landlock_abi"], missing)
    if problem := attempt(_try_seccomp):
        raise OSError(f"seccomp filters do not work here: {problem}")
    root = _root()
    mounts = root and not attempt(lambda: sc.unshare(sc.CLONE_NEWNS))
    reads = interpreter.paths()
    forced: Level | None = request["level"]
    candidates = _candidates(forced, abi)
    if any(c.namespaces for c in candidates) and (hidden := interpreter.covered(reads)):
        raise OSError(hidden)
    found = Choice("limits", 0, reads, root, mounts, False, {})
    for candidate in candidates:
        choice = replace(candidate, reads=reads, as_root=root, root_mounts=mounts)
        problem = _problem(choice, request)
        if not problem:
            found = choice
            break
        missing.setdefault(_blame(candidate.level, problem), problem)
    else:
        if forced:
            raise OSError(f"level {forced!r} does not hold here: {_reasons(missing)}")
    if LEVELS.index(found.level) > LEVELS.index(request["min_level"]):
        raise OSError(_refusal(found.level, request["min_level"], missing))
    return replace(found, report=_report(found, request, missing))


def _landlock(wanted: int | None, missing: dict[str, str]) -> int:
    """The version that works, at most `wanted`; 0 with the reason in `missing`."""
    abi = landlock_abi() if wanted is None else min(wanted, landlock_abi())
    if not abi:
        missing["landlock"] = "this kernel does not offer it"
    elif problem := attempt(lambda: _try_landlock(abi)):
        abi, missing["landlock"] = 0, problem
    return abi


def _root() -> bool:
    """Whether there is an id to give up; raises where there is and it cannot be."""
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


def _candidates(forced: Level | None, abi: int) -> list[Choice]:
    """What to try, best first."""
    tried: list[tuple[Level, int, bool]] = [("full", abi, True), ("full-noproc", abi, False)]
    if not abi or forced == "full-nolandlock":
        tried.append(("full-nolandlock", 0, True))
        tried.append(("full-nolandlock", 0, False))
    tried.append(("confined", abi, False))
    if forced:
        tried.append(("limits", 0, False))
    chosen = [c for c in tried if forced in (None, c[0])]
    return [Choice(level, version, (), False, False, proc, {}) for level, version, proc in chosen]


def _report(choice: Choice, request: dict[str, Any], missing: dict[str, str]) -> dict[str, Any]:
    layers = {n: choice.namespaces for n in ("user_ns", "mount_ns", "pid_ns", "net_ns")}
    layers |= {"own_proc": choice.own_proc, "seccomp": True, "cgroup": False}
    overlay = attempt(lambda: _try_overlay(choice, request))
    if overlay:
        missing["overlay"] = overlay
    missing["cgroup"] = "not used: a watchdog bounds the total memory every 50 ms"
    return {
        "level": choice.level,
        "uid": "root" if choice.as_root else "ordinary",
        "layers": {**layers, "landlock_abi": choice.landlock_abi, "overlay": not overlay},
        "missing": missing,
    }


def _blame(level: Level, problem: str) -> str:
    if problem == _NO_LANDLOCK:
        return "landlock"
    if level == "full" and "mount proc" in problem:
        return "own_proc"
    return "user_ns" if level == "full" else "mount_ns"


_NO_LANDLOCK = "Landlock is not available"


def _reasons(missing: dict[str, str]) -> str:
    return "; ".join(f"{layer}: {why}" for layer, why in missing.items() if layer != "cgroup")


def _refusal(level: Level, minimum: Level, missing: dict[str, str]) -> str:
    return (
        f"this machine reaches sandbox level {level!r} and the configuration asks for at least "
        f"{minimum!r} ({_reasons(missing)}); enable what is missing, or ask for min_level={level}"
    )


def _problem(choice: Choice, request: dict[str, Any]) -> str:
    if choice.level == "limits":
        return ""
    if choice.level != "full-nolandlock" and not choice.landlock_abi:
        return _NO_LANDLOCK
    if choice.level == "confined":
        return ""
    return attempt(lambda: _try_namespaces(choice, request))


def enter(choice: Choice, request: dict[str, Any], proc: int) -> None:
    """Leave root and enter the namespaces; the next fork is pid 1 of the new ones."""
    if choice.namespaces and choice.root_mounts:
        sc.unshare(sc.CLONE_NEWNS)
        jail.private_mounts()
        jail.build_root(_plan(choice, request), keep_proc=True)
    if choice.as_root and not choice.namespaces:
        # the calls' directories must belong to the id that we are about to take
        os.chown(request["base"], jail.ROOT_DROPS_TO + os.getpid(), -1)
        if choice.root_mounts:
            sc.unshare(sc.CLONE_NEWNS)
            jail.private_mounts()
            jail.reach([*choice.reads, *request["shared"].values()], request["base"])
    jail.drop_root()
    if choice.namespaces:
        jail.enter_user_namespace(_NAMESPACES, proc)


def settle(choice: Choice, request: dict[str, Any], proc: int) -> bool:
    """In the first process of the namespaces: its own /proc, root and host name. Whether the code
    may have servers: only where few of their clients can wait, each with unread data."""
    if not choice.namespaces:
        sc.prctl(sc.PR_SET_CHILD_SUBREAPER, 1)
        return False
    jail.private_mounts()
    if not choice.root_mounts:
        jail.build_root(_plan(choice, request), keep_proc=False)
    elif choice.own_proc:
        jail.mount_proc()
    else:
        sc.mount("tmpfs", "/proc", "tmpfs", sc.MS_RDONLY, "size=4k,mode=755")
    sc.call("sethostname", b"sandbox", 7)
    if not choice.own_proc:
        return mounts.bound_backlog(proc)
    own = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        return mounts.bound_backlog(own)
    finally:
        os.close(own)


def _plan(choice: Choice, request: dict[str, Any]) -> jail.RootPlan:
    roots = tuple(request.get("roots", ()))
    return jail.RootPlan(choice.reads, choice.own_proc, request["shared"], roots)


def _in_namespaces(choice: Choice, request: dict[str, Any], step: Callable[[], object]) -> None:
    """Enter for real, then run `step` where a call's init would stand."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    enter(choice, request, proc)

    def inner() -> None:
        settle(choice, request, proc)
        sc.unshare(sc.CLONE_NEWNS)
        mounts.mount_scratch((1, 100), 1, 1)
        if choice.own_proc:
            jail.mount_proc()
        step()

    if problem := attempt(inner):
        raise OSError(problem)


def _try_namespaces(choice: Choice, request: dict[str, Any]) -> None:
    _in_namespaces(choice, request, _nothing)


def _nothing() -> None:
    return None


def _try_overlay(choice: Choice, request: dict[str, Any]) -> None:
    if not choice.namespaces:
        raise OSError("needs a mount namespace")

    def step() -> None:
        for name in ("lower", "upper", "scratch", "merged"):
            os.mkdir(f"{jail.WORK}/{name}")
        parts = [f"{k}={jail.WORK}/{v}" for k, v in _OVERLAY]
        sc.mount("overlay", f"{jail.WORK}/merged", "overlay", 0, ",".join([*parts, "userxattr"]))

    _in_namespaces(choice, request, step)


_OVERLAY = (("lowerdir", "lower"), ("upperdir", "upper"), ("workdir", "scratch"))


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
    install_seccomp(encode(seccomp.build(seccomp.Policy())))
    try:
        sc.call("ptrace", 0, 0, ctypes.c_void_p(None), ctypes.c_void_p(None))
    except PermissionError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
