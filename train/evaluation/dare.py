# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false
"""DARE-bench: `dare:PLACE` opened as tasks, and tables like its 5, 6, 9 and 12 from generic rows.

PLACE is a tasks file (`T/heldout.jsonl`), or holds `tasks.jsonl`, or what `assay tasks dare` built
(then `heldout.jsonl` is asked), or a copy of the release (its checkout, `data/eval`, its
`question_list.json`, or the hub's data set by name), which `assay tasks dare --import` then turns
into one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from assay.files import write_text
from rewards.chosen import chosen
from rewards.dare.prediction import mismatch
from rewards.task import RIGHT, Score, Task, TaskError, read_tasks, with_absolute_files
from rollouts.dare.failures import CATEGORIES, category
from rollouts.prompts import ChatTokenizer
from rollouts.room import room_for
from rollouts.sampler import Plan
from rollouts.trajectory import Trajectory
from train.evaluation.contract import (
    HELDOUT,
    Benchmark,
    Found,
    Opened,
    Row,
    all_heldout,
    budget_of,
    published_room,
    splits_of,
)
from train.evaluation.drawing import even_draw
from train.evaluation.results import number
from train.evaluation.stats import mean_interval
from train.evaluation.tables import ends, mean, source

RELEASE = "Snowflake/dare-bench"  # the data set's name on the hub
INDEX, IDS = "index.jsonl", "ids.txt"
MESSAGE_TOKENS = 16_384  # of one message: the published setting
TRACKS = ("class-IF", "class-MM", "reg-IF", "reg-MM", "time-XF", "time-CF")


def options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("DARE-bench (--tasks dare:DIR)")
    group.add_argument("--only", default="", help="tracks, comma-separated")
    group.add_argument(
        "--simulate", action="store_true", help="make IF answers in this environment"
    )


def open_folder(rest: str, args: Any) -> Opened:
    """`dare:PLACE`: a file of tasks, a folder of `assay tasks dare`, or a copy of the release."""
    if not rest:
        raise TaskError(f"--tasks dare:: wanted dare:PLACE, such as dare:{RELEASE}")
    tasks, root = tasks_of(rest, args)
    tasks = [t for t in tasks if not args.only or t.track in args.only.split(",")]
    if not tasks:
        raise TaskError(f"--tasks dare:{rest}: no task is left; look at --only")
    stale = stale_gold(tasks)
    return Opened(
        [with_absolute_files(task, root) for task in tasks],
        notes={"gold_of_other_versions": stale},
        heldout=all_heldout(tasks),
        split=splits_of(rest, tasks),
        said=[f"gold made with {note}; --simulate makes it again" for note in stale],
    )


def tasks_of(place: str, args: Any) -> tuple[list[Task], Path]:
    """(tasks, the folder their files are relative to). Of a copy of the release only the tasks that
    will be asked are imported, into `tasks/` of the run's folder."""
    folder = Path(place)
    listed = folder if folder.suffix in (".jsonl", ".gz", ".zst") else folder / "tasks.jsonl"
    own = folder / HELDOUT  # of a build of our own
    if not listed.is_file() and own.is_file() and own.stat().st_size:
        listed = own
    if listed.is_file() and not args.simulate:
        return read_tasks(listed), listed.parent
    made = args.out / "tasks"
    if listed.is_file():
        _run("--remake", str(listed.resolve()), "--out", str(made.resolve()))
        return read_tasks(made / "tasks.jsonl"), made
    what = ["--import", str(folder.resolve()) if folder.exists() else place]
    what += ["--out", str(made.resolve()), *(["--strict"] if args.strict else [])]
    what += ["--simulate"] if args.simulate else []
    if args.limit or args.only or chosen(args):
        _run(*what, "--list")
        some = [
            t for t in read_tasks(made / INDEX) if not args.only or t.track in args.only.split(",")
        ]
        some = even_draw(chosen(args).of(some, f"--tasks dare:{place}"), args.limit, args.seed)
        write_text(made / IDS, "".join(f"{task.id}\n" for task in some))
        what += ["--ids", str((made / IDS).resolve())]
    _run(*what)
    return read_tasks(made / "tasks.jsonl"), made


def _run(*words: str) -> None:
    """`assay tasks dare` with these words, which says itself what is wrong."""
    command = [sys.executable, "-m", "assay", "tasks", "dare", *words]
    if subprocess.run(command, check=False).returncode:
        raise TaskError(f"{words[1]}: the tasks could not be made; see above")


def stale_gold(tasks: Sequence[Task]) -> list[str]:
    """How the versions that IF answers were made with differ from those here."""
    made: list[dict[str, str]] = [t.gold.get("made_with") or {} for t in tasks]
    return sorted({mismatch(m) for m in made} - {""})


