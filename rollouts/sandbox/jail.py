"""What the model's code can see and do at all: namespaces, the root directory, the mounts of one
call, Landlock and the seccomp filter."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.confine import DEVICE, READ, WRITE, encode, install_seccomp, restrict_files
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.model import Limits
from rollouts.sandbox.syscalls import ROOT_DROPS_TO, is_root

WORK, TMP, SHM = "/sandbox", "/tmp", "/dev/shm"
SHARED, GIVEN = "/.shared", "/.given"  # every shared directory; those of one call
KEPT = "/.kept"  # what a call's own TMP and SHM would cover, to be shown in them again
BACKLOG = 8  # connections that may wait at one listening socket, each with unread data
INSIDE_ID = 1000
_OCTAL = re.compile(rb"\\(\d{3})")  # as the table of mounts writes a space
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
# Without /dev/zero: a shared mapping of it is memory that no count shows once it is unmapped.
_DEVICES = ("null", "full", "random", "urandom")
_MADE_UP = {
    "etc/passwd": f"sandbox:x:{INSIDE_ID}:{INSIDE_ID}::{WORK}:/bin/sh\n",
    "etc/group": f"sandbox:x:{INSIDE_ID}:\n",
    "etc/hosts": "127.0.0.1 localhost sandbox\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    # one processor, so that no library starts more threads
    **{f"sys/devices/system/cpu/{n}": "0\n" for n in ("online", "possible", "present")},
}
# What Landlock lets the code read where it has no root directory of its own.
_READABLE = (
    *_SYSTEM,
    *("/dev/random", "/dev/urandom"),
    *("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives", "/etc/passwd", "/etc/group"),
    *("/etc/nsswitch.conf", "/etc/hosts"),
    "/etc/mime.types",  # read by Python's mimetypes, which openpyxl imports
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime"),
    *("/proc/version", "/proc/filesystems", "/proc/sys/kernel/random", "/proc/sys/vm"),
    *("/proc/sys/kernel/osrelease", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"),
    "/proc/sys/fs/pipe-max-size",
)


@dataclass(frozen=True)
class JailPlan:
    """How a launcher makes its jails: chosen once, by trying it (launcher.py).

    `root_mounts`: real root builds the root directory before it drops its id. `own_proc` is false
    where a fresh /proc is refused; `proc` is then the outer one, opened before it is left. `base`
    holds the calls' directories where there are no namespaces.
    """

    namespaces: bool
    landlock_abi: int
    own_proc: bool = False
    as_root: bool = False
    root_mounts: bool = False
    interpreter: tuple[str, ...] = ()  # what it needs of the file system
    base: str = ""
    shared: Mapping[str, str] = field(default_factory=dict[str, str])  # name: real path
    roots: tuple[str, ...] = ()  # names at the top that lead to folders of the work directory
    report: Mapping[str, Any] = field(default_factory=dict[str, Any])
    listening: bool = False  # whether the code may have servers
    filter_code: bytes = b""  # empty where the filter depends on the call's pid
    proc: int = -1
    warm: int = -1  # with namespaces: init's way to the warm process

    @property
    def own_network(self) -> bool:
        """Whether each call has a network of its own, because Landlock cannot part the calls."""
        return self.namespaces and self.landlock_abi < 6


@dataclass(frozen=True)
class Folders:
    """The directories of one call. `shared` are those it may read where they are not mounted."""

    work: str
    tmp: str
    shared: tuple[str, ...] = ()


def below(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or path.startswith(top + "/") for top in tops)


# Ids and namespaces


def drop_root() -> None:
    """From root to an id of our own; does nothing for an ordinary user."""
    if not is_root():
        return
    new = ROOT_DROPS_TO + os.getpid()
    os.setgroups([])
    os.setresgid(new, new, new)
    os.setresuid(new, new, new)
    sc.prctl(sc.PR_SET_DUMPABLE, 1)  # the change of id cleared it, and the maps need it


def enter_user_namespace(extra: int, proc: int) -> None:
    """A user namespace of our own (and the namespaces in `extra`), one id mapped.

    `proc` is an open /proc, which may be one that no path leads to any more.
    """
    uid, gid = os.geteuid(), os.getegid()
    sc.unshare(sc.CLONE_NEWUSER | extra)
    write_proc(proc, "self/setgroups", "deny")
    write_proc(proc, "self/uid_map", f"{INSIDE_ID} {uid} 1")
    write_proc(proc, "self/gid_map", f"{INSIDE_ID} {gid} 1")


def write_proc(proc: int, name: str, text: str) -> None:
    """Write a file of an open /proc."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def bound_backlog(proc: int) -> bool:
    """In a network namespace of our own: let few connections wait. False where that is refused."""
    try:
        write_proc(proc, "sys/net/core/somaxconn", str(BACKLOG))
    except OSError:
        return False
    return True


