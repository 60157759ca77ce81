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
from data_gen.cdr.rows import TRACKS
from data_gen.cdr.sampling import splitter, unbalanced
from data_gen.cdr.stages.bodies import Lines
from data_gen.cdr.stages.heads import Head
from data_gen.overlap import Fingerprint, overlaps, shared
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
    """A unit to write: where it goes, and what its rows are compared by."""

    head: Head
    side: str
    prints: list[Fingerprint]


@dataclass(frozen=True)
class Tracks:
    """What was written: the manifest, and how many rows each document gave."""

    manifest: dict[str, Any]
    rows_of: Counter[str]


# Gives the lines of units, by their number and the sides of their rows, in that order; those of
# some units at a time.
Writer = Callable[[Iterable[tuple[int, list[str]]]], Iterator[Lines]]


def write_tracks(
    heads: Sequence[Head],
    lines: Writer,
    config: CdrConfig,
    out: Path,
    paraphrases: dict[str, Any] | None = None,
) -> Tracks:
    """Split the worded units and write them to the new folder `out`, in their order. Ids occur
    once. `paraphrases`: counts of what an endpoint was asked."""
    refused = Counter(head.refused for head in heads if head.refused)
    made, aside = _sided(heads, config)
    counts: Counter[str] = Counter()
    rows_of: Counter[str] = Counter()
    total = sum(len(unit.prints) for unit in made)
    with ExitStack() as stack, Progress("tracks", "rows", total) as progress:
        sink = Sink(out, stack)
        for split in SPLITS:
            sink.open(f"{split}.jsonl")
        sides = ((unit.head.number, [unit.side] * len(unit.prints)) for unit in made)
        for found in lines(sides):
            for name, data in found.files:
                sink.write(name, data)
            counts.update(found.counts)
            progress.add(found.counts["rows"])
    for unit in made:
        rows_of[unit.head.document] += len(unit.prints)
    manifest = _manifest(config, counts, refused, len(heads)) | {"left_out_of_splits": aside}
    if paraphrases is not None:
        manifest["paraphrases"] = paraphrases
    prints = {side: _prints(made, side) for side in SPLITS}
    _json(out / "manifest.json", manifest)
    _json(out / "certificate.json", certificate(prints) | {"counts": manifest["tasks"]})
    return Tracks(manifest, rows_of)


def _sided(heads: Sequence[Head], config: CdrConfig) -> tuple[list[Made], dict[str, int]]:
    """The units to write with their sides, and how many training and validation rows were set
    aside: because their input or reference, or that of their order group, occurs in a split that
    is kept from them; and for the balance of KEEP and DROP."""
    split = splitter(heads, config.split)
    made: list[Made] = []
    seen: set[str] = set()
    for head in heads:
        ids = [row.id for row in head.rows]
        if head.refused or not seen.isdisjoint(ids):
            continue
        seen.update(ids)
        made.append(Made(head, split(head), _prints_of(head)))
    alike = _alike(made, "validation", ("heldout",))
    alike |= _alike(made, "train", ("heldout", "validation"), but=alike)
    sided = [replace(one, side="") if one.head.number in alike else one for one in made]
    uneven: set[int] = set()
    if config.select.balance_filtered:
        for side in ("train", "validation"):
            uneven |= unbalanced(one.head for one in sided if one.side == side)
    sided = [replace(one, side="") if one.head.number in uneven else one for one in sided]

    def rows(numbers: set[int]) -> int:
        return sum(len(one.prints) for one in made if one.head.number in numbers)

    counts = {
        "like a row of another split": rows(alike),
        "for the balance of KEEP and DROP": rows(uneven),
    }
    return sided, counts


def _prints(made: Iterable[Made], side: str) -> list[Fingerprint]:
    return [one for unit in made if unit.side == side for one in unit.prints]


def _alike(
    made: Sequence[Made], side: str, kept: Sequence[str], but: Container[int] = ()
) -> set[int]:
    """Numbers of the units of a side that share an input or a reference with those of `kept`."""
    own = [(unit.head.number, one) for unit in made if unit.side == side for one in unit.prints]
    others = [
        one
        for unit in made
        if unit.side in kept and unit.head.number not in but
        for one in unit.prints
    ]
    return {own[j][0] for j in shared([p for _, p in own], others)}


def _prints_of(head: Head) -> list[Fingerprint]:
    return [
        Fingerprint(
            id=row.id,
            document=head.document,
            input=head.input[0],
            reference=row.reference[0],
            recipe=row.recipe,
            template=" ".join(sorted(row.recipe.split())),
            input_signature=head.input[1],
            reference_signature=row.reference[1],
        )
        for row in head.rows
    ]


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
