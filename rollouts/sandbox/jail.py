"""Namespaces and the root directory: what the model's code can see at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field

from assay.confine import maps_ids
from rollouts.sandbox import syscalls as sc

CPUS = "/sys/devices/system/cpu"
WORK, TMP, SHM = "/sandbox", "/tmp", "/dev/shm"
SHARED, GIVEN = "/.shared", "/.given"  # every shared directory; those of one call
KEPT = "/.kept"  # what a call's own TMP and SHM would cover, to be shown in them again
BACKLOG = 8  # connections that may wait at one listening socket, each with unread data
INSIDE_ID = 1000
ROOT_DROPS_TO = 1_879_000_000  # plus our pid: an id that nothing else on the node runs under
_PIDS = 1 << 22
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
# Without /dev/zero: a shared mapping of it is memory that no count shows once it is unmapped.
_DEVICES = ("null", "full", "random", "urandom")
_MADE_UP = {
    "etc/passwd": f"sandbox:x:{INSIDE_ID}:{INSIDE_ID}::{WORK}:/bin/sh\n",
    "etc/group": f"sandbox:x:{INSIDE_ID}:\n",
    "etc/hosts": "127.0.0.1 localhost sandbox\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


@dataclass(frozen=True)
class RootPlan:
    """What goes into the jail's root. `own_proc` is false where a fresh /proc is refused."""

    binds: tuple[str, ...]
    own_proc: bool = True
    shared: dict[str, str] = field(default_factory=dict[str, str])
    roots: tuple[str, ...] = ()  # names at the top that lead to folders of the work directory


def below(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or path.startswith(top + "/") for top in tops)


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
                target = _place(path, source, "")
                if path != base:
                    _seal(target)
            os.close(source)


def is_root() -> bool:
    """Whether we can become any user. The root of a user namespace that maps few ids cannot: it is
    an ordinary user who is called root (`unshare -r`, enroot, rootless containers)."""
    return os.geteuid() == 0 and maps_ids(range(ROOT_DROPS_TO, ROOT_DROPS_TO + _PIDS))


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
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{INSIDE_ID} {uid} 1"),
        ("gid_map", f"{INSIDE_ID} {gid} 1"),
    ):
        write_proc(proc, name, text)


