# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The release's leaderboard of scored models: the files, columns and numbers that its
`summarize_results` writes, from the score folders of one or several evaluations.

`core_summary.csv` has a line a model and track, `core_model_summary.csv` the mean RS@K over tracks;
`semantic_summary.csv` a line a model and domain, `semantic_model_summary.csv` the means over
domains; `model_waterline.csv` both suites, with what a model has more or less than the best one and
than a base model. `semantic_subtasks.csv` is ours: the columns of the paper's Tables 9 to 12.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from assay.files import write_text
from assay.rows import read_rows
from rewards.cdr.release_files import CORE, SEMANTIC
from rewards.cdr.release_scores import mean, write_csv, write_json

Row = dict[str, Any]
DOMAINS = {  # the release's name → (its label, what its tracks begin with)
    "semantic_pii": ("PII Redaction", "semantic_pii"),
    "semantic_hallucination": ("Hallucination Processing", "semantic_hallu"),
    "semantic_rubric": ("Rubric Scoring", "semantic_rubric"),
    "semantic_safety": ("Safety Tagging", "semantic_safety"),
}


@dataclass(frozen=True)
class Board:
    """`waterline`: a line a model and suite; `markdown` is summary.md; `papers` has each model's
    paper_metrics.json by track."""

    waterline: list[Row]
    markdown: str
    papers: dict[str, dict[str, Row]]


def leaderboard(roots: Sequence[Path], out: Path, base_model: str = "") -> Board:
    """Write the leaderboard of every model below some `data/evaluation` folders into `out`.

    A model that was asked in several prompt modes is a line a mode. `base_model` is the name of one
    line; the others say how far they are from it. Rates are fractions, `_pct` and `_pp` columns per
    cent and percentage points as text, as in the release.
    """
    found = _score_folders(roots)
    core_names, semantic_names = _names(found, CORE), _names(found, SEMANTIC)
    metric = f"RS@{_k(found, core_names)}"
    core = [_core(found, out, m, t, metric) for m in core_names for t in CORE]
    semantic = [_domain(found, out, m, d, metric) for m in semantic_names for d in DOMAINS]
    _compare(core, "rs_at_k", "track", base_model)
    _compare(semantic, "compositional_rs_at_k", "domain", base_model)
    core_models = [_core_model([r for r in core if r["model"] == m], metric) for m in core_names]
    semantic_models = [
        _semantic_model([r for r in semantic if r["model"] == m], metric) for m in semantic_names
    ]
    _compare(core_models, "avg_rs_at_k", "track_family", base_model)
    key = "semantic_compositional_avg_rs_at_k"
    _compare(semantic_models, key, "track_family", base_model)
    waterline = [
        *(_waterline(r, f"Core Avg {metric}", "avg_rs_at_k", "tracks") for r in core_models),
        *(_waterline(r, f"Semantic Comp Avg {metric}", key, "domains") for r in semantic_models),
    ]
    subtasks = [r for m in semantic_names for r in _subtasks(found, m)]
    subtasks.sort(key=lambda row: (row["domain"], row["subtask"], -(row["rs@k"] or 0.0)))
    files = {
        "core_summary": core,
        "core_model_summary": core_models,
        "semantic_summary": semantic,
        "semantic_model_summary": semantic_models,
        "model_waterline": waterline,
        "semantic_subtasks": subtasks,
    }
    for name, rows in files.items():
        write_csv(out / f"{name}.csv", rows)
    summary = {
        "metric": metric,
        "models": list(dict.fromkeys([*core_names, *semantic_names])),
        "base_model": base_model or None,
        "waterline_rows": waterline,
        "core_model_rows": core_models,
        "semantic_model_rows": semantic_models,
        "core_rows": core,
        "semantic_rows": semantic,
        "semantic_subtasks": subtasks,
        "semantic_gap_definition": f"Atomic Avg {metric} - Compositional {metric}",
    }
    write_json(out / "summary.json", summary)
    text = _markdown(waterline, core, semantic, metric)
    write_text(out / "summary.md", text)
    papers: dict[str, dict[str, Row]] = {}
    for (model, track), place in found.items():
        paper = json.loads((place / "paper_metrics.json").read_text(encoding="utf-8"))
        papers.setdefault(model, {})[track] = paper
    return Board(waterline, text, papers)


