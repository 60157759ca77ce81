"""The files `assay tasks cdr` writes beside the construction: tracks, tasks, certificate."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from assay.console import Progress
from assay.files import disk_errors_name, write_bytes
from assay.task import json_text
from configs.cdr import CdrConfig
from data_gen.cdr.build_tables import FILE, page, parted, statistics
from data_gen.cdr.few_shot import shots_of, show_examples
from data_gen.cdr.library import LibraryRecipe
from data_gen.cdr.rows import TRACKS
from data_gen.cdr.sampling import splitter, unbalanced
from data_gen.cdr.stages.bodies import Lines
from data_gen.cdr.stages.heads import Head
from data_gen.certificate import CERTIFICATE, certificate
from data_gen.overlap import Fingerprint, overlaps, shared

SPLITS = ("train", "validation", "heldout")
MANIFEST_TRACKS = tuple(f"tracks/{track}.jsonl" for track in TRACKS)
# What a build may write; files of an older build that are not written again go.
FILES = (
    "config.yaml",
    "pipeline.jsonl",
    "manifest.json",
    FILE,
    CERTIFICATE,
    *MANIFEST_TRACKS,
    *(f"tracks_all_prompts/{track}.jsonl" for track in TRACKS),
    *(f"{split}.jsonl" for split in SPLITS),
)


@dataclass(frozen=True)
class Made:
    """A unit to write: where it goes, and what its rows are compared by."""

    head: Head
    side: str
    prints: list[Fingerprint]


@dataclass
class Unsaid:
    """Rows in which an operator does what its words do not say, and the first of their
    documents."""

    document: str
    rows: int = 0


@dataclass(frozen=True)
class Sided:
    """The units to write, how many there were with those refused, how many were refused and why,
    and how many rows are in no split and why; `unsaid`: of those whose words do not say what
    happens to the text, how many by operator and what it does, and the first document."""

    made: list[Made]
    units: int
    refused: Counter[str]
    aside: dict[str, int]
    unsaid: dict[tuple[str, str], Unsaid]


@dataclass(frozen=True)
class Share:
    """Units whose lines one process writes, with the splits of their rows; where these begin in
    every file, and where they end."""

    units: list[tuple[int, list[str]]]
    start: dict[str, int]
    end: dict[str, int]


@dataclass(frozen=True)
class Tracks:
    """What was written: the manifest, how many rows each document gave, and the rows in no split
    because of an operator that does what its words do not say."""

    manifest: dict[str, Any]
    rows_of: Counter[str]
    unsaid: dict[tuple[str, str], Unsaid]


def shares(made: Sequence[Made], most: int) -> Iterator[Share]:
    """The units in their order, `most` at a time."""
    end: dict[str, int] = {f"{split}.jsonl": 0 for split in SPLITS}
    for first in range(0, len(made), most):
        units, start = made[first : first + most], dict(end)
        for unit in units:
            for row in unit.head.rows:
                for name, size in row.sizes.in_files(row.track, unit.side):
                    end[name] = end.get(name, 0) + size
                    start.setdefault(name, 0)
        yield Share(
            [(unit.head.number, [unit.side] * len(unit.head.rows)) for unit in units],
            start,
            dict(end),
        )


def write_lines(lines: Lines, share: Share, out: Path) -> None:
    """Write the lines of a share to their places in the files of `out`, which are there."""
    for name, data in lines.files:
        if share.start[name] + len(data) != share.end[name]:
            raise AssertionError(
                f"{name}: {len(data)} bytes at {share.start[name]}, not as counted"
            )
        with disk_errors_name(out / name), open(out / name, "r+b", buffering=0) as file:
            file.seek(share.start[name])
            rest = memoryview(data)
            while rest:  # one call writes 2 GB at most
                rest = rest[file.write(rest) :]


def write_tracks(
    sided: Sided,
    counted: Iterable[Counter[str]],
    config: CdrConfig,
    out: Path,
    library: Iterable[LibraryRecipe],
    paraphrases: dict[str, Any] | None = None,
) -> Tracks:
    """Write what is said about the tracks in the new folder `out`. `counted`: of every share, when
    its lines are written; `library`: the recipes. `paraphrases`: counts of what an endpoint was
    asked."""
    counts: Counter[str] = Counter()
    rows_of: Counter[str] = Counter()
    for unit in sided.made:
        rows_of[unit.head.document] += len(unit.prints)
    prints = {side: _prints(sided.made, side) for side in SPLITS}
    with Progress("tracks", "rows", rows_of.total()) as progress:
        for own in counted:
            counts.update(own)
            progress.add(own["rows"])
    others, facts = parted(counts)
    manifest = _manifest(config, others, sided)
    manifest["statistics"] = statistics(facts, library)
    (out / FILE).write_text(page(manifest["statistics"]), encoding="utf-8")
    if config.instruct.mode == "few_shot":
        files = [f"{split}.jsonl" for split in SPLITS]
        manifest["few_shot"] = show_examples(out, files, shots_of(config.instruct))
    if paraphrases is not None:
        manifest["paraphrases"] = paraphrases
    _json(out / "manifest.json", manifest)
    left = {name: manifest[name] for name in ("left_out_of_splits", "words_say_another_thing")}
    tasks = {side: len(own) for side, own in prints.items()}
    alike, own = compared(prints)
    proof = certificate("cdr", tasks, alike, config.split.seed, **own, **left)
    write_bytes(out / CERTIFICATE, json_text(proof, indent=2))
    return Tracks(manifest, rows_of, sided.unsaid)


def sided_units(heads: Sequence[Head], config: CdrConfig) -> Sided:
    """Split the worded units, in their order; ids occur once. Units are set aside whose words do
    not say what happens to their text; of training and validation also those of which an input or
    reference occurs in a split that is kept from them, and some for the balance of KEEP and DROP.
    """
    split = splitter(heads, config.split)
    made: list[Made] = []
    seen: set[str] = set()
    for head in heads:
        ids = [row.id for row in head.rows]
        if head.refused or not seen.isdisjoint(ids):
            continue
        seen.update(ids)
        made.append(Made(head, split(head), _prints_of(head)))
    unsaid = _unsaid(made)
    made = [replace(one, side="") if one.head.unsaid[0] else one for one in made]
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
        "whose words do not say what happens to the text": sum(u.rows for u in unsaid.values()),
        "like a row of another split": rows(alike),
        "for the balance of KEEP and DROP": rows(uneven),
    }
    refused = Counter(head.refused for head in heads if head.refused)
    return Sided(sided, len(heads), refused, counts, unsaid)


def _unsaid(made: Iterable[Made]) -> dict[tuple[str, str], Unsaid]:
    found: dict[tuple[str, str], Unsaid] = {}
    for unit in made:
        if unit.side and unit.head.unsaid[0]:
            own = found.setdefault(unit.head.unsaid, Unsaid(unit.head.document))
            own.rows += len(unit.prints)
    return dict(sorted(found.items(), key=lambda one: (-one[1].rows, one[0])))


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
        Fingerprint(row.id, head.document, head.input, row.reference, row.recipe)
        for row in head.rows
    ]


def _manifest(config: CdrConfig, counts: Counter[str], sided: Sided) -> dict[str, Any]:
    groups: dict[str, dict[str, int]] = {}
    for name, number in sorted(counts.items()):
        kind, _, value = name.rpartition(" ")
        if kind:
            groups.setdefault(kind, {})[value] = number
    return {
        "tasks": counts["rows"],
        "counts": groups,
        "units_refused": dict(sorted(sided.refused.items())),
        "units": sided.units,
        "operators": len(groups.get("operator", {})),
        "prompt_mode": config.instruct.mode,
        "files": [name for name in MANIFEST_TRACKS if counts[f"track {Path(name).stem}"]],
        "left_out_of_splits": sided.aside,
        "words_say_another_thing": {
            f"{operator} {does}": own.rows for (operator, does), own in sided.unsaid.items()
        },
    }


def compared(
    prints: Mapping[str, list[Fingerprint]],
) -> tuple[dict[str, dict[str, int]], dict[str, Any]]:
    """(what each two splits share: documents, inputs and references, exactly and nearly; pairs that
    are alike, and recipes, which are shared but for the templates that are held out)."""
    pairs = {f"{one} and {two}": (prints[one], prints[two]) for one, two in combinations(prints, 2)}
    found = {name: overlaps(one, other) for name, (one, other) in pairs.items()}
    shared = {
        name: {"documents": len({p.document for p in one} & {p.document for p in other})}
        | {
            f"{part} {how}": found[name][part][how]
            for part in ("inputs", "references")
            for how in ("exact", "near")
        }
        for name, (one, other) in pairs.items()
    }
    known = {p.template for side, own in prints.items() if side != "heldout" for p in own}
    own = {
        "heldout_only_recipe_templates": len({p.template for p in prints["heldout"]} - known),
        "recipes": {name: pair["recipes"] for name, pair in found.items()},
        "examples": {
            name: {part: pair[part]["examples"] for part in ("inputs", "references")}
            for name, pair in found.items()
        },
    }
    return shared, own


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
