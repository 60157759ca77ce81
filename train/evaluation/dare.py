# Rows here are parsed JSON, and pandas ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""DARE-bench: `dare:PLACE` opened as tasks, asked and recorded, and the paper's tables 5, 6, 9 and
12 from generic rows, in both readings of the scorer.

PLACE is a tasks file (`T/heldout.jsonl`), or holds `tasks.jsonl`, or what `assay tasks dare` built
(then `heldout.jsonl` is asked), or a copy of the release (its checkout, `data/eval`, its
`question_list.json`, or the hub's data set by name), which `assay tasks dare --import` then turns
into one.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from assay.family import score_answer
from assay.files import write_text
from assay.task import RIGHT, Score, Task, TaskError, read_tasks, with_absolute_files
from rewards.dare.read import ReaderLost, Unreadable, read_prediction
from rewards.dare.score import FILE, mismatch, read_gold
from rewards.weights import TableReward
from rollouts.prompts import ChatTokenizer, room_for
from rollouts.sampler import Plan
from rollouts.trajectory import Trajectory
from train.evaluation.benchmarks import (
    HELDOUT,
    Benchmark,
    Command,
    Evaluation,
    Found,
    Opened,
    Row,
    acted_on,
    agents_budget,
    all_heldout,
    build_tasks,
    in_words,
    published_room,
    splits_of,
)
from train.evaluation.run import even_draw
from train.evaluation.stats import mean_interval
from train.evaluation.tables import ends, markdown, mean, number, source

RELEASE = "Snowflake/dare-bench"  # the data set's name on the hub
INDEX, IDS = "index.jsonl", "ids.txt"
MESSAGE_TOKENS = 16_384  # of one message: the published setting


def open_folder(rest: str, command: Evaluation) -> Opened:
    """`dare:PLACE`: a file of tasks, a folder of `assay tasks dare`, or a copy of the release."""
    if not rest:
        raise TaskError(f"--tasks dare:: wanted dare:PLACE, such as dare:{RELEASE}")
    tasks, root = tasks_of(rest, command)
    tasks = of_tracks(tasks, command)
    if not tasks:
        raise TaskError(f"--tasks dare:{rest}: no task is left; look at dare.only")
    stale = stale_gold(tasks)
    return Opened(
        acted_on([with_absolute_files(task, root) for task in tasks], command, "dare:"),
        notes={"gold_of_other_versions": stale},
        heldout=all_heldout(tasks),
        split=splits_of(rest, tasks),
        said=[f"gold made with {note}; dare.simulate=true makes it again" for note in stale],
    )


def of_tracks(tasks: Sequence[Task], command: Evaluation) -> list[Task]:
    """Those of the tracks that `dare.only` names."""
    only = command.dare.only
    return [task for task in tasks if not only or task.track in only.split(",")]


def tasks_of(place: str, command: Evaluation) -> tuple[list[Task], Path]:
    """(tasks, the folder their files are relative to). Of a copy of the release only the tasks that
    will be asked are imported, into `tasks/dare/` of the run's folder."""
    folder = Path(place)
    listed = folder if folder.suffix in (".jsonl", ".gz", ".zst") else folder / "tasks.jsonl"
    own = folder / HELDOUT  # of a build of our own
    if not listed.is_file() and own.is_file() and own.stat().st_size:
        listed = own
    if listed.is_file() and not command.dare.simulate:
        return read_tasks(listed), listed.parent
    made = command.out / "tasks" / "dare"
    if listed.is_file():
        words = ("--remake", str(listed.resolve()), "--out", str(made.resolve()))
        build_tasks(str(listed), "dare", *words)
        return read_tasks(made / "tasks.jsonl"), made
    what = ["--import", str(folder.resolve()) if folder.exists() else place]
    what += ["--out", str(made.resolve()), *(["--strict"] if command.strict else [])]
    what += ["--simulate"] if command.dare.simulate else []
    if command.limit or command.dare.only or command.chosen:
        build_tasks(place, "dare", *what, "--list")
        some = of_tracks(read_tasks(made / INDEX), command)
        some = command.chosen.select(some, f"--tasks dare:{place}")
        some = even_draw(some, command.limit, command.seed)
        write_text(made / IDS, "".join(f"{task.id}\n" for task in some))
        what += ["--ids", str((made / IDS).resolve())]
    build_tasks(place, "dare", *what)
    return read_tasks(made / "tasks.jsonl"), made


def stale_gold(tasks: Sequence[Task]) -> list[str]:
    """How the versions that IF answers were made with differ from those here."""
    made: list[dict[str, str]] = [t.gold.get("made_with") or {} for t in tasks]
    return sorted({mismatch(m) for m in made} - {""})


def plan(task: Task, command: Command, tokenizer: ChatTokenizer | None) -> Plan:
    room: int = command.sampling.max_new_tokens
    if not room and tokenizer is None:
        room = room_for(task, None, MESSAGE_TOKENS)
    elif not room and tokenizer is not None:
        room = published_room(task, command, tokenizer, MESSAGE_TOKENS)
    return Plan(room, agents_budget(task, command))


def more(task: Task, run: Trajectory, score: Score, command: Evaluation) -> Row:
    """What the tables need beyond a generic row; the file's outcome in both readings."""
    readings = {
        name: score_answer(task, run.answer(), {task.family: TableReward(name)}).outcome
        for name in READINGS
    }
    return {
        "readings": readings,
        **competition(task, run, command.dare.dsbench),
        "errors": dict(run.errors),
        "failure_category": category(task, run, score),
    }


def tables(tasks: Sequence[Task], rows: Sequence[Row], out: Path, command: Evaluation) -> Found:
    """Numbers by track and in all, and `table.md`."""
    tracks = by_track(rows, command.seed)
    total = totals(tracks, rows)
    cost = costs(rows, _question_tokens(tasks, command))
    text = "\n\n".join(filter(None, [text_tables(tracks, total, cost), competitions_line(rows)]))
    text = in_words(text, tasks, command)
    write_text(out / "table.md", text + "\n")
    return Found({"tracks": tracks, **total, "costs": cost}, text)


def _question_tokens(tasks: Sequence[Task], command: Evaluation) -> dict[str, int]:
    """Tokens of each question by `server.tokenizer`, else by the model's own; {} where there is
    none."""
    folder = Path(command.server.tokenizer or command.who).expanduser()
    if not (folder / "tokenizer_config.json").is_file():
        return {}
    tokenizer = ChatTokenizer(folder)
    asked = {task.id: "\n".join(message["content"] for message in task.prompt) for task in tasks}
    return {name: len(tokenizer.encode(text)) for name, text in asked.items()}


# --- DSBench's own number of its data-modelling competitions, by the scripts of the user's copy ---

# A competition's script (`evaluation/NAME_eval.py`) scores the submission; the score is then the
# share of the way from the baseline's to the best one, `max(0, (s - b) / (g - b))`, both of which
# the copy has under `save_performance`. A competition without a submission that can be scored has
# 0. The prediction was parsed in the confined process before; the scripts see a file of our own.
SECONDS = 300.0


def competition(task: Task, run: Trajectory, copy: str | None) -> Row:
    """The competition of a task, and DSBench's own number where its copy is at hand."""
    if "competition" not in task.meta:
        return {}
    row: Row = {"competition": task.meta["competition"]}
    if copy and run.failure is None:
        row["relative_gap"] = relative_gap(Path(copy), task, run.files.get(FILE))
    return row


def relative_gap(home: Path, task: Task, prediction: bytes | None) -> float | None:
    """DSBench's number of a competition's prediction file; None where the reader broke down.

    Raises `TaskError` for a copy that lacks what the competition needs.
    """
    name = str(task.meta["competition"])
    best, base = (_kept(home / "save_performance" / kind / name) for kind in ("GT", "baseline"))
    answers = home / "data" / "answers" / name / "test_answer.csv"
    script = home / "evaluation" / f"{name}_eval.py"
    for path in (answers, script):
        if not path.is_file():
            said = f"dare.dsbench={home}: {path} is not there"
            raise TaskError(f"{said}; give DSBench's data_modeling")
    if prediction is None:
        return 0.0
    try:
        frame = _submission(task, prediction, answers)
    except ReaderLost:
        return None
    except (Unreadable, KeyError, ValueError):
        return 0.0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / name).mkdir()
        frame.to_csv(work / "submission.csv", index=False)
        words = ["--answer_file", answers.resolve(), "--predict_file", work / "submission.csv"]
        words += ["--path", work, "--name", name]
        try:
            subprocess.run(
                [sys.executable, str(script.resolve()), *map(str, words)],
                cwd=work,
                timeout=SECONDS,
                check=False,
                capture_output=True,
            )
            score = float((work / name / "result.txt").read_text("utf-8"))
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return 0.0
    return 0.0 if math.isnan(score) else max(0.0, (score - base) / (best - base))