Folders = Mapping[tuple[str, str], Path]  # (model, track) → the folder of its scores


def _score_folders(roots: Sequence[Path]) -> Folders:
    """Every model's score folders. A model with several of one track is told apart by their names,
    which say mode, K and seed, and by its run where these are the same."""
    kinds: dict[str, set[str]] = {}
    runs: dict[tuple[str, str, str], set[Path]] = {}
    places: list[tuple[Path, str, str, str, Path]] = []
    for root in roots:
        for path in sorted(root.glob("*/*/score_*/summary.json")):
            track, model, kind = path.parts[-4:-1]
            if track in CORE:
                kinds.setdefault(model, set()).add(kind)
            runs.setdefault((track, model, kind), set()).add(root)
            places.append((root, track, model, kind, path.parent))
    found: dict[tuple[str, str], Path] = {}
    for root, track, model, kind, place in places:
        several = len(kinds.get(model, ())) > 1 and track in CORE
        name = f"{model} {kind.removeprefix('score_')}" if several else model
        if len(runs[track, model, kind]) > 1:
            name = f"{root.parent.parent.name}: {name}"
        found[name, track] = place
    return found


def _names(found: Folders, tracks: Sequence[str]) -> list[str]:
    return sorted({model for model, track in found if track in tracks})


def _summary(place: Path | None) -> Row:
    if place is None:
        return {}
    return cast("Row", json.loads((place / "summary.json").read_text(encoding="utf-8")))


def _k(found: Folders, names: Sequence[str]) -> object:
    """K of RS@K, as the first core track was scored; 3 is the semantic extension's."""
    first = next((found[m, t] for m in names for t in CORE if (m, t) in found), None)
    summary = _summary(first)
    size = summary.get("prompt_variant_sample_size", 3)
    return size if isinstance(size, int) else len(summary.get("variant_index_counts") or ()) or 3


def _score(place: Path | None) -> tuple[float | None, int | None]:
    """(RS@K of a track, its instances)."""
    overall: Row = _summary(place).get("overall") or {}
    return overall.get("mean_rs_at_k"), overall.get("num_instances")


def _core(found: Folders, out: Path, model: str, track: str, metric: str) -> Row:
    place = found.get((model, track))
    value, count = _score(place)
    return {
        "model": model,
        "track_family": "core_rule",
        "track": track,
        "metric": metric,
        "n": count,
        "rs_at_k": value,
        "rs_at_k_pct": pct(value),
        "score_path": _shown(place, "summary.json", out),
    }


def _core_model(rows: Sequence[Row], metric: str) -> Row:
    values = [row["rs_at_k"] for row in rows if row["rs_at_k"] is not None]
    average = mean(values)
    return {
        "model": rows[0]["model"],
        "track_family": "core_rule",
        "metric": f"Average {metric}",
        "num_tracks": len(CORE),
        "available_tracks": len(values),
        "missing_tracks": len(CORE) - len(values),
        "avg_rs_at_k": average,
        "avg_rs_at_k_pct": pct(average),
    }


def subtask_of(row: Mapping[str, Any]) -> str:
    """Name the group that a semantic row counts under, as the release does: its
    `semantic_operator`, else its `operator`, else its track."""
    names = (row.get(name) for name in ("semantic_operator", "operator", "source_track"))
    return str(next((name for name in names if name), "atomic"))


def _by_subtask(place: Path | None) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for _, row in read_rows(place / "instance_metrics.jsonl") if place else ():
        found.setdefault(subtask_of(row), []).append(row)
    return {name: found[name] for name in sorted(found)}


