"""System calls: the few that the jail makes and the standard library does not offer, and the
seccomp filter of those that the code may make.

Every function raises OSError with the call's name; none of them goes through a shell or a helper.

The filter is an allow-list, so that a call nobody thought of is refused. Refused calls answer EPERM
when assay/confine.py knows them and ENOSYS when they are newer, because C libraries fall back on
ENOSYS. A call made in another architecture's numbers kills the process. Rules on arguments are
closed sets too (which ioctl, which fcntl, which prctl, whose pid): a same-user process could
otherwise lower limits, priority or affinity of the jail's own init.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from assay.confine import (
    ALLOW,
    AND,
    ANY_BIT,
    AT_LEAST,
    EQUAL,
    LOAD,
    RETURN,
    Instruction,
    argument,
    call,
    machine,
    maps_ids,
    op,
    prctl,
    refuse,
    seccomp_program,
)
from assay.confine import PR_SET_NO_NEW_PRIVS as PR_SET_NO_NEW_PRIVS

_HELD: Any = ctypes.PyDLL(None, use_errno=True)  # calls that keep the interpreter's lock

ROOT_DROPS_TO = 1_879_000_000  # plus our pid: an id that nothing else on the node runs under
_PIDS = 1 << 22
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 1 << 28, 1 << 29, 1 << 30
CLONE_NAMESPACES = 0x7E020000  # of every kind but time, which clone() cannot ask for
CLONE_PARENT = 0x8000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_CHILD_SUBREAPER, PR_CAP_AMBIENT = 36, 47


def is_root() -> bool:
    """Whether we can become any user. The root of a user namespace that maps few ids cannot: it is
    an ordinary user who is called root (`unshare -r`, enroot, rootless containers)."""
    return os.geteuid() == 0 and maps_ids(range(ROOT_DROPS_TO, ROOT_DROPS_TO + _PIDS))


def fork() -> int:
    """Fork without the hooks that `os.fork` runs, which write to a megabyte of shared pages.

    They renew locks that other threads may hold: only for a process that has one thread.
    """
    pid = int(_HELD.fork())
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"fork: {os.strerror(number)}")
    return pid


def unshare(flags: int) -> None:
    call("unshare", flags)


def setns(descriptor: int, kind: int) -> None:
    call("setns", descriptor, kind)


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    try:
        call("mount", source.encode(), target.encode(), kind.encode(), flags, data.encode())
    except OSError as error:
        raise OSError(
            error.errno, f"mount {kind or source} on {target}: {error.strerror}"
        ) from None


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def drop_capabilities() -> None:
    """Give up every capability for good: bounding, ambient, inheritable, permitted, effective."""
    for cap in range(64):
        try:
            prctl(PR_CAPBSET_DROP, cap)
        except OSError:
            break  # past the last one, or none to drop (EPERM without CAP_SETPCAP)
    with contextlib.suppress(OSError):  # kernels without ambient capabilities have none to clear
        prctl(PR_CAP_AMBIENT, 4)
    header = _CapHeader(version=0x20080522)
    call("capset", ctypes.byref(header), (ctypes.c_uint32 * 6)())


def close_from_except(kept: Iterable[int]) -> None:
    """Close every descriptor from 3 on but `kept`, whatever number those have."""
    low = 3
    for descriptor in [*sorted(d for d in kept if d >= 3), 1 << 32]:
        if descriptor > low:
            try:
                call("close_range", low, descriptor - 1, 0)
            except OSError:  # before Linux 5.9
                os.closerange(low, min(descriptor, 65536))
        low = descriptor + 1


_ALLOWED = """
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range
dup dup2 dup3 pipe pipe2 sendfile splice tee copy_file_range readahead fadvise64 fallocate
stat lstat fstat newfstatat statx access faccessat faccessat2 readlink readlinkat statfs fstatfs
getcwd chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir link linkat symlink symlinkat
unlink unlinkat truncate ftruncate getdents getdents64 utime utimes utimensat futimesat umask
chown fchown lchown fchownat flock fsync fdatasync sync_file_range syncfs getxattr lgetxattr
fgetxattr listxattr llistxattr flistxattr mmap mprotect munmap mremap madvise brk msync mincore
mlock munlock mlock2 mlockall munlockall mbind get_mempolicy set_mempolicy membarrier mseal
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
epoll_ctl_old epoll_wait_old eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime
timerfd_gettime rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait
rt_sigsuspend sigaltstack pause alarm getitimer setitimer fork vfork execve execveat exit
exit_group wait4 waitid restart_syscall set_tid_address set_robust_list get_robust_list rseq futex
futex_waitv futex_wake futex_wait futex_requeue arch_prctl getpid getppid gettid getuid geteuid
getgid getegid getresuid
getresgid getgroups getpgid getpgrp getsid setpgid capget capset getrlimit setrlimit
getrusage times sysinfo uname getcpu getrandom gettimeofday time clock_gettime clock_getres
nanosleep clock_nanosleep sched_yield sched_getaffinity sched_getscheduler sched_getparam
sched_getattr sched_get_priority_max sched_get_priority_min sched_rr_get_interval getpriority
pidfd_open getsockname getpeername sendto recvfrom recvmsg recvmmsg setsockopt getsockopt shutdown
"""
# Left out on purpose: timer_create sends a signal of its choice for ever; setsid gets
# a share of the processors of its own where the kernel groups by session; sendmsg hides
# descriptors, and all they hold, in a socket.
_LISTENING = "bind listen accept accept4 connect"
_OF_ITSELF = "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr"
_SIGNALLING = "kill tkill tgkill pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo"

# ioctls on terminals, pipes and plain files; block clones, attributes and owners stay shut.
_IOCTLS = (0x5401, 0x5413, 0x540F, 0x541B, 0x5421, 0x5450, 0x5451)
# Duplicate, flags, locks of a process; not F_SETOWN and F_SETSIG (signals to others), F_SETPIPE_SZ,
# leases, nor locks of an open file, of which /proc does not tell whose they are.
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 1030, 1032, 1034)
# Names, death signals, queries, malloc's mapping names; not dumpable (hides memory), not caps.
_PRCTLS = (1, 2, 3, 15, 16, 21, 23, 27, 30, 38, 39, 41, 42, 0x53564D41)

# Socket options: reuse, broadcast, keep-alive, linger, credentials, low-water marks, time limits.
# Sizes of buffers are taken and ignored. Filters, which run in the kernel, and all else: refused.
_OPTIONS = (2, 6, 9, 13, 15, 16, 18, 20, 21, 66, 67)
_BUFFER_SIZES = (7, 8)
_MSG_OOB = 1
# Which argument holds the mode of a file that is made or changed (no set-id bits), and the flags of
# a message.
_MODES = {
    **dict.fromkeys(("chmod", "fchmod", "creat"), 1),
    **{"fchmodat": 2, "fchmodat2": 2, "open": 2, "openat": 3},
}
_MESSAGE_FLAGS = {"sendto": 3, "recvfrom": 3, "recvmsg": 2, "recvmmsg": 3}
SHARED_BYTES = 1 << 16  # the largest shared mapping without a file; see usage.py


@dataclass(frozen=True)
class Policy:
    """What differs between levels. `sockets`: more than pairs; `listening`: and servers.
    `own_pid`: signals may go only to this process (0: to any)."""

    sockets: bool = True
    own_pid: int = 0
    listening: bool = True


def _only(index: int, values: tuple[int, ...], error: int) -> list[Instruction]:
    """Allow when argument `index` is one of `values`."""
    left = [op(EQUAL, v, jt=len(values) - i) for i, v in enumerate(values)]
    return [argument(index), *left, refuse(error), op(RETURN, ALLOW)]


def _no_bits(index: int, bits: int, error: int = errno.EPERM) -> list[Instruction]:
    return [argument(index), op(ANY_BIT, bits, jf=1), refuse(error), op(RETURN, ALLOW)]


def _no_device(index: int) -> list[Instruction]:
    """mknod: no set-id bits, and the type is a plain file, a FIFO or a socket."""
    kinds = [op(EQUAL, k, jt=2 - i) for i, k in enumerate((0x2000, 0x6000))]
    head = [argument(index), op(ANY_BIT, 0o6000, jt=4), op(AND, 0xF000)]
    return [*head, *kinds, op(RETURN, ALLOW), refuse(errno.EPERM)]


def _unix_stream() -> list[Instruction]:
    """Streams only: a datagram goes to any path by name and outlives its sender's account."""
    unix = [argument(0), op(EQUAL, 1, jf=4)]
    stream = [argument(1), op(AND, 0xF), op(EQUAL, 1, jf=1), op(RETURN, ALLOW)]
    return [*unix, *stream, refuse(errno.EACCES)]


