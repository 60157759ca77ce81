"""One command in a container: a program inside the jail, which knows nothing of Assay.

The container's files arrive as a tar, and go back as one. The program unpacks them, runs the
command, ends whatever that left running, and packs the files again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
from typing import Any

STATE, ORDER = "state.tar", "order.json"
LATE = 124  # exit status of a command that its time ended, as `timeout` has it


def unpack() -> None:
    """The container's files at their places."""
    with tarfile.open(STATE) as archive:
        # as `filter="fully_trusted"`, which Python 3.11 knows from 3.11.4 on
        archive.extraction_filter = lambda member, path: member
        archive.extractall("/")
    os.unlink(STATE)


def run(order: dict[str, Any]) -> int:
    """Exit status of the command."""
    try:
        process = subprocess.Popen(
            ["/bin/bash", "-c", order["command"]],
            cwd=order["cwd"],
            env={**os.environ, **order["env"]},
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
    except OSError as error:
        print(f"{order['cwd']}: {error.strerror}", file=sys.stderr)
        return 126
    try:
        status = process.wait(order["seconds"])
    except subprocess.TimeoutExpired:
        status = LATE
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGKILL)  # all that it left, this process excepted
    process.wait()
    return status if status >= 0 else 128 - status


def pack(roots: list[str]) -> None:
    """The roots, which are folders of this one, and /tmp but for what the jail shows there, as the
    container's new state; without sockets and pipes."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if member.isdev() else member

    with tarfile.open(STATE, "w") as archive:
        for root in roots:
            archive.add(root, filter=plain)
        own = os.stat("/tmp").st_dev
        for name in sorted(os.listdir("/tmp")):
            if os.lstat(f"/tmp/{name}").st_dev == own:
                archive.add(f"/tmp/{name}", f"tmp/{name}", filter=plain)


def main() -> int:
    with open(ORDER, encoding="utf-8") as file:
        order: dict[str, Any] = json.load(file)
    os.unlink(ORDER)
    os.unlink("main.py")
    for root in order["roots"]:
        os.makedirs(root, exist_ok=True)
    unpack()
    for path in order["folders"]:
        os.makedirs(path, exist_ok=True)
    status = run(order)
    pack(order["roots"])
    return status


if __name__ == "__main__":
    sys.exit(main())