def _domain(found: Folders, out: Path, model: str, domain: str, metric: str) -> Row:
    label, stem = DOMAINS[domain]
    alone, whole = found.get((model, f"{stem}_atomic")), found.get((model, f"{stem}_compositional"))
    groups = _by_subtask(alone)
    scores = {name: mean(row["rs_at_k"] for row in rows) for name, rows in groups.items()}
    scores = {name: value for name, value in scores.items() if value is not None}
    average = mean(scores.values())
    value, count = _score(whole)
    gap = None if average is None or value is None else average - value
    return {
        "model": model,
        "track_family": "semantic_extension",
        "domain": domain,
        "domain_label": label,
        "metric": metric,
        "atomic_track": f"{stem}_atomic",
        "compositional_track": f"{stem}_compositional",
        "atomic_n": sum(map(len, groups.values())) if alone else None,
        "compositional_n": count,
        "atomic_avg_rs_at_k": average,
        "compositional_rs_at_k": value,
        "gap_atomic_avg_minus_compositional": gap,
        "atomic_avg_rs_at_k_pct": pct(average),
        "compositional_rs_at_k_pct": pct(value),
        "gap_pct_points": signed_pp(gap),
        "atomic_subtask_rs_at_k": json.dumps(scores, ensure_ascii=False, sort_keys=True),
        "atomic_metrics_path": _shown(alone, "instance_metrics.jsonl", out),
        "compositional_summary_path": _shown(whole, "summary.json", out),
    }


def _subtasks(found: Folders, model: str) -> list[Row]:
    """A row a subtask of a domain's atomic track, fractions; `instances` counts those with RS@K."""
    return [
        {
            "domain": stem.removeprefix("semantic_"),
            "subtask": name,
            "model": model,
            "instances": sum(row["rs_at_k"] is not None for row in rows),
            "rs@k": mean(row["rs_at_k"] for row in rows),
            "rs": mean(row["rs"] for row in rows),
            "rg": mean(row["mean_rg"] for row in rows),
        }
        for _, stem in DOMAINS.values()
        for name, rows in _by_subtask(found.get((model, f"{stem}_atomic"))).items()
    ]


def _semantic_model(rows: Sequence[Row], metric: str) -> Row:
    def there(name: str) -> list[float]:
        return [row[name] for row in rows if row[name] is not None]

    alone, whole = there("atomic_avg_rs_at_k"), there("compositional_rs_at_k")
    one, other = mean(alone), mean(whole)
    gap = mean(there("gap_atomic_avg_minus_compositional"))
    return {
        "model": rows[0]["model"],
        "track_family": "semantic_extension",
        "metric": f"Average {metric}",
        "gap_definition": f"Atomic Avg {metric} - Compositional {metric}",
        "num_domains": len(DOMAINS),
        "available_atomic_domains": len(alone),
        "available_compositional_domains": len(whole),
        "missing_domains": len(DOMAINS) - min(len(alone), len(whole)),
        "semantic_atomic_avg_rs_at_k": one,
        "semantic_compositional_avg_rs_at_k": other,
        "semantic_gap_avg": gap,
        "semantic_atomic_avg_rs_at_k_pct": pct(one),
        "semantic_compositional_avg_rs_at_k_pct": pct(other),
        "semantic_gap_avg_pp": signed_pp(gap),
    }


def _compare(rows: Sequence[Row], key: str, by: str, base_model: str) -> None:
    """Add rank, best value, and the differences from the best and from the base model, among the
    rows that have the same `by`."""
    for group in dict.fromkeys(row[by] for row in rows):
        mine = [row for row in rows if row[by] == group and row[key] is not None]
        mine.sort(key=lambda row: (-row[key], row["model"]))
        base = next((row[key] for row in mine if row["model"] == base_model), None)
        best = mine[0][key] if mine else 0.0
        for rank, row in enumerate(mine, 1):
            value = row[key]
            row |= {
                "rank": rank,
                "best_model": mine[0]["model"],
                "best_value": best,
                "best_value_pct": pct(best),
                "delta_vs_best": value - best,
                "delta_vs_best_pp": signed_pp(value - best),
                "shortfall_to_best": best - value,
                "shortfall_to_best_pp": pct(best - value),
            }
            if base is not None:
                row |= {
                    "base_model": base_model,
                    "base_value": base,
                    "base_value_pct": pct(base),
                    "delta_vs_base": value - base,
                    "delta_vs_base_pp": signed_pp(value - base),
                }


