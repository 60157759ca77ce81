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

STATE, ORDER, DONE = "state.tar", "order.json", "done.json"


def unpack() -> None:
    """The container's files at their places."""
    with tarfile.open(STATE) as archive:
        # as `filter="fully_trusted"`, which Python 3.11 knows from 3.11.4 on
        archive.extraction_filter = lambda member, path: member
        archive.extractall("/")
    os.unlink(STATE)


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Exit status of the command, and whether its time ended it."""
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
        return {"status": 126, "late": False}
    try:
        status, late = process.wait(order["seconds"]), False
    except subprocess.TimeoutExpired:
        status, late = 124, True
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGKILL)  # all that it left, this process excepted
    process.wait()
    return {"status": status if status >= 0 else 128 - status, "late": late}


def pack(roots: list[str]) -> None:
    """Every file below the roots, but sockets and pipes, as the container's new state. A folder of
    the system that has the name of a root is not part of it, nor is what the jail shows in /tmp."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if member.isdev() else member

    with tarfile.open(f"{os.getcwd()}/{STATE}", "w") as archive:
        for root in roots:
            path = f"/{root}"
            if root == "tmp" or os.path.realpath(path) == f"{os.getcwd()}/{root}":
                own = os.stat(path).st_dev
                for name in sorted(os.listdir(path)):
                    if os.lstat(f"{path}/{name}").st_dev == own:
                        archive.add(f"{path}/{name}", f"{root}/{name}", filter=plain)


def main() -> None:
    with open(ORDER, encoding="utf-8") as file:
        order: dict[str, Any] = json.load(file)
    os.unlink(ORDER)
    os.unlink("main.py")
    for root in order["roots"]:
        if root != "tmp":
            os.makedirs(root, exist_ok=True)
    if os.path.exists(STATE):
        unpack()
    for path in order["folders"]:
        os.makedirs(path, exist_ok=True)
    done = run(order)
    pack(order["roots"])
    with open(DONE, "w", encoding="utf-8") as file:
        json.dump(done, file)


if __name__ == "__main__":
    main()
