"""Runs a server for as long as the process that wanted it lives, however that one ends.

    python watched_server.py PARENT SECONDS COMMAND …

It is the leader of a process group that the server, and whatever that starts, belong to. When the
parent is gone (also by KILL, which it cannot see coming) the whole group ends: by TERM, and
SECONDS later by KILL.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

LOOK_S = 0.2


def watch(parent: int, seconds: float, command: list[str]) -> int:
    """The server's exit status, as a shell says it."""
    server = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # to the group: the server ends by it
    while server.poll() is None and os.getppid() == parent:
        time.sleep(LOOK_S)
    if os.getppid() != parent:
        os.killpg(0, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(seconds)
        os.killpg(0, signal.SIGKILL)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


if __name__ == "__main__":
    sys.exit(watch(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
