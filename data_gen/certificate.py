"""What a build says: of every task, where it is from; of every input, used or refused, why, how
many tasks, under which licence; and of the set that it writes, its splits and one certificate of
what they share.

An input is a file, one table of a file, or a class of documents. Every `assay tasks` builder ends
with one line per input, and writes the inputs that gave less than they might to `refused.jsonl`.
Every builder writes the same keys of the certificate first; what only one has to say stands under
its name. `assay push --without-gold` keeps those of `PROVED`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from assay.console import licences_of
from assay.files import atomic_write_set, file_hash, write_bytes
from assay.record import GOLD, installed
from assay.task import Task, json_text, write_jsonl

if TYPE_CHECKING:
    from assay.tables.settings import Doubt

REFUSED = "refused.jsonl"
SHOWN = 40  # lines printed; the file has all of them
_WIDTH = 160


@dataclass(frozen=True)
class Refusal:
    """Why something was not used: a code that is counted and that code may look at, `what` is
    wrong in a sentence for people (empty: the code says it), and `where`, such as a column."""

    code: str
    what: str = ""
    where: str = ""

    def __str__(self) -> str:
        said = self.what or self.code
        return f"{self.where}: {said}" if self.where else said

    def coded(self) -> str:
        """The code, then what it is about and the sentence."""
        return f"{self.code}: {self}" if self.what or self.where else self.code


# codes of gold that a second computation does not give, or cannot
DIFFERS, UNPROVABLE = "proof: differs", "proof: not provable"
# verdicts of one that gives it; once: over a file that one library alone reads
AGREED, ONCE = "agreed", "proved once"


class Refused(Exception):
    """A draft that becomes no task: its code, a sentence, and what it is about."""

    def __init__(self, code: str, what: str = "", where: str = "") -> None:
        super().__init__(code)
        self.why = Refusal(code, what, where)


@dataclass
class Tally:
    """What became of the drafts of a build: refusals by code, with up to `most` sentences of each;
    verdicts of the second computation in `proof`; refusals by input; and in `unused` why nothing
    can be asked of an input at all."""

    refused: Counter[str] = field(default_factory=Counter[str])
    proof: Counter[str] = field(default_factory=Counter[str])
    examples: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    inputs: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    unused: dict[str, str] = field(default_factory=dict[str, str])
    most: int = 5

    def refuse(self, why: Refusal, inputs: Iterable[str] = ()) -> None:
        """Count a draft that became no task, also for its inputs; and its verdict, where gold was
        not proved."""
        self.refused[why.code] += 1
        if why.code in (DIFFERS, UNPROVABLE):
            self.proof[why.code.removeprefix("proof: ")] += 1
        self.note(why, inputs)
        kept = self.examples.setdefault(why.code, [])
        if (why.what or why.where) and len(kept) < self.most:
            kept.append(str(why)[:400])

    def note(self, why: Refusal, inputs: Iterable[str]) -> None:
        """Count a draft for its inputs alone. Of gold that is not proved the sentence is kept."""
        proof = why.code in (DIFFERS, UNPROVABLE)
        for name in inputs:
            said = f"{why.code}: {why.what}" if proof else why.code
            self.inputs.setdefault(name, Counter())[said] += 1

    def add(self, other: Tally) -> None:
        """Add what became of other drafts, of other inputs."""
        self.refused.update(other.refused)
        self.proof.update(other.proof)
        self.unused.update(other.unused)
        self.inputs.update(other.inputs)
        for code, said in other.examples.items():
            kept = self.examples.setdefault(code, [])
            kept += said[: self.most - len(kept)]

    def why_none(self, name: str) -> str:
        """Why no draft over an input became a task: the most frequent reasons; "" without any."""
        if name in self.unused:
            return self.unused[name]
        reasons = self.inputs.get(name, Counter[str]())
        said = "; ".join(f"{n} of {reasons.total()}: {why}" for why, n in reasons.most_common(2))
        return f"no question over it passed every check ({said})" if said else ""


@dataclass(frozen=True)
class Input:
    """One input of a build. `why` holds a sentence for each refusal, also of an input that was used
    in part; `unit` is what `tasks` counts."""

    name: str
    tasks: int
    why: tuple[str, ...] = ()
    licence: str = "unknown"
    unit: str = "tasks"
    doubts: tuple[Doubt, ...] = ()  # what was refused until `tables.yaml` settles it

    @property
    def used(self) -> bool:
        return self.tasks > 0

    @property
    def passed(self) -> bool:
        """Whether it is the line of a folder's files that are about the data, and hold none."""
        return self.name == "." or self.name.endswith("/.")

    def line(self) -> str:
        """`name: used, 4 tasks, licence MIT` or `name: refused, licence unknown: why`; of a folder
        `name: passed over …`."""
        what = f"used, {self.tasks} {self.unit}" if self.used else "refused"
        text = f"{self.name}: {what}, licence {self.licence}"
        if self.passed:
            text = f"{self.name.rstrip('./') or 'the folder'}: {'; '.join(self.why)}"
        elif self.why:
            text += f": {'; '.join(dict.fromkeys(self.why))}"
        return text if len(text) <= _WIDTH else text[: _WIDTH - 2] + " …"

    def row(self) -> dict[str, Any]:
        listed = [d.to_json() for d in dict.fromkeys(self.doubts)]
        why = list(dict.fromkeys(self.why))
        return asdict(self) | {"used": self.used, "why": why, "doubts": listed}


