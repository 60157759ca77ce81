"""How a process is confined: system calls by number, seccomp and Landlock. There is no way back.

The sandbox for code that a model wrote and the processes of `assay/confined_process.py` build on
this module. It imports the standard library alone. What a kernel does not offer raises OSError with
the call's name.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import stat
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

# System calls by number, from the kernel's public headers up to Linux 6.10, so that a filter can
# tell "known and refused" (EPERM) from "newer than this file" (ENOSYS, on which C libraries fall
# back).
# Names stand in the order of their numbers; a number says where the next one begins.
_LATE = """
424 pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen
fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise
epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule
landlock_restrict_self memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat
fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount 462 mseal
"""
_X86_64 = """
read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction
rt_sigprocmask rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select sched_yield
mremap msync mincore madvise shmget shmat shmctl dup dup2 pause nanosleep getitimer alarm setitimer
getpid sendfile socket connect accept sendto recvfrom sendmsg recvmsg shutdown bind listen
getsockname getpeername socketpair setsockopt getsockopt clone fork vfork execve exit wait4 kill
uname semget semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock fsync fdatasync truncate
ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink symlink readlink chmod
fchmod chown fchown lchown umask gettimeofday getrlimit getrusage sysinfo times ptrace getuid syslog
getgid setuid setgid geteuid getegid setpgid getppid getpgrp setsid setreuid setregid getgroups
setgroups setresuid getresuid setresgid getresgid getpgid setfsuid setfsgid getsid capget capset
rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod uselib
personality ustat statfs fstatfs sysfs getpriority setpriority sched_setparam sched_getparam
sched_setscheduler sched_getscheduler sched_get_priority_max sched_get_priority_min
sched_rr_get_interval mlock munlock mlockall munlockall vhangup modify_ldt pivot_root _sysctl prctl
arch_prctl adjtimex setrlimit chroot sync acct settimeofday mount umount2 swapon swapoff reboot
sethostname setdomainname iopl ioperm create_module init_module delete_module get_kernel_syms
query_module quotactl nfsservctl getpmsg putpmsg afs_syscall tuxcall security gettid readahead
setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
removexattr lremovexattr fremovexattr tkill time futex sched_setaffinity sched_getaffinity
set_thread_area io_setup io_destroy io_getevents io_submit io_cancel get_thread_area lookup_dcookie
epoll_create epoll_ctl_old epoll_wait_old remap_file_pages getdents64 set_tid_address
restart_syscall semtimedop fadvise64 timer_create timer_settime timer_gettime timer_getoverrun
timer_delete clock_settime clock_gettime clock_getres clock_nanosleep exit_group epoll_wait
epoll_ctl tgkill utimes vserver mbind set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend
mq_timedreceive mq_notify mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set
ioprio_get inotify_init inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat
fchownat futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat
pselect6 ppoll unshare set_robust_list get_robust_list splice tee sync_file_range vmsplice
move_pages utimensat epoll_pwait signalfd timerfd_create eventfd fallocate timerfd_settime
timerfd_gettime accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev
rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark prlimit64 name_to_handle_at
open_by_handle_at clock_adjtime syncfs sendmmsg setns getcpu process_vm_readv process_vm_writev kcmp
finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create kexec_file_load
bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc
pkey_free statx io_pgetevents rseq
"""
_AARCH64 = """
io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr lgetxattr
fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr getcwd
lookup_dcookie eventfd2 epoll_create1 epoll_ctl epoll_pwait dup dup3 fcntl inotify_init1
inotify_add_watch inotify_rm_watch ioctl ioprio_set ioprio_get flock mknodat mkdirat unlinkat
symlinkat linkat renameat umount2 mount pivot_root nfsservctl statfs fstatfs truncate ftruncate
fallocate faccessat chdir fchdir chroot fchmod fchmodat fchownat fchown openat close vhangup pipe2
quotactl getdents64 lseek read write readv writev pread64 pwrite64 preadv pwritev sendfile pselect6
ppoll signalfd4 vmsplice splice tee readlinkat newfstatat fstat sync fsync fdatasync sync_file_range
timerfd_create timerfd_settime timerfd_gettime utimensat acct capget capset personality exit
exit_group waitid set_tid_address unshare futex set_robust_list get_robust_list nanosleep getitimer
setitimer kexec_load init_module delete_module timer_create timer_gettime timer_getoverrun
timer_settime timer_delete clock_settime clock_gettime clock_getres clock_nanosleep syslog ptrace
sched_setparam sched_setscheduler sched_getscheduler sched_getparam sched_setaffinity
sched_getaffinity sched_yield sched_get_priority_max sched_get_priority_min sched_rr_get_interval
restart_syscall kill tkill tgkill sigaltstack rt_sigsuspend rt_sigaction rt_sigprocmask
rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigreturn setpriority getpriority reboot setregid
setgid setreuid setuid setresuid getresuid setresgid getresgid setfsuid setfsgid times setpgid
getpgid getsid setsid getgroups setgroups uname sethostname setdomainname getrlimit setrlimit
getrusage umask prctl getcpu gettimeofday settimeofday adjtimex getpid getppid getuid geteuid getgid
getegid gettid sysinfo mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr msgget
msgctl msgrcv msgsnd semget semctl semtimedop semop shmget shmctl shmat shmdt socket socketpair bind
listen accept connect getsockname getpeername sendto recvfrom setsockopt getsockopt shutdown sendmsg
recvmsg readahead brk munmap mremap add_key request_key keyctl clone execve mmap fadvise64 swapon
swapoff mprotect msync mlock munlock mlockall munlockall mincore madvise remap_file_pages mbind
get_mempolicy set_mempolicy migrate_pages move_pages rt_tgsigqueueinfo perf_event_open accept4
recvmmsg 260 wait4 prlimit64 fanotify_init fanotify_mark 266 clock_adjtime syncfs setns sendmmsg
process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp
getrandom memfd_create bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2
pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq kexec_file_load
"""
LAST_KNOWN = 462
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def _numbered(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    number = 0
    for word in text.split():
        if word.isdigit():
            number = int(word)
        else:
            found[word], number = number, number + 1
    return found


NUMBERS = {"x86_64": _numbered(_X86_64 + _LATE), "aarch64": _numbered(_AARCH64 + _LATE)}


def machine() -> str:
    """The architecture whose table applies here. Raises OSError on one without a table."""
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    if name not in NUMBERS:
        raise OSError(f"no table of system calls for {name!r}; known are {', '.join(NUMBERS)}")
    return name


_LIBC: Any = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38


def call(name: str, *args: Any) -> int:
    """Run one system call by name; integers, bytes and pointers are passed as they are. Raises
    OSError."""
    number = NUMBERS[machine()][name]
    plain = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = int(_LIBC.syscall(ctypes.c_long(number), *plain))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def prctl(option: int, arg: int) -> int:
    return call("prctl", option, arg, 0, 0, 0)


# --- seccomp ------------------------------------------------------------------------------------

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, EQUAL, AT_LEAST, ANY_BIT, JUMP, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x05, 0x54, 0x06
Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, value


def op(code: int, value: int, jt: int = 0, jf: int = 0) -> Instruction:
    """One instruction of a filter; `jt` and `jf`: how many instructions a test skips."""
    return (code, jt, jf, value & 0xFFFFFFFF)


def refuse(number: int) -> Instruction:
    """The call fails with this errno; 0: it does nothing and succeeds."""
    return op(RETURN, ERRNO | number)


def argument(index: int) -> Instruction:
    """Load the low half of an argument of the call."""
    return op(LOAD, 16 + 8 * index)


def _ranges(numbers: Collection[int]) -> list[tuple[int, int]]:
    """Runs of consecutive numbers, as half-open intervals."""
    starts = [n for n in sorted(numbers) if n - 1 not in numbers]
    ends = [n + 1 for n in sorted(numbers) if n + 1 not in numbers]
    return list(zip(starts, ends, strict=True))


def seccomp_program(
    allowed: Iterable[str], rules: Mapping[str, Sequence[Instruction]], arch: str
) -> list[Instruction]:
    """A filter that lets `allowed` calls through, asks `rules` where arguments matter, and refuses
    the rest: EPERM, ENOSYS for calls newer than the table. Calls in another architecture's numbers
    kill the process. A rule has to end in a return on every path."""
    table = NUMBERS[arch]
    program = [
        op(LOAD, 4),
        op(EQUAL, AUDIT_ARCH[arch], jt=1),
        op(RETURN, KILL),
        op(LOAD, 0),
        op(AT_LEAST, LAST_KNOWN + 1, jf=1),  # x32 numbers (bit 30) are above it as well
        refuse(errno.ENOSYS),
    ]
    for name, body in rules.items():
        if name in table:
            program += [op(EQUAL, table[name], jt=1), op(JUMP, len(body)), *body]
    plain = {table[n] for n in allowed if n in table and n not in rules}
    for start, end in _ranges(plain):
        program += [op(AT_LEAST, end, jt=2), op(AT_LEAST, start, jf=1), op(RETURN, ALLOW)]
    return [*program, refuse(errno.EPERM)]


def encode(program: Iterable[Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def install_seccomp(code: bytes) -> None:
    """Load an encoded program into this process, for ever; needs no_new_privs."""
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    call("prctl", PR_SET_SECCOMP, 2, program, 0, 0)


# --- Landlock -----------------------------------------------------------------------------------

_EXECUTE, _WRITE, _READ, _READ_DIR = 1, 2, 4, 8
_REMOVE_DIR, _REMOVE_FILE, _CHAR, _DIR, _REG, _SOCK, _FIFO, _BLOCK, _SYM = (
    1 << n for n in range(4, 13)
)
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
READ = _EXECUTE | _READ | _READ_DIR
# Everything but making device nodes and device ioctls.
_MAKE = _DIR | _REG | _SOCK | _FIFO | _SYM
WRITE = READ | _WRITE | _REMOVE_DIR | _REMOVE_FILE | _MAKE | _REFER | _TRUNCATE
DEVICE = _READ | _WRITE
_FILE_ONLY = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL_DEV
_ALL_ABI1 = (1 << 13) - 1


def landlock_abi() -> int:
    """The kernel's Landlock version, 0 where it is absent, disabled or filtered."""
    try:
        return call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def restrict_files(version: int, grants: Iterable[tuple[str, int]] = ()) -> None:
    """Put this process and all it starts under a Landlock ruleset that allows `grants` (path,
    rights) and nothing else, for ever; needs no_new_privs.

    From version 4 it also refuses TCP, from 6 abstract sockets and signals to anybody outside.
    A path that does not exist is left out: absent is the strongest refusal.
    """
    if not version:
        raise OSError(errno.ENOSYS, "this kernel does not offer Landlock")
    rights = _ALL_ABI1 | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rights |= _IOCTL_DEV if version >= 5 else 0
    attributes = struct.pack("=QQQ", rights, 3, 3)  # files, network, scopes
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = call("landlock_create_ruleset", attributes, size, 0)
    try:
        for path, wanted in grants:
            _grant(ruleset, path, wanted & rights)
        call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= _FILE_ONLY
        call("landlock_add_rule", ruleset, 1, struct.pack("=Qi", rights, parent), 0)
    finally:
        os.close(parent)


