"""One injection: the fault, what is there after it, the same command again, what is there then."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Timer

from benchmarks.faults import checks, launch
from benchmarks.faults.case import Case, Whole
from benchmarks.faults.commands import Command, begin
from benchmarks.faults.endpoint import Endpoint
from benchmarks.faults.launch import Ended, Fault
from benchmarks.faults.mounts import MS_RDONLY, disk, remount
from benchmarks.faults.older import killed_over_older
from benchmarks.faults.plan import BUSY, DONE, KILLED, Injection


@dataclass(frozen=True)
class Row:
    """What came of an injection. `again`: the exit status of the same command afterwards."""

    command: str
    kind: str
    moment: str
    status: int | None
    again: int | None
    problems: tuple[str, ...] = ()
    said: str = ""
    met: bool = True


def whole_of(command: Command, home: Path, endpoint: Endpoint | None) -> Whole:
    """The undisturbed run. Raises RuntimeError when it does not end well."""
    folder = home / "whole" / command.name.replace(" ", "-")
    begin(command, home, folder)
    before = checks.listing(folder)
    case = Case(Injection(command, "none"), folder, None, endpoint)  # type: ignore[arg-type]
    ended = case.run()
    if ended.status != DONE or ended.left:
        raise RuntimeError(f"{command.name}: undisturbed it ended with {ended}")
    found = checks.prints(folder, command.changing)
    new = [p for name, p in checks.listing(folder).items() if name not in before]
    size = sum(p.stat().st_size for p in new)
    return Whole(ended, found, checks.outcomes(folder), size)


def inject(
    injection: Injection,
    home: Path,
    whole: Whole,
    endpoint: Endpoint | None,
    keep: bool,
    mounts: bool,
) -> Row:
    """Everything about one row."""
    name = f"{injection.command.name}-{injection.kind}-{injection.moment}"
    folder = home / "".join(c if c.isalnum() else "-" for c in name)[:120]
    shutil.rmtree(folder, ignore_errors=True)
    begin(injection.command, home, folder)
    case = Case(injection, folder, whole, endpoint)
    try:
        with _prepared(case, mounts):
            first = KINDS.get(injection.kind, _stop)(case)
            _look(case, first)
            again = _again(case, first)
    finally:
        if endpoint:
            endpoint.breaks("")
        if not (keep and case.problems):
            shutil.rmtree(folder, ignore_errors=True)
    told = _told(first.said) if case.problems else ""
    return Row(
        injection.command.name,
        injection.kind,
        injection.moment,
        first.status,
        again.status,
        tuple(case.problems),
        told,
        first.met,
    )


def _told(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-400:]


@contextmanager
def _prepared(case: Case, mounts: bool) -> Iterator[None]:
    kind, place = case.injection.kind, case.folder / "out"
    if kind == "disk full" and not mounts:
        yield
    elif kind == "disk full":
        with disk(place, int(case.injection.amount)):
            yield
    elif kind in ("disk read-only", "disk turns read-only"):
        with disk(place, 8 << 30):
            yield
    else:
        yield


# --- the faults ----------------------------------------------------------------------------------


def _stop(case: Case) -> Ended:
    signals = {"kill -9": signal.SIGKILL, "TERM": signal.SIGTERM, "interrupt": signal.SIGINT}
    number = signals[case.injection.kind]
    if case.injection.at:
        return case.run(Fault(launch.send(number), case.injection.at))
    seconds = case.injection.share * case.whole.ended.wall
    ended = case.run(Fault(after=seconds, strike=lambda pid: os.kill(pid, number)))
    return replace(ended, met=ended.met and ended.status != DONE)


def _worker(case: Case) -> Ended:
    seconds = case.injection.share * case.whole.ended.wall
    return case.run(Fault(after=seconds, strike=launch.kill_worker))


def _disk_full(case: Case) -> Ended:
    amount = int(case.injection.amount)
    mounted = os.path.ismount(case.folder / "out")

    def first() -> None:
        if not mounted:
            launch.limit_files(amount // 2)()
        if amount:  # there was room when it looked; another process took it
            shutil.disk_usage = lambda path: shutil._ntuple_diskusage(1 << 40, 0, 1 << 40)  # type: ignore

    ended = case.run(Fault(first=first))
    if mounted:
        remount(case.folder / "out", 0)
    return ended


def _read_only(case: Case) -> Ended:
    remount(case.folder / "out", MS_RDONLY)
    ended = case.run()
    remount(case.folder / "out", 0)
    return replace(ended, met=True)


def _turns_read_only(case: Case) -> Ended:
    place = case.folder / "out"
    ended = case.run(Fault(lambda: remount(place, MS_RDONLY), case.injection.at))
    remount(place, 0)
    return ended


def _not_ours(case: Case) -> Ended:
    place = case.folder / "out"
    for path in [place, *place.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    ended = case.run(Fault(first=launch.obey_modes))
    for path in [place, *place.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return ended


def _memory(case: Case) -> Ended:
    return case.run(Fault(first=launch.limit_memory(int(case.injection.amount))))


def _clock(case: Case) -> Ended:
    return case.run(Fault(launch.jump(case.injection.amount), case.injection.at))


def _input(case: Case) -> Ended:
    place = case.folder / "in" / case.injection.which
    data = place.read_bytes()
    place.write_bytes(_damaged(data, case.injection))
    ended = case.run()
    place.write_bytes(data)
    return replace(ended, met=True)


def _damaged(data: bytes, injection: Injection) -> bytes:
    if "cut off" in injection.kind:
        return data[: int(len(data) * injection.amount)]
    bit = int(len(data) * 8 * injection.amount)
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _state(case: Case) -> Ended:
    """Kill the command, then damage a file that its second start reads."""
    case.run(Fault(launch.send(signal.SIGKILL), case.injection.at))
    found = [p for p in sorted(case.folder.glob(case.injection.which)) if p.is_file()]
    found = [p for p in found if p.stat().st_size]
    if not found:  # nothing to read yet
        case.run()
        found = [p for p in sorted(case.folder.glob(case.injection.which)) if p.is_file()]
    if not found:
        return Ended(KILLED, "", met=False)
    newest = [p for p in found if p.parent == found[-1].parent]  # of checkpoints
    place = random.Random(case.injection.amount).choice(newest)
    journal = place.name in checks.APPENDED and place.name != "metrics.jsonl"
    if journal and "cut off" not in case.injection.kind:  # one that is still JSON says nothing
        return _finished(case, place)
    place.write_bytes(_damaged(place.read_bytes(), case.injection))
    return Ended(KILLED, f"damaged {place.relative_to(case.folder)}")


def _finished(case: Case, place: Path) -> Ended:
    """A journal that is finished: who asks is told that it changed; nothing is done again."""
    case.run()
    whole = place.read_bytes()
    place.write_bytes(_damaged(whole, case.injection))
    out = str(place.parent if (place.parent / "provenance.json").is_file() else place)
    verified = launch.command(("verify", os.path.relpath(out, case.folder)), case.folder)
    if verified.status != 1 or place.name not in verified.said:
        case.note(f"`assay verify` ended with {verified.status}: {_told(verified.said)}")
    place.write_bytes(whole)
    return Ended(KILLED, f"damaged {place.relative_to(case.folder)} when it was finished")


def _two(case: Case) -> Ended:
    one = launch.start(
        case.words, case.folder, Fault(launch.send(signal.SIGSTOP), case.injection.at)
    )
    if not launch.stopped(one):
        return replace(launch.ended(one), met=False)
    launch.KEPT.add(one.pid)
    two = launch.ended(launch.start(case.words, case.folder, name="second"), 60.0)
    launch.KEPT.discard(one.pid)
    os.kill(one.pid, signal.SIGCONT)
    first = launch.ended(one)
    if two.status is None:
        case.note("the second one waits without a word")
    elif DONE not in (first.status, two.status):
        case.note(f"neither is done: {first.status}, {two.status}")
    said = first.said if first.status else two.said
    if two.status and not _names(BUSY, two.said):
        case.note(f"the second one ended with {two.status} and named no reason")
    case.note(*checks.said_wrong(two.said))
    return replace(first, said=said, met=True)


def _endpoint(case: Case) -> Ended:
    assert case.endpoint is not None
    way, _, while_ = case.injection.which.partition(" for")
    case.endpoint.breaks(way, 2, 3 if while_ else 10**6)
    more = ("server.timeout=0.5",) if way == "never" else ()
    ended = case.run(None, *more)
    case.endpoint.breaks("")
    return replace(ended, met=True)


def _sandbox(case: Case) -> Ended:
    which, times = case.injection.which.split()

    def do() -> None:
        if which == "launcher":
            launch.kill_worker(os.getpid(), oldest=True)
        else:
            Timer(0.1, launch.kill_worker, [os.getpid()]).start()

    return case.run(Fault(do, case.injection.at, on="socket.sendmsg", always=times == "always"))


KINDS = {
    "killed over older": killed_over_older,
    "worker killed": _worker,
    "disk full": _disk_full,
    "disk read-only": _read_only,
    "disk turns read-only": _turns_read_only,
    "folder not ours": _not_ours,
    "memory": _memory,
    "clock jumps": _clock,
    "input cut off": _input,
    "input bit flipped": _input,
    "state cut off": _state,
    "state bit flipped": _state,
    "two at once": _two,
    "endpoint": _endpoint,
    "sandbox killed": _sandbox,
}
QUIET = (0, KILLED, -signal.SIGABRT)  # statuses of which nothing has to be said
INPUTS = ("input cut off", "input bit flipped")


# --- what is looked at ---------------------------------------------------------------------------


def _names(pattern: str, said: str) -> bool:
    import re

    return re.search(pattern, said) is not None


def _look(case: Case, first: Ended) -> None:
    """After the fault."""
    injection = case.injection
    wanted = injection.status if first.met else (DONE,)
    if first.status is None:
        case.note("it did not end")
    elif wanted and first.status not in wanted:
        case.note(f"exit status {first.status}, wanted {' or '.join(map(str, wanted))}")
    told = not (first.met and injection.says) or first.status in QUIET
    if not told and not _names(injection.says, first.said):
        case.note(f"the message does not name the cause ({injection.says})")
    told = injection.kind not in INPUTS or first.status not in (1, 2)
    if not told and Path(injection.which).parts[0] not in first.said:
        case.note(f"the message does not name {injection.which}")
    case.note(*checks.said_wrong(first.said), *(f"left running: {one}" for one in first.left))
    if not injection.kind.startswith("state"):
        case.note(*checks.broken_files(case.folder))
    if injection.kind not in INPUTS:
        case.note(*checks.scored_wrong(case.folder, case.whole.outcomes))


def _again(case: Case, first: Ended) -> Ended:
    """The same command once more, with nothing in its way."""
    injection, command = case.injection, case.injection.command
    if injection.kind in INPUTS and first.status in (0, 3):  # it did another piece of work, whole
        shutil.rmtree(case.folder / "out")
        (case.folder / "out").mkdir()
        begin_report(case)
    again = case.run()
    case.note(*(f"again: {one}" for one in checks.said_wrong(again.said)))
    case.note(*(f"again: left running: {one}" for one in again.left))
    refused = injection.kind.startswith("state") and again.status in (1, 2)
    if refused:
        if "out" not in again.said and "shard" not in again.said:
            case.note(f"again: refused without naming the file: {_told(again.said)}")
        return again
    if again.status != DONE:
        case.note(f"again: exit status {again.status}: {_told(again.said)}")
        return again
    case.note(*(f"again: {one}" for one in checks.broken_files(case.folder)))
    wanted = case.whole.prints
    if injection.kind == "TERM" and command.saves == "steps":  # it saved one step more
        case.note(*checks.same_model(case.folder, wanted))
        return again
    free = command.changing
    if injection.kind.startswith("state") and injection.which.endswith("metrics.jsonl"):
        free = (*free, "metrics.jsonl")  # a log: what the disk lost of it is said, not made again
    for one in checks.differing(case.folder, wanted, free):
        case.note(f"again: {one}")
    return again


def begin_report(case: Case) -> None:
    """The folder that `assay report` reads."""
    if case.injection.command.name == "report":
        shutil.copytree(case.folder.parent / "evaluated", case.folder / "out", dirs_exist_ok=True)