def _options() -> list[Instruction]:
    """setsockopt: a closed set at the sockets' own level (1), nothing at the others."""
    last = len(_BUFFER_SIZES) + len(_OPTIONS)
    sizes = [op(EQUAL, v, jt=last - i) for i, v in enumerate(_BUFFER_SIZES)]
    options = [op(EQUAL, v, jt=len(_OPTIONS) + 1 - i) for i, v in enumerate(_OPTIONS)]
    other = refuse(errno.ENOPROTOOPT)
    head = [argument(1), op(EQUAL, 1, jt=1), other, argument(2)]
    return [*head, *sizes, *options, other, refuse(0), op(RETURN, ALLOW)]


def _small_shared() -> list[Instruction]:
    """mmap: shared memory without a file only in small pieces. Its pages stay when they are
    unmapped, where nothing tells of them; a piece of one page could hold the rest of any size."""
    high = op(LOAD, 16 + 8 + 4)
    return [
        argument(3),
        op(ANY_BIT, 0x20, jf=8),  # MAP_ANONYMOUS
        op(AND, 0xF),
        op(EQUAL, 1, jt=1),  # MAP_SHARED
        op(EQUAL, 3, jf=5),  # MAP_SHARED_VALIDATE
        high,
        op(EQUAL, 0, jf=2),
        argument(1),
        op(AT_LEAST, SHARED_BYTES + 1, jf=1),
        refuse(errno.ENOMEM),
        op(RETURN, ALLOW),
    ]


