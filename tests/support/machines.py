"""Run a command as on a poorer machine, without touching this one.

`python machines.py KIND [KIND …] -- ARGS` changes only this process and its children, then execs
the same interpreter with ARGS. `user` needs real root; it also makes the interpreter reachable.
The whole suite on such a machine: `python tests/support/machines.py docker -- -m pytest -n auto
--dist worksteal -m "not slow"`.
"""

from __future__ import annotations

import errno
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)

from assay import confine as seccomp  # noqa: E402
from rollouts.sandbox import jail, launcher  # noqa: E402
from rollouts.sandbox import syscalls as sc  # noqa: E402

NR = seccomp.NUMBERS[seccomp.machine()]
ORDINARY = 61_234


def user() -> None:
    """An ordinary user with a home directory nobody else reads."""
    sc.unshare(sc.CLONE_NEWNS)
    jail.private_mounts()
    jail.reach([*launcher.interpreter_paths(), ROOT])
    os.setgroups([])
    os.setresgid(ORDINARY, ORDINARY, ORDINARY)
    os.setresuid(ORDINARY, ORDINARY, ORDINARY)
    sc.prctl(sc.PR_SET_DUMPABLE, 1)
    os.environ["HOME"] = "/nonexistent"


def outer(extra: int) -> None:
    """A user namespace like the one a container gives."""
    proc = os.open("/proc", os.O_RDONLY)
    jail.enter_user_namespace(extra, proc)
    os.close(proc)


def called_root() -> None:
    """Root by name only: the one id of a user namespace (`unshare -r`, enroot)."""
    uid, gid = os.geteuid(), os.getegid()
    sc.unshare(sc.CLONE_NEWUSER)
    texts = {"setgroups": "deny", "uid_map": f"0 {uid} 1", "gid_map": f"0 {gid} 1"}
    for name, text in texts.items():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def no_userns() -> None:
    outer(0)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")


def docker() -> None:
    """The calls that Docker's default seccomp profile keeps from a container without more
    capabilities: no namespaces, mounts or keys."""
    refused = """unshare setns mount umount2 pivot_root move_mount open_tree fsopen fsmount fsconfig
    fspick mount_setattr keyctl add_key request_key bpf perf_event_open io_uring_setup
    io_uring_enter io_uring_register"""
    denied, unknown = (seccomp.ERRNO | e for e in (errno.EPERM, errno.ENOSYS))
    program = [(0x20, 0, 0, 0)]
    for name in refused.split():
        program += [(0x15, 0, 1, NR[name]), (0x06, 0, 0, denied)]
    program += [(0x15, 0, 1, NR["clone3"]), (0x06, 0, 0, unknown)]  # C libraries fall back
    program += [(0x15, 0, 3, NR["clone"]), (0x20, 0, 0, 16)]  # the flags
    program += [(0x45, 0, 1, sc.CLONE_NAMESPACES), (0x06, 0, 0, denied)]
    sc.prctl(sc.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install_seccomp(seccomp.encode([*program, (0x06, 0, 0, seccomp.ALLOW)]))


def masked_proc() -> None:
    """A file of /proc is covered, as in other containers: no fresh one can be mounted."""
    if jail.is_root():
        sc.unshare(sc.CLONE_NEWNS)
    else:
        outer(sc.CLONE_NEWNS)
    jail.private_mounts()
    masked = [n for n in ("kcore", "keys", "timer_list", "meminfo") if os.path.exists(f"/proc/{n}")]
    sc.mount("/dev/null", f"/proc/{masked[0]}", "", sc.MS_BIND)


def no_landlock() -> None:
    """Answer ENOSYS to the Landlock calls, as an older kernel does."""
    numbers = [NR[f"landlock_{n}"] for n in ("create_ruleset", "add_rule", "restrict_self")]
    program = [(0x20, 0, 0, 0)]
    for number in numbers:
        program += [(0x15, 0, 1, number), (0x06, 0, 0, seccomp.ERRNO | errno.ENOSYS)]
    sc.prctl(sc.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install_seccomp(seccomp.encode([*program, (0x06, 0, 0, seccomp.ALLOW)]))


if __name__ == "__main__":
    cut = sys.argv.index("--")
    for kind in sys.argv[1:cut]:
        globals()[kind]()
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = f"{ROOT}:{ROOT}/tests/support"
    os.execv(sys.executable, [sys.executable, *sys.argv[cut + 1 :]])