def _waterline(row: Row, metric: str, key: str, units: str) -> Row:
    made: Row = {
        "model": row["model"],
        "suite": row["track_family"],
        "primary_metric": metric,
        "primary_value": row[key],
        "primary_value_pct": row[f"{key}_pct"],
    }
    if units == "domains":
        made |= {
            "secondary_metric": metric.replace("Comp", "Atomic"),
            "secondary_value_pct": row["semantic_atomic_avg_rs_at_k_pct"],
            "gap_metric": row["gap_definition"],
            "gap_pp": row["semantic_gap_avg_pp"],
        }
    there = "available_tracks" if units == "tracks" else "available_compositional_domains"
    made |= {"available_units": row[there], "missing_units": row[f"missing_{units}"]}
    names = ("rank", "best_model", "best_value_pct", "delta_vs_best_pp", "shortfall_to_best_pp")
    names += ("base_model", "base_value_pct", "delta_vs_base_pp")
    return made | {name: row.get(name) for name in names}


def pct(value: float | None) -> str:
    """Format a rate in [0, 1] as per cent with two digits; "" for None."""
    return "" if value is None else f"{100.0 * value:.2f}"


def signed_pp(value: float | None) -> str:
    """Format a difference of two rates as signed percentage points with two digits; "" for None."""
    return "" if value is None else f"{100.0 * value:+.2f}"


def _shown(place: Path | None, name: str, out: Path) -> str:
    """A file's path from the leaderboard's folder on: a run can be moved."""
    return "" if place is None else Path(os.path.relpath(place / name, out)).as_posix()


Columns = Mapping[str, str]  # heading → the field of a row below it
_DELTAS = {"Delta vs Best": "delta_vs_best_pp", "Delta vs Base": "delta_vs_base_pp"}


def _markdown(water: list[Row], core: list[Row], semantic: list[Row], metric: str) -> str:
    parts = ["# CDR-Bench Result Summary", f"Metric: {metric}"]
    if water:
        heads = {"Model": "model", "Suite": "suite", "Primary": "primary_value_pct", "Rank": "rank"}
        heads |= {"Best": "best_model", "Delta vs Best": "delta_vs_best_pp", "Base": "base_model"}
        heads |= {"Delta vs Base": "delta_vs_base_pp", "Missing": "missing_units"}
        parts += ["## Model Waterline", _table(heads, water)]
    if core:
        heads = {"Model": "model", "Track": "track", "N": "n", metric: "rs_at_k_pct"}
        parts += ["## Core Tracks", _table({**heads, "Rank": "rank", **_DELTAS}, core)]
    if semantic:
        heads = {"Model": "model", "Domain": "domain_label"}
        heads |= {"Atomic N": "atomic_n", "Comp N": "compositional_n"}
        heads |= {f"Atomic Avg {metric}": "atomic_avg_rs_at_k_pct"}
        heads |= {f"Comp {metric}": "compositional_rs_at_k_pct", "Gap": "gap_pct_points"}
        parts += [
            "## Semantic Extension",
            f"Gap is defined as Atomic Avg {metric} - Compositional {metric}.",
            _table({**heads, "Rank": "rank", **_DELTAS}, semantic),
        ]
    return "\n\n".join(parts) + "\n"


def _table(heads: Columns, rows: Iterable[Row]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
    for row in rows:
        cells = (row.get(name) for name in heads.values())
        lines.append("| " + " | ".join("" if c is None else str(c) for c in cells) + " |")
    return "\n".join(lines)