# The root directory


def private_mounts() -> None:
    sc.mount("none", "/", "", sc.MS_REC | sc.MS_PRIVATE)


def reach(paths: Iterable[str], base: str = "") -> None:
    """Let an ordinary id reach the interpreter although an ancestor of it is shut (as /root is).

    Needs real root in a mount namespace of its own: the shut directory is covered by an empty
    one that holds nothing but `paths`, and `base`, which alone can be written to.
    """
    shut: dict[str, list[str]] = {}
    for path in filter(None, [*paths, base]):
        parts = path.split("/")
        for depth in range(2, len(parts) + (path != base)):  # `base` is the new id's own
            above = "/".join(parts[:depth])
            if os.path.isdir(above) and not os.stat(above).st_mode & 1:
                shut.setdefault(above, []).append(path)
                break
    for above, inner in shut.items():
        sources = {p: os.open(p, os.O_PATH | os.O_CLOEXEC) for p in sorted(inner, key=len)}
        sc.mount("tmpfs", above, "tmpfs", sc.MS_NOSUID | sc.MS_NODEV, "size=1m,mode=755")
        for path, source in sources.items():
            if not os.path.lexists(path):
                target = _bind(path, source, "")
                if path != base:
                    _seal(target)
            os.close(source)


def _bind(path: str, source: int, base: str) -> str:
    """Make the mount point for `path` under `base` and bind the open `source` there."""
    target = base + path
    _mount_point(target, stat.S_ISDIR(os.fstat(source).st_mode))
    sc.mount(f"/proc/self/fd/{source}", target, "", sc.MS_BIND | sc.MS_REC)
    return target


def _seal(target: str) -> None:
    """Turn a whole bound tree read-only, mount by mount: one call for all is in no kernel before
    5.12. Each keeps its own flags, as it must in a user namespace."""
    with open("/proc/self/mountinfo", "rb") as table:
        named = [line.split()[4] for line in table]
    points = [os.fsdecode(_OCTAL.sub(lambda m: bytes([int(m[1], 8)]), n)) for n in named]
    for point in [target, *(p for p in points if p != target and below(p, [target]))]:
        kept = os.statvfs(point).f_flag & (sc.MS_NOEXEC | 1024 | 2048)
        flags = sc.MS_REMOUNT | sc.MS_BIND | sc.MS_RDONLY | sc.MS_NOSUID | sc.MS_NODEV
        sc.mount("none", point, "", flags | kept)


def _wanted(binds: Iterable[str]) -> list[str]:
    """System paths and `binds`, without those that lie under another one."""
    chosen: list[str] = []
    for path in [p for p in _SYSTEM if os.path.lexists(p)] + sorted(binds, key=len):
        if not below(path, chosen):
            chosen.append(path)
    return chosen


def _spot(path: str) -> str:
    """Where the new root holds `path`: aside, when each call mounts something over it."""
    return KEPT + path if below(path, (TMP, SHM)) else path


def _kept(top: str, base: str = "") -> list[str]:
    directory = f"{base}{KEPT}{top}"
    return os.listdir(directory) if os.path.isdir(directory) else []


def _mount_point(path: str, folder: bool) -> None:
    if folder:
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o444))


def _show_kept(base: str = "") -> None:
    """In TMP and SHM, what was kept of them: the interpreter's own files, still read only.

    A whole mount for each name, so that no directory above those files can be moved away.
    """
    for top in (TMP, SHM):
        for name in _kept(top, base):
            source, target = f"{base}{KEPT}{top}/{name}", f"{base}{top}/{name}"
            if os.path.islink(source):
                os.symlink(os.readlink(source), target)
            else:
                _mount_point(target, os.path.isdir(source))
                sc.mount(source, target, "", sc.MS_BIND | sc.MS_REC)


