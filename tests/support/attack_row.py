"""What an attack is, and how a row of the table says that it was stopped.

An attempt prints OPEN when it got through. Attempts are bounded, so that one that gets through
harms nothing, and only ever read from the kernel. In the code of a row, upper-case names such as
GOLD and VICTIM are put in by the runner (see `Target`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from assay.confine import NUMBERS, machine
from rollouts.sandbox.model import Limits, Result

SMALL = Limits(
    wall_s=10,
    memory_mb=128,
    total_mb=384,
    file_mb=24,
    work_mb=8,
    work_files=500,
    tmp_mb=8,
    shm_mb=4,
    processes=32,
    descriptors=128,
)
HASTY = replace(SMALL, wall_s=0.4)

_HEAD = """\
import ctypes, os, sys, time
_libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    "(result, errno) of a system call by name"
    ctypes.set_errno(0)
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return _libc.syscall(ctypes.c_long(NR[name]), *args), ctypes.get_errno()
def opened():
    print("OPEN", flush=True)
    os._exit(0)
def tries(*steps):
    "OPEN when any step goes through without an OSError"
    for step in steps:
        try:
            step()
        except (OSError, ValueError):
            continue
        opened()
def refused(name, *args, by=(1, 38, 13)):
    "OPEN unless the call itself answers EPERM, ENOSYS or EACCES"
    result, error = call(name, *args)
    if result >= 0 or error not in by:
        opened()
"""


@dataclass(frozen=True)
class Target:
    """What an attacker would like to reach, planted for the occasion."""

    directory: str
    gold: str
    home: str
    token: str  # in the gold file, in the victim's environment and on its command line
    victim: int
    port: int
    udp_port: int
    socket: str
    abstract: str
    marker: str  # a file name that nobody else uses


def closed(result: Result, target: Target) -> bool:
    """The usual rule: nothing got through, nothing leaked, and the call's result is not lost."""
    text = result.stdout + result.stderr
    leaked = target.token in text or any(target.token.encode() in d for d in result.files.values())
    return "OPEN" not in result.stdout and not leaked and result.status != "sandbox_error"


@dataclass(frozen=True)
class Attack:
    """One row. `stopped` looks at the result; what is left behind is checked for every row."""

    number: int
    name: str
    code: str
    stopped: Callable[[Result, Target], bool] = closed
    limits: Limits = SMALL
    fetch: tuple[str, ...] = ()
    then: str = ""  # a second call that must print "fine"
    arch: str = ""  # only where this is the architecture
    shared: str = ""  # a directory that the runner shares, as a folder of this name

    def source(self, target: Target) -> str:
        """The code to run, with the target's places put in."""
        used = set(re.findall(r"\b(?:call|refused)\(\s*\"(\w+)\"", self.code))
        table = NUMBERS[machine()]
        values = {
            "NR": {name: table.get(name, -1) for name in sorted(used)},
            "GOLD": target.gold,
            "DIRECTORY": target.directory,
            "HOME": target.home,
            "VICTIM": target.victim,
            "PORT": target.port,
            "UDP_PORT": target.udp_port,
            "SOCKET": target.socket,
            "ABSTRACT": "\0" + target.abstract,
            "MARKER": target.marker,
            "HALVES": (target.token[:10], target.token[10:]),
        }
        lines = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        return lines + _HEAD + self.code


def status(*wanted: str) -> Callable[[Result, Target], bool]:
    """Stopped means: nothing leaked, and the call is reported under one of these names."""
    return lambda result, target: closed(result, target) and result.status in wanted
