"""Whether a jail of the tests can have namespaces, and whether there can be one."""

from __future__ import annotations

import functools
import os
import sys


@functools.cache
def is_root_without_namespaces() -> bool:
    """Root that may make no mount namespace, as in Docker: a jail then runs as another user."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return False
    from rollouts.sandbox import syscalls

    child = os.fork()
    if child == 0:
        try:
            syscalls.unshare(syscalls.CLONE_NEWNS)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


@functools.cache
def refusal() -> str | None:
    """Why the sandbox refuses to run at all as the node's own root in a namespace of one id; None
    where it does not."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return None
    from rollouts.sandbox import launcher

    try:
        launcher.can_drop_root()
    except OSError as error:
        return str(error)
    return None


_noted = {"new": 0}
_ends: set[str] = set()


def note_refusals() -> None:
    """Count the sandbox's errors from here on: many are answered and not raised."""
    from rollouts.sandbox.model import SandboxError

    def counted(self: SandboxError, *args: object) -> None:
        _noted["new"] += 1
        Exception.__init__(self, *args)

    SandboxError.__init__ = counted


def forget_refusals() -> None:
    """Before a test: what an earlier one met is no reason of its end."""
    _noted["new"] = 0


def refused(end: str, told: bool) -> bool:
    """Whether a failure is the sandbox's refusal: it is told, or the sandbox has refused in this
    test, or a failure that ended by the same words was: a fixture fails each test that asks for it
    by the same words."""
    if told or _noted["new"]:
        _ends.add(end)
    return end in _ends
