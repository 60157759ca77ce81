"""The leaderboard has the release's files, columns and numbers; a base model gives differences."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cdr_copies import release_row
from places import tables

from rewards.cdr.leaderboard import leaderboard, subtask_of
from rewards.cdr.release_scores import score_file, write_scores

TABLES = tables("cdr")

Row = dict[str, Any]


def scored(root: Path, model: str, right: Mapping[str, list[int]], kind: str = "") -> None:
    """Score folders of a model: of each track as many rows as there are numbers, row n with so many
    right answers of three."""
    for track, counts in right.items():
        rows = [release_row(track, n) for n in range(len(counts))]
        for row, count in zip(rows, counts, strict=True):
            texts = [row["reference_text"]] * count + ["no"] * (3 - count)
            row["variant_predictions"] = [
                {
                    "prompt_variant_index": i,
                    "predicted_status": "KEEP",
                    "predicted_clean_text": text,
                    "valid_prediction": True,
                }
                for i, text in enumerate(texts)
            ]
            if track == "semantic_rubric_atomic":
                row["operator"] = f"part_{min(row['instance_id'][-1], '1')}"
        core = not track.startswith("semantic")
        name = kind or ("score_direct_k3_seed0" if core else "score_semantic_styles3")
        write_scores(root / track / model / name, score_file(rows, 3, 0, track, model))


def table(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_ranks_and_differences_from_the_best_and_from_a_base_model(tmp_path: Path) -> None:
    scored(tmp_path, "small", {"atomic_m": [3, 0, 0, 0], "order_m": [0, 1]})
    scored(tmp_path, "large", {"atomic_m": [1, 1, 3, 0], "order_m": [0, 0]})
    board = leaderboard([tmp_path], tmp_path / "reports", "small")
    by = {row["model"]: row for row in table(tmp_path / "reports/core_model_summary.csv")}
    assert by["small"]["avg_rs_at_k_pct"] == by["large"]["avg_rs_at_k_pct"] == "37.50"
    assert (by["small"]["missing_tracks"], by["small"]["delta_vs_base_pp"]) == ("3", "+0.00")
    tracks = table(tmp_path / "reports/core_summary.csv")
    large = {row["track"]: row for row in tracks if row["model"] == "large"}
    assert large["atomic_m"]["delta_vs_base_pp"] == "+50.00" and large["atomic_m"]["rank"] == "1"
    assert large["order_m"]["delta_vs_base_pp"] == large["order_m"]["delta_vs_best_pp"] == "-50.00"
    short = {r["shortfall_to_best_pp"] for r in tracks if r["track"] == "atomic_m"}
    assert short == {"0.00", "50.00"}
    assert large["order_f"]["rs_at_k_pct"] == large["order_f"]["rank"] == ""
    water = table(tmp_path / "reports/model_waterline.csv")
    assert [(r["model"], r["base_model"]) for r in water] == [(m, "small") for m in by]
    summary = json.loads((tmp_path / "reports/summary.json").read_text())
    assert summary["metric"] == "RS@3" and summary["base_model"] == "small"
    assert "| small | atomic_m | 4 | 25.00 | 2 | -50.00 | +0.00 |" in board.markdown
    without = leaderboard([tmp_path], tmp_path / "reports")
    assert all(row["base_model"] is None for row in without.waterline)


def test_runs_of_one_name_are_lines_of_their_own(tmp_path: Path) -> None:
    roots = [tmp_path / name / "data/evaluation" for name in ("one", "other")]
    for root, right in zip(roots, (3, 0), strict=True):
        scored(root, "m", {"atomic_m": [right]})
    board = leaderboard(roots, tmp_path / "reports")
    assert [row["model"] for row in board.waterline] == ["one: m", "other: m"]


def test_a_domain_is_the_mean_of_its_subtasks(tmp_path: Path) -> None:
    right = {"semantic_rubric_atomic": [3, 0, 0, 1], "semantic_rubric_compositional": [0, 2]}
    scored(tmp_path, "m", right)
    leaderboard([tmp_path], tmp_path / "reports")
    rows = table(tmp_path / "reports/semantic_summary.csv")
    (mine,) = (row for row in rows if row["domain"] == "semantic_rubric")
    assert (mine["atomic_n"], mine["compositional_n"]) == ("4", "2")
    assert mine["atomic_avg_rs_at_k_pct"] == "66.67"  # part_0: 1 of 1, part_1: 1 of 3
    assert (mine["compositional_rs_at_k_pct"], mine["gap_pct_points"]) == ("50.00", "+16.67")
    (model,) = table(tmp_path / "reports/semantic_model_summary.csv")
    assert (model["missing_domains"], model["semantic_gap_avg_pp"]) == ("3", "+16.67")


@pytest.mark.parametrize(("row", "name"), TABLES["what_a_semantic_row_counts_under"])
def test_what_a_semantic_row_counts_under(row: Row, name: str) -> None:
    assert subtask_of(row) == name
