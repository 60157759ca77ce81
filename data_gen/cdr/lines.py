"""The last map: execute the chosen units on their documents, word them, prove them, and make the
lines that they add to the files, but for the split of a task."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from assay.task import Task, json_line
from assay.workers import WorkerPool
from configs.cdr import CdrConfig, InstructConfig
from data_gen.cdr.build_tables import facts_of
from data_gen.cdr.domains import label
from data_gen.cdr.facts import names_of
from data_gen.cdr.instruct import PromptVariant
from data_gen.cdr.plan import Plan
from data_gen.cdr.records import Replays
from data_gen.cdr.rows import Row, bucket, tasks_of
from data_gen.cdr.sources import record_of
from data_gen.cdr.units import SWAP, Instance, executed, instances
from data_gen.cdr.work import Work, packed, said, write_packed, write_part
from data_gen.cdr.write import Proof, Written, word
from data_gen.overlap import print_of
from rewards.parse import edit_distance

PART = (
    512  # units of a file, or some more: what is remembered of a document serves all of its units
)
TRAIN, ELSEWHERE = "train", "heldout"  # splits in which a row's tasks differ
# Of a unit: its lines of pipeline.jsonl, why it is refused, the operator that does another thing
# than its words say and what, what its texts are compared by, and where its other lines are.
COLUMNS = {
    **{"unit": "int64", "pipeline": "binary", "refused": "string", "operator": "string"},
    **{"does": "string", "digests": "string[]", "signs": "binary[]"},
    **{"start": "int64", "size": "int64"},
}
Chosen = tuple[int, str, int, int, bytes, int, int, int, int, int]


@dataclass(frozen=True)
class Lines:
    """What a row adds: its line of the track and that with all prompts (b"": none), its tasks in
    training and in another split, and what these count as. `counts` are of the row itself."""

    track: str
    row: bytes
    prompts: bytes
    tasks: dict[str, list[bytes]]
    asked: dict[str, list[tuple[str, str]]]
    counts: list[str]

    def files(self, side: str) -> Iterator[tuple[str, bytes]]:
        """(file, bytes) of a row that goes to a split ("": none)."""
        yield f"tracks/{self.track}.jsonl", self.row
        if self.prompts:
            yield f"tracks_all_prompts/{self.track}.jsonl", self.prompts
        if side:
            own = self.tasks[TRAIN if side == TRAIN else ELSEWHERE]
            there = f', "split": "{side}"'.encode()
            yield f"{side}.jsonl", b"".join(line.replace(_SPLIT, there, 1) for line in own)

    def counted(self, side: str) -> Iterator[str]:
        yield from self.counts
        yield f"split {side or 'unused'}"
        if side:
            for what, value in self.asked[TRAIN if side == TRAIN else ELSEWHERE]:
                yield f"{what} of {side} {value}"


_SPLIT = b', "split": ""'  # a JSON text holds no such quotes


def word_shard(work: Work, shard: int, crew: WorkerPool) -> None:
    """Execute and word the units of a shard's documents."""
    db = work.query(documents=work.documents, units=str(work.folder / "units.parquet"))
    chosen: list[Chosen] = db.execute(
        "SELECT number, file, start, size, id, active, unit, plan, bits, place FROM units JOIN "
        "documents USING (number) WHERE shard = ? ORDER BY number, unit",
        [shard],
    ).fetchall()
    sent = work.sent()
    jobs = ((sent, own) for own in _parts(chosen))
    work.map("rows", shard, crew, word_part, jobs, COLUMNS, len(chosen))


def _parts(chosen: Sequence[Chosen]) -> Iterator[list[Chosen]]:
    part: list[Chosen] = []
    for _, own in groupby(chosen, lambda unit: unit[0]):
        part += own
        if len(part) >= PART:
            yield part
            part = []
    if part:
        yield part


def word_part(path: Path, job: tuple[Work, list[Chosen]]) -> int:
    """Write the rows and lines of some units."""
    work, chosen = job
    plan: Plan = work.load("plan")
    found: list[tuple[Any, ...]] = []
    lines: list[list[Lines]] = []
    for (_, file, start, size, name, active), own in groupby(chosen, lambda unit: unit[:6]):
        row = packed(file, start, size) | {"id": said(name)}
        record = record_of(row, [*names_of(active)], work.config.domains)
        replays, proof = Replays(), Proof()
        for *_, unit, number, bits, place in own:
            rows = [executed(row, replays) for row in instances(plan.plans[number], record, bits)]
            pipeline = b"".join(map(json_line, pipeline_rows(rows)))
            done = Written()
            if place >= 0:
                done = word(rows, work.config.instruct, plan.wordings, proof, plan.pools)
            prints = [
                print_of(text) for text in (record.text, *(r["reference_text"] for r in done.rows))
            ]
            lines.append(lines_of(rows, done, work.config))
            digests, signs = zip(*prints, strict=True)
            found.append((unit, pipeline, done.refused, *done.unsaid, digests, signs))
    places = write_packed(path, lines)
    return write_part(path, COLUMNS, [(*row, *at) for row, at in zip(found, places, strict=True)])