def _rules(policy: Policy) -> dict[str, list[Instruction]]:
    """Programs for the calls whose arguments matter; each ends in a return on every path."""
    own = (0,)
    rules = {
        "clone": _no_bits(0, CLONE_NAMESPACES | CLONE_PARENT),
        "clone3": [refuse(errno.ENOSYS)],
        "memfd_create": [refuse(errno.ENOSYS)],  # its pages show up in no process's memory
        "memfd_secret": [refuse(errno.ENOSYS)],
        "openat2": [refuse(errno.ENOSYS)],  # its mode is behind a pointer
        "sync": [refuse(0)],  # says done: flushing the whole node is not the model's business
        "ioctl": _only(1, _IOCTLS, errno.ENOTTY),
        "fcntl": _only(1, _FCNTLS, errno.EPERM),
        "prctl": _only(0, _PRCTLS, errno.EPERM),
        "mknod": _no_device(1),
        "mknodat": _no_device(2),
        "setpriority": [argument(0), op(EQUAL, 0, jf=2), *_only(1, own, errno.EPERM)],
        "socket": _unix_stream() if policy.sockets else [refuse(errno.EACCES)],
        "socketpair": _unix_stream(),
        "setsockopt": _options(),
        "fallocate": _only(1, (0,), errno.EOPNOTSUPP),  # other modes pass by the size limit
        "mmap": _small_shared(),
    }
    for name, index in _MODES.items():
        rules[name] = _no_bits(index, 0o6000)
    for name, index in _MESSAGE_FLAGS.items():
        rules[name] = _no_bits(index, _MSG_OOB, errno.EOPNOTSUPP)
    for name in _OF_ITSELF.split():
        rules[name] = _only(0, own, errno.EPERM)
    for name in ("setxattr", "lsetxattr", "fsetxattr"):
        rules[name] = [refuse(errno.EOPNOTSUPP)]
    for name in _SIGNALLING.split():
        allowed = _only(0, (policy.own_pid,), errno.EPERM) if policy.own_pid else None
        rules[name] = allowed or [op(RETURN, ALLOW)]
    if not policy.sockets and not policy.own_pid:
        everyone = [argument(0), op(EQUAL, 0xFFFFFFFF, jf=1), refuse(errno.EPERM)]
        rules["kill"] = [*everyone, op(RETURN, ALLOW)]  # the whole node is in sight
    if policy.own_pid:
        rules["pidfd_send_signal"] = [refuse(errno.EPERM)]  # a descriptor does not show whose
        rules["tkill"] = [refuse(errno.EPERM)]
    return rules


def build(policy: Policy, arch: str | None = None) -> list[Instruction]:
    """The filter of a level, for this machine's architecture unless another is named."""
    names = _ALLOWED.split() + (_LISTENING.split() if policy.sockets and policy.listening else [])
    return seccomp_program(names, _rules(policy), arch or machine())