def write_proc(proc: int, name: str, text: str) -> None:
    """Write one of our own files in an open /proc."""
    descriptor = os.open(f"self/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def private_mounts() -> None:
    sc.mount("none", "/", "", sc.MS_REC | sc.MS_PRIVATE)


def _wanted(binds: Iterable[str]) -> list[str]:
    """System paths and `binds`, without those that lie under another one."""
    chosen: list[str] = []
    for path in [p for p in SYSTEM if os.path.lexists(p)] + sorted(binds, key=len):
        if not any(path == c or path.startswith(c + "/") for c in chosen):
            chosen.append(path)
    return chosen


def _place(path: str, source: int, base: str) -> str:
    """Make the mount point for `path` under `base` and bind the open `source` there."""
    target = base + path
    if stat.S_ISDIR(os.fstat(source).st_mode):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
    sc.mount(f"/proc/self/fd/{source}", target, "", sc.MS_BIND | sc.MS_REC)
    return target


def _spot(path: str) -> str:
    """Where the new root holds `path`: aside, when each call mounts something over it."""
    return KEPT + path if below(path, (TMP, SHM)) else path


def kept(top: str, base: str = "") -> list[str]:
    directory = f"{base}{KEPT}{top}"
    return os.listdir(directory) if os.path.isdir(directory) else []


def show_kept(base: str = "") -> None:
    """In TMP and SHM, what was kept of them: the interpreter's own files, still read only.

    A whole mount for each name, so that no directory above those files can be moved away.
    """
    for top in (TMP, SHM):
        for name in kept(top, base):
            source, target = f"{base}{KEPT}{top}/{name}", f"{base}{top}/{name}"
            if os.path.islink(source):
                os.symlink(os.readlink(source), target)
                continue
            if os.path.isdir(source):
                os.mkdir(target)
            else:
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
            sc.mount(source, target, "", sc.MS_BIND | sc.MS_REC)


def _seal(target: str) -> None:
    """Read-only, by one call where the kernel has it, else mount by mount with its own flags."""
    try:
        sc.read_only(target)
        return
    except OSError as error:
        if error.errno != 38:  # ENOSYS, before 5.12
            raise
    with open("/proc/self/mountinfo") as table:
        points = [line.split()[4].encode().decode("unicode_escape") for line in table]
    for point in points:
        if point == target or point.startswith(target + "/"):
            kept = os.statvfs(point).f_flag & (sc.MS_NOEXEC | 1024 | 2048)
            flags = sc.MS_REMOUNT | sc.MS_BIND | sc.MS_RDONLY | sc.MS_NOSUID | sc.MS_NODEV
            sc.mount("none", point, "", flags | kept)


def _furnish(base: str, plan: RootPlan) -> None:
    """The made-up files, directories to mount on, and links of the new root."""
    for name in ("etc", "dev/shm", "proc", TMP[1:], WORK[1:], "run", "var/tmp", GIVEN[1:]):
        os.makedirs(f"{base}/{name}", exist_ok=True)
    for name, text in {**_MADE_UP, **_cpu_files(1)}.items():
        os.makedirs(os.path.dirname(f"{base}/{name}"), exist_ok=True)
        with open(f"{base}/{name}", "w") as file:
            file.write(text)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{base}/dev/{name}")
    os.symlink("/proc/self/fd", f"{base}/dev/fd")


def _cpu_files(count: int) -> dict[str, str]:
    listed = "0\n" if count == 1 else f"0-{count - 1}\n"
    return {f"{CPUS[1:]}/{name}": listed for name in ("online", "possible", "present")}


def show_cpus(count: int) -> None:
    """For a call of several threads: libraries start no more than there are processors."""
    flags = sc.MS_NOSUID | sc.MS_NODEV
    sc.mount("tmpfs", CPUS, "tmpfs", flags, "size=64k,mode=755")
    for name, text in _cpu_files(count).items():
        with open(f"/{name}", "w") as file:
            file.write(text)
    sc.mount("none", CPUS, "", sc.MS_REMOUNT | sc.MS_BIND | sc.MS_RDONLY | flags)


def _base() -> str:
    for path in ("/tmp", "/var/tmp", "/mnt", "/run"):
        if os.path.isdir(path):
            return path
    raise OSError("no directory to mount the new root on: one of /tmp, /var/tmp, /mnt must exist")


def build_root(plan: RootPlan, keep_proc: bool) -> None:
    """Make the new root and move into it; the old one is gone afterwards.

    `keep_proc` brings the old /proc along: real root builds before it has a pid namespace.
    """
    links = {p: os.readlink(p) for p in _wanted(plan.binds) if os.path.islink(p)}
    paths = {p: p for p in _wanted(plan.binds) if p not in links}
    paths |= {f"/etc/{n}": f"/etc/{n}" for n in _ETC if os.path.exists(f"/etc/{n}")}
    paths |= {f"{SHARED}/{name}": path for name, path in plan.shared.items()}
    sources = {p: os.open(s, os.O_PATH | os.O_CLOEXEC) for p, s in paths.items()}
    devices = {f"/dev/{n}": os.open(f"/dev/{n}", os.O_PATH | os.O_CLOEXEC) for n in _DEVICES}
    base, flags = _base(), sc.MS_NOSUID | sc.MS_NODEV
    sc.mount("tmpfs", base, "tmpfs", flags, "size=16m,mode=755")
    _furnish(base, plan)
    for path, source in sources.items():
        _seal(_place(_spot(path), source, base))
    for path, source in devices.items():
        _place(path, source, base)
    for path, link in links.items():
        os.makedirs(os.path.dirname(base + _spot(path)), exist_ok=True)
        os.symlink(link, base + _spot(path))
    show_kept(base)
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
    sc.pivot_root(".", ".")
    sc.umount(".")
    os.chdir("/")
    sc.mount("none", "/", "", sc.MS_REMOUNT | sc.MS_BIND | sc.MS_RDONLY | flags)


def mount_proc(target: str = "/proc") -> None:
    """Shut for who may not trace: init's own files, whose owner the code may be called."""
    sc.mount("proc", target, "proc", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC, "hidepid=1")
