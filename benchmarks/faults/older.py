"""A build that is killed over an older build of the same folder."""

from __future__ import annotations

import signal

from assay.files import UNFINISHED
from benchmarks.faults import checks, launch
from benchmarks.faults.case import Case
from benchmarks.faults.launch import Ended, Fault
from benchmarks.faults.plan import DONE


def killed_over_older(case: Case) -> Ended:
    """The older build whole, then the command, killed at its moment. What is there then is one of
    the two builds, or is marked as unfinished, so that no reader mixes them."""
    command = case.injection.command
    older = launch.command(tuple(command.older.split()), case.folder)
    if older.status != DONE:
        raise RuntimeError(f"{command.older}: it ended with {older}")
    before = checks.prints(case.folder, command.changing)
    ended = case.run(Fault(launch.send(signal.SIGKILL), case.injection.at))
    names = [n for n in checks.listing(case.folder) if not checks.temporary(n)]
    found = {n: p for n, p in checks.prints(case.folder, command.changing).items() if n in names}
    marked = (case.folder / "out" / UNFINISHED).exists()
    of_one = any(found.items() <= dict(build).items() for build in (before, case.whole.prints))
    if not marked and not of_one:
        case.note("files of two builds stand side by side, and nothing says so")
    return ended