def pipeline_rows(rows: Sequence[Instance]) -> Iterator[Row]:
    """What pipeline.jsonl says of a unit with its texts."""
    if rows[0].plan.kind == SWAP:
        yield _swap_row(*rows)
    else:
        yield from map(_instance_row, rows)


def sha256(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _instance_row(row: Instance) -> Row:
    plan = row.plan
    return {
        "kind": "pipeline_instance",
        "track": plan.made_as,
        "instance_id": row.id,
        "doc_id": row.record.id,
        "domain": label(row.record.domain),
        "recipe_id": plan.recipe_id,
        "recipe_variant_id": plan.variant_id,
        "recipe_type": plan.recipe_type,
        "order_family_id": plan.family_id,
        "order_slot": plan.slot,
        "order_group_instance_id": row.group,
        "operator_sequence": list(plan.sequence),
        "filter_params_by_name": plan.filter_params,
        "threshold_raw_value": (plan.threshold_meta or {}).get("threshold_raw_value"),
        "status": row.status,
        "text_len": len(row.text),
        "text_sha256": sha256(row.text),
        "full_run_sha256": sha256(row.full_run),
        "recipe_prompt_key": row.key,
        "input_length_bucket": bucket(len(row.record.text)),
    }


def _swap_row(one: Instance, other: Instance) -> Row:
    return {
        "kind": "pipeline_order_m",
        "domain": label(one.record.domain),
        "recipe_id": one.plan.recipe_id,
        "doc_id": one.record.id,
        "order_family_id": one.plan.family_id,
        "order_group_instance_id": one.group,
        "swapped_instance_id": other.id,
        "canonical_operator_sequence": list(one.plan.sequence),
        "swapped_operator_sequence": list(other.plan.sequence),
        "canonical_sha256": sha256(one.text),
        "swapped_sha256": sha256(other.text),
        "edit_distance": edit_distance(one.text, other.text),
    }


def lines_of(unit: Sequence[Instance], done: Written, config: CdrConfig) -> list[Lines]:
    each = zip(unit, done.rows, done.pools, done.asked, done.told, strict=False)
    return [_line_of(*one, config.instruct) for one in each]


def _line_of(
    instance: Instance,
    row: Row,
    variants: Sequence[PromptVariant],
    asked: Sequence[PromptVariant],
    told: str,
    config: InstructConfig,
) -> Lines:
    train = tasks_of(instance, row, asked, TRAIN, config.mode)
    other = train  # but for the split, which is left open
    if len(train) > 1:  # a group of their own, which the one of another split is not in
        other = tasks_of(instance, row, asked, ELSEWHERE, config.mode)
    lines = list(map(_open_line, train))
    prompts = json_line(_all_prompts(row, variants)) if config.all_prompts else b""
    return Lines(
        row["source_track"],
        json_line(row),
        prompts,
        {TRAIN: lines, ELSEWHERE: lines if other is train else list(map(_open_line, other))},
        {TRAIN: _asked(instance, row, train), ELSEWHERE: _asked(instance, row, other)},
        [*_counted(row), *facts_of(row), *([f"wording of result styles {told}"] if told else [])],
    )


def _open_line(task: Task) -> bytes:
    """The line of a task, its split left open."""
    return json_line(replace(task, split="").to_json())


def _all_prompts(row: Row, variants: Sequence[PromptVariant]) -> Row:
    return row | {
        "prompt_variants": [v.to_json() for v in variants],
        "prompt_variant_count": len(variants),
        "selected_prompt_variant_indices": list(range(len(variants))),
        "prompt_sampling_policy": "all",
    }


def _counted(row: Row) -> Iterator[str]:
    yield "rows"
    yield f"track {row['source_track']}"
    yield f"domain {row['domain']}"
    yield f"status {row['reference_status']}"
    yield f"status of {row['source_track']} {row['reference_status']}"
    yield f"difficulty {row['difficulty_label']}"
    yield f"recipe_length {row['recipe_length']}"
    for name in sorted(set(row["operator_sequence"])):
        yield f"operator {name}"


def _asked(instance: Instance, row: Row, tasks: Sequence[Task]) -> list[tuple[str, str]]:
    """What tasks count as; those asked for by their result say whether they describe it."""
    found: list[tuple[str, str]] = []
    held = instance.plan.filter
    for task in tasks:
        if wording := task.meta.get("wording"):
            found.append(("result styles", wording))
        found += [("tasks", task.track), ("styles", task.meta["style"])]
        for name in ("any_filter", held) if held else ("no_filter",):
            found.append(("filter and status", f"{name}:{row['reference_status']}"))
    return found
