"""Which faults are injected into which command, at which moments, and what has to come of them."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from assay.seeds import derive_seed
from benchmarks.faults.commands import Command
from benchmarks.faults.launch import Ended

DONE, FAILED, UNUSABLE, UNSCORED, STOPPED, ENDED = 0, 1, 2, 3, 75, 143
KILLED = -signal.SIGKILL
DISK = r"No space left|GB free|File too large"
LOCKED = r"Read-only file system|Permission denied"
MEMORY = r"memory"
BUSY = r"another|is running in this folder|wait for"


@dataclass(frozen=True)
class Injection:
    """One row: a fault of a kind in a command. `at` counts changes of files; `share` is a share of
    the undisturbed run's length; `amount` is what the kind makes of it. `status`: the exit
    statuses that are documented; `says`: what the message has to name where it is none of 0, 3."""

    command: Command
    kind: str
    at: int = 0
    share: float = 0.0
    amount: float = 0.0
    which: str = ""
    status: tuple[int, ...] = ()
    says: str = ""

    @property
    def moment(self) -> str:
        parts = [f"change {self.at}" if self.at else "", self.which]
        parts += [f"{self.share:.0%} of its length" if self.share else ""]
        parts += [f"{self.amount:g}" if self.amount else ""]
        return " ".join(filter(None, parts))


def injections(command: Command, whole: Ended, size: int, seed: int) -> Iterator[Injection]:
    """Those of one command, whose undisturbed run is `whole` and wrote `size` bytes."""
    rng = random.Random(derive_seed(seed, "faults", command.name))
    found = [
        *_stops(command, whole, rng),
        *_machine(command, whole, size, rng),
        *_damage(command, whole, rng),
        *_together(command, whole, rng),
    ]
    if command.few:  # the last of a kind, and two kills
        kept = {(i.kind, bool(i.share)): i for i in found if i.kind == "kill -9" or not i.share}
        found = list(kept.values())
    yield from found
    if command.older:
        for at in sorted({max(1, whole.events - back) for back in range(4)}):  # files take places
            yield Injection(command, "killed over older", at, status=(KILLED,))
    if "endpoint" in command.needs:
        yield from _endpoint(command)
    if "sandbox" in command.needs:
        for which in ("launcher once", "jail once", "launcher always", "jail always"):
            at = rng.randint(2, 4)
            yield Injection(command, "sandbox killed", at, which=which, status=(0, 1, 3))


def _moments(count: int, whole: Ended, rng: random.Random) -> list[int]:
    """Changes of files, one drawn from each of `count` equal parts of the run; the last is one of
    the last three, when files take their places."""
    events = max(whole.events, 1)
    cut = [
        rng.randint(1 + i * events // count, max(1, (i + 1) * events // count))
        for i in range(count)
    ]
    return sorted({*cut[:-1], max(1, events - rng.randint(0, 2))})


def _stops(command: Command, whole: Ended, rng: random.Random) -> Iterator[Injection]:
    for at in _moments(4, whole, rng):
        yield Injection(command, "kill -9", at, status=(KILLED,))
    for part in (0.2, 0.6):
        share = part + rng.uniform(0, 0.3)
        yield Injection(command, "kill -9", share=share, status=(KILLED,))
    asked = (STOPPED,) if command.saves else ()
    for at in _moments(2, whole, rng):
        yield Injection(command, "TERM", at, status=(DONE, ENDED, *asked), says=r"TERM|asked to")
    yield Injection(
        command,
        "TERM",
        share=rng.uniform(0.3, 0.8),
        status=(DONE, ENDED, *asked),
        says=r"TERM|asked",
    )
    yield Injection(
        command, "interrupt", _moments(1, whole, rng)[0], status=(130,), says="interrupted"
    )
    if command.workers:
        for share in (0.5, 0.8):
            yield Injection(
                command, "worker killed", share=share, status=(0, 1, 3), says=r"worker process"
            )


def _machine(command: Command, whole: Ended, size: int, rng: random.Random) -> Iterator[Injection]:
    for part in (0.0, rng.uniform(0.1, 0.5), rng.uniform(0.6, 0.95)):
        yield Injection(command, "disk full", amount=int(size * part), status=(1, 2), says=DISK)
    yield Injection(command, "disk read-only", status=(1, 2), says=LOCKED)
    yield Injection(
        command, "disk turns read-only", _moments(2, whole, rng)[0], status=(1, 2), says=LOCKED
    )
    yield Injection(command, "folder not ours", status=(2,), says=LOCKED)
    for more in (1 << 20, 24 << 20):
        yield Injection(command, "memory", amount=more, status=(0, 1, 3, -6, KILLED), says=MEMORY)
    for seconds in (-3600, 86400 * 40):
        at = _moments(2, whole, rng)[0]
        yield Injection(command, "clock jumps", at, amount=seconds, status=(0,))


def _damage(command: Command, whole: Ended, rng: random.Random) -> Iterator[Injection]:
    for name in command.inputs:
        yield Injection(
            command, "input cut off", which=name, amount=rng.uniform(0.1, 0.9), status=(0, 1, 2, 3)
        )
        for _ in range(2):
            bit = rng.random()
            yield Injection(
                command, "input bit flipped", which=name, amount=bit, status=(0, 1, 2, 3)
            )
    for pattern in command.state:
        at = _moments(3, whole, rng)[1 % len(_moments(3, whole, rng))]
        share = rng.uniform(0.1, 0.9)
        yield Injection(command, "state cut off", at, amount=share, which=pattern)
        for _ in range(2):
            share = rng.random()
            yield Injection(command, "state bit flipped", at, amount=share, which=pattern)


def _together(command: Command, whole: Ended, rng: random.Random) -> Iterator[Injection]:
    for at in _moments(2, whole, rng):
        yield Injection(command, "two at once", at, status=(0, 1, 2), says=BUSY)


def _endpoint(command: Command) -> Iterator[Injection]:
    from benchmarks.faults.endpoint import WAYS

    for way in WAYS:
        if way not in ("never", "401"):
            yield Injection(command, "endpoint", which=f"{way} for a while", status=(0, 3))
        yield Injection(command, "endpoint", which=way, status=(1, 2, 3))