def plan(task: Task, args: Any, tokenizer: ChatTokenizer | None) -> Plan:
    room: int = args.max_new_tokens
    if not room and tokenizer is None:
        room = room_for(task, None, MESSAGE_TOKENS)
    elif not room and tokenizer is not None:
        room = published_room(task, args, tokenizer, MESSAGE_TOKENS)
    return Plan(room, budget_of(args))


def more(task: Task, run: Trajectory, score: Score, args: Any) -> Row:
    """What the tables need beyond a generic row."""
    return {
        "errors": dict(run.errors),
        "files": {name: len(data) for name, data in sorted(run.files.items())},
        "failure_category": category(task, run, score),
    }


def by_track(rows: Sequence[Row], seed: int = 0) -> dict[str, dict[str, Any]]:
    """Per track: mean outcome in percent over attempts, the model's crashes included; how many are
    exact, with a 95 % interval clustered by table (None for a single one with both kinds); how many
    attempts had a file, a usable one, and the mean over those. An attempt without an outcome (its
    infrastructure broke) counts nowhere but in `no_outcome`."""
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
            "score": 100 * fmean(scores) if scores else None,
            "exact": int(sum(right)),
            "exact_interval": interval and [100 * v for v in interval],
            "exists": sum(bool(r["parts"].get("exists")) for r in rated),
            "usable": len(usable),
            "score_of_usable": 100 * fmean(usable) if usable else None,
            "no_outcome": len(mine) - len(rated),
            "tokens": mean(r["tokens_out"] for r in mine),
            "tool_calls": fmean(r["tool_calls"] for r in mine),
            "turns": fmean(r["turns"] for r in mine),
        }
    return out


def totals(tracks: Mapping[str, Mapping[str, Any]], rows: Sequence[Row]) -> dict[str, Any]:
    """Total cannot be reproduced from the paper (spec 8.5), so both plain readings are given:
    the mean of the tracks and the mean weighted by tasks. Model-Perf likewise, over modelling
    attempts whose file exists, and over those that score above 0."""
    modelling = [r for r in rows if not r["track"].endswith("-IF") and r["outcome"] is not None]
    exists = [float(r["outcome"]) for r in modelling if r["parts"].get("exists")]
    above = [v for v in exists if v > 0]
    scored = [t for t in tracks.values() if t["score"] is not None]
    weight = sum(t["tasks"] for t in scored)
    return {
        "total_mean_of_tracks": fmean(t["score"] for t in scored) if scored else None,
        "total_weighted_by_tasks": (
            sum(t["score"] * t["tasks"] for t in scored) / weight if scored else None
        ),
        "model_perf_file_exists": 100 * fmean(exists) if exists else None,
        "model_perf_above_zero": 100 * fmean(above) if above else None,
        "failure_categories": {
            c: sum(r["more"]["failure_category"] == c for r in rows) for c in CATEGORIES
        },
        "call_errors": dict(
            sorted(sum((Counter(r["more"]["errors"]) for r in rows), Counter()).items())
        ),
    }


def text_table(tracks: Mapping[str, Mapping[str, Any]], total: Mapping[str, Any]) -> str:
    """Markdown."""
    names = (
        "track",
        "tasks",
        "attempts",
        "score",
        "exact [95 %]",
        "usable",
        "of usable",
        "tokens",
        "calls",
    )
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for name, t in tracks.items():
        exact = str(t["exact"])
        if t["exact_interval"]:
            exact += " [{:.1f}, {:.1f}]".format(*t["exact_interval"])
        lines.append(
            f"| {name} | {t['tasks']} | {t['attempts']} | {_two(t['score'])} | {exact} "
            f"| {t['usable']} | {_two(t['score_of_usable'])} | "
            f"{number(t['tokens'], '{:.0f}')} | {t['tool_calls']:.2f} |"
        )
    shown = ", ".join(f"{k} {v}" for k, v in total["failure_categories"].items())
    perf = [total["model_perf_file_exists"], total["model_perf_above_zero"]]
    said = " / ".join(map(_two, perf))
    return "\n".join(
        [
            *lines,
            f"\nTotal: {_two(total['total_mean_of_tracks'])} (mean of tracks), "
            f"{_two(total['total_weighted_by_tasks'])} (weighted by tasks). "
            f"Model-Perf: {said} (file exists / score above 0).",
            f"Failures: {shown}. Call errors: {json.dumps(total['call_errors'])}",
        ]
    )


def _two(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def tables(tasks: Sequence[Task], rows: Sequence[Row], out: Path, args: Any) -> Found:
    """Numbers by track and in all, and `table.md`."""
    tracks = by_track(rows, args.seed)
    total = totals(tracks, rows)
    text = text_table(tracks, total)
    write_text(out / "table.md", text + "\n")
    return Found({"tracks": tracks, **total}, text)


BENCHMARK = Benchmark(
    open=open_folder,
    options=options,
    plan=plan,
    more=more,
    tables=tables,
)
