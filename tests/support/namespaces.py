"""Whether a jail of the tests can have namespaces."""

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
