"""What the interpreter needs of the file system, and whether a jail can show it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from rollouts.sandbox import jail

_PREFIX_PARTS = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg", "share/zoneinfo")
_OWN = (jail.WORK, "/proc", jail.SHARED, jail.GIVEN, jail.KEPT)  # made anew in every jail


def paths() -> tuple[str, ...]:
    """This interpreter's own directories and libraries, and nothing else of its prefixes.

    A virtual environment may be made in the very directory that holds the data, so a prefix is
    never taken whole.
    """
    prefixes = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
    prefixes += [os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))]
    found: list[str] = []
    for prefix in dict.fromkeys([*prefixes, *map(os.path.realpath, prefixes)]):
        found += [os.path.join(prefix, part) for part in _PREFIX_PARTS]
    found += [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p.startswith("/")]
    with open("/proc/self/maps") as maps:
        found += [line.split(None, 5)[5].strip() for line in maps if ".so" in line and "/" in line]
    found += [os.path.realpath(path) for path in found if os.path.islink(path)]
    return tuple(dict.fromkeys(p for p in found if os.path.lexists(p)))


def covered(wanted: Iterable[str]) -> str:
    """Why a jail with mounts of its own cannot show one of `wanted`; empty when it can show all."""
    for path in wanted:
        if path in (jail.TMP, jail.SHM) or jail.below(path, _OWN):
            return (
                f"the interpreter needs {path}, where every call has a directory of its own; put "
                "the interpreter or that library elsewhere, or ask for level confined"
            )
    return ""


def closed_folder(program: str) -> str:
    """The first folder on the way to a program that other users cannot enter; "" for none."""
    for path in dict.fromkeys([os.path.abspath(program), os.path.realpath(program)]):
        parts = path.split(os.sep)[1:-1]
        for count in range(1, len(parts) + 1):
            folder = os.sep + os.sep.join(parts[:count])
            if not os.stat(folder).st_mode & 0o001:
                return folder
    return ""
