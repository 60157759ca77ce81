"""The launcher: exec'd with a built environment, closes itself in, imports the stack, and forks.

The outer one chooses the level by trying it, enters the namespaces and waits: when
the pool's process dies it kills the inner one. The inner one is pid 1 of its own pid namespace,
forks an init per call and never runs the model's code. Where namespaces are in use the stack is
imported by a child of its own (warm.py), else by itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from dataclasses import replace
from typing import Any, NoReturn

from assay.confine import encode
from rollouts.sandbox import cores, script, serve, trial, warm, watch
from rollouts.sandbox import filter as seccomp
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.scene import Scene


def main(descriptor: int) -> None:
    """Entry point of the exec'd interpreter; `descriptor` is the pool's control socket."""
    control = socket.socket(fileno=descriptor)
    parent = os.getppid()
    request: dict[str, Any] = json.loads(control.recv(1 << 20))
    try:
        os.umask(0o022)
        plan = trial.choose(request)
        _start(control, parent, plan, request)
    except BaseException:
        text = traceback.format_exc(limit=-4)
        control.send(json.dumps({"failed": text[-8000:]}).encode())
        os._exit(1)


def _start(control: socket.socket, parent: int, plan: trial.Choice, request: Any) -> NoReturn:
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    trial.enter(plan, request, proc)
    inner = os.fork()
    if inner == 0:
        _inner(control, plan, request, proc)
    control.close()
    _guard(parent, inner)


def _guard(parent: int, inner: int) -> NoReturn:
    """Wait for the inner process; kill it when the pool's process is gone."""
    sc.prctl(sc.PR_SET_CHILD_SUBREAPER, 1)
    sc.prctl(sc.PR_SET_DUMPABLE, 0)
    poller = select.poll()
    try:
        poller.register(os.pidfd_open(inner), select.POLLIN)
        poller.register(os.pidfd_open(parent), select.POLLIN)
        wait = None
    except OSError:
        wait = 200
    while True:
        poller.poll(wait)
        done, _ = os.waitpid(inner, os.WNOHANG)
        if done:
            break
        if os.getppid() != parent:
            os.kill(inner, signal.SIGKILL)
            os.waitpid(inner, 0)
            break
    serve.sweep_orphans()
    os._exit(0)


def _inner(control: socket.socket, plan: trial.Choice, request: Any, proc: int) -> NoReturn:
    try:
        sc.prctl(sc.PR_SET_PDEATHSIG, signal.SIGKILL)
        listening = trial.settle(plan, request, proc)
        if not plan.namespaces:
            os.environ["JOBLIB_MULTIPROCESSING"] = "0"  # its semaphores need a /dev/shm
        sc.close_from_except((control.fileno(), proc))
        stage = _stage(plan, request, proc, listening)
        if plan.namespaces:
            stage, partner, report = _fork_warm(control, plan, request, stage, proc)
        else:
            partner, report = 0, _warm_up(plan, request, proc)
        if plan.own_proc:
            os.close(proc)  # the outer one
        gc.collect()
        gc.freeze()
        sc.prctl(sc.PR_SET_DUMPABLE, 0)
        control.send(json.dumps({"ready": report}).encode())
        serve.forever(control, stage, request, partner)
    except BaseException:
        control.send(json.dumps({"failed": traceback.format_exc(limit=-4)[-8000:]}).encode())
    os._exit(1)


def _warm_up(plan: trial.Choice, request: Any, proc: int) -> dict[str, Any]:
    """Import the stack into this process; the report with what came of it."""
    began = time.monotonic()
    versions, absent = _import(request["stack"], proc)
    script.note_own_modules()
    cores.note_libraries(watch.read(proc, "self/maps", 1 << 24).decode("utf-8", "replace"))
    report = {**plan.report, "stack": versions, "import_s": time.monotonic() - began}
    return {**report, "missing": {**plan.report["missing"], **absent}}


def _fork_warm(
    control: socket.socket, plan: trial.Choice, request: Any, stage: Scene, proc: int
) -> tuple[Scene, int, dict[str, Any]]:
    """The warm process as a child; (scene with the way to it, its pid, the report)."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            control.close()
            ours.close()
            theirs.send(json.dumps(_warm_up(plan, request, proc)).encode())
            if plan.own_proc:
                os.close(proc)
            gc.collect()
            gc.freeze()
            gc.disable()  # each user process enables it again
            sc.prctl(sc.PR_SET_DUMPABLE, 0)
            warm.serve(stage, theirs)
        except BaseException:
            theirs.send(json.dumps({"failed": traceback.format_exc(limit=-4)[-8000:]}).encode())
        os._exit(1)
    theirs.close()
    report: dict[str, Any] = json.loads(ours.recv(1 << 18) or b'{"failed": "it ended early"}')
    if "failed" in report:
        raise RuntimeError(report["failed"].strip().rpartition("\n")[2])
    return replace(stage, warm=ours.detach()), pid, report


def _stage(plan: trial.Choice, request: Any, proc: int, listening: bool) -> Scene:
    code = b""
    if plan.namespaces:
        code = encode(seccomp.build(seccomp.Policy(listening=listening)))
    return Scene(
        namespaces=plan.namespaces,
        own_proc=plan.own_proc,
        listening=listening,
        landlock_abi=plan.landlock_abi,
        filter_code=code,
        proc=-1 if plan.own_proc else proc,
        base=request["base"],
        reads=plan.reads,
        shared=request["shared"],
    )


def _import(names: list[str], proc: int) -> tuple[dict[str, str], dict[str, str]]:
    """Import the stack; (versions, reason per package that could not be imported).

    A fork copies one thread: with more of them a lock could stay shut in every call.
    """
    sys.path[:] = [p for p in sys.path if os.path.exists(p)]
    versions: dict[str, str] = {}
    absent: dict[str, str] = {}
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            absent[name] = f"not imported: {error}"
        if watch.threads(proc) != 1:
            raise RuntimeError(f"importing {name} starts threads; leave it out of sandbox.stack")
        top = sys.modules.get(name.partition(".")[0])
        if top is not None and hasattr(top, "__version__"):
            versions[top.__name__] = str(top.__version__)
    return versions, absent
