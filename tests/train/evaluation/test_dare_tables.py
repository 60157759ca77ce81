"""DARE-bench's tables: both readings side by side, and what an attempt costs by IF and the rest."""

from __future__ import annotations

from typing import Any

from train.evaluation.dare_tables import by_track, costs, text_tables, totals


def row(track: str, task: str, strict: float, release: float, **more: Any) -> dict[str, Any]:
    return {
        "track": track,
        "task_id": task,
        "source": task,
        "outcome": strict,
        "parts": {"exists": 1.0, "usable": float(strict > 0)},
        "tokens_out": 100 if track.endswith("-IF") else 40,
        "tool_calls": 2,
        "turns": 2,
        "more": {
            "readings": {"strict": strict, "release": release},
            "failure_category": None,
            "errors": {},
        },
        **more,
    }


ROWS = [
    row("class-IF", "a", 1.0, 1.0),
    row("class-MM", "b", 0.0, 1.0),  # a repeated key: the published harness pays for it
    row("time-XF", "c", 0.5, 0.5),
    row("time-CF", "d", 0.0, 0.0),
]


def test_both_readings_stand_in_one_table() -> None:
    tracks = by_track(ROWS)
    assert tracks["class-MM"]["readings"] == {"strict": 0.0, "release": 100.0}
    total = totals(tracks, ROWS)
    assert total["total_mean_of_tracks"] == total["readings"]["strict"]["total_mean_of_tracks"]
    assert total["readings"]["strict"]["total_mean_of_tracks"] == 37.5
    assert total["readings"]["release"]["total_mean_of_tracks"] == 62.5
    assert total["readings"]["release"]["model_perf_file_exists"] == 50.0  # what is not IF
    assert total["readings"]["release"]["model_perf_above_zero"] == 75.0
    text = text_tables(tracks, total, costs(ROWS, {}))
    assert "| track | tasks | attempts | strict | release |" in text
    assert "| class-MM | 1 | 1 | 0.00 | 100.00 |" in text


def test_a_row_that_was_not_read_in_both_ways_leaves_its_reading_open() -> None:
    old = [*ROWS[:1], {**ROWS[1], "more": {"failure_category": None, "errors": {}}}]
    tracks = by_track(old)
    assert tracks["class-MM"]["readings"] == {"strict": None, "release": None}
    assert totals(tracks, old)["readings"]["release"]["total_mean_of_tracks"] == 100.0
    lost = [{**ROWS[1], "outcome": None, "more": {**ROWS[1]["more"], "readings": {}}}]
    assert by_track(lost)["class-MM"]["readings"] == {"strict": None, "release": None}


def test_costs_are_of_if_of_the_rest_and_of_all() -> None:
    found = costs(ROWS, {"a": 600, "b": 200, "c": 220, "d": 240})
    assert [found[kind]["attempts"] for kind in ("IF", "MM", "overall")] == [1, 3, 4]
    assert found["MM"]["prompt_tokens"] == 220 and found["overall"]["prompt_tokens"] == 315
    assert found["overall"]["tokens"] == 55
    assert costs(ROWS, {})["IF"]["prompt_tokens"] is None
