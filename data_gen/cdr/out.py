"""The files `assay tasks cdr` writes beside the construction: tracks, tasks, certificate."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, BinaryIO

from assay.console import Progress
from assay.files import write_bytes
from assay.task import json_text
from configs.cdr import CdrConfig
from data_gen.cdr.build_tables import FILE, page, parted, statistics
from data_gen.cdr.few_shot import shots_of, show_examples
from data_gen.cdr.plan import Plan
from data_gen.cdr.records import Record
from data_gen.cdr.sampling import splitter, unbalanced
from data_gen.cdr.units import TRACKS, Unit, instances
from data_gen.cdr.work import Work, packed, said
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

    unit: Unit
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
class Tracks:
    """What was written: the manifest, how many rows each document gave, and the rows in no split
    because of an operator that does what its words do not say."""

    manifest: dict[str, Any]
    rows_of: Counter[str]
    unsaid: dict[tuple[str, str], Unsaid]


def write_tracks(work: Work, db: Any, out: Path) -> Tracks:
    """Write the tracks, the splits and what is said about them in the new folder `out`."""
    config, plan = work.config, work.load("plan")
    sided = sided_units(list(_units(db, plan)), config)
    rows_of: Counter[str] = Counter()
    for one in sided.made:
        rows_of[one.unit.record.id] += len(one.prints)
    others, facts = parted(_write_lines(sided.made, out))
    manifest = _manifest(config, others, sided)
    manifest["statistics"] = statistics(facts, work.load("library").entries)
    (out / FILE).write_text(page(manifest["statistics"]), encoding="utf-8")
    if config.instruct.mode == "few_shot":
        files = [f"{split}.jsonl" for split in SPLITS]
        manifest["few_shot"] = show_examples(out, files, shots_of(config.instruct))
    if plan.paraphrases is not None:
        manifest["paraphrases"] = plan.paraphrases
    _json(out / "manifest.json", manifest)
    left = {name: manifest[name] for name in ("left_out_of_splits", "words_say_another_thing")}
    prints = {side: _prints(sided.made, side) for side in SPLITS}
    alike, own = compared(prints)
    tasks = {side: len(listed) for side, listed in prints.items()}
    proof = certificate("cdr", tasks, alike, config.split.seed, **own, **left)
    write_bytes(out / CERTIFICATE, json_text(proof, indent=2))
    return Tracks(manifest, rows_of, sided.unsaid)


def _units(db: Any, plan: Plan) -> Iterator[Unit]:
    """The worded units in the order of the tracks. Many rows share a text: equal signatures are
    held once."""
    known: dict[bytes, bytes] = {}
    db.execute(
        "SELECT unit, plan, bits, id, domain, refused, operator, does, digests, signs, "
        "done.filename, done.start, done.size FROM units JOIN documents USING "
        "(number) JOIN done USING (unit) WHERE place >= 0 ORDER BY place"
    )
    while chunk := db.fetchmany(1000):
        for number, own, bits, name, domain, refused, operator, does, digests, signs, *at in chunk:
            signs = [None if sign is None else known.setdefault(sign, sign) for sign in signs]
            rows = instances(plan.plans[int(own)], Record(said(name), domain, ""), bits)
            prints = list(zip(digests, signs, strict=True))
            yield Unit(number, rows, refused, (operator, does), prints, tuple(at))


def _write_lines(made: Sequence[Made], out: Path) -> Counter[str]:
    """Write the lines of all units, and count them."""
    counts: Counter[str] = Counter()
    with ExitStack() as opened, Progress("tracks", "units", len(made)) as progress:
        files: dict[str, BinaryIO] = {}

        def file(name: str) -> BinaryIO:
            if name not in files:
                (out / name).parent.mkdir(exist_ok=True)
                files[name] = opened.enter_context(open(out / name, "wb"))
            return files[name]

        for split in SPLITS:
            file(f"{split}.jsonl")
        for one in made:
            for lines in packed(*one.unit.place):
                counts.update(lines.counted(one.side))
                for name, data in lines.files(one.side):
                    file(name).write(data)
            progress.add(1)
    return counts


def sided_units(units: Sequence[Unit], config: CdrConfig) -> Sided:
    """Split the worded units, in their order; ids occur once. Units are set aside whose words do
    not say what happens to their text; of training and validation also those of which an input or
    reference occurs in a split that is kept from them, and some for the balance of KEEP and DROP.
    """
    split = splitter(units, config.split)
    made: list[Made] = []
    seen: set[str] = set()
    for unit in units:
        ids = [row.id for row in unit.rows]
        if unit.refused or not seen.isdisjoint(ids):
            continue
        seen.update(ids)
        made.append(Made(unit, split(unit), _prints_of(unit)))
    unsaid = _unsaid(made)
    made = [replace(one, side="") if one.unit.unsaid[0] else one for one in made]
    alike = _alike(made, "validation", ("heldout",))
    alike |= _alike(made, "train", ("heldout", "validation"), but=alike)
    sided = [replace(one, side="") if one.unit.number in alike else one for one in made]
    uneven: set[int] = set()
    if config.select.balance_filtered:
        for side in ("train", "validation"):
            uneven |= unbalanced(one.unit for one in sided if one.side == side)
    sided = [replace(one, side="") if one.unit.number in uneven else one for one in sided]

    def rows(numbers: set[int]) -> int:
        return sum(len(one.prints) for one in made if one.unit.number in numbers)

    counts = {
        "whose words do not say what happens to the text": sum(u.rows for u in unsaid.values()),
        "like a row of another split": rows(alike),
        "for the balance of KEEP and DROP": rows(uneven),
    }
    refused = Counter(unit.refused for unit in units if unit.refused)
    return Sided(sided, len(units), refused, counts, unsaid)


def _unsaid(made: Iterable[Made]) -> dict[tuple[str, str], Unsaid]:
    found: dict[tuple[str, str], Unsaid] = {}
    for one in made:
        if one.side and one.unit.unsaid[0]:
            own = found.setdefault(one.unit.unsaid, Unsaid(one.unit.record.id))
            own.rows += len(one.prints)
    return dict(sorted(found.items(), key=lambda one: (-one[1].rows, one[0])))


def _prints(made: Iterable[Made], side: str) -> list[Fingerprint]:
    return [one for unit in made if unit.side == side for one in unit.prints]


def _alike(
    made: Sequence[Made], side: str, kept: Sequence[str], but: Container[int] = ()
) -> set[int]:
    """Numbers of the units of a side that share an input or a reference with those of `kept`."""
    own = [(unit.unit.number, one) for unit in made if unit.side == side for one in unit.prints]
    others = [
        one
        for unit in made
        if unit.side in kept and unit.unit.number not in but
        for one in unit.prints
    ]
    return {own[j][0] for j in shared([p for _, p in own], others)}


def _prints_of(unit: Unit) -> list[Fingerprint]:
    return [
        Fingerprint(row.id, row.record.id, unit.input, reference, " ".join(row.plan.sequence))
        for row, reference in zip(unit.rows, unit.prints[1:], strict=True)
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
