"""The filter, interpreted in Python: both architectures, without loading it."""

from __future__ import annotations

import errno
import functools

import pytest
from places import ROOT

from assay.confine import ALLOW, AUDIT_ARCH, ERRNO, KILL, NUMBERS
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


RULES = (ROOT / "tests" / "data" / "system_calls.txt").read_text().splitlines()[1:]


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("rule", RULES)
def test_rules_on_arguments(arch: str, rule: str) -> None:
    asked, _, wanted = rule.partition("#")[0].partition(" = ")
    name, *args = asked.split()
    error = wanted.strip()
    expected = ALLOW if error == "allow" else ERRNO | getattr(errno, error, 0)
    assert answer(arch, name, *(int(a, 0) for a in args)) == expected


@pytest.mark.parametrize("arch", ARCHES)
def test_without_namespaces(arch: str) -> None:
    shut, quiet = Policy(sockets=False), Policy(listening=False)
    own = Policy(sockets=False, own_pid=77)
    allowed = ((shut, "socketpair", 1, 1), (quiet, "socket", 1, 1), (own, "kill", 77, 9))
    for policy, name, *args in allowed:
        assert answer(arch, name, *args, policy=policy) == ALLOW
    for policy, name, *args in (
        *((shut, "socket", 1, 1), (shut, "socketpair", 1, 2), (shut, "connect", 3)),
        *((quiet, "connect", 3), (shut, "kill", -1, 9), (own, "kill", 76, 9)),
        *((own, "tgkill", 76, 76, 9), (own, "pidfd_send_signal", 77, 9)),
    ):
        error = errno.EACCES if name.startswith("socket") else errno.EPERM
        assert answer(arch, name, *args, policy=policy) == ERRNO | error