def _kept(folder: Path) -> float:
    """A score that DSBench's copy keeps."""
    try:
        return float((folder / "result.txt").read_text("utf-8"))
    except (OSError, ValueError):
        raise TaskError(
            f"dare.dsbench: {folder}/result.txt holds no number; unpack save_performance.zip there"
        ) from None


def _submission(task: Task, prediction: bytes, answers: Path) -> Any:
    """The prediction under the competition's own key, in the order of its answers: its script
    compares row by row."""
    import pandas as pd

    gold = read_gold(task.gold)
    said = read_prediction(prediction, (*gold.key_columns, *gold.targets))
    keys = pd.read_csv(task.files["val_v2.csv"])[["row_id", task.meta["key"]]]
    found = keys.merge(said[["row_id", *gold.targets]], on="row_id", validate="one_to_one")
    wanted = pd.read_csv(answers)[[task.meta["key"]]]
    return wanted.merge(found.drop(columns="row_id"), on=task.meta["key"], how="left")


def competitions_line(rows: Sequence[Row]) -> str:
    """What is said of competitions, "" where there are none."""
    mine = [row for row in rows if row["more"].get("competition")]
    if not mine:
        return ""
    scores = [float(row["outcome"]) for row in mine if row["outcome"] is not None]
    gaps = [g for row in mine if (g := row["more"].get("relative_gap")) is not None]
    own = f"{100 * fmean(gaps):.2f}" if gaps else "– (dare.dsbench=DIR)"
    names = len({row["more"]["competition"] for row in mine})
    shown = f"{100 * fmean(scores):.2f}" if scores else "–"
    return (
        f"DSBench, {names} competitions: mean over competitions {shown} by DARE-bench's metric; "
        f"by DSBench's own number {own}"
    )


# --- tables --------------------------------------------------------------------------------------

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


BENCHMARK = Benchmark(
    open=open_folder,
    plan=plan,
    more=more,
    tables=tables,
)
