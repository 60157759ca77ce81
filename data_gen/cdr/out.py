"""The files `assay tasks cdr` writes beside the construction: tracks, tasks, certificate."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, BinaryIO

from configs.cdr import CdrConfig
from data_gen.cdr.rows import TRACKS, PlannedRow
from data_gen.cdr.sampling import splitter, unbalanced
from data_gen.cdr.stages.bodies import Lines
from data_gen.cdr.stages.rowmap import Head
from data_gen.overlap import Fingerprint, Print, overlaps, shared
from rewards.progress import Progress
from rewards.versions import installed

SPLITS = ("train", "validation", "heldout")
MANIFEST_TRACKS = tuple(f"tracks/{track}.jsonl" for track in TRACKS)
# What a build may write; files of an older build that are not written again go.
FILES = (
    "config.yaml",
    "pipeline.jsonl",
    "manifest.json",
    "certificate.json",
    *MANIFEST_TRACKS,
    *(f"tracks_all_prompts/{track}.jsonl" for track in TRACKS),
    *(f"{split}.jsonl" for split in SPLITS),
)


class Sink:
    """JSONL files of a folder, opened when first written."""

    def __init__(self, out: Path, stack: ExitStack) -> None:
        self.out, self._stack = out, stack
        self._files: dict[str, BinaryIO] = {}

    def write(self, name: str, lines: bytes) -> None:
        self.open(name).write(lines)

    def open(self, name: str) -> BinaryIO:
        """The file, empty until something is written."""
        if name not in self._files:
            path = self.out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(path, "wb")  # noqa: SIM115
            self._files[name] = self._stack.enter_context(file)
        return self._files[name]


@dataclass(frozen=True)
class Made:
    """One row to write: where it came from, where it goes, and what it is compared by."""

    planned: PlannedRow
    side: str
    print: Fingerprint


@dataclass(frozen=True)
class Tracks:
    """What was written: the manifest, and how many rows each document gave."""

    manifest: dict[str, Any]
    rows_of: Counter[str]


# Gives the lines of units, by their number and the sides of their rows, in that order; those of
# some units at a time.
Writer = Callable[[Iterable[tuple[int, list[str]]]], Iterator[Lines]]


def write_tracks(
    units: Sequence[Sequence[PlannedRow]],
    heads: Sequence[Head],
    lines: Writer,
    config: CdrConfig,
    out: Path,
    paraphrases: dict[str, Any] | None = None,
) -> Tracks:
    """Split the worded units and write them to the new folder `out`, in their order. Ids occur
    once. `paraphrases`: counts of what an endpoint was asked."""
    refused = Counter(head.refused for head in heads if head.refused)
    made, aside = _sided(units, heads, config)
    counts: Counter[str] = Counter()
    rows_of: Counter[str] = Counter()
    with ExitStack() as stack, Progress("tracks", "rows", sum(map(len, made))) as progress:
        sink = Sink(out, stack)
        for split in SPLITS:
            sink.open(f"{split}.jsonl")
        sides = ((unit[0].planned.unit, [one.side for one in unit]) for unit in made)
        for found in lines(sides):
            for name, data in found.files:
                sink.write(name, data)
            counts.update(found.counts)
            progress.add(found.counts["rows"])
    for unit in made:
        rows_of[unit[0].planned.instance.record.id] += len(unit)
    manifest = _manifest(config, counts, refused, len(units)) | {"left_out_of_splits": aside}
    if paraphrases is not None:
        manifest["paraphrases"] = paraphrases
    prints = {s: [one.print for unit in made for one in unit if one.side == s] for s in SPLITS}
    _json(out / "manifest.json", manifest)
    _json(out / "certificate.json", certificate(prints) | {"counts": manifest["tasks"]})
    return Tracks(manifest, rows_of)


def _sided(
    units: Sequence[Sequence[PlannedRow]], heads: Sequence[Head], config: CdrConfig
) -> tuple[list[list[Made]], dict[str, int]]:
    """The rows to write with their sides, unit by unit, and how many training and validation rows
    were set aside: because their input or reference, or that of their order group, occurs in a
    split that is kept from them; and for the balance of KEEP and DROP."""
    split = splitter(
        units,
        config.split,
        {u[0].instance.record.id: head.input for u, head in zip(units, heads, strict=True)},
    )
    made: dict[int, list[Made]] = {}
    seen: set[str] = set()
    for number, (unit, head) in enumerate(zip(units, heads, strict=True)):
        ids = [planned.instance.id for planned in unit]
        if head.refused or not seen.isdisjoint(ids):
            continue
        seen.update(ids)
        rows = zip(unit, head.references, strict=True)
        made[number] = [Made(d, split(d), _print(d, head, reference)) for d, reference in rows]
    alike = _alike(made, "validation", ("heldout",))
    alike |= _alike(made, "train", ("heldout", "validation"), but=alike)
    sides = {n: "" if n in alike else unit[0].side for n, unit in made.items()}
    uneven: set[int] = set()
    if config.select.balance_filtered:
        for side in ("train", "validation"):
            own = {n: [o.planned for o in made[n]] for n, name in sides.items() if name == side}
            uneven |= unbalanced(own)
    sided = [
        [replace(one, side="" if n in uneven else sides[n]) for one in unit]
        for n, unit in made.items()
    ]
    counts = {
        "like a row of another split": sum(len(made[n]) for n in alike),
        "for the balance of KEEP and DROP": sum(len(made[n]) for n in uneven),
    }
    return sided, counts


def _alike(
    made: Mapping[int, list[Made]], side: str, kept: Sequence[str], but: Container[int] = ()
) -> set[int]:
    """Numbers of the units of a side that share an input or a reference with those of `kept`."""
    own = [(n, one.print) for n, unit in made.items() for one in unit if one.side == side]
    others = [
        one.print for n, unit in made.items() if n not in but for one in unit if one.side in kept
    ]
    return {own[j][0] for j in shared([p for _, p in own], others)}


def _print(planned: PlannedRow, head: Head, reference: Print) -> Fingerprint:
    row = planned.instance
    return Fingerprint(
        id=row.id,
        document=row.record.id,
        input=head.input[0],
        reference=reference[0],
        recipe=" ".join(row.sequence),
        template=" ".join(sorted(row.sequence)),
        input_signature=head.input[1],
        reference_signature=reference[1],
    )


def _manifest(
    config: CdrConfig, counts: Counter[str], refused: Counter[str], units: int
) -> dict[str, Any]:
    groups: dict[str, dict[str, int]] = {}
    for name, number in sorted(counts.items()):
        kind, _, value = name.rpartition(" ")
        if kind:
            groups.setdefault(kind, {})[value] = number
    return {
        "tasks": counts["rows"],
        "counts": groups,
        "units_refused": dict(sorted(refused.items())),
        "units": units,
        "operators": len(groups.get("operator", {})),
        "prompt_mode": config.instruct.mode,
        "files": [name for name in MANIFEST_TRACKS if counts[f"track {Path(name).stem}"]],
    }


def certificate(prints: Mapping[str, list[Fingerprint]]) -> dict[str, Any]:
    """What each two splits share: no document, and no input or reference, neither exactly nor
    nearly; recipes are shared but for the templates that are held out."""
    pairs = {f"{one}_and_{other}": (prints[one], prints[other]) for one, other in _pairs(prints)}
    found = {name: overlaps(one, other) for name, (one, other) in pairs.items()}
    documents = {
        name: len({p.document for p in one} & {p.document for p in other})
        for name, (one, other) in pairs.items()
    }
    known = {p.template for side, own in prints.items() if side != "heldout" for p in own}
    alike = sum(
        pair[part][how]
        for pair in found.values()
        for part in ("inputs", "references")
        for how in ("exact", "near")
    )
    return {
        "ok": not any(documents.values()) and not alike,
        "shared_documents": sum(documents.values()),
        "heldout_only_recipe_templates": len({p.template for p in prints["heldout"]} - known),
        **found,
        "versions": installed(),
    }


def _pairs(prints: Mapping[str, object]) -> list[tuple[str, str]]:
    """Every two splits that there are."""
    return list(combinations([name for name in SPLITS if name in prints], 2))


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
