"""The user process before the code: close in, take what it is given, say so, go."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import signal
import socket
from typing import NoReturn

from rollouts.sandbox import cores, jail, scene, script, watch, wire
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.model import MIB, Limits
from rollouts.sandbox.orders import BEGUN, CLOSED, Order, Ready, Streams
from rollouts.sandbox.scene import Place, Scene


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


def _begin(order: Order, place: Place, ready: Ready, control: int, source: bytes) -> NoReturn:
    """The last of our own steps, then the code."""
    script.set_places(place)
    cores.use(order.limits.threads)
    with contextlib.suppress(OSError):
        sc.rename_process("python", "main.py", *order.argv)
    ready.say(BEGUN)
    if control >= 0:
        ready.close()
        script.run_cells(place, order.seed, control)
    script.run(source, place, order, ready)


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
