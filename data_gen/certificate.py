"""The files of a set of tasks: a JSONL file for each split, and one certificate of what they share.

Every builder writes the same keys first; what only one has to say stands under its name.
`assay push --without-gold` keeps those of `PROVED`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import combinations
from pathlib import Path
from typing import Any

from assay.console import licences_of
from assay.files import atomic_write_set, file_hash, write_bytes
from assay.record import GOLD, installed
from assay.tables.settings import Doubt, count
from assay.task import Task, json_text, write_jsonl
from data_gen.tally import Tally

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
        "doubts": count(doubts),
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
