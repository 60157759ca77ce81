"""`assay eval --tracks dare:DIR`: repeats, and tables like DARE-bench's 5, 6, 9 and 12.

DIR is a tasks file (`T/heldout.jsonl`), or holds `tasks.jsonl`, or the official format, which
`assay tasks dare --import` then turns into one. The model is a folder, an endpoint's URL, or a
scripted solver (`solver:NAME`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from configs.schema import EngineConfig, ToolsConfig
from rewards.dare.family import TableReward
from rewards.dare.prediction import mismatch
from rewards.families import score_answer
from rewards.seeds import derive_seed
from rewards.task import RIGHT, Score, Task, TaskError, read_tasks, write_jsonl
from rollouts.dare.failures import CATEGORIES, category
from rollouts.environment import Budget
from rollouts.episode import rollout, to_json
from rollouts.trajectory import Sampling, Trajectory
from rollouts.workshop import Workshop, run_now, tool_settings
from train.evaluation.stats import wilson
from train.run.errors import say_known_errors, say_unscored

LOCAL_TOKENS, ENDPOINT_TOKENS = 4096, 16384  # of one message; the latter is the published setting
TRACKS = ("class-IF", "class-MM", "reg-IF", "reg-MM", "time-XF", "time-CF")
Row = dict[str, Any]


def tasks_of(folder: Path, out: Path, simulate: bool) -> tuple[list[Task], Path]:
    """(tasks, the folder their files are relative to)."""
    listed = folder if folder.is_file() else folder / "tasks.jsonl"
    if listed.is_file() and not simulate:
        return read_tasks(listed), listed.parent
    if not listed.is_file() and not (folder / "question_list.json").is_file():
        raise TaskError(f"{folder}: neither tasks.jsonl nor question_list.json is there")
    made = out / "tasks"
    what = (
        ["--remake", str(listed.resolve())]
        if listed.is_file()
        else ["--import", str(folder.resolve()), *(["--simulate"] if simulate else [])]
    )
    command = [sys.executable, "-m", "assay", "tasks", "dare", *what, "--out", str(made.resolve())]
    if subprocess.run(command, check=False).returncode:
        raise TaskError(f"{folder}: the tasks could not be made; see above")
    return read_tasks(made / "tasks.jsonl"), made


def stale_gold(tasks: Sequence[Task]) -> list[str]:
    """How the versions that IF answers were made with differ from those here."""
    made: list[dict[str, str]] = [t.gold.get("made_with") or {} for t in tasks]
    return sorted({mismatch(m) for m in made} - {""})


def row_of(task: Task, trajectory: Trajectory, score: Score, repeat: int) -> Row:
    """What the tables are computed from, with the conversation."""
    return to_json(trajectory, score, task) | {
        "repeat": repeat,
        "prompt_tokens": trajectory.usage.get("prompt_tokens", trajectory.prompt_length),
        "failure_category": category(task, trajectory, score),
    }


def by_track(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Per track: mean outcome in percent over attempts, the model's crashes included; an interval
    over them; how many attempts had a file, a usable one, and the mean over those. An attempt
    without an outcome (its infrastructure broke) counts nowhere but in `no_outcome`."""
    out: dict[str, dict[str, Any]] = {}
    for track in [*TRACKS, *sorted({r["track"] for r in rows} - set(TRACKS))]:
        mine = [r for r in rows if r["track"] == track]
        if not mine:
            continue
        rated = [r for r in mine if r["outcome"] is not None]
        scores = [float(r["outcome"]) for r in rated]
        usable = [float(r["outcome"]) for r in rated if r["parts"].get("usable")]
        exact = sum(s >= RIGHT for s in scores)
        out[track] = {
            "tasks": len({r["task_id"] for r in mine}),
            "attempts": len(mine),
            "score": 100 * fmean(scores) if scores else None,
            "exact": exact,
            "exact_interval": [100 * v for v in wilson(exact, len(rated))[1:]],
            "exists": sum(bool(r["parts"].get("exists")) for r in rated),
            "usable": len(usable),
            "score_of_usable": 100 * fmean(usable) if usable else None,
            "no_outcome": len(mine) - len(rated),
            "tokens": fmean(r["tokens"] for r in mine),
            "tool_calls": fmean(len(r["tool_calls"]) for r in mine),
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
            c: sum(r["failure_category"] == c for r in rows) for c in CATEGORIES
        },
        "call_errors": dict(sorted(sum((Counter(r["errors"]) for r in rows), Counter()).items())),
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
        low, high = t["exact_interval"]
        lines.append(
            f"| {name} | {t['tasks']} | {t['attempts']} | {_two(t['score'])} | {t['exact']} "
            f"[{low:.1f}, {high:.1f}] | {t['usable']} | {_two(t['score_of_usable'])} | "
            f"{t['tokens']:.0f} | {t['tool_calls']:.2f} |"
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


def run(args: Any) -> int:
    """The command: answers, `rows.jsonl`, `results.json`, `table.md`; its exit status."""
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    tasks, root = tasks_of(Path(args.tracks.partition(":")[2]), out, args.simulate)
    tasks = [t for t in tasks if not args.only or t.track in args.only.split(",")]
    tasks = tasks[: args.limit or None]
    if not tasks:
        raise TaskError(f"--tracks {args.tracks}: no task is left; look at --only and --limit")
    for note in (stale := stale_gold(tasks)):
        print(f"assay eval: gold made with {note}; --simulate makes it again", file=sys.stderr)
    budget = Budget(args.turns, args.turns * args.run_s, args.max_length)
    tools = ToolsConfig(calls=args.calls, run_s=args.run_s, brief=args.brief)
    shop = Workshop(root, tool_settings(tools, budget))
    longest = args.max_new_tokens or (ENDPOINT_TOKENS if _remote(args.model) else LOCAL_TOKENS)
    sampling = Sampling(longest, args.temperature, args.top_k, args.top_p)
    rows: list[Row] = []
    for repeat in range(args.repeats):
        key = derive_seed(args.seed, "repeat", repeat)
        groups = answers(args, tasks, sampling, key, shop, budget)
        for task, (found,) in zip(tasks, groups, strict=True):
            score = score_answer(task, found.answer(), {"table": TableReward(args.reading)})
            rows.append(row_of(task, found, score, repeat))
    tracks = by_track(rows)
    total = totals(tracks, rows)
    write_jsonl(out / "rows.jsonl", rows)
    meta = {k: str(v) if isinstance(v, Path) else v for k, v in sorted(vars(args).items())}
    results = {"settings": meta, "tracks": tracks, "gold_of_other_versions": stale, **total}
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    text = text_table(tracks, total)
    (out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(f"{text}\nresults: {out / 'results.json'}")
    return say_unscored(rows, "task_id", "attempts")


def answers(
    args: Any, tasks: Sequence[Task], sampling: Sampling, seed: int, shop: Workshop, budget: Budget
) -> list[list[Trajectory]]:
    """One trajectory a task, from whatever the model is."""
    from train.run.progress import Bar

    with Bar("evaluating", len(tasks)) as bar:
        if _remote(args.model):
            return run_now(_endpoint(args, tasks, sampling, seed, shop, budget, bar))
        engine, tokenizer = _engine(args, tasks)
        found: list[list[Trajectory]] = []
        for at in range(0, len(tasks), args.chunk):
            part = tasks[at : at + args.chunk]
            step = rollout(
                part, engine, tokenizer, sampling, 1, seed, maker=shop.maker, budget=budget
            )
            found += run_now(step)
            bar.update(len(part))
        return found


def _remote(model: str) -> bool:
    return model.startswith(("http://", "https://"))


def _engine(args: Any, tasks: Sequence[Task]) -> tuple[Any, Any]:
    from rollouts.prompts import ChatTokenizer
    from train.model.source import resolve_model
    from train.run.setup import load_checked, prepare

    if args.model.startswith("solver:"):
        from rollouts.engines.scripted import ScriptedEngine
        from rollouts.solvers import script

        folder = Path(args.tokenizer) if args.tokenizer else resolve_model(None)
        tokenizer = ChatTokenizer(folder, args.calls)
        name = args.model.partition(":")[2]
        return ScriptedEngine(script(name, tasks, tokenizer.calls), tokenizer), tokenizer
    config = EngineConfig(threads=args.threads)
    machine = prepare(config)
    folder = resolve_model(args.model)
    tokenizer = ChatTokenizer(folder, args.calls)
    policy = load_checked(folder, config, machine, train=False)
    return policy.engine(tokenizer.stop_ids, config.slots), tokenizer


async def _endpoint(
    args: Any,
    tasks: Sequence[Task],
    sampling: Sampling,
    seed: int,
    shop: Workshop,
    budget: Budget,
    bar: Any,
) -> list[list[Trajectory]]:
    from rollouts.chat_rollout import chat_rollout
    from rollouts.engines.openai import OpenAIEngine

    async with OpenAIEngine(args.model, args.endpoint_model, calls=args.calls) as engine:
        return await chat_rollout(
            tasks,
            engine,
            sampling,
            1,
            seed,
            maker=shop.maker,
            budget=budget,
            on_done=lambda: bar.update(1),
        )


def main(argv: list[str]) -> int:
    """`assay eval --tracks dare:DIR`; exit status 0, 2 with one sentence, or 3 when some attempts
    have no outcome."""
    parser = argparse.ArgumentParser(prog="assay eval", description=__doc__)
    add_options(parser)
    args = parser.parse_args(argv)
    with say_known_errors("assay eval") as status:
        status.code = run(args)
    return status.code


def add_options(group: argparse.ArgumentParser) -> None:
    group.add_argument("--model", required=True, help="folder, hub name, URL or solver:NAME")
    group.add_argument("--tracks", required=True, help="dare:DIR")
    group.add_argument("--out", required=True, type=Path, help="folder for results")
    group.add_argument("--limit", type=int, default=0, help="first N tasks only")
    group.add_argument(
        "--max-new-tokens",
        type=int,
        default=0,
        metavar="N",
        help=f"of one message (0: {LOCAL_TOKENS}; at an endpoint "
        f"{ENDPOINT_TOKENS}, the published setting)",
    )
    group.add_argument("--seed", type=int, default=0)
    group.add_argument("--repeats", type=int, default=1, help="attempts a task (paper: 3)")
    group.add_argument("--reading", choices=("strict", "release"), default="strict")
    group.add_argument("--only", default="", help="tracks, comma-separated")
    group.add_argument("--turns", type=int, default=5)
    group.add_argument("--run-s", type=float, default=200.0, help="seconds of one tool run")
    group.add_argument("--max-length", type=int, default=0, help="tokens of an episode; 0: any")
    group.add_argument("--temperature", type=float, default=0.0)
    group.add_argument("--top-p", type=float, default=1.0)
    group.add_argument("--top-k", type=int, default=0)
    group.add_argument("--calls", default="hermes", help="how the model spells tool calls")
    group.add_argument("--brief", action="store_true", help="a short description of the tool")
    group.add_argument(
        "--simulate", action="store_true", help="make IF answers in this environment"
    )
    group.add_argument("--endpoint-model", default="default", help="model name for an endpoint")
    group.add_argument("--tokenizer", help="folder whose tokenizer a solver:NAME speaks through")
    group.add_argument("--chunk", type=int, default=64, help="episodes side by side")
    group.add_argument("--threads", type=int, default=0)
