"""Where a call takes place: what the launcher fixed once and every jail on it shares."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from assay.confine import DEVICE, READ, WRITE, encode, install_seccomp, restrict_files
from rollouts.sandbox import filter as seccomp
from rollouts.sandbox import jail, mounts
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.model import Limits

_DEVICES_RW = ("/dev/null", "/dev/full")
_DEVICES_RO = ("/dev/random", "/dev/urandom")
_ETC = (
    *("ld.so.cache", "localtime", "alternatives", "passwd", "group", "nsswitch.conf", "hosts"),
    "mime.types",  # read by Python's mimetypes, which openpyxl imports
)
_PROC = (
    "cpuinfo meminfo stat loadavg uptime version filesystems sys/kernel/random sys/vm "
    "sys/kernel/osrelease sys/kernel/pid_max sys/kernel/threads-max sys/fs/pipe-max-size"
)
_SYS = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup")


@dataclass(frozen=True)
class Scene:
    """Fixed per launcher. `filter_code` is empty where the filter depends on the call's pid."""

    namespaces: bool
    own_proc: bool
    landlock_abi: int
    listening: bool  # whether the code may have servers
    filter_code: bytes
    proc: int  # the outer /proc, opened before leaving it; -1 where init mounts its own
    base: str = ""  # without namespaces: the directory that holds the calls' directories
    reads: tuple[str, ...] = ()  # without namespaces: the interpreter's own paths
    shared: Mapping[str, str] = field(default_factory=dict[str, str])  # name: real path
    warm: int = -1  # with namespaces: init's way to the warm process

    @property
    def own_network(self) -> bool:
        """Whether each call has a network of its own, because Landlock cannot part the calls."""
        return self.namespaces and self.landlock_abi < 6


@dataclass(frozen=True)
class Place:
    """The directories of one call."""

    work: str
    tmp: str
    top: str = ""  # what to remove afterwards, without namespaces
    shared: tuple[str, ...] = ()  # without namespaces: directories that this call may read

    @property
    def writable(self) -> list[str]:
        return [self.work, self.tmp]


def place_of(scene: Scene) -> Place:
    """The directories for the calling init, made where they are not mounts."""
    if scene.namespaces:
        return Place(jail.WORK, jail.TMP)
    top = f"{scene.base}/{os.getpid()}"
    os.mkdir(top, 0o700)
    for name in ("work", "tmp"):
        os.mkdir(f"{top}/{name}", 0o700)
    return Place(f"{top}/work", f"{top}/tmp", top)


def prepare(scene: Scene, limits: Limits) -> None:
    """In a fresh init: its own mounts and maybe its own network."""
    if not scene.namespaces:
        return
    sc.unshare(sc.CLONE_NEWNS | (sc.CLONE_NEWNET if scene.own_network else 0))
    mounts.mount_scratch((limits.work_mb, limits.work_files), limits.tmp_mb, limits.shm_mb)
    if scene.own_proc:
        jail.mount_proc()
    if scene.own_network and scene.listening:
        proc = os.open("/proc", os.O_RDONLY) if scene.own_proc else scene.proc
        if not mounts.bound_backlog(proc):
            raise OSError("the backlog of listening sockets could not be bounded")
        if scene.own_proc:
            os.close(proc)


def grants(scene: Scene, place: Place) -> list[tuple[str, int]]:
    """What Landlock lets the user process do, by path."""
    found = [(p, WRITE) for p in place.writable]
    found += [(p, DEVICE) for p in _DEVICES_RW]
    if scene.namespaces:
        return [("/", READ), (jail.SHM, WRITE), *found]
    read = [*jail.SYSTEM, *scene.reads, *place.shared, *_DEVICES_RO, *_SYS]
    read += [f"/etc/{name}" for name in _ETC]
    read += [f"/proc/{name}" for name in (*_PROC.split(), str(os.getpid()))]
    return found + [(p, READ) for p in read]


def confine(scene: Scene, place: Place) -> None:
    """The last steps in the user process; there is no way back from any of them."""
    sc.drop_capabilities()  # of our own namespace, or of one that we are called root in
    sc.prctl(sc.PR_SET_NO_NEW_PRIVS, 1)
    if scene.landlock_abi:
        restrict_files(scene.landlock_abi, grants(scene, place))
    install_seccomp(scene.filter_code or own_filter(scene))


def own_filter(scene: Scene) -> bytes:
    """The filter without namespaces: no sockets; Landlock bounds the signals, or the pid does."""
    own = 0 if scene.landlock_abi >= 6 else os.getpid()
    return encode(seccomp.build(seccomp.Policy(sockets=False, own_pid=own)))