def _furnish(base: str) -> None:
    """The made-up files, directories to mount on, and links of the new root."""
    for name in ("etc", "dev/shm", "proc", TMP[1:], WORK[1:], "run", "var/tmp", GIVEN[1:]):
        os.makedirs(f"{base}/{name}", exist_ok=True)
    for name, text in _MADE_UP.items():
        os.makedirs(os.path.dirname(f"{base}/{name}"), exist_ok=True)
        with open(f"{base}/{name}", "w") as file:
            file.write(text)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{base}/dev/{name}")
    os.symlink("/proc/self/fd", f"{base}/dev/fd")


def build_root(plan: JailPlan, keep_proc: bool) -> None:
    """Make the new root and move into it; the old one is gone afterwards.

    `keep_proc` brings the old /proc along: real root builds before it has a pid namespace.
    """
    wanted = _wanted(plan.interpreter)
    links = {p: os.readlink(p) for p in wanted if os.path.islink(p)}
    paths = {p: p for p in wanted if p not in links}
    paths |= {f"/etc/{n}": f"/etc/{n}" for n in _ETC if os.path.exists(f"/etc/{n}")}
    paths |= {f"{SHARED}/{name}": path for name, path in plan.shared.items()}
    sources = {p: os.open(s, os.O_PATH | os.O_CLOEXEC) for p, s in paths.items()}
    devices = {f"/dev/{n}": os.open(f"/dev/{n}", os.O_PATH | os.O_CLOEXEC) for n in _DEVICES}
    base = next((p for p in ("/tmp", "/var/tmp", "/mnt", "/run") if os.path.isdir(p)), "")
    if not base:
        raise OSError("no folder to mount the new root on: /tmp, /var/tmp, /mnt or /run is needed")
    flags = sc.MS_NOSUID | sc.MS_NODEV
    sc.mount("tmpfs", base, "tmpfs", flags, "size=16m,mode=755")
    _furnish(base)
    for path, source in sources.items():
        _seal(_bind(_spot(path), source, base))
    for path, source in devices.items():
        _bind(path, source, base)
    for path, link in links.items():
        os.makedirs(os.path.dirname(base + _spot(path)), exist_ok=True)
        os.symlink(link, base + _spot(path))
    _show_kept(base)
    for name in plan.roots:
        if not os.path.lexists(f"{base}/{name}"):  # what the system has stays
            os.symlink(f"{WORK}/{name}", f"{base}/{name}")
    for descriptor in (*sources.values(), *devices.values()):
        os.close(descriptor)
    if keep_proc:
        sc.mount("/proc", f"{base}/proc", "", sc.MS_BIND | sc.MS_REC)
    elif plan.own_proc:
        mount_proc(f"{base}/proc")
    os.chdir(base)
    sc.call("pivot_root", b".", b".")
    sc.call("umount2", b".", sc.MNT_DETACH)
    os.chdir("/")
    sc.mount("none", "/", "", sc.MS_REMOUNT | sc.MS_BIND | sc.MS_RDONLY | flags)


def mount_proc(target: str = "/proc") -> None:
    """Shut for who may not trace: init's own files, whose owner the code may be called."""
    sc.mount("proc", target, "proc", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC, "hidepid=1")


def seal_proc() -> None:
    """Nothing in /proc can be written to any more, by whatever lies behind it."""
    flags = sc.MS_RDONLY | sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC
    sc.mount("none", "/proc", "", sc.MS_REMOUNT | sc.MS_BIND | flags)


# The mounts of one call


def mount_scratch(limits: Limits, again: bool = False) -> None:
    """The three places a call may write to, or, `again`, other sizes for them."""
    files = limits.work_files
    sizes = {
        WORK: (limits.work_mb, files, "755"),
        TMP: (limits.tmp_mb, files + len(_kept(TMP)), "1777"),
        SHM: (limits.shm_mb, 4096 + len(_kept(SHM)), "1777"),
    }
    for top, (megabytes, inodes, mode) in sizes.items():
        size = f"size={megabytes}m,nr_inodes={inodes + 1}"
        flags = sc.MS_NOSUID | sc.MS_NODEV
        if again:
            sc.mount("none", top, "", flags | sc.MS_REMOUNT, size)
        else:
            sc.mount("tmpfs", top, "tmpfs", flags, f"{size},mode={mode}")
    if not again:
        _show_kept()


