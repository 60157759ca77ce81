# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false
"""DARE-bench's tables 5, 6, 9 and 12 from generic rows, in both readings of the scorer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from assay.task import RIGHT, Score, Task
from rollouts.trajectory import Trajectory
from train.evaluation.benchmarks import Row
from train.evaluation.stats import mean_interval
from train.evaluation.tables import ends, markdown, mean, number, source

TRACKS = ("class-IF", "class-MM", "reg-IF", "reg-MM", "time-XF", "time-CF")
READINGS = ("strict", "release")
# why an answer did not succeed: the four causes of DARE-bench's Table 9
CATEGORIES = ("instruction adherence", "code error", "code execution limit", "max token limit")
NOTE = (
    "`strict` and `release` are two readings of the same files. Published numbers were computed as "
    "`release`; `strict` also wants every key exactly once."
)


def category(task: Task, trajectory: Trajectory, score: Score) -> str | None:
    """None for a success, an infrastructure failure, or a usable prediction of a modelling task.

    In order: the last message or the sequence was cut (`max token limit`); no usable prediction and
    turns, time or the last run's limits used up (`code execution limit`); no usable prediction
    otherwise (`code error`); a usable one that scores below 1 on IF (`instruction adherence`).
    """
    if score.outcome is None or score.outcome >= RIGHT:
        return None
    if score.parts.get("usable"):
        return "instruction adherence" if is_following(task.track) else None
    if trajectory.stop == "length":
        return "max token limit"
    ran_out = trajectory.stop in ("turns", "time")
    at_limit = trajectory.notes.get("last_call") in ("timeout", "memory", "disk")
    return "code execution limit" if ran_out or at_limit else "code error"


def is_following(track: str) -> bool:
    """Whether a task is of instruction following; the paper's MM is everything else."""
    return track.endswith("-IF")


def by_track(rows: Sequence[Row], seed: int = 0) -> dict[str, dict[str, Any]]:
    """Per track: mean outcome in percent over attempts, the model's crashes included, also in both
    readings; how many are exact, with a 95 % interval clustered by table (None for a single one
    with both kinds); how many attempts had a file, a usable one, and the mean over those. An
    attempt without an outcome (its infrastructure broke) counts nowhere but in `no_outcome`."""
    out: dict[str, dict[str, Any]] = {}
    for track in [*TRACKS, *sorted({r["track"] for r in rows} - set(TRACKS))]:
        mine = [r for r in rows if r["track"] == track]
        if not mine:
            continue
        rated = [r for r in mine if r["outcome"] is not None]
        scores = [float(r["outcome"]) for r in rated]
        usable = [float(r["outcome"]) for r in rated if r["parts"].get("usable")]
        right = [float(s >= RIGHT) for s in scores]
        interval = ends(mean_interval(right, list(map(source, rated)), seed=seed))
        out[track] = {
            "tasks": len({r["task_id"] for r in mine}),
            "attempts": len(mine),
            "score": _percent(scores),
            "readings": {name: _percent(_read(rated, name)) for name in READINGS},
            "exact": int(sum(right)),
            "exact_interval": interval and [100 * v for v in interval],
            "exists": sum(bool(r["parts"].get("exists")) for r in rated),
            "usable": len(usable),
            "score_of_usable": _percent(usable),
            "no_outcome": len(mine) - len(rated),
            "tokens": mean(r["tokens_out"] for r in mine),
            "tool_calls": fmean(r["tool_calls"] for r in mine),
            "turns": fmean(r["turns"] for r in mine),
        }
    return out


def _percent(scores: Sequence[float]) -> float | None:
    return 100 * fmean(scores) if scores else None


def _read(rows: Sequence[Row], reading: str) -> list[float]:
    """The outcomes of attempts in a reading; none where an attempt was not read so."""
    found = [row.get("more", {}).get("readings", {}).get(reading) for row in rows]
    return [] if None in found else [float(value) for value in found if value is not None]


