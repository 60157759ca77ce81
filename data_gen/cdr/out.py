"""The files `assay tasks cdr` writes beside the construction: tracks, tasks, certificate."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from configs.cdr import CdrConfig
from data_gen.cdr.instruct import PromptVariant
from data_gen.cdr.paraphrase_pool import Paraphrased, paraphrase_units
from data_gen.cdr.rows import TRACKS, PlannedRow, Row, task_of
from data_gen.cdr.sampling import balance, splitter, thin
from data_gen.cdr.write import Written, word_all
from data_gen.overlap import Fingerprint, fingerprint_of, overlaps, shared
from rewards.task import Task, json_line, read_jsonl
from rewards.versions import installed

MANIFEST_TRACKS = tuple(f"tracks/{track}.jsonl" for track in TRACKS)


class Sink:
    """JSONL files opened when first written, put in place when all of them are complete."""

    def __init__(self, out: Path, stack: ExitStack) -> None:
        self.out, self._stack = out, stack
        self._files: dict[str, BinaryIO] = {}

    def write(self, name: str, row: dict[str, Any]) -> None:
        if name not in self._files:
            path = self.out / (name + ".tmp")
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(path, "wb")  # noqa: SIM115
            self._files[name] = self._stack.enter_context(file)
        self._files[name].write(json_line(row))

    def publish(self) -> None:
        for name, file in self._files.items():
            file.close()
            os.replace(self.out / (name + ".tmp"), self.out / name)


@dataclass(frozen=True)
class Made:
    """One written row: where it came from, where it goes, and what it is compared by."""

    planned: PlannedRow
    row: Row
    pool: list[PromptVariant]
    side: str
    print: Fingerprint


def write_tracks(
    units: Sequence[list[PlannedRow]], config: CdrConfig, out: Path, workers: int
) -> dict[str, Any]:
    """Choose, word, prove and write; returns the manifest. Ids occur once."""
    chosen = balance(thin(units, config.select), config.select)
    spoken = Paraphrased()
    if config.paraphrase.url:
        spoken = paraphrase_units(chosen, config.instruct, config.paraphrase, out)
    written, refused = word_all(chosen, config.instruct, workers, spoken.wordings)
    made, apart = _sided(chosen, written, splitter(chosen, config.split))
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        sink = Sink(out, stack)
        for one in made:
            _write_row(sink, one, config)
            counts.update(_counted(one.row, one.side))
        sink.publish()
    manifest = _manifest(config, counts, refused, written) | {"too_like_heldout": apart}
    if config.paraphrase.url:
        manifest["paraphrases"] = spoken.counts
    prints = {s: [one.print for one in made if one.side == s] for s in ("train", "heldout")}
    _json(out / "manifest.json", manifest)
    _json(out / "certificate.json", certificate(prints) | {"counts": manifest["tasks"]})
    return manifest


def _sided(
    units: Sequence[list[PlannedRow]],
    written: Sequence[Written],
    split: Callable[[PlannedRow], str],
) -> tuple[list[Made], int]:
    """The rows to write with their sides, and how many training tasks were set aside because
    their input or reference, or that of their order group, occurs in a held-out task."""
    made: list[list[Made]] = []
    seen: set[str] = set()
    for unit, found in zip(units, written, strict=True):
        ids = [row["instance_id"] for row in found.rows]
        if found.refused or not seen.isdisjoint(ids):
            continue
        seen.update(ids)
        rows = zip(unit, found.rows, found.pools, strict=True)
        made.append([Made(d, row, pool, split(d), _print(row)) for d, row, pool in rows])
    flat = [(i, one) for i, unit in enumerate(made) for one in unit]
    train = [(i, one.print) for i, one in flat if one.side == "train"]
    heldout = [one.print for _, one in flat if one.side == "heldout"]
    alike = {train[j][0] for j in shared([p for _, p in train], heldout)}
    sided = [
        replace(one, side="") if i in alike and one.side == "train" else one for i, one in flat
    ]
    return sided, sum(a.side != b.side for (_, a), b in zip(flat, sided, strict=True))


def _print(row: Row) -> Fingerprint:
    return fingerprint_of(
        row["instance_id"],
        row["doc_id"],
        row["input_text"],
        row["reference_text"],
        row["operator_sequence"],
    )


def _write_row(sink: Sink, one: Made, config: CdrConfig) -> None:
    row, record = one.row, one.planned.instance.record
    track = row["source_track"]
    sink.write(f"tracks/{track}.jsonl", row)
    if config.instruct.all_prompts:
        sink.write(f"tracks_all_prompts/{track}.jsonl", _all_prompts(row, one.pool))
    if one.side:
        origin = {"source": record.source, "licence": record.licence}
        task = task_of(row, one.planned.steps, one.side, config.instruct.mode, origin)
        sink.write(f"{one.side}.jsonl", task.to_json())


def _all_prompts(row: Row, variants: Sequence[Any]) -> Row:
    return row | {
        "prompt_variants": [v.to_json() for v in variants],
        "prompt_variant_count": len(variants),
        "selected_prompt_variant_indices": list(range(len(variants))),
        "prompt_sampling_policy": "all",
    }


def _counted(row: Row, side: str) -> Iterator[str]:
    yield "rows"
    yield f"track {row['source_track']}"
    yield f"domain {row['domain']}"
    yield f"status {row['reference_status']}"
    yield f"status of {row['source_track']} {row['reference_status']}"
    yield f"difficulty {row['difficulty_label']}"
    yield f"split {side or 'unused'}"
    yield f"recipe_length {row['recipe_length']}"
    for name in set(row["operator_sequence"]):
        yield f"operator {name}"


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


def certificate(prints: dict[str, list[Any]]) -> dict[str, Any]:
    """What training and held-out tasks share: no document, and no input or reference, neither
    exactly nor nearly; recipes are shared but for the templates that are held out."""
    found = overlaps(prints["train"], prints["heldout"])
    documents = {p.document for p in prints["train"]} & {p.document for p in prints["heldout"]}
    templates = {p.template for p in prints["heldout"]} - {p.template for p in prints["train"]}
    alike = sum(found[part][how] for part in ("inputs", "references") for how in ("exact", "near"))
    return {
        "ok": not documents and not alike,
        "shared_documents": len(documents),
        "heldout_only_recipe_templates": len(templates),
        "train_and_heldout": found,
        "versions": installed(),
    }


def _json(path: Path, value: Any) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    temporary.replace(path)


def read_tasks_or_rows(path: Path) -> Iterator[Task]:
    """Tasks of a file of tasks or of release rows (fields the check needs). Raises `TaskError`."""
    for number, row in read_jsonl(path):
        if "gold" in row:
            yield Task.from_json(row, f"{path} line {number}")
        elif "input_text" in row:
            yield Task(
                str(row.get("instance_id", number)),
                "refinement",
                str(row.get("source_track", "")),
                "other",
                [],
                {
                    "input_text": row["input_text"],
                    "text": row.get("reference_text") or "",
                    "operators": row.get("operator_sequence") or [],
                },
                meta={"document": row.get("source_record_id")},
            )