# --- users --------------------------------------------------------------------------------------


def maps_ids(wanted: range) -> bool:
    """Whether this process may become users and groups of these ids. The root of a user namespace
    that maps few ids cannot (`unshare -r`, enroot, rootless containers): it is an ordinary user who
    is called root."""
    for name in ("uid_map", "gid_map"):
        try:
            with open(f"/proc/self/{name}", encoding="ascii") as table:
                spans = [[int(field) for field in line.split()] for line in table]
        except (OSError, ValueError):  # no namespaces
            return True
        if not any(s[0] <= wanted.start and wanted.stop <= s[0] + s[2] for s in spans):
            return False
    return True


# --- a process that computes and does nothing else -----------------------------------------------

NOBODY = 65534
# What computing on bytes in memory, reading and writing open descriptors, and ending needs.
COMPUTING = """
read write close fstat lseek mmap mprotect munmap mremap madvise brk rt_sigaction rt_sigprocmask
rt_sigreturn sigaltstack sched_yield getpid gettid gettimeofday clock_gettime getrandom setitimer
futex exit exit_group
"""


def lock_down(keep: int, memory_mb: int) -> dict[str, str]:
    """Leave this process nothing but computing on `keep`, an open descriptor, with `memory_mb` of
    writable memory beyond what it holds: no file, socket or process can be opened or started,
    nobody else signalled. There is no way back.

    Returns the layers (`landlock`, `seccomp`) that this machine does not offer, and why; the limits
    hold all the same, and without seccomp a process may be started. Raises OSError or ValueError
    when a limit is refused.
    """
    with open("/proc/self/statm", "rb") as file:
        held = int(file.read().split()[5]) * resource.getpagesize()
    os.closerange(0, keep)
    os.closerange(keep + 1, 1 << 16)
    if os.geteuid() == 0 and maps_ids(range(NOBODY, NOBODY + 1)):
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    lacking: dict[str, str] = {}
    try:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        restrict_files(landlock_abi())  # takes a descriptor, so it comes first
    except OSError as error:
        lacking["landlock"] = str(error)
    none = dict.fromkeys((resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE), 0)
    for kind, value in {**none, resource.RLIMIT_DATA: held + (memory_mb << 20)}.items():
        hard = resource.getrlimit(kind)[1]
        least = value if hard < 0 else min(value, hard)
        resource.setrlimit(kind, (least, least))
    try:
        install_seccomp(encode(seccomp_program(COMPUTING.split(), {}, machine())))
    except OSError as error:
        lacking["seccomp"] = str(error)
    return lacking