def drawn_from(
    source: str, licences: Iterable[str], domain: str | None = None, document: str | None = None
) -> dict[str, Any]:
    """Where a task is from, as every builder says it in `Task.meta`: the `source` that it was drawn
    from and, where these are known apart, the `document` of it and its `domain`; its `licence`, or
    the `licences` of all that it was made from where they are several."""
    named = {"document": document, "domain": domain}
    under = sorted({*licences})
    said = {"licence": under[0]} if len(under) == 1 else {"licences": under}
    return {**{k: v for k, v in named.items() if v is not None}, "source": source, **said}


def say_inputs(
    inputs: Sequence[Input], out: Path, to: TextIO | None = None, members: Iterable[Input] = ()
) -> None:
    """Print a line per input, refused ones first, and write `out/refused.jsonl`: every input with
    a reason. The file is written also when it is empty.

    `members` are refused parts of the inputs, such as documents of a class: they have rows in the
    file and no line of their own.
    """
    ordered = sorted(inputs, key=lambda one: (one.used, not one.passed, one.name))
    told = (one for one in ordered if one.why or one.doubts or not one.used)
    write_jsonl(out / REFUSED, (one.row() for one in chain(told, members)))
    print("\n".join(lines(ordered, out)), file=to or sys.stderr)


def lines(inputs: Iterable[Input], out: Path) -> list[str]:
    """The lines that are printed: `SHOWN` at most, then where the others are, then the counts."""
    ordered = list(inputs)
    said = [one.line() for one in ordered[:SHOWN]]
    if len(ordered) > SHOWN:
        said.append(f"… and {len(ordered) - SHOWN} more inputs; reasons in {out / REFUSED}")
    used = sum(one.used for one in ordered)
    refused = sum(not one.used and not one.passed for one in ordered)
    said += doubts_said(ordered)
    return [*said, f"inputs: {used} used, {refused} refused"]


def doubts_said(inputs: Iterable[Input]) -> list[str]:
    """A line for each doubt, the first `SHOWN`; then the counts of all by code."""
    listed = list(dict.fromkeys((one.name, d.line()) for one in inputs for d in one.doubts))
    said = [f"doubt: {name}: {line}" for name, line in listed[:SHOWN]]
    if len(listed) > SHOWN:
        said.append(f"… and {len(listed) - SHOWN} more doubts in {REFUSED}")
    counts = _by_code(d for one in inputs for d in one.doubts)
    return [*said, "doubts: " + ", ".join(f"{c} {n}" for c, n in counts.items())] if said else []


