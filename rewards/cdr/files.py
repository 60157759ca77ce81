"""The release's file layout: benchmark rows in; predictions, scores and leaderboards out."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.files import write_text
from assay.rows import read_rows
from assay.task import TaskError, refuse_unfinished, write_jsonl
from rewards.cdr.predictions import JSON, PROFILES
from rewards.cdr.scorefile import ScoredFile

Row = dict[str, Any]
CORE = ("atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f")
SEMANTIC = tuple(
    f"semantic_{domain}_{split}"
    for domain in ("pii", "hallu", "rubric", "safety")
    for split in ("atomic", "compositional")
)
# The public fields of a row, in the release's order (spec section 14).
FIELDS = (
    "instance_id",
    "benchmark_track",
    "benchmark_split",
    "track_family",
    "source_track",
    "base_sample_id",
    "domain",
    "source_record_id",
    "source_benchmark",
    "input_text",
    "input_length_chars",
    "input_length_bucket",
    "operator",
    "operator_kind",
    "operator_sequence",
    "semantic_operator",
    "recipe_id",
    "recipe_prompt_key",
    "recipe_type",
    "recipe_length",
    "order_family_id",
    "order_slot",
    "order_group_instance_id",
    "group_success_rule",
    "reference_status",
    "reference_text",
    "reference_json",
    "reference_text_full_run",
    "output_format",
    "scoring_profile",
    "reports_refinement_gain",
    "prompt_variants",
    "prompt_variant_count",
    "selected_prompt_variant_indices",
    "prompt_candidate_pool_count",
    "prompt_sampling_policy",
    "prompt_sampling_seed",
    "difficulty_score",
    "difficulty_label",
    "pii_meta",
    "hallu_meta",
    "rubric_meta",
    "safety_meta",
)
REQUIRED = (
    "instance_id",
    "benchmark_track",
    "benchmark_split",
    "track_family",
    "source_track",
    "scoring_profile",
    "output_format",
    "reports_refinement_gain",
    "input_text",
    "reference_status",
    "reference_text",
)
CHOICES: dict[str, tuple[str, ...]] = {
    "track_family": ("core_rule", "semantic_extension"),
    "output_format": ("tagged_text", "json", "json_and_tagged_text"),
    "scoring_profile": PROFILES,
}


def check_row(row: Mapping[str, Any], where: str) -> None:
    """Raises `TaskError` naming the field of a benchmark row that cannot be used."""
    for name in REQUIRED:
        if row.get(name) is None:
            raise TaskError(f"{where}: field {name!r} is missing; benchmark rows need it")
    for name, known in CHOICES.items():
        if row[name] not in known:
            raise TaskError(f"{where}: {name} is {row[name]!r}; wanted one of {', '.join(known)}")
    if row["reports_refinement_gain"] and row["scoring_profile"] == JSON:
        raise TaskError(f"{where}: reports_refinement_gain is true, but a JSON row has no gain")


def find_tracks(folder: Path, names: Sequence[str] = ()) -> dict[str, Path]:
    """Track files of a benchmark folder (the release's, or what `assay tasks cdr` wrote), in the
    benchmark's order. Raises `TaskError` when there is none, or a wanted one is missing."""
    refuse_unfinished(folder)
    places = (
        folder / "tracks",
        folder / "data" / "benchmark_v3" / "tracks",
        folder / "benchmark_v3" / "tracks",
        folder,
    )
    listed = {place: [*place.glob("*.parquet"), *place.glob("*.jsonl")] for place in places}
    home = next((place for place in places if listed[place]), None)
    if home is None:
        raise TaskError(f"{folder}: no tracks/*.jsonl in it; give a CDR-Bench folder")
    found = {p.stem: p for p in listed[home]}
    if home == folder:
        found = {name: p for name, p in found.items() if name in (*CORE, *SEMANTIC)}
    if not found:
        raise TaskError(f"{folder}: no file of it is a track; give a CDR-Bench folder")
    for name in names:
        if name not in found:
            raise TaskError(f"{home}: no track {name!r}; there is {', '.join(found) or 'none'}")
    order = [*CORE, *SEMANTIC]
    chosen = names or sorted(found, key=lambda n: (order.index(n) if n in order else 99, n))
    return {name: found[name] for name in chosen}


def read_track(path: Path, limit: int = 0) -> list[Row]:
    """The first `limit` rows (0: all), checked. Order groups at the cut are kept whole."""
    return first_rows(_checked(path), limit)


def first_rows(rows: Iterable[Row], limit: int) -> list[Row]:
    """The first `limit` rows (0: all). Order groups at the cut are kept whole."""
    kept: list[Row] = []
    last: object = None
    for row in rows:
        group = row.get("order_group_instance_id")
        if limit and len(kept) >= limit and (group is None or group != last):
            break
        kept.append(row)
        last = group
    return kept


def _checked(path: Path) -> Iterator[Row]:
    for where, row in read_rows(path):
        check_row(row, where)
        yield row


def write_scores(folder: Path, scored: ScoredFile) -> None:
    """summary.json, paper_metrics.json, and both row files as JSONL and CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "summary.json", scored.summary)
    write_json(folder / "paper_metrics.json", scored.paper)
    for name, rows in (
        ("instance_metrics", scored.instances),
        ("scored_variant_predictions", scored.variants),
    ):
        write_jsonl(folder / f"{name}.jsonl", rows)
        write_csv(folder / f"{name}.csv", rows)


def write_json(path: Path, value: Any) -> None:
    """Sorted keys, indent 2, put in place when complete."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_text(path, text, errors="backslashreplace")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with io.StringIO(newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for row in rows:
            writer.writerow({k: _cell(v) for k, v in row.items()})
        write_text(path, file.getvalue(), errors="backslashreplace")


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
