"""The files `assay tasks cdr` writes beside the construction: tracks, tasks, certificate."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, BinaryIO

from configs.cdr import CdrConfig
from data_gen.cdr.instruct import PromptVariant
from data_gen.cdr.paraphrase_pool import Paraphrased, paraphrase_units
from data_gen.cdr.rows import TRACKS, PlannedRow, Row, filter_of, tasks_of
from data_gen.cdr.sampling import balance, splitter, thin, unbalanced
from data_gen.cdr.write import Written, word_all
from data_gen.overlap import Fingerprint, fingerprint_of, overlaps, shared
from rewards.task import Task, json_line
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

    def write(self, name: str, row: dict[str, Any]) -> None:
        self.open(name).write(json_line(row))

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
    """One written row: where it came from, where it goes, and what it is compared by."""

    planned: PlannedRow
    row: Row
    pool: list[PromptVariant]
    asked: list[PromptVariant]
    side: str
    print: Fingerprint


@dataclass(frozen=True)
class Tracks:
    """What was written: the manifest, and how many rows each document gave."""

    manifest: dict[str, Any]
    rows_of: Counter[str]


def write_tracks(
    units: Sequence[list[PlannedRow]], config: CdrConfig, out: Path, workers: int, kept: Path
) -> Tracks:
    """Choose, word, prove and write to the new folder `out`. Ids occur once. `kept` is the folder
    that holds the answers of an endpoint from run to run."""
    chosen = balance(thin(units, config.select), config.select)
    spoken = Paraphrased()
    if config.paraphrase.url:
        spoken = paraphrase_units(chosen, config.instruct, config.paraphrase, kept)
    written, refused = word_all(chosen, config.instruct, workers, spoken.wordings)
    made, aside = _sided(chosen, written, config)
    counts: Counter[str] = Counter()
    rows_of: Counter[str] = Counter()
    with ExitStack() as stack:
        sink = Sink(out, stack)
        for split in SPLITS:
            sink.open(f"{split}.jsonl")
        for one in made:
            counts.update(_counted(one, _write_row(sink, one, config)))
            rows_of[one.planned.instance.record.id] += 1
    manifest = _manifest(config, counts, refused, written) | {"left_out_of_splits": aside}
    if config.paraphrase.url:
        manifest["paraphrases"] = spoken.counts
    prints = {s: [one.print for one in made if one.side == s] for s in SPLITS}
    _json(out / "manifest.json", manifest)
    _json(out / "certificate.json", certificate(prints) | {"counts": manifest["tasks"]})
    return Tracks(manifest, rows_of)


def _sided(
    units: Sequence[list[PlannedRow]], written: Sequence[Written], config: CdrConfig
) -> tuple[list[Made], dict[str, int]]:
    """The rows to write with their sides, and how many training and validation rows were set
    aside: because their input or reference, or that of their order group, occurs in a split that
    is kept from them; and for the balance of KEEP and DROP."""
    split = splitter(units, config.split)
    made: dict[int, list[Made]] = {}
    seen: set[str] = set()
    for unit, found in zip(units, written, strict=True):
        ids = [row["instance_id"] for row in found.rows]
        if found.refused or not seen.isdisjoint(ids):
            continue
        seen.update(ids)
        rows = zip(unit, found.rows, found.pools, found.asked, strict=True)
        made[len(made)] = [
            Made(d, r, pool, asked, split(d), _print(r)) for d, r, pool, asked in rows
        ]
    alike = _alike(made, "validation", ("heldout",))
    alike |= _alike(made, "train", ("heldout", "validation"), but=alike)
    sides = {n: "" if n in alike else unit[0].side for n, unit in made.items()}
    uneven: set[int] = set()
    if config.select.balance_filtered:
        for side in ("train", "validation"):
            own = {n: [o.planned for o in made[n]] for n, name in sides.items() if name == side}
            uneven |= unbalanced(own)
    flat = [
        replace(one, side="" if n in uneven else sides[n])
        for n, unit in made.items()
        for one in unit
    ]
    counts = {
        "like a row of another split": sum(len(made[n]) for n in alike),
        "for the balance of KEEP and DROP": sum(len(made[n]) for n in uneven),
    }
    return flat, counts


def _alike(
    made: Mapping[int, list[Made]], side: str, kept: Sequence[str], but: Container[int] = ()
) -> set[int]:
    """Numbers of the units of a side that share an input or a reference with those of `kept`."""
    own = [(n, one.print) for n, unit in made.items() for one in unit if one.side == side]
    others = [
        one.print for n, unit in made.items() if n not in but for one in unit if one.side in kept
    ]
    return {own[j][0] for j in shared([p for _, p in own], others)}


def _print(row: Row) -> Fingerprint:
    return fingerprint_of(
        row["instance_id"],
        row["doc_id"],
        row["input_text"],
        row["reference_text"],
        row["operator_sequence"],
    )


def _write_row(sink: Sink, one: Made, config: CdrConfig) -> list[Task]:
    """Write a row, and its tasks in their split, which are returned."""
    row, track = one.row, one.row["source_track"]
    sink.write(f"tracks/{track}.jsonl", row)
    if config.instruct.all_prompts:
        sink.write(f"tracks_all_prompts/{track}.jsonl", _all_prompts(row, one.pool))
    if not one.side:
        return []
    tasks = tasks_of(one.planned, row, one.asked, one.side, config.instruct.mode)
    for task in tasks:
        sink.write(f"{one.side}.jsonl", task.to_json())
    return tasks


def _all_prompts(row: Row, variants: Sequence[Any]) -> Row:
    return row | {
        "prompt_variants": [v.to_json() for v in variants],
        "prompt_variant_count": len(variants),
        "selected_prompt_variant_indices": list(range(len(variants))),
        "prompt_sampling_policy": "all",
    }


def _counted(one: Made, tasks: Sequence[Task]) -> Iterator[str]:
    row = one.row
    yield "rows"
    yield f"track {row['source_track']}"
    yield f"domain {row['domain']}"
    yield f"status {row['reference_status']}"
    yield f"status of {row['source_track']} {row['reference_status']}"
    yield f"difficulty {row['difficulty_label']}"
    yield f"split {one.side or 'unused'}"
    yield f"recipe_length {row['recipe_length']}"
    for name in set(row["operator_sequence"]):
        yield f"operator {name}"
    held = filter_of(one.planned)
    for task in tasks:
        yield f"tasks of {task.split} {task.track}"
        yield f"styles of {task.split} {task.meta['style']}"
        for name in ("any_filter", held) if held else ("no_filter",):
            yield f"filter and status of {task.split} {name}:{row['reference_status']}"


def _manifest(
    config: CdrConfig, counts: Counter[str], refused: Counter[str], written: Sequence[Written]
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
        "units": len(written),
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