def overlay(name: str) -> None:
    """Put shared directory `name` under the work directory: it can be read, never changed."""
    upper, scratch = f"{WORK}/.upper", f"{WORK}/.scratch"
    os.mkdir(upper)
    os.mkdir(scratch)
    data = f"lowerdir={SHARED}/{name},upperdir={upper},workdir={scratch},userxattr"
    try:
        sc.mount("overlay", WORK, "overlay", sc.MS_NOSUID | sc.MS_NODEV, data)
    except OSError:
        os.rmdir(upper)
        shutil.rmtree(scratch)
        raise


def read_only_overlay(name: str, target: str) -> None:
    """Show shared directory `name` at `target` through a read-only overlay over an empty one: a
    socket or a FIFO in it then leads nowhere. A plain mount leaves those open to be written to."""
    data = f"lowerdir={SHARED}/{name}:{GIVEN},userxattr"
    flags = sc.MS_RDONLY | sc.MS_NOSUID | sc.MS_NODEV
    sc.mount("overlay", target, "overlay", flags, data)


def bind_shared(name: str, target: str) -> None:
    """Show shared directory `name` at `target`; the new mount is as read-only as the first."""
    sc.mount(f"{SHARED}/{name}", target, "", sc.MS_BIND | sc.MS_REC)


def hide_shared() -> None:
    """Cover the shared directories: a call sees the ones it asked for, and no other."""
    sc.mount("tmpfs", SHARED, "tmpfs", sc.MS_RDONLY | sc.MS_NOSUID | sc.MS_NODEV, "size=4k")


def make_folders(plan: JailPlan, limits: Limits) -> None:
    """In a fresh init: its own mounts and maybe its own network, or else real directories."""
    if not plan.namespaces:
        top = f"{plan.base}/{os.getpid()}"
        for name in ("", "/work", "/tmp"):
            os.mkdir(top + name, 0o700)
        return
    sc.unshare(sc.CLONE_NEWNS | (sc.CLONE_NEWNET if plan.own_network else 0))
    mount_scratch(limits)
    if plan.own_proc:
        mount_proc()
    if plan.own_network and plan.listening:
        proc = os.open("/proc", os.O_RDONLY) if plan.own_proc else os.dup(plan.proc)
        if not bound_backlog(proc):
            raise OSError("the backlog of listening sockets could not be bounded")
        os.close(proc)


def folders_of(plan: JailPlan) -> Folders:
    """The directories of the call whose init we are."""
    if plan.namespaces:
        return Folders(WORK, TMP)
    top = f"{plan.base}/{os.getpid()}"
    return Folders(f"{top}/work", f"{top}/tmp")


# No way back


def _landlock_rules(plan: JailPlan, folders: Folders) -> list[tuple[str, int]]:
    """What Landlock lets the user process do, by path."""
    found = [(p, WRITE) for p in (folders.work, folders.tmp)]
    found += [(p, DEVICE) for p in ("/dev/null", "/dev/full")]
    if plan.namespaces:
        return [("/", READ), (SHM, WRITE), *found]
    readable = [*_READABLE, *plan.interpreter, *folders.shared, f"/proc/{os.getpid()}"]
    return found + [(p, READ) for p in readable]


def confine(plan: JailPlan, folders: Folders) -> None:
    """The last steps in the user process; there is no way back from any of them."""
    sc.drop_capabilities()  # of our own namespace, or of one that we are called root in
    sc.prctl(sc.PR_SET_NO_NEW_PRIVS, 1)
    if plan.landlock_abi:
        restrict_files(plan.landlock_abi, _landlock_rules(plan, folders))
    code = plan.filter_code
    if not code:  # without namespaces no sockets; Landlock bounds the signals, or the pid does
        own = 0 if plan.landlock_abi >= 6 else os.getpid()
        code = encode(sc.build(sc.Policy(sockets=False, own_pid=own)))
    install_seccomp(code)
