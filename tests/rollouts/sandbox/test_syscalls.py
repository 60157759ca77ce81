"""The filter, interpreted in Python: both architectures, without loading it."""

from __future__ import annotations

import errno
import functools

import pytest

from assay.confine import ALLOW, AUDIT_ARCH, ERRNO, KILL, NUMBERS, encode
from rollouts.sandbox.syscalls import Policy
from rollouts.sandbox.syscalls import build as _build

build = functools.cache(_build)

ARCHES = ("x86_64", "aarch64")


def verdict(
    arch: str, number: int, *args: int, policy: Policy | None = None, audit: int = 0
) -> int:
    """What the kernel would answer: a small interpreter of the instructions that we use."""
    program = build(policy or Policy(), arch)
    words = {0: number & 0xFFFFFFFF, 4: audit or AUDIT_ARCH[arch]}
    for i, a in enumerate((*args, *[0] * (6 - len(args)))):
        words |= {16 + 8 * i: a & 0xFFFFFFFF, 20 + 8 * i: a >> 32 & 0xFFFFFFFF}
    at = held = 0
    while True:
        code, jt, jf, k = program[at]
        at += 1
        if code == 0x20:
            held = words[k]
        elif code == 0x54:
            held &= k
        elif code == 0x05:
            at += k
        elif code == 0x06:
            return k
        else:
            true = {0x15: held == k, 0x35: held >= k, 0x45: bool(held & k)}[code]
            at += jt if true else jf


def answer(arch: str, name: str, *args: int, **options: Policy) -> int:
    return verdict(arch, NUMBERS[arch][name], *args, **options)


@pytest.mark.parametrize("arch", ARCHES)
def test_every_jump_stays_inside(arch: str) -> None:
    program = build(Policy(sockets=False, own_pid=77), arch)
    for at, (code, jt, jf, k) in enumerate(program):
        reach = k if code == 0x05 else max(jt, jf)
        assert at + 1 + reach < len(program) or code in (0x06, 0x20, 0x54)
    assert len(program) < 4096
    assert len(encode(program)) == 8 * len(program)


@pytest.mark.parametrize("arch", ARCHES)
def test_every_known_number_gets_an_answer(arch: str) -> None:
    allowed = {n for n in NUMBERS[arch] if answer(arch, n) == ALLOW}
    assert {"read", "mmap", "execve", "futex", "exit_group", "openat", "wait4"} <= allowed
    never = "ptrace mount bpf unshare setns keyctl io_uring_setup userfaultfd perf_event_open"
    never += " process_vm_readv pidfd_getfd setuid init_module kexec_load shmget mq_open ioprio_set"
    never += " inotify_init1 fanotify_init io_setup vmsplice seccomp landlock_restrict_self"
    assert not allowed & set(never.split())