def totals(tracks: Mapping[str, Mapping[str, Any]], rows: Sequence[Row]) -> dict[str, Any]:
    """Total cannot be reproduced from the paper (spec 8.5), so both plain readings are given:
    the mean of the tracks and the mean weighted by tasks. Model-Perf likewise, over modelling
    attempts whose file exists, and over those that score above 0. `readings` has the same in both
    readings of the scorer."""
    modelling = [r for r in rows if not is_following(r["track"]) and r["outcome"] is not None]
    exists = [row for row in modelling if row["parts"].get("exists")]
    scores = {name: t["score"] for name, t in tracks.items()}
    found = _sums(scores, tracks, [float(row["outcome"]) for row in exists])
    readings = {
        reading: _sums(
            {name: t["readings"][reading] for name, t in tracks.items()},
            tracks,
            _read(exists, reading),
        )
        for reading in READINGS
    }
    return {
        **found,
        "readings": readings,
        "failure_categories": {
            c: sum(r["more"]["failure_category"] == c for r in rows) for c in CATEGORIES
        },
        "call_errors": dict(
            sorted(sum((Counter(r["more"]["errors"]) for r in rows), Counter()).items())
        ),
    }


def _sums(
    scores: Mapping[str, float | None],
    tracks: Mapping[str, Mapping[str, Any]],
    modelling: Sequence[float],
) -> dict[str, float | None]:
    scored = {name: value for name, value in scores.items() if value is not None}
    weight = sum(tracks[name]["tasks"] for name in scored)
    weighed = sum(value * tracks[name]["tasks"] for name, value in scored.items())
    return {
        "total_mean_of_tracks": fmean(scored.values()) if scored else None,
        "total_weighted_by_tasks": weighed / weight if scored else None,
        "model_perf_file_exists": _percent(modelling),
        "model_perf_above_zero": _percent([v for v in modelling if v > 0]),
    }


def costs(rows: Sequence[Row], questions: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Table 12: tokens of the questions (`questions`: by task, {} where no tokenizer is at hand),
    tokens that a model wrote and its tool calls, per attempt: IF, MM and overall."""
    kinds = {
        "IF": [r for r in rows if is_following(r["track"])],
        "MM": [r for r in rows if not is_following(r["track"])],
        "overall": list(rows),
    }
    return {
        kind: {
            "attempts": len(mine),
            "prompt_tokens": mean(questions.get(row["task_id"]) for row in mine),
            "tokens": mean(row["tokens_out"] for row in mine),
            "tool_calls": fmean(row["tool_calls"] for row in mine),
        }
        for kind, mine in kinds.items()
        if mine
    }


def text_tables(
    tracks: Mapping[str, Mapping[str, Any]],
    total: Mapping[str, Any],
    cost: Mapping[str, Mapping[str, Any]],
) -> str:
    """Markdown."""
    scores = [["track", "tasks", "attempts", *READINGS, "exact [95 %]", "usable", "of usable"]]
    for name, t in tracks.items():
        ends = " [{:.1f}, {:.1f}]".format(*t["exact_interval"]) if t["exact_interval"] else ""
        read = (_two(t["readings"][reading]) for reading in READINGS)
        counts = (str(t[key]) for key in ("tasks", "attempts"))
        usable = (str(t["usable"]), _two(t["score_of_usable"]))
        scores.append([name, *counts, *read, f"{t['exact']}{ends}", *usable])
    costs = [["an attempt", "prompt tokens", "tokens", "tool calls"]]
    for kind, c in cost.items():
        tokens = (number(c[key], "{:.1f}") for key in ("prompt_tokens", "tokens"))
        costs.append([kind, *tokens, _two(c["tool_calls"])])
    shown = ", ".join(f"{k} {v}" for k, v in total["failure_categories"].items())
    failures = f"Failures: {shown}. Call errors: {json.dumps(total['call_errors'])}"
    totals = [_total(reading, total["readings"][reading]) for reading in READINGS]
    return "\n".join([*markdown(scores), "", NOTE, "", *totals, failures, "", *markdown(costs)])


def _total(reading: str, total: Mapping[str, float | None]) -> str:
    perf = " / ".join(_two(total[f"model_perf_{n}"]) for n in ("file_exists", "above_zero"))
    return (
        f"Total, {reading}: {_two(total['total_mean_of_tracks'])} (mean of tracks), "
        f"{_two(total['total_weighted_by_tasks'])} (weighted by tasks). "
        f"Model-Perf: {perf} (file exists / score above 0)."
    )


def _two(value: float | None) -> str:
    return number(value, "{:.2f}")
