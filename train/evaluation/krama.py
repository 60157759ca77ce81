# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""KramaBench: `krama:PLACE` opened as tasks of an agent over data lakes, and its tables.

PLACE is a checkout of the release or a workload file of it (which `assay tasks krama --import` then
turns into tasks, its lakes left in place), a folder of `assay tasks krama`, or a file of tasks.

End-to-end (the answer), pipeline design (whether the code covers the key functionalities, by an
endpoint's verdicts), sub-tasks (each asked on its own). Tables by domain and overall, over tasks as
published, in both readings, with tokens and minutes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.family import family_of, without_thoughts
from assay.files import write_text
from assay.http_client import ChatEndpoint
from assay.task import Score, Task, TaskError, read_tasks, with_absolute_files
from rewards.krama.episode import ANSWER, PIPELINE, read_text
from rewards.krama.failure import category
from rewards.krama.judge import KEY_ENV, JudgeError, judge_of, judged_coverage
from rewards.krama.release import harness
from rollouts.prompts import ChatTokenizer
from rollouts.room import MESSAGE, room_for
from rollouts.sampler import Plan
from rollouts.trajectory import UNTOLD, Trajectory
from train.evaluation.benchmarks import (
    HELDOUT,
    OTHER_AGENTS,
    Benchmark,
    Found,
    Opened,
    Row,
    all_heldout,
    budget_of,
    build_tasks,
    in_words,
    splits_of,
)
from train.evaluation.krama_tables import over_published, summary, text_tables
from train.evaluation.rows import prompt_tokens

AGENTS = {
    "ds-guru-no-context": ("ds_guru_no_context", 1),
    "ds-guru-one-shot": ("ds_guru_one_shot", 1),
    "ds-guru-few-shot": ("ds_guru_few_shot", 5),
    # messages, as the paper's iterative system has at most
    "lake-agent": ("lake_agent", 20),
    "lake-script": ("lake_script", 1),
    **OTHER_AGENTS,
}
DEFAULT = "ds-guru-few-shot"
TURNS = dict(AGENTS.values())
SETTINGS = ("end-to-end", "subtasks")
SECONDS = 3600.0  # that tools of one episode may run


def open_folder(rest: str, args: Any) -> Opened:
    """`krama:PLACE`. Raises `TaskError`."""
    settings = [s.strip() for s in args.settings.split(",") if s.strip()]
    if unknown := [s for s in settings if s not in SETTINGS]:
        raise TaskError(f"krama.settings={unknown[0]!r}: wanted {', '.join(SETTINGS)}")
    if not rest:
        raise TaskError("--tasks krama:: wanted krama:PLACE, such as the release's checkout")
    folder, said = _built(Path(rest), args)
    agent = args.agent or DEFAULT
    tool, _ = AGENTS[agent]
    root = folder.parent if folder.is_file() else folder
    found = [t for part in load_tracks(folder, settings, args.doubted).values() for t in part]
    return Opened(
        [replace(with_absolute_files(task, root), tools=(tool,)) for task in found],
        heldout=all_heldout(found),
        split=splits_of(rest, found),
        said=said,
        notes={"agent": agent, "settings": settings, "doubted": args.doubted},
    )


def _built(place: Path, args: Any) -> tuple[Path, list[str]]:
    """(what `load_tracks` reads, lines about it): the place itself, or tasks made of a copy of the
    release there, beside the results."""
    own = place.is_file() and place.suffix != ".json"
    if own or any((place / name).is_file() for name in ("tasks.jsonl", HELDOUT)):
        if args.input_mode or args.subtask_mode:
            raise TaskError(
                f"--tasks krama:{place}: these tasks are made already; give krama.input_mode "
                "and krama.subtask_mode with the release's checkout, or --mode to `assay tasks "
                "krama`"
            )
        return place, []
    made = args.out / "krama"
    words = ["krama", "--import", str(place), "--out", str(made)]
    words += ["--mode", args.input_mode or "full"]
    words += ["--subtask-mode", args.subtask_mode] if args.subtask_mode else []
    words += ["--strict"] if args.strict else []
    build_tasks(f"--tasks krama:{place}", *words, quiet=True)
    manifest: Row = json.loads((made / "manifest.json").read_text("utf-8"))
    return made, list(manifest["said"])


def plan(task: Task, args: Any, tokenizer: ChatTokenizer | None) -> Plan:
    turns = max((_turns(tool, args) for tool in task.tools), default=0)
    budget = budget_of(args, turns or 5, SECONDS)
    return Plan(args.max_new_tokens or room_for(task, tokenizer, MESSAGE), budget)


def _turns(tool: str, args: Any) -> int:
    return args.tries if tool == "ds_guru_few_shot" else TURNS.get(tool, 0)


def rewards(args: Any) -> Mapping[str, Mapping[str, Any]]:
    """The judge of paraphrases, where one is named."""
    if not args.judge_url:
        return {}
    return {"answer": {"judge_url": args.judge_url, "judge_model": args.judge_model}}


def more(task: Task, run: Trajectory, score: Score, args: Any) -> Row:
    """What the tables need beyond a generic row: answer, cause of failure, the published harness's
    score, design of the pipeline, cost."""
    left: Row = json.loads(run.files[ANSWER]) if ANSWER in run.files else _in_words(task, run)
    code = run.files.get(PIPELINE, b"").decode("utf-8", "replace")
    response = left.get("response") or {}
    ended, files = str(run.notes.get("ended", "")), task.meta.get("gold_files") or []
    whole = not task.meta.get("parent")
    answer = response.get("answer")
    row: Row = {
        "domain": str(task.meta.get("domain") or ""),
        "setting": SETTINGS[0] if whole else SETTINGS[1],
        "parent": task.meta.get("parent"),
        "difficulty": task.meta.get("difficulty"),
        "doubt": str(task.gold.get("doubt") or ""),
        "mode": task.meta.get("mode"),
        "category": category(task.gold, answer, score.outcome, ended, code, files),
        "answer": answer,
        "cost": _cost(run),
        "notes": dict(run.notes),
    }
    if run.failure is None:
        judge = judge_of(args.judge_url, args.judge_model)
        kind, target = str(task.gold["answer_type"]), task.gold["answer"]
        row["release"] = harness(kind, target, left.get("published"), judge)
        row["design_judged"] = _design(task, code, args) if whole else None
    return row


def _in_words(task: Task, run: Trajectory) -> Row:
    """The answer of a task without an environment; both readings see it."""
    said = read_text(without_thoughts(family_of(task), task, run.answer()).text)
    return {"response": said, "published": said}


def _design(task: Task, code: str, args: Any) -> float | None:
    if not args.judge_url:
        return None
    endpoint = ChatEndpoint(args.judge_url, args.judge_model, KEY_ENV)
    try:
        steps = [str(s.get("step") or "") for s in task.gold.get("subtasks") or []]
        return judged_coverage(steps, code, endpoint)
    except JudgeError:
        return None


def _cost(run: Trajectory) -> Row:
    prompt, told = prompt_tokens(run), not run.notes.get(UNTOLD)
    return {
        "calls": run.turns,
        "prompt_tokens": prompt if told else None,
        "completion_tokens": run.sampled if told else None,
        "tokens": prompt + run.sampled if told else None,
        "seconds": round(run.wall_s, 3),
        "run_seconds": round(run.tool_s, 3),
        "model_seconds": round(max(0.0, run.wall_s - run.tool_s), 3),
    }


def load_tracks(folder: Path, settings: Sequence[str], doubted: bool) -> dict[str, list[Task]]:
    """Tasks by setting; a file of tasks (of `assay tasks lake`) has whole questions alone. Raises
    `TaskError` for what cannot be read."""
    if not folder.is_file() and not (folder / "tasks.jsonl").is_file():
        folder = folder / HELDOUT if (folder / HELDOUT).is_file() else folder
    if folder.is_file():
        return {"end-to-end": read_tasks(folder)}
    names = {"end-to-end": ["tasks"], "subtasks": ["subtasks"]}
    if doubted:
        names = {"end-to-end": ["tasks", "doubted"], "subtasks": ["subtasks", "doubted_subtasks"]}
    return {
        setting: [t for n in names[setting] for t in read_tasks(folder / f"{n}.jsonl")]
        for setting in settings
    }


def tables(tasks: Sequence[Task], rows: Sequence[Row], out: Path, args: Any) -> Found:
    """Numbers by setting and domain, and `tables.md`."""
    flat = [row["more"] | {k: row[k] for k in ("task_id", "outcome", "parts")} for row in rows]
    numbers = summary(flat, args.tries)
    meta = {
        "agent": args.agent or DEFAULT,
        "model": args.model,
        "reading": args.reading or "table3",
        "tries": args.tries,
        "rows": args.snippet_rows,
        "snippet_tokens": args.snippet_tokens,
        "over": over_published(tasks),
    }
    shown = in_words(text_tables(numbers, meta), tasks, args)
    write_text(out / "tables.md", shown + "\n" * (not shown.endswith("\n")))
    return Found({"tables": numbers, **meta}, shown)


BENCHMARK = Benchmark(
    open=open_folder,
    plan=plan,
    more=more,
    rewards=rewards,
    tables=tables,
)