@pytest.mark.parametrize("arch", ARCHES)
def test_other_numberings(arch: str) -> None:
    other = AUDIT_ARCH["aarch64" if arch == "x86_64" else "x86_64"]
    assert verdict(arch, 0, audit=other) == KILL
    assert verdict(arch, 0x40000000 | 39) == ERRNO | errno.ENOSYS
    assert verdict(arch, 600) == ERRNO | errno.ENOSYS
    assert verdict(arch, -1) == ERRNO | errno.ENOSYS


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    ("name", "args", "wanted"),
    [
        ("clone", (0x01200011,), ALLOW),
        ("clone", (0x10000011,), ERRNO | errno.EPERM),
        ("clone", (0x8011,), ERRNO | errno.EPERM),  # CLONE_PARENT
        ("clone3", (), ERRNO | errno.ENOSYS),
        ("mmap", (0, 1 << 40, 3, 0x22), ALLOW),  # private
        ("mmap", (0, 1 << 40, 3, 0x01, 5), ALLOW),  # of a file
        ("mmap", (0, 4096, 3, 0x21), ALLOW),
        ("mmap", (0, 65536, 3, 0x21), ALLOW),
        ("mmap", (0, 65537, 3, 0x21), ERRNO | errno.ENOMEM),
        ("mmap", (0, 1 << 32, 3, 0x21), ERRNO | errno.ENOMEM),
        ("mmap", (0, 1 << 20, 3, 0x8021), ERRNO | errno.ENOMEM),
        ("mmap", (0, 1 << 20, 3, 0x23), ERRNO | errno.ENOMEM),
        ("setsockopt", (3, 1, 2), ALLOW),
        ("setsockopt", (3, 1, 67), ALLOW),
        ("setsockopt", (3, 1, 7), ERRNO),  # taken, and nothing happens
        ("setsockopt", (3, 1, 8), ERRNO),
        ("setsockopt", (3, 1, 26), ERRNO | errno.ENOPROTOOPT),  # a filter
        ("setsockopt", (3, 6, 2), ERRNO | errno.ENOPROTOOPT),
        ("sendto", (3, 0, 1, 0x4000), ALLOW),
        ("sendto", (3, 0, 1, 1), ERRNO | errno.EOPNOTSUPP),
        ("recvmsg", (3, 0, 1), ERRNO | errno.EOPNOTSUPP),
        ("sendmsg", (3,), ERRNO | errno.EPERM),
        ("fallocate", (3, 0, 0, 1), ALLOW),
        ("fallocate", (3, 1, 0, 1), ERRNO | errno.EOPNOTSUPP),
        ("timer_create", (0,), ERRNO | errno.EPERM),
        ("setsid", (), ERRNO | errno.EPERM),
        ("socket", (1, 2), ERRNO | errno.EACCES),
        ("socket", (1, 0x80801), ALLOW),
        ("socketpair", (1, 5), ERRNO | errno.EACCES),
        ("socket", (1, 1), ALLOW),
        ("socket", (2, 1), ERRNO | errno.EACCES),
        ("socket", (40, 1), ERRNO | errno.EACCES),
        ("fchmodat", (-100, 0, 0o755), ALLOW),
        ("fchmodat", (-100, 0, 0o4755), ERRNO | errno.EPERM),
        ("openat", (-100, 0, 0o101, 0o644), ALLOW),
        ("openat", (-100, 0, 0o101, 0o2644), ERRNO | errno.EPERM),
        ("mknodat", (-100, 0, 0o010644), ALLOW),
        ("mknodat", (-100, 0, 0o020644), ERRNO | errno.EPERM),
        ("mknodat", (-100, 0, 0o060644), ERRNO | errno.EPERM),
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), ERRNO | errno.ENOTTY),
        ("fcntl", (0, 1030), ALLOW),
        ("fcntl", (0, 8), ERRNO | errno.EPERM),
        ("fcntl", (0, 6), ALLOW),
        ("fcntl", (0, 37), ERRNO | errno.EPERM),  # a lock of an open file
        ("prctl", (15,), ALLOW),
        ("prctl", (4,), ERRNO | errno.EPERM),
        ("prlimit64", (0,), ALLOW),
        ("prlimit64", (1,), ERRNO | errno.EPERM),
        ("setpriority", (0, 0, 5), ALLOW),
        ("setpriority", (0, 1, 5), ERRNO | errno.EPERM),
        ("setpriority", (2, 0, 5), ERRNO | errno.EPERM),
        ("sched_setaffinity", (1,), ERRNO | errno.EPERM),
        ("sync", (), ERRNO),
        ("kill", (1, 9), ALLOW),
    ],
)
def test_rules_on_arguments(arch: str, name: str, args: tuple[int, ...], wanted: int) -> None:
    assert answer(arch, name, *args) == wanted


@pytest.mark.parametrize("arch", ARCHES)
def test_without_namespaces(arch: str) -> None:
    shut = Policy(sockets=False)
    assert answer(arch, "socket", 1, 1, policy=shut) == ERRNO | errno.EACCES
    assert answer(arch, "socketpair", 1, 1, policy=shut) == ALLOW
    assert answer(arch, "socketpair", 1, 2, policy=shut) == ERRNO | errno.EACCES
    assert answer(arch, "connect", 3, policy=shut) == ERRNO | errno.EPERM
    quiet = Policy(listening=False)
    assert answer(arch, "connect", 3, policy=quiet) == ERRNO | errno.EPERM
    assert answer(arch, "socket", 1, 1, policy=quiet) == ALLOW
    assert answer(arch, "kill", -1, 9, policy=shut) == ERRNO | errno.EPERM
    own = Policy(sockets=False, own_pid=77)
    assert answer(arch, "kill", 77, 9, policy=own) == ALLOW
    assert answer(arch, "kill", 76, 9, policy=own) == ERRNO | errno.EPERM
    assert answer(arch, "tgkill", 76, 76, 9, policy=own) == ERRNO | errno.EPERM
    assert answer(arch, "pidfd_send_signal", 77, 9, policy=own) == ERRNO | errno.EPERM


def test_the_tables_agree_where_numbers_are_shared() -> None:
    x86, arm = NUMBERS["x86_64"], NUMBERS["aarch64"]
    late = {n for n, v in arm.items() if v >= 424}
    assert late and all(x86[n] == arm[n] for n in late)
    assert len(set(x86.values())) == len(x86) and len(set(arm.values())) == len(arm)
