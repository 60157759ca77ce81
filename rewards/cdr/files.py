"""The release's file layout: benchmark rows in; predictions, scores and leaderboards out."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from assay.files import write_text
from assay.rows import read_rows
from rewards.cdr.predictions import JSON, PROFILES
from rewards.cdr.scorefile import ScoredFile, mean
from rewards.task import TaskError, refuse_unfinished, write_jsonl

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


def reports(root: Path, base_model: str | None = None) -> list[Row]:
    """The leaderboard files under `reports/`, from every paper_metrics.json below `root`; returns
    the core ranking (average RS@K over the available core tracks, percentage points)."""
    papers: list[Row] = []
    subtasks: list[Row] = []
    for path in sorted(root.glob("*/*/score_*/paper_metrics.json")):
        paper = cast("Row", json.loads(path.read_text(encoding="utf-8")))
        if str(paper["track"]).startswith("semantic_") and str(paper["track"]).endswith("_atomic"):
            own = _subtasks(path.parent / "instance_metrics.jsonl", paper)
            paper["atomic_macro_rs@k"] = _mean(row["rs@k"] for row in own)
            subtasks += own
        papers.append(paper)
    core = [p for p in papers if p["track"] in CORE]
    semantic = [p for p in papers if str(p["track"]).startswith("semantic_")]
    ranking = _rank(core, base_model)
    out = root / "reports"
    write_csv(out / "core_summary.csv", core)
    write_csv(out / "core_model_summary.csv", ranking)
    write_csv(
        out / "model_waterline.csv",
        [
            {k: r[k] for k in ("rank", "model", "core_average_rs@k", "delta_to_best")}
            for r in ranking
        ],
    )
    write_csv(out / "semantic_summary.csv", semantic)
    subtasks.sort(key=lambda row: (row["domain"], row["subtask"], -(row["rs@k"] or 0.0)))
    write_csv(out / "semantic_subtasks.csv", subtasks)
    models = _semantic_models(semantic)
    write_csv(out / "semantic_model_summary.csv", models)
    found = {"core": ranking, "semantic": models, "semantic_subtasks": subtasks}
    write_json(out / "summary.json", found)
    write_text(out / "summary.md", _markdown(ranking))
    return ranking


def subtask_of(row: Row) -> str:
    """What a semantic row counts under, as the release groups them: its `semantic_operator`, else
    its `operator`, else its track."""
    names = (row.get(name) for name in ("semantic_operator", "operator", "source_track"))
    return str(next((name for name in names if name), None))


def _subtasks(instances: Path, paper: Row) -> list[Row]:
    """A row a subtask of a domain's atomic track, fractions; `instances` counts those with RS@K."""
    own: dict[str, list[Row]] = {}
    for _, row in read_rows(instances):
        own.setdefault(subtask_of(row), []).append(row)
    return [
        {
            "domain": str(paper["track"]).removeprefix("semantic_").removesuffix("_atomic"),
            "subtask": name,
            "model": paper["model"],
            "instances": sum(row["rs_at_k"] is not None for row in own[name]),
            "rs@k": mean(row["rs_at_k"] for row in own[name]),
            "rs": mean(row["rs"] for row in own[name]),
            "rg": mean(row["mean_rg"] for row in own[name]),
        }
        for name in sorted(own)
    ]


def _points(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 4)


def _mean(values: Iterable[float | None]) -> float | None:
    found = [v for v in values if v is not None]
    return sum(found) / len(found) if found else None


def _rank(core: Sequence[Row], base_model: str | None) -> list[Row]:
    rows: list[Row] = []
    for model in sorted({str(p["model"]) for p in core}):
        own = {str(p["track"]): p for p in core if p["model"] == model}
        average = _mean(own[t]["mean_rs@k"] for t in CORE if t in own)
        rows.append(
            {"model": model, "core_average_rs@k": _points(average)}
            | {f"{t}_rs@k": _points(own[t]["mean_rs@k"]) if t in own else None for t in CORE}
        )
    rows.sort(key=lambda r: (-(r["core_average_rs@k"] or 0.0), r["model"]))
    best = rows[0]["core_average_rs@k"] if rows else None
    base = next((r["core_average_rs@k"] for r in rows if r["model"] == base_model), None)
    return [
        {"rank": i}
        | row
        | {
            "delta_to_best": _minus(row["core_average_rs@k"], best),
            "delta_to_base": _minus(row["core_average_rs@k"], base),
        }
        for i, row in enumerate(rows, 1)
    ]


def _minus(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else round(value - other, 4)


def _semantic_models(papers: Sequence[Row]) -> list[Row]:
    """Per model and domain: atomic macro average over subtasks, compositional, and the gap."""
    rows: list[Row] = []
    for model in sorted({str(p["model"]) for p in papers}):
        row: Row = {"model": model}
        for domain in ("pii", "hallu", "rubric", "safety"):
            own = {str(p["track"]): p for p in papers if p["model"] == model}
            atomic = own.get(f"semantic_{domain}_atomic", {})
            whole = own.get(f"semantic_{domain}_compositional", {})
            one = _points(atomic.get("atomic_macro_rs@k", atomic.get("mean_rs@k")))
            other = _points(whole.get("mean_rs@k"))
            row |= {
                f"{domain}_atomic": one,
                f"{domain}_compositional": other,
                f"{domain}_gap": _minus(one, other),
            }
        rows.append(row)
    return rows


def _markdown(ranking: Sequence[Row]) -> str:
    names = ("rank", "model", "core_average_rs@k", *(f"{t}_rs@k" for t in CORE))
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(str(r.get(n, "")) for n in names) + " |" for r in ranking]
    return "\n".join(lines) + "\n"