def _by_code(doubts: Iterable[Doubt]) -> dict[str, int]:
    return dict(sorted(Counter(doubt.code for doubt in doubts).items()))


def say_empty(counts: Mapping[str, int], out: Path, why: str) -> None:
    """Say in a sentence that there is nothing to test on, or to choose settings on; and of any
    other split that it is empty."""
    needed = {"heldout": "test on", "validation": "choose settings on"}
    for name in {**needed, **counts}:
        if not counts.get(name):
            file = out / f"{name}.jsonl"
            said = f"there is nothing to {needed[name]}; {why}" if name in needed else "no task"
            state = "is empty" if name in counts else "was not written"
            print(f"{file} {state}: {said}", file=sys.stderr)


CERTIFICATE = "certificate.json"
# what leads to no gold: no seed, no setting, no example
PROVED = ("builder", "ok", "tasks", "tracks", "licences", "shared", "proof", "doubts")

Shared = Mapping[str, Mapping[str, int]]


def shared(sides: Mapping[str, Mapping[str, Set[Any]]]) -> dict[str, dict[str, int]]:
    """ "one and other" → how many of each kind, such as tables, are in both splits. Of two training
    splits nothing is asked."""
    pairs = [
        (one, other)
        for one, other in combinations(sides, 2)
        if not (one.startswith("train") and other.startswith("train"))
    ]
    return {
        f"{one} and {other}": {k: len(own & sides[other][k]) for k, own in sides[one].items()}
        for one, other in pairs
    }


def certificate(
    builder: str,
    splits: Mapping[str, Sequence[Task] | int],
    shares: Shared,
    seed: int,
    *,
    ok: bool = True,
    packages: Iterable[str] = ("assay", *GOLD),
    tally: Tally | None = None,
    doubts: Iterable[Doubt] = (),
    **own: Any,
) -> dict[str, Any]:
    """What a set holds, what its splits share, and what was refused. `ok`: nothing is shared, and
    the builder has nothing against it. `splits`: their tasks, or how many where these are too many
    to hold. `own`: what only this builder says."""
    tally = tally or Tally()
    held = {name: tasks for name, tasks in splits.items() if not isinstance(tasks, int)}
    return {
        "builder": builder,
        "ok": ok and not any(n for counts in shares.values() for n in counts.values()),
        "seed": seed,
        "versions": installed(packages),
        "tasks": {n: kept if isinstance(kept, int) else len(kept) for n, kept in splits.items()},
        "tracks": counted(held, lambda task: (task.track,)),
        "licences": counted(held, licences_of),
        "shared": shares,
        "proof": dict(tally.proof.most_common()),
        "refused": dict(tally.refused.most_common()),
        "examples": tally.examples,
        "doubts": _by_code(doubts),
        builder: own,
    }


def counted(
    splits: Mapping[str, Sequence[Task]], names: Callable[[Task], Iterable[str]]
) -> dict[str, dict[str, int]]:
    """Tasks of each split by what `names` says of a task, commonest first."""
    return {
        split: dict(Counter(name for task in tasks for name in names(task)).most_common())
        for split, tasks in splits.items()
    }


def write_set(
    out: Path, splits: Mapping[str, Sequence[Task]], proof: dict[str, Any]
) -> dict[str, Any]:
    """Write every split and the certificate, all or none; files that an older certificate names go.
    Returns the certificate with the SHA-256 of each file."""
    try:
        older: Any = json.loads((out / CERTIFICATE).read_text(encoding="utf-8"))
        stale = [name for name in older["sha256"] if Path(name).name == name]
    except (OSError, ValueError, KeyError, TypeError):
        stale = []
    with atomic_write_set(out, stale=stale) as new:
        for name, tasks in splits.items():
            write_jsonl(new / f"{name}.jsonl", (task.to_json() for task in tasks))
        proof |= {"sha256": {f"{n}.jsonl": file_hash(new / f"{n}.jsonl") for n in splits}}
        write_bytes(new / CERTIFICATE, json_text(proof, indent=2))
    return proof
